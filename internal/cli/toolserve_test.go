package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

// scripted is a real `belay tool serve` with a raw client in front.
type scripted struct {
	*faketool.Client
	m      *machine
	dir    string
	stderr *faketool.Text
}

// writeScript makes the project of a tool, or changes it.
func writeScript(t *testing.T, dir, id, body string) {
	t.Helper()
	dir = filepath.Join(dir, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"assistant_tool.json": `{"id": "` + id + `", "displayName": "A tool", "description": "Does it.", "parameters": []}`,
		"assistant_tool.ts":   "AssistantTool.registerExecuteTool(async () => {\n" + body + "\n})",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// toolServe starts `belay tool serve FLAGS DIR` and says hello.
func (m *machine) toolServe(dir string, flags ...string) *scripted {
	m.t.Helper()
	s := &scripted{m: m, dir: dir, stderr: &faketool.Text{}}
	var err error
	argv := append(append([]string{"belay", "tool", "serve"}, flags...), dir)
	if s.Client, err = faketool.StartClient(argv, faketool.ClientOptions{Env: m.env, Stderr: s.stderr}); err != nil {
		m.t.Fatal(err)
	}
	s.Timeout = 30 * time.Second
	m.t.Cleanup(func() {
		workers := workersOf(dir)
		_ = s.CloseStdin()
		if !s.Ended(20 * time.Second) {
			m.t.Error("belay tool serve did not end")
		}
		s.Wait()
		_ = s.Close()
		if left := faketool.WaitDead(workers, 5*time.Second); len(left) > 0 {
			m.t.Errorf("workers are left: %v", left)
		}
		if m.t.Failed() {
			m.t.Logf("belay tool serve said:\n%s", s.stderr)
		}
	})
	if _, err := s.Initialize("2025-06-18"); err != nil {
		m.t.Fatal(err)
	}
	return s
}

// text is the answer to a call of a tool without parameters.
func (s *scripted) text(id, tool string) string {
	s.m.t.Helper()
	if err := s.Call(id, tool, "{}", ""); err != nil {
		s.m.t.Fatal(err)
	}
	m, err := s.Expect(id)
	if err != nil {
		s.m.t.Fatalf("%v\n%s", err, s.stderr)
	}
	return m.Text()
}

// TestAT86_ToolServe: scripts on stdio, by any client, changed under way.
func TestAT86_ToolServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeScript(t, dir, "one", `return {success: true, message: "one"}`)
	s := newMachine(t).toolServe(dir)
	if got := s.text("1", "one"); got != "one" {
		t.Errorf("%q", got)
	}
	if err := s.Send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Expect("2"); err != nil || !strings.Contains(m.Raw, `"one"`) {
		t.Fatalf("%s %v", m.Raw, err)
	}
	writeScript(t, dir, "one", `return {success: true, message: "another"}`)
	if got := s.text("3", "one"); got != "another" {
		t.Errorf("after the change %q", got)
	}
	writeScript(t, dir, "two", `return {success: true, message: "two"}`)
	if _, err := s.Notification("notifications/tools/list_changed"); err != nil {
		t.Fatal(err)
	}
	if got := s.text("4", "two"); got != "two" {
		t.Errorf("the new one says %q", got)
	}
}

// TestAT16_ToolServe: an operator's Stop from another terminal gives the caller what
// onCancel says, and the receipt says how it ended.
func TestAT16_ToolServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeScript(t, dir, "slow", `
		AssistantTool.onCancel = () => "half of it"
		AssistantTool.report("at it")
		while (true) { try { for (;;) {} } finally { continue } }`)
	m := newMachine(t)
	s := m.toolServe(dir, "--grace", "300ms")
	if err := s.Call("1", "slow", "{}", `"p"`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Notification("notifications/progress"); err != nil {
		t.Fatal(err)
	}
	run := m.find(belay.KindCall, "slow")
	out, errs, code := m.belay("cancel", run.ID.String(), "--json")
	if code != 0 {
		t.Fatalf("belay cancel: %d %s %s", code, out, errs)
	}
	got, err := s.Expect("1")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.Raw, "Cancelled") || !strings.Contains(out, "half of it") { // it came too late for the answer (AT-34)
		t.Errorf("%s\n%s", got.Raw, out)
	}
	contains(t, out, `"confirmed"`, "interrupted")
}

// TestToolServeBad: what cannot be is said before anything is started.
func TestToolServeBad(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{filepath.Join(dir, "missing")}, "is no folder"},
		{[]string{dir, "--allow-host", "https://x.example/"}, "is no host"},
		{[]string{dir, "--memory", "1MiB"}, "at least 32MiB"},
		{[]string{dir, "--memory", "much"}, "memory"},
		{[]string{dir, "--editor-write"}, "editor"},
		{[]string{dir, "--grace", "0s"}, "--grace"},
		{[]string{dir, "--spares", "-1"}, "--spares"},
		{nil, "<dir>"},
	} {
		_, errs, code := m.belay(append([]string{"tool", "serve"}, c.args...)...)
		if code != ExitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit code %d, %s", c.args, code, errs)
		}
	}
}
