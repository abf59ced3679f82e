package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/sdkfake"
	"github.com/belayhq/belay/mcp"
)

func passing64(c *Config) { c.PassCancels, c.Enforce = true, EnforceStrict }

// TestPassCancels: a cancel goes to the server with its own id and the caller's
// words; Belay does nothing itself, and what the server answers is the answer
// (ORC-64).
func TestPassCancels(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"none", "result", "-32800"} {
		for _, modern := range []bool{false, true} {
			t.Run(fmt.Sprint(reply, " modern ", modern), func(t *testing.T) {
				o := linkOptions{server: []string{"-reply", reply}, cfg: passing64}
				var r *link
				works := func() { r.works() }
				if modern {
					o.server = append(o.server, "-era", "modern")
					r = open(t, o)
					works = func() { r.worksModern() }
				} else {
					r = legacy(t, o)
				}
				r.callTick(modern, "7", "w", false)
				r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"x":1.0, "requestId":7,"reason":"mine"}}`)
				r.saw("w", "stopped")
				lines := r.gotWith("notifications/cancelled")
				if len(lines) != 1 || !strings.Contains(lines[0], `"x":1.0`) || !strings.Contains(lines[0], `"reason":"mine"`) || strings.Contains(lines[0], `"requestId":7`) {
					t.Errorf("the server got %v", lines)
				}
				run := r.runOf("7")
				works()
				if run.Cancellation() != nil || run.Receipt() != nil {
					t.Errorf("Belay stopped it: %+v", run.Receipt())
				}
				if reply == "none" {
					if info := run.Info(); info.Outcome != belay.Pending || len(r.Responses("7")) != 0 {
						t.Errorf("the run is %+v, the answers %v", info, r.Responses("7"))
					}
					return
				}
				if m := r.expect("7"); (m.Error != nil) != (reply == "-32800") || strings.Contains(m.Raw, run.ID().String()) {
					t.Errorf("got %s", m.Raw)
				}
				if o := run.Info().Outcome; o != belay.Completed && o != belay.Failed {
					t.Errorf("the outcome is %s", o)
				}
			})
		}
	}
}

// TestPassCancelsToDeaf: a server that ignores the cancel is left alone, and its
// answer reaches the caller (ORC-64).
func TestPassCancelsToDeaf(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-reply", "result"}, cfg: passing64})
	r.tick("7", "w", `"n":80,"deaf":true`)
	pid := r.s.current.tree.PID()
	r.cancel("7", "")
	if m := r.expect("7"); m.Error != nil || r.wit.Count("w", "tick") < 80 {
		t.Errorf("got %s", m.Raw)
	}
	r.works()
	if r.s.current.tree.PID() != pid {
		t.Error("force was used")
	}
}

// TestPassCancelsOfUnknown: what names nothing in flight stops no later call.
func TestPassCancelsOfUnknown(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: passing64})
	r.cancel("7", "")
	if err := r.Call("7", "tick", `{"key":"w","n":2}`, ""); err != nil {
		t.Fatal(err)
	}
	if m := r.expect("7"); m.Error != nil {
		t.Errorf("got %s", m.Raw)
	}
	r.cancel("7", "") // too late
	r.works()
	if lines := r.gotWith("notifications/cancelled"); len(lines) != 0 {
		t.Errorf("the server got %v", lines)
	}
}

// TestPassCancelsOfQueued: the cancel of a call that waits for a process follows it
// there.
func TestPassCancelsOfQueued(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-no-subscribe", "-reply", "result"}, cfg: func(c *Config) {
		c.PassCancels, c.Isolation, c.MaxProcesses = true, IsolationCall, 1
	}})
	r.tick("1", "first", `"n":40`)
	if err := r.Call("2", "tick", `{"key":"w","n":3000}`, ""); err != nil {
		t.Fatal(err)
	}
	r.runOf("2")
	r.cancel("2", "")
	r.expect("1")
	if m := r.expect("2"); m.Error != nil {
		t.Errorf("got %s", m.Raw)
	}
	if r.wit.Count("w", "start") != 1 || r.wit.StillTicking("w", 100*time.Millisecond) {
		t.Error("it did not start, or goes on")
	}
}

// TestPassCancelsOfTask: tasks/cancel is a request like others; the server's word
// ends the task.
func TestPassCancelsOfTask(t *testing.T) {
	t.Parallel()
	r := taskLink(t, coreTask, linkOptions{cfg: passing64})
	run := r.begin(coreTask, "1", "a", `"n":3000`)
	r.ask(coreTask, "2", "tasks/cancel", "task-a")
	if m := r.expect("2"); m.Error != nil {
		t.Errorf("got %s", m.Raw)
	}
	r.saw("a", "stopped")
	r.until("the task is over", func() bool { return run.Info().Outcome.Terminal() })
	if run.Receipt() != nil || len(r.gotWith("tasks/cancel")) != 1 {
		t.Errorf("Belay stopped it: %+v", run.Receipt())
	}
}

// TestPassCancelsByClosing: a modern caller that closes its exchange has cancelled;
// a server that reads lines is told so, and nothing is forced (ORC-64, MCP-54).
func TestPassCancelsByClosing(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{server: []string{"-era", "modern", "-reply", "result"}, cfg: func(c *Config) { passing64(c); c.Modern = true }})
	r.bring(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tick","arguments":{"key":"w","n":3000},%s}}`, modernMeta),
		func(a *mcp.Arrival) { a.Exchange, a.ByExchange = 5, true })
	r.saw("w", "tick")
	run := r.runOf("1")
	r.s.Abandon(5, belay.Cancellation{Cause: belay.CauseDisconnect})
	r.saw("w", "stopped")
	r.until("the call is over", func() bool { return run.Info().Outcome.Terminal() })
	if run.Receipt() != nil || run.Info().Outcome != belay.Completed {
		t.Errorf("the run is %+v", run.Info())
	}
}

// TestPassCancelsOverHTTP: the server is told in the way of its era.
func TestPassCancelsOverHTTP(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern ", modern), func(t *testing.T) {
			r := remote(t, sdkfake.Options{Stateless: modern, Propagate: modern}, linkOptions{cfg: passing64})
			if !modern {
				r.initialize("2025-11-25")
			}
			r.callTick(modern, "7", "a", false)
			run := r.runOf("7")
			r.cancel("7", "enough")
			r.saw("a", "stopped")
			r.remoteWorks(modern)
			if run.Receipt() != nil {
				t.Errorf("Belay stopped it: %+v", run.Receipt())
			}
			if modern && run.Info().Outcome != belay.Cancelled {
				t.Errorf("the run is %+v", run.Info())
			}
		})
	}
}

// TestPassedAreBounded: of the cancelled calls that are never answered only so many
// are remembered, and who answers late is not heard.
func TestPassedAreBounded(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-reply", "none"}, cfg: passing64})
	r.tick("7", "w", `"n":3000`)
	run := r.runOf("7")
	r.cancel("7", "")
	r.saw("w", "stopped")
	c := func() *call {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		c := r.s.calls["7"]
		if c == nil || len(r.s.passed) != 1 {
			t.Fatalf("it is not waited for: %v", r.s.passed)
		}
		for range maxGhosts - 1 {
			r.s.passed = append(r.s.passed, c)
		}
		return c
	}()
	r.tick("8", "v", `"n":3000`)
	r.cancel("8", "")
	r.saw("v", "stopped")
	r.works()
	if info := run.Info(); info.Outcome != belay.Lost || info.Work != belay.Stopped {
		t.Errorf("the oldest is %+v", info)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if len(r.s.calls) != 1 || !c.answered || len(r.s.current.calls) != 1 {
		t.Errorf("%d calls, answered %v", len(r.s.calls), c.answered)
	}
}
