package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/fakeagent"
	"github.com/belayhq/belay/internal/faketool"
)

// editor is a raw ACP client with a real `belay acp` and a fake agent behind it. The
// agent and its tools write witnesses of their own.
type editor struct {
	*faketool.Client
	m      *machine
	agent  *faketool.Witness
	w      *faketool.Witness // of the tools
	tool   string            // the fake tool, which is no program of the agent's
	stderr *faketool.Text
	ids    int
	ended  bool // the test has seen to the end
}

// acp starts `belay acp FLAGS -- AGENT` and says hello.
func (m *machine) acp(flags string, o fakeagent.Options) *editor {
	m.t.Helper()
	dir := m.t.TempDir()
	e := &editor{m: m, agent: faketool.NewWitness(filepath.Join(dir, "agent")), w: faketool.NewWitness(filepath.Join(dir, "tools")), stderr: &faketool.Text{}}
	e.tool = ownProgram(m.t, filepath.Join(dir, "bin", "tool"))
	o.Witness = e.agent.Path
	argv := append([]string{"belay", "acp"}, strings.Fields(flags)...)
	argv = append(append(argv, "--"), fakeagent.Command(o)...)
	var err error
	e.Client, err = faketool.StartClient(argv, faketool.ClientOptions{Env: m.env, Stderr: e.stderr})
	if err != nil {
		m.t.Fatal(err)
	}
	e.Timeout = 30 * time.Second
	m.t.Cleanup(e.end)
	e.ask("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	return e
}

// ownProgram makes a program of the test binary that is another file.
func ownProgram(t *testing.T, to string) string {
	t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil && os.Link(self, to) != nil {
		var b []byte
		if b, err = os.ReadFile(self); err == nil {
			err = os.WriteFile(to, b, 0o755)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// end lets the editor go away, and holds that nothing is left.
func (e *editor) end() {
	if !e.ended {
		_ = e.CloseStdin()
		if !e.Ended(20 * time.Second) {
			e.m.t.Error("belay acp did not end")
			_ = e.Signal(syscall.SIGKILL)
		}
		e.Wait()
	}
	_ = e.Close()
	e.gone(5 * time.Second)
	if e.m.t.Failed() {
		e.m.t.Logf("belay acp said:\n%s", e.stderr)
	}
}

// gone holds that no process of agent and tools lives, but for those of keys.
func (e *editor) gone(within time.Duration, but ...string) {
	e.m.t.Helper()
	pids := map[int]bool{}
	for _, w := range []*faketool.Witness{e.agent, e.w} {
		for _, ev := range w.Events() {
			pids[ev.Pid] = true
		}
	}
	for _, key := range but {
		for _, pid := range e.w.Pids(key) {
			delete(pids, pid)
		}
	}
	list := make([]int, 0, len(pids))
	for pid := range pids {
		list = append(list, pid)
	}
	if left := faketool.WaitDead(list, within); len(left) > 0 {
		e.m.t.Errorf("processes are left: %v", left)
	}
}

func (e *editor) ok(err error) {
	e.m.t.Helper()
	if err != nil {
		e.m.t.Fatalf("%v\n%s", err, e.stderr)
	}
}

// ask sends a request and waits for its answer.
func (e *editor) ask(method, params string) faketool.Message {
	e.m.t.Helper()
	m, err := e.Expect(e.send(method, params))
	e.ok(err)
	return m
}

// send sends a request and returns its raw id.
func (e *editor) send(method, params string) (id string) {
	e.m.t.Helper()
	e.ids++
	id = fmt.Sprint(e.ids)
	e.ok(e.Sendf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return id
}

// session makes a session.
func (e *editor) session() (id string) {
	e.m.t.Helper()
	m := e.ask("session/new", `{"cwd":"/","mcpServers":[]}`)
	var got struct {
		SessionID string `json:"sessionId"`
	}
	e.ok(json.Unmarshal(m.Result, &got))
	return got.SessionID
}

// ticks is the command line of a tool that ticks under key and leaves a helper of
// the kind fork, "" for none.
func (e *editor) ticks(key, fork string, more ...string) []string {
	return append([]string{e.tool, faketool.Marker, "tick", "-life=90s", "-witness=" + e.w.Path, "-key=" + key, "-fork=" + fork}, more...)
}

// prompt begins a turn and returns its raw id. With a tool that has a key it waits
// until that is at work.
func (e *editor) prompt(session string, t fakeagent.Turn, keys ...string) (id string) {
	e.m.t.Helper()
	b, err := json.Marshal(t)
	e.ok(err)
	text, err := json.Marshal(string(b))
	e.ok(err)
	id = e.send("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%s}]}`, session, text))
	for _, key := range keys {
		e.alive(key)
	}
	return id
}

// stop presses Stop in the editor.
func (e *editor) stop(session string) {
	e.m.t.Helper()
	e.ok(e.Sendf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, session))
}

// cancelled waits for the end of a prompt and holds that it is cancelled.
func (e *editor) cancelled(id string) {
	e.m.t.Helper()
	m, err := e.Expect(id)
	e.ok(err)
	if !strings.Contains(string(m.Result), `"cancelled"`) {
		e.m.t.Errorf("the prompt ended with %s", m.Raw)
	}
}

// alive holds that a key ticks now.
func (e *editor) alive(key string) {
	e.m.t.Helper()
	before := e.w.LastTick(key)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if e.w.LastTick(key).After(before) {
			return
		}
	}
	e.m.t.Fatalf("%s does not tick\n%s", key, e.stderr)
}

// dead waits until no process that wrote under the keys lives.
func (e *editor) dead(within time.Duration, keys ...string) {
	e.m.t.Helper()
	for _, key := range keys {
		pids := append(e.w.Pids(key), e.w.Pids(key+"/*")...)
		if len(pids) == 0 {
			e.m.t.Fatalf("%s never lived", key)
		}
		w, at := calm.Start(e.m.t), time.Now()
		if left := faketool.WaitDead(pids, 30*time.Second); len(left) > 0 {
			e.m.t.Fatalf("%s: still alive: %v\n%s", key, left, e.stderr)
		}
		w.Within(e.m.t, time.Since(at), within, "the end of "+key)
		w.Stop()
	}
}

// receipt waits for the final receipt of a run.
func (m *machine) receipt(id belay.RunID) *belay.Receipt {
	m.t.Helper()
	var d belay.Detail
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		out, _, _ := m.belay("status", id.String(), "--json")
		if err := json.Unmarshal([]byte(out), &d); err == nil && d.Receipt != nil && d.Receipt.Final {
			return d.Receipt
		}
	}
	m.t.Fatalf("%s has no final receipt: %+v", id, d)
	return nil
}
