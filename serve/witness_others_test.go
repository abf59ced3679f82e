package serve

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/config"
)

// one is what a caller gets whose call somebody else stopped (MCP-G25, G26).
func (r *rig) one(a answer, cause belay.Cause) {
	r.t.Helper()
	stopped := strings.Contains(a.body, `"code":-32800`) && strings.Contains(a.body, `"cause":"`+string(cause)+`"`) ||
		strings.Contains(a.body, `"isError":true`) && (strings.Contains(a.body, "Cancelled by "+string(cause)) || cause == belay.CauseDeadline && strings.Contains(a.body, "Cancelled after its deadline"))
	if !stopped || strings.Count(a.body, `"id":`) != 1 {
		r.t.Errorf("the caller got %+v", a)
	}
}

// TestWitnessDeadline: a deadline is a Stop of Belay's own, absolute although
// progress arrives; the work ends and the caller is told at once, in either era
// (MCP-27, MCP-28, MCP-29, MCP-30, MCP-56, MCP-G23).
func TestWitnessDeadline(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		each(t, modern, func(t *testing.T, r *rig, k behind) {
			d := k.define(r)
			policy := d.ToolPolicy
			policy.Deadline = config.Some(400 * time.Millisecond)
			d.Tools = map[string]config.ToolPolicy{"tick": policy}
			r.apply(d)
			session := r.enter(modern)
			got, leave := r.tick(modern, session, "a", false)
			defer leave()
			run := r.find("tick")
			w := calm.Start(t)
			a := r.wait(got, 3*time.Second)
			r.one(a, belay.CauseDeadline)
			end := run.Info().Started.Add(400 * time.Millisecond)
			e := r.event("a", "stopped").Time.Sub(end)
			if e < -50*time.Millisecond {
				t.Errorf("the tool stopped %v before the deadline", -e)
			}
			w.Within(t, e, 300*time.Millisecond, "the tool's end after the deadline")
			if c := r.receipt(run).Cancellation; c.Cause != belay.CauseDeadline {
				t.Errorf("the cause is %s", c.Cause)
			}
			r.works(modern, session)
		})
	}
}

// TestWitnessParent: a Stop of a session's run stops the calls below it, and
// their callers are answered once; other sessions go on (MCP-G25).
func TestWitnessParent(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		each(t, modern, func(t *testing.T, r *rig, _ behind) {
			session := r.enter(modern)
			got, leave := r.tick(modern, session, "a", false)
			defer leave()
			run := r.find("tick")
			var other string
			var beside <-chan answer
			if !modern {
				other = r.begin("tools")
				beside = r.tickAs(other, "7", "b")
			}
			w, at := calm.Start(t), time.Now()
			_, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
				Filter:       belay.Filter{IDs: []belay.RunID{run.Info().Parent}},
				Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test", Reason: "all of it"},
			})
			if err != nil {
				t.Fatal(err)
			}
			a := r.wait(got, time.Second)
			r.one(a, belay.CauseParent)
			w.Within(t, r.event("a", "stopped").Time.Sub(at), 500*time.Millisecond, "the tool's end after the Stop of its parent")
			if c := r.receipt(run).Cancellation; c.Cause != belay.CauseParent {
				t.Errorf("the cause is %s", c.Cause)
			}
			if modern {
				r.eventually("the next call works", func() bool {
					a, err := r.modern("tools", "echo", `{"text":"fine"}`)
					return err == nil && strings.Contains(a.body, "fine")
				})
				return
			}
			r.goesOn("b")
			r.must(r.post(Path("tools"), other, cancelOf("7")))
			r.wait(beside, 2*time.Second)
		})
	}
}

// TestWitnessGoesOn: a server that goes on after its Stop, with progress that is
// on its way to the caller, is muted, and the receipt notes that it is still at
// work (MCP-G27, MCP-G32).
func TestWitnessGoesOn(t *testing.T) {
	t.Parallel()
	each(t, false, func(t *testing.T, r *rig, k behind) {
		d := k.define(r)
		d.Enforce = config.Some("never")
		r.apply(d)
		if strings.Contains(k.name, "heeds") || strings.Contains(k.name, "json") {
			return // the POST is closed, or has no progress: there is no way to see it
		}
		session := r.begin("tools")
		got := async(func() (answer, error) {
			return r.post(Path("tools"), session, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tick","arguments":{"key":"a","n":800,"deaf":true},"_meta":{"progressToken":"pt"}}}`)
		})
		r.event("a", "tick")
		run := r.stop("tick")
		a := r.wait(got, 2*time.Second)
		r.one(a, belay.CauseOperator)
		if i := strings.Index(a.body, "-32800"); strings.Contains(a.body[max(i, 0):], "progressToken") {
			t.Errorf("progress behind the answer: %s", a.body)
		}
		receipt := r.receipt(run)
		if receipt.Verdict != belay.Signalled || receipt.Work != belay.Unconfirmed {
			t.Errorf("%s, %s", receipt.Verdict, receipt.Work)
		}
		if !receipt.StillActive {
			t.Errorf("no sign of life on the receipt: %+v", receipt.Steps)
		}
		r.works(false, session)
		r.goesOn("a") // it is as the receipt says
	})
}
