package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// turn registers a run of another runtime.
func (r *link) turn(owner string) *belay.Run {
	r.t.Helper()
	run, err := r.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "turn", Owner: owner})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		run.Finish(belay.Completed)
		run.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
	})
	return run
}

func tickBelow(id, key, parent string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"tick","arguments":{"key":%q,"n":3000},"_meta":{"a":1,"io.github.belayhq/parent":%s}}}`, id, key, parent)
}

// stopTree is an operator's Stop.
func (r *link) stopTree(id belay.RunID) {
	r.t.Helper()
	_, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{id}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test", Reason: "cost"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestParentStopsCall: a call hangs below the run that its caller names, in _meta
// or by a header; the Stop of that run stops the tool and answers the caller. The
// server does not learn the name.
func TestParentStopsCall(t *testing.T) {
	t.Parallel()
	for _, header := range []bool{false, true} {
		t.Run(fmt.Sprint("header ", header), func(t *testing.T) {
			r := legacy(t, linkOptions{server: []string{"-reply", "-32800"}, cfg: naming})
			turn := r.turn("tester")
			frame := tickBelow("1", "w", `"`+turn.ID().String()+`"`)
			if header {
				frame = tickBelow("1", "w", "null")
			}
			r.bring(frame, func(a *mcp.Arrival) {
				if header {
					a.Parent = turn.ID().String()
				}
			})
			r.saw("w", "tick")
			run := r.runOf("1")
			if info := run.Info(); info.Parent != turn.ID() {
				t.Errorf("it hangs below %s", info.Parent)
			}
			if lines := r.gotWith(`"io.github.belayhq/parent":null`); len(lines) != 1 || !strings.Contains(lines[0], `"a":1`) {
				t.Errorf("the server got %v", r.gotWith("tools/call"))
			}
			if n := r.s.InFlight(); n != 1 {
				t.Errorf("%d calls are in flight", n)
			}
			r.stopTree(turn.ID())
			if m := r.expect("1"); m.Error == nil || m.Error.Code != belay.CodeCancelled || !strings.Contains(m.Raw, `"cause":"parent"`) {
				t.Errorf("got %s", m.Raw)
			}
			r.saw("w", "stopped")
			if receipt := r.receipt(run); receipt.Cancellation.Origin != turn.ID() {
				t.Errorf("the receipt is %+v", receipt)
			}
			if n := r.s.InFlight(); n != 0 {
				t.Errorf("%d calls are in flight", n)
			}
			r.works()
		})
	}
}

// TestParentRefused: whatever is not a run of the caller's own that is in flight
// is refused in the same words, and nothing runs.
func TestParentRefused(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: naming})
	own, over, foreign := r.turn("tester"), r.turn("tester"), r.turn("somebody")
	over.Finish(belay.Completed)
	texts := map[string]bool{}
	for i, parent := range []string{
		`"` + over.ID().String() + `"`, `"` + foreign.ID().String() + `"`, `"` + belay.NewRunID().String() + `"`, `"x"`, `""`, `7`, `{}`,
		`"` + own.ID().String() + `","io.github.belayhq/parent":"` + own.ID().String() + `"`,
	} {
		id := fmt.Sprint(i)
		r.send("%s", tickBelow(id, "w", parent))
		m := r.expect(id)
		if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, "io.github.belayhq/parent") {
			t.Fatalf("%s: got %s", parent, m.Raw)
		}
		texts[m.Error.Message] = true
	}
	if len(texts) != 1 {
		t.Errorf("the answers differ: %v", texts)
	}
	r.bring(tickBelow("90", "w", `"`+own.ID().String()+`"`), func(a *mcp.Arrival) { a.Parent = foreign.ID().String() })
	if m := r.expect("90"); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("two names: got %s", m.Raw)
	}
	r.works()
	if r.wit.Count("w", "start") != 0 || len(r.callRuns()) != 1 {
		t.Errorf("a refused call ran: %+v", r.callRuns())
	}
	r.bring(tickBelow("91", "same", `"`+own.ID().String()+`"`), func(a *mcp.Arrival) { a.Parent = own.ID().String() })
	r.saw("same", "tick")
	r.cancel("91", "")
	r.receipt(r.runOf("91"))
}

// TestParentStoppedBefore: a call below a run that is stopped already never starts;
// it has a receipt that says where the Stop came from.
func TestParentStoppedBefore(t *testing.T) {
	t.Parallel()
	for _, over := range []bool{false, true} {
		t.Run(fmt.Sprint("over ", over), func(t *testing.T) {
			r := legacy(t, linkOptions{cfg: naming})
			turn := r.turn("tester")
			r.stopTree(turn.ID())
			if over {
				turn.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
				r.receipt(turn)
			}
			r.send("%s", tickBelow("1", "w", `"`+turn.ID().String()+`"`))
			if m := r.expect("1"); m.Error == nil || m.Error.Code != belay.CodeCancelled || strings.Contains(m.Raw, "may still") {
				t.Errorf("got %s", m.Raw)
			}
			run := r.runOf("1")
			receipt := r.receipt(run)
			c := receipt.Cancellation
			if receipt.Verdict != belay.Confirmed || c.Cause != belay.CauseParent || c.Origin != turn.ID() || c.By != "operator" || c.Reason != "cost" || c.Stop != turn.Cancellation().Stop {
				t.Errorf("the receipt is %+v of %+v", receipt, c)
			}
			if run.Info().Parent != turn.ID() {
				t.Error("it does not hang there")
			}
			r.works()
			if r.wit.Count("w", "start") != 0 {
				t.Error("it ran")
			}
		})
	}
}

// TestSessionStopsWhatHangsElsewhere: the Stop of a session, and its end, reach the
// calls that hang below other runs, tasks and rounds too.
func TestSessionStopsWhatHangsElsewhere(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stop", "close"} {
		t.Run(how, func(t *testing.T) {
			r := taskLink(t, coreTask, linkOptions{cfg: naming})
			turn := r.turn("tester")
			name := `"` + turn.ID().String() + `"`
			r.send("%s", tickBelow("1", "w", name))
			r.saw("w", "tick")
			r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"tick","arguments":{"key":"t","n":3000},"task":{"ttl":60000},"_meta":{"io.github.belayhq/parent":%s}}}`, name)
			r.saw("t", "tick")
			r.expect("2")
			task := r.taskRun("task-t")
			if task.Info().Parent != turn.ID() {
				t.Error("the task hangs elsewhere than its call")
			}
			run := r.runOf("1")
			if how == "stop" {
				r.stopTree(r.s.Run().ID())
				<-r.s.Ended()
			} else {
				ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
				defer end()
				if err := r.s.Close(ctx, belay.Cancellation{Cause: belay.CauseDisconnect, Via: "test"}); err != nil {
					t.Fatal(err)
				}
			}
			if m := r.expect("1"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
				t.Errorf("got %s", m.Raw)
			}
			for _, run := range []*belay.Run{run, task} {
				if receipt := r.receipt(run); receipt == nil || receipt.Outcome != belay.Cancelled && run != task || receipt.Cancellation.Cause != belay.CauseParent || receipt.Cancellation.Origin != r.s.Run().ID() {
					t.Errorf("the receipt is %+v", receipt)
				}
			}
			if turn.Cancellation() != nil {
				t.Error("the turn was stopped with the session")
			}
			for _, key := range []string{"w", "t"} {
				if r.wit.StillTicking(key, 300*time.Millisecond) {
					t.Errorf("%s goes on", key)
				}
			}
		})
	}
}

// TestTaskOutlivesParent: work whose run above has ended goes on below the session.
func TestTaskOutlivesParent(t *testing.T) {
	t.Parallel()
	r := taskLink(t, extTask, linkOptions{cfg: naming})
	turn := r.turn("tester")
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"key":"a","method":"elicit"},"_meta":{"io.github.belayhq/parent":"%s",%s}}}`, turn.ID(), strings.TrimSuffix(strings.TrimPrefix(modernMeta, `"_meta":{`), "}"))
	r.expect("1")
	other := r.turn("tester")
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask","arguments":{"key":"a"},"requestState":"ask:a","inputResponses":{"q":{"action":"accept"}},"_meta":{"io.github.belayhq/parent":"%s",%s}}}`, other.ID(), strings.TrimSuffix(strings.TrimPrefix(modernMeta, `"_meta":{`), "}"))
	if m := r.expect("2"); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("a round that names another parent was answered %s", m.Raw)
	}
	r.retry("3", "ask", "a", `"ask:a"`) // the round is still open, and needs no name
	if m := r.expect("3"); m.Error != nil {
		t.Errorf("got %s", m.Raw)
	}
	if info := r.callRuns()[0]; info.Parent != turn.ID() || info.Outcome != belay.Completed {
		t.Errorf("the run is %+v", info)
	}
}
