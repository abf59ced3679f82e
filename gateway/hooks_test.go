package gateway

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/hook"
	"github.com/belayhq/belay/internal/faketool"
)

// elsewhere is work that Belay did not start: a process of the test's own.
func elsewhere(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { defer close(gone); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-gone })
	return cmd.Process.Pid
}

// byKill are hooks that stop a process by its pid.
func byKill(alive bool) *hook.Hooks {
	h := &hook.Hooks{
		Terminate: &hook.Action{Command: []string{"true"}},
		Kill:      &hook.Action{Command: []string{"kill", "-9", "{args.pid}"}},
	}
	if alive {
		h.Alive = &hook.Action{Command: []string{"kill", "-0", "{args.pid}"}}
	}
	return h
}

// TestHooks: what a tool works on elsewhere is stopped by the operator's hooks,
// and only their check proves it; the server that asked for the work is kept
// (DESIGN 11, 6).
func TestHooks(t *testing.T) {
	t.Parallel()
	for _, alive := range []bool{true, false} {
		t.Run(fmt.Sprint("alive ", alive), func(t *testing.T) {
			pid := elsewhere(t)
			r := legacy(t, linkOptions{cfg: func(c *Config) {
				c.Tools = map[string]Policy{"tick": {Ladder: quick, Stop: byKill(alive)}}
			}})
			if err := r.Call("1", "tick", fmt.Sprintf(`{"key":"a","n":3000,"deaf":true,"pid":%d}`, pid), ""); err != nil {
				t.Fatal(err)
			}
			r.saw("a", "tick")
			server := r.s.current.tree.PID()
			run := r.runOf("1")
			r.cancel("1", "enough")
			receipt := r.receipt(run)
			if left := faketool.WaitDead([]int{pid}, 3*time.Second); len(left) > 0 {
				t.Fatalf("the work elsewhere goes on: %v\n%s", left, r.logs)
			}
			want := belay.Signalled
			if alive {
				want = belay.Confirmed
			}
			if receipt.Verdict != want || alive != saw(receipt, belay.SeenHookGone) {
				t.Errorf("the verdict is %s, want %s: %+v", receipt.Verdict, want, receipt.Steps)
			}
			r.works()
			if now := r.s.current.tree.PID(); now != server {
				t.Error("the server was replaced although only its work elsewhere was to be stopped")
			}
		})
	}
}

// TestHooksObserve: under observe no hook uses force (DESIGN 11, 16).
func TestHooksObserve(t *testing.T) {
	t.Parallel()
	pid := elsewhere(t)
	r := legacy(t, linkOptions{cfg: func(c *Config) {
		c.Tools = map[string]Policy{"tick": {Ladder: quick, Observe: true, Stop: byKill(true)}}
	}})
	if err := r.Call("1", "tick", fmt.Sprintf(`{"key":"a","n":200,"deaf":true,"pid":%d}`, pid), ""); err != nil {
		t.Fatal(err)
	}
	r.saw("a", "tick")
	run := r.runOf("1")
	r.cancel("1", "enough")
	if receipt := r.receipt(run); receipt.Verdict == belay.Confirmed {
		t.Errorf("the verdict is %s", receipt.Verdict)
	}
	if dead := len(faketool.WaitDead([]int{pid}, time.Millisecond)) == 0; dead {
		t.Error("a hook ended the work although it was only to be observed")
	}
}

// TestToolPolicy: a tool's own settings count for its calls, the server's for
// all others (DESIGN 5).
func TestToolPolicy(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: func(c *Config) {
		c.Tools = map[string]Policy{"tick": {Ladder: quick, Deadline: 150 * time.Millisecond}}
	}})
	r.tick("1", "a", `"n":2000`)
	if m := r.expect("1"); m.Error == nil || !strings.Contains(m.Raw, "deadline") {
		t.Errorf("got %s", m.Raw)
	}
	r.saw("a", "stopped")
	r.works()
}

// TestOverlap: a new call of a tool whose stopped call may still be at work is
// warned of, waits, or is refused; another tool's is nobody's business
// (DESIGN 11, 9).
func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, o := range []Overlap{OverlapWarn, OverlapWait, OverlapRefuse} {
		t.Run(string(o), func(t *testing.T) {
			r := legacy(t, linkOptions{cfg: func(c *Config) {
				c.Enforce, c.Overlap = EnforceNever, o
				c.Ladder.ConfirmAfter = time.Second
			}})
			r.tick("1", "a", `"n":3000,"deaf":true`)
			run := r.runOf("1")
			r.cancel("1", "enough")
			r.until("the Stop is known", func() bool { return run.Receipt() != nil })
			if err := r.Call("2", "tick", `{"key":"b","n":1}`, ""); err != nil {
				t.Fatal(err)
			}
			r.works() // another tool
			m := r.expect("2")
			receipt := run.Receipt()
			switch o {
			case OverlapWarn:
				if m.Error != nil || !strings.Contains(r.logs.String(), "called again while a stopped call") {
					t.Errorf("got %s\n%s", m.Raw, r.logs)
				}
			case OverlapWait:
				if m.Error != nil || !receipt.Final {
					t.Errorf("it did not wait: %s, %+v", m.Raw, receipt)
				}
			case OverlapRefuse:
				if !strings.Contains(m.Raw, "Refused") || len(r.wit.Of("b", "")) > 0 {
					t.Errorf("it was not refused: %s", m.Raw)
				}
			}
		})
	}
}
