package front_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/front"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/local"
	"github.com/belayhq/belay/serve"
)

// scripts is a folder with a tool that asks before it calls its witness.
type scripts struct {
	dir  string
	host string
	url  string
	done atomic.Int32 // calls of the witness
}

func newScripts(t *testing.T) *scripts {
	t.Helper()
	s := &scripts{dir: t.TempDir()}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.done.Add(1)
		fmt.Fprint(w, "wiped")
	}))
	t.Cleanup(web.Close)
	s.url, s.host = web.URL, strings.TrimPrefix(web.URL, "http://")
	for name, text := range map[string]string{
		"assistant_tool.json": `{"id":"wipe","displayName":"Wipe","description":"Wipes.","requireApproval":true,
			"parameters":[{"name":"at","type":"string","description":"where","required":true}]}`,
		"assistant_tool.tsx": `
AssistantTool.registerApprovalRequest<{ at: string }>(async p => ({ message: "Delete the build folder?", primaryButtonLabel: "Delete", secondaryButtonLabel: "Keep" }))
AssistantTool.registerExecuteToolWithApproval<{ at: string }>(async (p, { primaryConfirmed, secondaryConfirmed }) => {
  if (!primaryConfirmed) return { success: false, message: secondaryConfirmed ? "The user kept it." : "No answer." }
  return { success: true, message: await (await fetch(p.at)).text() }
})`,
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *scripts) flags() []string {
	return []string{"--linger=20ms", "--scripts", s.dir, "--allow-host", s.host}
}

func (s *scripts) prompt() string {
	text, _ := json.Marshal(prompt{Server: "scripts", Key: "k", Tool: "wipe", Args: map[string]any{"at": s.url}, ToolCall: "tc_1", Title: "wipe (scripts MCP Server)"})
	return string(text)
}

// asked is the permission that the editor is asked, and its raw id.
func (e *editor) asked() faketool.Message {
	e.t.Helper()
	m, err := e.Notification("session/request_permission")
	e.ok(err)
	return m
}

// again is the permission that is asked after that one.
func (e *editor) again(first faketool.Message) faketool.Message {
	e.t.Helper()
	m, err := e.Await("the next permission", func(m faketool.Message) bool {
		return m.Method == "session/request_permission" && m.ID != first.ID
	})
	e.ok(err)
	return m
}

func (e *editor) option(ask faketool.Message, outcome string) {
	e.t.Helper()
	e.ok(e.Sendf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":%s}}`, ask.ID, outcome))
}

// outcome waits for the end of the scripts' call.
func (e *editor) outcome(want belay.Outcome) {
	e.t.Helper()
	var seen []belay.Info
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		list, err := e.mesh.List(e.t.Context(), belay.Filter{Ended: true, Kinds: []belay.Kind{belay.KindCall}, Server: "scripts"})
		e.ok(err)
		seen = list
		for i := range list {
			if list[i].Name == "wipe" && list[i].Outcome == want {
				return
			}
		}
	}
	e.t.Errorf("no call of the scripts ended %s: %+v", want, seen)
}

// AT-66: an agent that cannot be asked gets scripted tools, over HTTP and as a
// command; the person at the editor is asked, and what they say the script gets.
func TestAT66_TheEditorIsAsked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env     []string
		answer  string
		text    string
		outcome belay.Outcome
		done    int32
	}{
		{nil, `{"outcome":"selected","optionId":"primary"}`, "wiped", belay.Completed, 1},
		{[]string{envNoHTTP + "=1"}, `{"outcome":"selected","optionId":"primary"}`, "wiped", belay.Completed, 1},
		{nil, `{"outcome":"selected","optionId":"secondary"}`, "The user kept it.", belay.Declined, 0},
		{nil, `{"outcome":"cancelled"}`, "No answer.", belay.Declined, 0},
	} {
		t.Run(fmt.Sprint(tt.env, tt.answer), func(t *testing.T) {
			t.Parallel()
			s := newScripts(t)
			e := newEditorWith(t, tt.env, s.flags()...)
			e.open("session/new", "s_1")
			id := e.prompt("s_1", s.prompt())
			ask := e.asked()
			if text := string(ask.Params); !strings.Contains(text, `"sessionId":"s_1"`) || !strings.Contains(text, `"name":"Delete","kind":"allow_once"`) || !strings.Contains(text, "Delete the build folder?") {
				t.Errorf("asked %s", text)
			}
			if s.done.Load() != 0 {
				t.Error("it worked before it was answered")
			}
			e.option(ask, tt.answer)
			if m := e.result(id); !strings.Contains(m.Raw, `"end_turn"`) {
				t.Errorf("%s", m.Raw)
			}
			said := ""
			for _, m := range e.Messages() {
				said += m.Raw
			}
			if !strings.Contains(said, tt.text) || s.done.Load() != tt.done {
				t.Errorf("worked %d times, and the agent was told: %s", s.done.Load(), said)
			}
			e.outcome(tt.outcome)
		})
	}
}

// AT-66: an agent that can be asked is, and the editor is not.
func TestAT66_TheAgentIsAskedFirst(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	e := newEditorWith(t, []string{envElicits + "=Delete"}, s.flags()...)
	e.open("session/new", "s_1")
	e.result(e.prompt("s_1", s.prompt()))
	e.outcome(belay.Completed)
	for _, m := range e.Messages() {
		if m.Method == "session/request_permission" {
			t.Errorf("the editor was asked, too: %s", m.Raw)
		}
	}
	if s.done.Load() != 1 {
		t.Errorf("it worked %d times", s.done.Load())
	}
}

// AT-65: a Stop while the editor is asked ends the turn and the call, whether the
// editor answers the dialog first or not; the script's work is never begun.
func TestAT65_AStopWhileTheEditorIsAsked(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("dialog first: ", first), func(t *testing.T) {
			t.Parallel()
			s := newScripts(t)
			e := newEditor(t, s.flags()...)
			e.open("session/new", "s_1")
			id := e.prompt("s_1", s.prompt())
			ask := e.asked()
			if first {
				e.option(ask, `{"outcome":"cancelled"}`)
			}
			e.stop("s_1")
			if m := e.result(id); !strings.Contains(m.Raw, `"cancelled"`) {
				t.Errorf("%s", m.Raw)
			}
			e.outcome(belay.Cancelled)
			e.option(ask, `{"outcome":"selected","optionId":"primary"}`) // too late
			e.result(e.prompt("s_1", `{"Server":"none"}`))
			if s.done.Load() != 0 {
				t.Error("it worked after the Stop")
			}
		})
	}
}

// The scripts' entry is one more, under a name that no other has, in the form that
// the agent takes; without any scripts there is none.
func TestAT66_TheScriptsAreOneMoreServer(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	d := serve.Definition{Server: config.NewScripts("scripts", config.Policy{}, s.dir)}
	r := newRig(t, func(o *front.Options) {
		o.Scripts, o.Worker, o.Wrap = &d, []string{os.Args[0], "script-worker"}, []string{"--grace=1s"}
	})
	session := r.session()
	list, text, passed := r.rewrite(session, " [ ] ")
	if len(list) != 1 || list[0].Name != "scripts" || list[0].Command != os.Args[0] || strings.Join(list[0].Args[:3], " ") != "wrap --grace=1s --name=scripts" || len(list[0].Env) == 0 || len(passed) != 0 {
		t.Errorf("%s", text)
	}
	r.f.Takes(true)
	list, text, _ = r.rewrite(session, array(`{"name":"scripts","command":"x","args":[],"env":[]}`))
	if len(list) != 2 || list[1].Name != "scripts-2" || list[1].Type != "http" || !strings.HasPrefix(list[1].URL, "http://127.0.0.1:") || len(list[1].Headers) != 0 {
		t.Errorf("%s", text)
	}
	again, _, _ := r.rewrite(session, array(`{"name":"scripts","command":"x","args":[],"env":[]}`))
	other, _, _ := r.rewrite(r.session(), "[]")
	if again[1].URL != list[1].URL || other[0].URL == list[1].URL {
		t.Errorf("the same session: %s and %s; another: %s", list[1].URL, again[1].URL, other[0].URL)
	}
	if !r.f.Adds() || newRig(t).f.Adds() {
		t.Error("whether there are scripts")
	}
}

// AT-66: what the editor is asked is listed by belay approvals, too, and answered
// there; the editor's dialog is then withdrawn.
func TestAT66_BelayApprovalsBesideTheEditor(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	e := newEditor(t, s.flags()...)
	e.open("session/new", "s_1")
	id := e.prompt("s_1", s.prompt())
	ask := e.asked()
	approvals := func(args ...string) (list []belay.Approval, err error) {
		cmd := exec.Command(os.Args[0], append([]string{"approvals"}, args...)...)
		cmd.Env = append(os.Environ(), local.EnvDir+"="+e.dir, "HOME="+e.dir, "XDG_CONFIG_HOME="+e.dir)
		cmd.Stderr = &e.logs
		out, err := cmd.Output()
		if err == nil && len(args) == 1 {
			err = json.Unmarshal(out, &list)
		}
		return list, err
	}
	open, err := approvals("--json")
	e.ok(err)
	if len(open) != 1 || open[0].Question.Text != "Delete the build folder?" || open[0].Run.Server != "scripts" {
		t.Fatalf("%+v", open)
	}
	_, err = approvals("approve", open[0].ID.String(), "--json")
	e.ok(err)
	if m := e.result(id); !strings.Contains(m.Raw, `"end_turn"`) {
		t.Errorf("%s", m.Raw)
	}
	e.outcome(belay.Completed)
	if s.done.Load() != 1 {
		t.Errorf("it worked %d times", s.done.Load())
	}
	e.option(ask, `{"outcome":"selected","optionId":"secondary"}`) // too late
	if open, err := approvals("--json"); err == nil && len(open) != 0 {
		t.Errorf("still open: %+v", open)
	}
}
