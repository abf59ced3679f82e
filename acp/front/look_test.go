package front_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/local"
)

// TestAT60_TheEditorLooks: what a script's preview reports is seen at the editor and by
// belay approvals, before anything is decided; the person then decides at the editor.
func TestAT60_TheEditorLooks(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	at := filepath.Join(s.dir, "assistant_tool.tsx")
	text, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	with := strings.Replace(string(text), `secondaryButtonLabel: "Keep"`, `secondaryButtonLabel: "Keep",
  previewButton: { label: "Show", action: async () => { AssistantTool.report("build/a.o"); await null; AssistantTool.report("build/b.o") } }`, 1)
	if err := os.WriteFile(at, []byte(with), 0o600); err != nil {
		t.Fatal(err)
	}
	e := newEditor(t, s.flags()...)
	e.open("session/new", "s_1")
	id := e.prompt("s_1", s.prompt())
	ask := e.asked()
	approvals := func(args ...string) string {
		cmd := exec.Command(os.Args[0], append([]string{"approvals"}, args...)...)
		cmd.Env = append(os.Environ(), local.EnvDir+"="+e.dir, "HOME="+e.dir, "XDG_CONFIG_HOME="+e.dir)
		cmd.Stderr = &e.logs
		out, err := cmd.Output()
		e.ok(err)
		return string(out)
	}
	var open []belay.Approval
	e.ok(json.Unmarshal([]byte(approvals("--json")), &open))
	if len(open) != 1 || open[0].Question.Preview != "Show" {
		t.Fatalf("open are %+v", open)
	}
	if seen := approvals("preview", open[0].ID.String()); seen != "build/a.o\nbuild/b.o\n" {
		t.Errorf("belay approvals shows %q", seen)
	}
	e.option(ask, `{"outcome":"selected","optionId":"preview"}`)
	again := e.again(ask)
	if text := string(again.Params); !strings.Contains(text, `build/a.o\nbuild/b.o`) || s.done.Load() != 0 {
		t.Errorf("asked again %s; it worked %d times", text, s.done.Load())
	}
	e.option(again, `{"outcome":"selected","optionId":"primary"}`)
	e.result(id)
	e.outcome(belay.Completed)
	if s.done.Load() != 1 {
		t.Errorf("it worked %d times", s.done.Load())
	}
}
