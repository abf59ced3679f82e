//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/fakeagent"
	"github.com/belayhq/belay/internal/faketool"
)

// mid starts an agent with a turn whose tool has a helper in a session of its own,
// deaf to SIGTERM, and an MCP server behind Belay beside it.
func (m *machine) mid(flags string, o fakeagent.Options) (e *editor, session, prompt string) {
	m.t.Helper()
	e = m.acp(flags, o)
	session = e.session()
	prompt = e.prompt(session, fakeagent.Turn{Mode: fakeagent.ShellOn, Tool: e.ticks("tool", "termproof")}, "tool", "tool/termproof")
	return e, session, prompt
}

// agentPID is the agent's process, which has begun a turn.
func (e *editor) agentPID() int {
	e.m.t.Helper()
	events := e.agent.Events()
	if len(events) == 0 {
		e.m.t.Fatal("the agent has done nothing yet")
	}
	return events[0].Pid
}

// exits waits for the end of belay acp and returns its exit code.
func (e *editor) exits(within time.Duration) int {
	e.m.t.Helper()
	if !e.Ended(within) {
		e.m.t.Fatalf("belay acp did not end within %v\n%s", within, e.stderr)
	}
	e.ended = true
	return e.Wait()
}

// ACP-B33; acceptance 17: the editor goes away in the middle of a turn. The agent is
// told first; nobody is left, and the exit code says that all is well.
func TestACP_B33_EditorGone(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	e, session, _ := m.mid(acpShort, fakeagent.Options{})
	if err := e.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	if code := e.exits(10 * time.Second); code != ExitDone {
		t.Errorf("exit code %d, want 0", code)
	}
	e.gone(time.Second)
	if e.agent.Count(session, "cancel") != 1 {
		t.Errorf("the agent was told %d times", e.agent.Count(session, "cancel"))
	}
}

// ACP-B33: an editor that is killed does not close anything in order, and does not
// read any more.
func TestACP_B33_EditorKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	w, aw := faketool.NewWitness(filepath.Join(t.TempDir(), "tools")), faketool.NewWitness(filepath.Join(t.TempDir(), "agent"))
	tool := ownProgram(t, filepath.Join(t.TempDir(), "bin", "tool"))
	// The relay is what dies: both of its pipes to belay acp break.
	argv := append(faketool.Command("relay", "--"), append([]string{"belay", "acp"}, strings.Fields(acpShort)...)...)
	argv = append(append(argv, "--"), fakeagent.Command(fakeagent.Options{Witness: aw.Path, Turn: fakeagent.Turn{Updates: 50, Mode: fakeagent.ShellOn, Tool: []string{
		tool, faketool.Marker, "tick", "-life=90s", "-witness=" + w.Path, "-key=tool", "-fork=setsid",
	}}})...)
	stderr := &faketool.Text{}
	c, err := faketool.StartClient(argv, faketool.ClientOptions{Env: m.env, Stderr: stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	e := &editor{Client: c, m: m, w: w, agent: aw, stderr: stderr, tool: tool}
	e.Timeout = 30 * time.Second
	e.ask("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	s := e.session()
	e.send("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":"go"}]}`, s))
	e.alive("tool")
	e.alive("tool/setsid")
	if err := e.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.gone(5 * time.Second)
	if aw.Count(s, "cancel") != 1 {
		t.Errorf("the agent was told %d times", aw.Count(s, "cancel"))
	}
}

// ACP-B34: a signal ends everything as an editor that goes away does, and the editor
// has its answer first; a second one kills at once.
func TestACP_B34_Signals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			e, _, id := m.mid(acpShort, fakeagent.Options{})
			if err := e.Signal(sig); err != nil {
				t.Fatal(err)
			}
			e.cancelled(id)
			if code := e.exits(10 * time.Second); code != ExitDone {
				t.Errorf("exit code %d, want 0", code)
			}
			e.gone(time.Second)
		})
	}
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t)
		e, _, id := m.mid("--exit-grace 60s --kill-after 60s", fakeagent.Options{})
		if err := e.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		e.cancelled(id)
		if err := e.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		e.exits(10 * time.Second)
		e.gone(time.Second)
	})
}

// ACP-B35: kill -9 of Belay leaves no orphan.
func TestACP_B35_BelayKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	e, _, _ := m.mid(acpShort, fakeagent.Options{})
	if err := e.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.gone(busy * time.Second)
	e.exits(10 * time.Second)
}

// ACP-B36: an agent that dies has its prompt answered with how it died, nothing of
// it is left, and Belay exits as it did.
func TestACP_B36_AgentDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		die  func(e *editor, s string)
		code int
		says string
	}{
		{"exit", func(e *editor, _ string) {
			s2 := e.session()
			id := e.prompt(s2, fakeagent.Turn{Mode: fakeagent.Dies})
			_, err := e.agent.WaitFor(s2, "prompt", 10*time.Second)
			e.ok(err)
			e.stop(s2)
			e.cancelled(id)
		}, 3, "ended with exit code 3"},
		{"SIGKILL", func(e *editor, _ string) {
			if err := syscall.Kill(e.agentPID(), syscall.SIGKILL); err != nil {
				e.m.t.Fatal(err)
			}
		}, 128 + 9, "ended by a signal (killed)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			e, s, id := m.mid(acpShort, fakeagent.Options{})
			c.die(e, s)
			got, err := e.Expect(id)
			e.ok(err)
			if got.Error == nil || got.Error.Code != -32603 || !strings.Contains(string(got.Error.Data), "run_") {
				t.Errorf("the prompt got %s", got.Raw)
			}
			if code := e.exits(10 * time.Second); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			e.gone(time.Second)
			if !strings.Contains(e.stderr.String(), c.says) {
				t.Errorf("belay acp said\n%s", e.stderr)
			}
		})
	}
}

// An agent that closes its output and goes on can do nothing for its editor any more:
// it is ended, and that is said.
func TestACP_B36_AgentClosesItsOutput(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	_, stderr, code := m.belay("acp", "--", "sh", "-c", "exec >&-; exec sleep 100")
	if code != ExitAgentKilled || !strings.Contains(stderr, "closed its output, went on, and was ended") {
		t.Errorf("exit code %d, want %d:\n%s", code, ExitAgentKilled, stderr)
	}
}

// ACP-B24; acceptance 11: an agent that ignores everything has its editor settled by
// the deadline, and is killed at the next one; with lenient it is not.
func TestACP_B24_DeafAgent(t *testing.T) {
	t.Run("strict", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t)
		e := m.acp("--settle 500ms --agent-deadline 1500ms --grace 200ms --kill-after 200ms", fakeagent.Options{NoClose: true})
		s := e.session()
		id := e.prompt(s, fakeagent.Turn{Mode: fakeagent.Deaf, Tool: e.ticks("tool", "")}, "tool")
		e.stop(s)
		e.cancelled(id)
		if code := e.exits(15 * time.Second); code != ExitAgentKilled {
			t.Errorf("exit code %d, want %d\n%s", code, ExitAgentKilled, e.stderr)
		}
		e.gone(time.Second)
	})
	t.Run("lenient", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t)
		e := m.acp("--enforce lenient --settle 300ms --agent-deadline 600ms --grace 200ms --kill-after 200ms", fakeagent.Options{NoClose: true})
		s := e.session()
		id := e.prompt(s, fakeagent.Turn{Mode: fakeagent.Deaf, Tool: e.ticks("tool", "")}, "tool")
		e.stop(s)
		e.cancelled(id)
		e.dead(3*time.Second, "tool")
		time.Sleep(time.Second) // past the deadline
		if !faketool.Alive(e.agentPID()) {
			t.Error("the agent was killed")
		}
	})
}

// DESIGN 11, 16: --observe tells and records, and ends nobody.
func TestACP_ObserveEndsNobody(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	e, s, id := m.mid(acpShort+" --observe", fakeagent.Options{})
	e.stop(s)
	e.cancelled(id)
	time.Sleep(2 * time.Second) // grace and kill_after are over
	e.alive("tool")
	if e.agent.Count(s, "cancel") != 1 {
		t.Error("the agent was not told")
	}
}

// DESIGN 11, 7 and 10: what is not of the turn lives on: a shared daemon that a tool
// has started, what the user keeps, and another run of the same user.
func TestACP_B19_DecoysLiveOn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	e := m.acp(acpShort+" --keep *-key=kept*", fakeagent.Options{})
	beside := exec.Command("belay", append([]string{"exec", "--"}, e.ticks("beside", "setsid")...)...)
	beside.Env = append(os.Environ(), m.env...)
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = beside.Process.Signal(syscall.SIGTERM); _ = beside.Wait() })
	tmux := ownProgram(t, filepath.Join(filepath.Dir(e.tool), "tmux: server"))
	script := `"$0" faketool tick -life=90s -witness="$1" -key=tmux & "$2" faketool tick -life=90s -witness="$1" -key=kept & exec "$2" faketool tick -life=90s -witness="$1" -key=tool`
	s := e.session()
	id := e.prompt(s, fakeagent.Turn{Mode: fakeagent.ShellOn, Tool: []string{"sh", "-c", script, tmux, e.w.Path, e.tool}}, "tool", "tmux", "kept", "beside")
	e.stop(s)
	e.cancelled(id)
	e.dead(3*time.Second, "tool")
	for _, key := range []string{"tmux", "kept", "beside", "beside/setsid"} {
		e.alive(key)
	}
	// The daemon outlives Belay too, as it would outlive the tool.
	if err := e.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	e.exits(15 * time.Second)
	e.gone(time.Second, "tmux", "beside", "beside/setsid")
	e.alive("tmux")
	e.alive("beside")
	if !strings.Contains(e.stderr.String(), "left alive on purpose: pid "+strconv.Itoa(e.w.Pids("tmux")[0])) {
		t.Errorf("belay acp does not name whom it has spared:\n%s", e.stderr)
	}
	for _, pid := range e.w.Pids("tmux") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = beside.Process.Signal(syscall.SIGTERM)
	_ = beside.Wait()
}

// ACP-B19; acceptance 10: two sessions at work in one agent. The Stop of one ends
// what was its alone, and nothing that may be the other's.
func TestACP_B19_TwoSessions(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	e := m.acp(acpShort, fakeagent.Options{})
	s1, s2 := e.session(), e.session()
	id1 := e.prompt(s1, fakeagent.Turn{Mode: fakeagent.ShellOn, Tool: e.ticks("one", "setsid")}, "one", "one/setsid")
	time.Sleep(50 * time.Millisecond)
	id2 := e.prompt(s2, fakeagent.Turn{Mode: fakeagent.ShellOn, Tool: e.ticks("two", "setsid")}, "two", "two/setsid")
	e.stop(s1)
	e.cancelled(id1)
	e.dead(3*time.Second, "one")
	e.alive("two")
	e.alive("two/setsid")
	e.stop(s2)
	e.cancelled(id2)
	e.dead(3*time.Second, "two")
}

// The agent has a ticket for the run that stands for it, and its guardian names that
// run: who lies in its tree stops nothing above (DESIGN 11, 10).
func TestACP_B7_AgentIsPlacedBelowItsRun(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	e, _, _ := m.mid(acpShort, fakeagent.Options{})
	pid := e.agentPID()
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		t.Fatal(err)
	}
	var run string
	for _, i := range m.runs() {
		if strings.HasPrefix(i.Name, agentRun) {
			run = i.ID.String()
		}
	}
	if run == "" || !strings.Contains(string(env), "BELAY_PARENT=") || !strings.Contains(string(env), run) {
		t.Errorf("no run %q in the agent's environment", run)
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	var parent int
	rest := string(stat[bytes.LastIndexByte(stat, ')')+2:])
	var state string
	if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/cmdline")
	if err != nil || !strings.Contains(string(line), run) {
		t.Errorf("the agent's parent is %q", line)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(e.ask("session/list", `{}`).Raw), &got); err != nil {
		t.Error(err)
	}
}

// wordAgent is an agent in shell: it starts a tool, and says cancelled while that runs
// on; what it reads with from then on is a process of its own, born after its word.
const wordAgent = `read l; echo '{"jsonrpc":"2.0","id":"b-1","result":{"protocolVersion":1,"agentCapabilities":{}}}'
read l; echo '{"jsonrpc":"2.0","id":"b-2","result":{"sessionId":"s1"}}'
read l; echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"x","kind":"execute","status":"in_progress"}}}'
"$0" faketool tick -life=60s -witness="$1" -key=tool </dev/null >/dev/null &
read l; echo '{"jsonrpc":"2.0","id":"b-3","result":{"stopReason":"cancelled"}}'
sleep 0.03
"$0" faketool tick -life=60s -witness="$1" -key=after </dev/null >/dev/null
exit 9
`

// ACP-B19: what the agent starts by itself after it has ended the turn is not ended
// with the turn's tools.
func TestACP_B19_AfterTheAgentsWord(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := t.TempDir()
	tool := ownProgram(t, filepath.Join(dir, "bin", "tool"))
	w := faketool.NewWitness(filepath.Join(dir, "tools"))
	stderr := &faketool.Text{}
	argv := append(append([]string{"belay", "acp"}, strings.Fields(acpShort)...), "--", "sh", "-c", wordAgent, tool, w.Path)
	c, err := faketool.StartClient(argv, faketool.ClientOptions{Env: m.env, Stderr: stderr})
	if err != nil {
		t.Fatal(err)
	}
	e := &editor{Client: c, m: m, w: w, agent: faketool.NewWitness(filepath.Join(dir, "agent")), stderr: stderr, tool: tool}
	e.Timeout = 30 * time.Second
	t.Cleanup(e.end)
	e.ask("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	s := e.session()
	id := e.send("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[]}`, s))
	e.alive("tool")
	e.stop(s)
	e.cancelled(id)
	e.dead(3*time.Second, "tool")
	e.alive("after")
	time.Sleep(time.Second) // the kill is over
	e.alive("after")
}
