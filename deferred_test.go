package belay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A caller whose answer comes after the Stop is told what the work says, once.
func TestADeferredOutcomeWaitsForTheWorkToSayIt(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		called := 0
		tool := &script{}
		r := register(t, tree, Spec{Deferred: true, Stopper: killer{teller{tool}}, OnCancel: func(*Run, *Cancellation) { called++ }})
		r.Cancel(byUser())
		synctest.Wait()
		if i := r.Info(); called != 1 || i.Outcome != Pending || i.Work != Stopping {
			t.Fatalf("after the Stop: %d calls of OnCancel, %+v", called, i)
		}
		if !r.Settle(Completed) || r.Settle(Cancelled) || r.Finish(Failed) {
			t.Error("the caller was not settled exactly once")
		}
		r.Observe(Evidence{Kind: SeenResult})
		if i, rec := r.Info(), r.Receipt(); i.Outcome != Completed || !i.Over() || rec.Outcome != Completed || rec.Late != 2 {
			t.Errorf("in the end: %+v, %+v", i, rec)
		}
	})
}

// Nobody says anything: the end of the ladder is the end of the wait, and a run
// that was never started does not wait at all.
func TestADeferredOutcomeIsCancelledWhenTheLadderEnds(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		queued := register(t, tree, Spec{Deferred: true, Queued: true})
		queued.Cancel(byUser())
		if i := queued.Info(); i.Outcome != Cancelled || !i.Over() {
			t.Errorf("never started: %+v", i)
		}
		silent := register(t, tree, Spec{Deferred: true, Stopper: teller{&script{}}})
		silent.Cancel(byUser())
		rec, err := silent.Wait(t.Context())
		if err != nil || rec.Outcome != Cancelled || rec.Work != Unconfirmed {
			t.Errorf("silent: %+v, %v", rec, err)
		}
		seen := register(t, tree, Spec{Deferred: true, Stopper: teller{&script{}}})
		seen.Cancel(byUser())
		seen.Observe(Evidence{Kind: SeenProcessGone})
		if i := seen.Info(); i.Outcome != Cancelled || !i.Over() {
			t.Errorf("seen dead: %+v", i)
		}
	})
}

// An owner who knows that nothing more will come ends the wait; a person's next
// Stop takes it up again.
func TestGiveUpEndsTheLadderUntilAPersonPresses(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		start := time.Now()
		tool := &script{on: map[Means]method{StepKill: func(context.Context, *Cancellation) (*Evidence, error) {
			return &Evidence{Kind: SeenProcessGone, Scope: ScopeLocalTree}, nil
		}}}
		r := register(t, tree, Spec{Stopper: killer{teller{tool}}})
		if r.GiveUp("too early") {
			t.Error("a run that is not cancelled was given up")
		}
		r.Cancel(byUser())
		synctest.Wait()
		if !r.GiveUp("two others are alive\n") || r.GiveUp("again") {
			t.Error("the run was not given up exactly once")
		}
		rec, err := r.Wait(t.Context())
		if err != nil || !rec.Final || rec.Held != "two others are alive" || rec.Work != Unconfirmed || time.Since(start) != 0 {
			t.Fatalf("after %s: %+v, %v", time.Since(start), rec, err)
		}
		time.Sleep(time.Minute)
		if n := len(tool.steps()); n != 1 {
			t.Errorf("it climbed all the same: %v", tool.steps())
		}
		ask(t, tree, CancelRequest{Escalate: true}, r)
		if rec, err := r.Wait(t.Context()); err != nil || rec.Verdict != Confirmed || rec.Held != "" {
			t.Errorf("after the second press: %+v, %v", rec, err)
		}
		if r.GiveUp("late") {
			t.Error("a run that is over was given up")
		}
	})
}
