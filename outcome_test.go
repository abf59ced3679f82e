package belay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// DESIGN 2: the first terminal outcome wins, and exactly one caller is told so.
func TestFirstTerminalOutcomeWins(t *testing.T) {
	tree := NewTree(Options{KeepRuns: 10})
	for range 300 {
		var told atomic.Int32 // how many ways believe that they settled the caller
		r := register(t, tree, Spec{OnCancel: func(*Run, *Cancellation) { told.Add(1) }})
		var wg sync.WaitGroup
		for _, o := range []Outcome{Completed, Failed, Lost, Declined} {
			wg.Go(func() {
				if r.Finish(o) {
					told.Add(1)
				}
			})
		}
		wg.Go(func() {
			if r.Settle(Completed) {
				told.Add(1)
			}
		})
		wg.Go(func() { r.Cancel(byUser()) })
		wg.Wait()
		r.Observe(returned)
		if n := told.Load(); n != 1 {
			t.Fatalf("the caller was settled %d times", n)
		}
		first := r.Info().Outcome
		r.Finish(Lost)
		r.Cancel(byUser())
		if got := r.Info().Outcome; !first.Terminal() || got != first {
			t.Fatalf("outcome %s became %s", first, got)
		}
	}
	if err := tree.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, tree)
}

// The two axes: what the caller was told does not end the work.
func TestSettleLeavesTheWorkRunningAndFinishEndsIt(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		if !r.Settle(Completed) {
			t.Fatal("the first settlement was refused")
		}
		if i := r.Info(); i.Outcome != Completed || i.Work != Running || i.Over() || tree.InFlight() != 1 {
			t.Fatalf("after Settle: %+v, %d in flight", i, tree.InFlight())
		}
		if _, err := tree.Register(Spec{Kind: KindProcess, Name: "child", Parent: r}); err != nil {
			t.Errorf("a run whose work goes on may have children: %v", err)
		}
		if r.Finish(Failed) {
			t.Error("a second settlement was accepted")
		}
		if i := r.Info(); i.Outcome != Completed || i.Work != Stopped || !i.Over() {
			t.Errorf("after Finish: %+v", i)
		}
	})
}

// A caller that was settled is not settled again by a Stop of the work.
func TestOnCancelIsNotCalledForASettledCaller(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{OnCancel: func(*Run, *Cancellation) { t.Error("the caller was settled twice") }})
		r.Settle(Declined)
		if !r.Cancel(byUser()) {
			t.Error("the work was not stopped")
		}
		if i := r.Info(); i.Outcome != Declined || i.Work != Stopping {
			t.Errorf("outcome %s, work %s", i.Outcome, i.Work)
		}
	})
}

// The caller is settled before the backend hears of the Stop, and after the
// outcome and the context say so.
func TestCallerIsSettledBeforeTheBackendIsTold(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		var settled atomic.Bool
		tool := &script{on: map[Means]method{StepTold: func(context.Context, *Cancellation) (*Evidence, error) {
			if !settled.Load() {
				t.Error("told before the caller was settled")
			}
			return nil, nil
		}}}
		r := register(t, tree, Spec{Stopper: teller{tool}, OnCancel: func(r *Run, c *Cancellation) {
			if r.Info().Outcome != Cancelled || context.Cause(r.Context()) != error(c) {
				t.Errorf("in OnCancel: outcome %s, cause of the context %v", r.Info().Outcome, context.Cause(r.Context()))
			}
			settled.Store(true)
		}})
		r.Context()
		r.Cancel(byUser())
		if !settled.Load() {
			t.Error("the caller was not settled when Cancel returned")
		}
		synctest.Wait()
		wantSteps(t, "asked", tool.steps(), StepTold)
	})
}

// OnCancel runs without any lock: it may use the tree as it likes.
func TestHooksMayUseTheTree(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{OnCancel: func(r *Run, _ *Cancellation) {
			r.Finish(Completed)
			r.Partial("half")
			r.Observe(returned)
			r.Cancel(byUser())
			register(t, tree, Spec{}).Finish(Completed)
			if _, err := tree.List(t.Context(), Filter{}); err != nil {
				t.Error(err)
			}
		}})
		r.Cancel(byUser())
		if receipt := wait(t, r); receipt.Late != 1 || receipt.Partial != "half" || receipt.Verdict != Confirmed {
			t.Errorf("receipt %+v", receipt)
		}
	})
}

// Answers after the settlement are counted, and that is all.
func TestLateAnswersAreCounted(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Stopper: teller{&script{}}})
		r.Cancel(byUser())
		synctest.Wait()
		for range 3 {
			if r.Finish(Completed) {
				t.Error("a late answer settled the caller")
			}
		}
		receipt := r.Receipt()
		if receipt.Late != 3 || receipt.Outcome != Cancelled || receipt.Work != Stopping || receipt.Verdict != Signalled {
			t.Errorf("receipt %+v", receipt)
		}
		wantSteps(t, "timeline", timeline(receipt), StepRequested, StepTold, StepLate, StepLate, StepLate)
	})
}

// An outcome that is none cannot leave a run in a state that never ends.
func TestOutcomesThatAreNotTerminalCountAsFailed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		a, b := register(t, tree, Spec{}), register(t, tree, Spec{})
		if !a.Finish(Pending) || a.Info().Outcome != Failed {
			t.Errorf("Finish(pending): outcome %s", a.Info().Outcome)
		}
		if !b.Settle("") || b.Info().Outcome != Failed {
			t.Errorf("Settle(nothing): outcome %s", b.Info().Outcome)
		}
	})
}

// A queued run that is cancelled was never started, which is proof enough.
func TestCancelledInTheQueueIsConfirmedAndNeverStarts(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		tool := &script{}
		var settled int
		r := register(t, tree, Spec{Queued: true, Stopper: killer{teller{tool}}, OnCancel: func(*Run, *Cancellation) { settled++ }})
		ctx := r.Context()
		if r.Info().Work != Waiting {
			t.Fatalf("work %s, want waiting", r.Info().Work)
		}
		r.Cancel(byUser())
		receipt := wait(t, r)
		if receipt.Verdict != Confirmed || receipt.Work != Stopped || !receipt.Final || !receipt.OK() || settled != 1 {
			t.Errorf("settled %d times, receipt %+v", settled, receipt)
		}
		if e := receipt.Steps[1].Evidence; e == nil || e.Kind != SeenNotStarted {
			t.Errorf("timeline %+v", receipt.Steps)
		}
		if r.Start() {
			t.Error("Start let a cancelled run be dispatched")
		}
		if !errors.Is(context.Cause(ctx), ErrCancelled) {
			t.Error("its context is alive")
		}
		time.Sleep(time.Minute)
		wantSteps(t, "asked of the backend", tool.steps())
	})
}

func TestStartMakesAQueuedRunRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Queued: true})
		if !r.Start() || r.Info().Work != Running {
			t.Errorf("work %s after Start", r.Info().Work)
		}
		r.Cancel(byUser())
		if r.Start() {
			t.Error("Start is true for a run that is being stopped")
		}
		never := register(t, tree, Spec{Queued: true})
		never.Finish(Declined) // an approval that was refused
		if never.Start() || never.Info().Work != Stopped {
			t.Errorf("declined while waiting: work %s", never.Info().Work)
		}
	})
}

// Wait ends when caller and work are both done with, or with the cause of ctx.
func TestWaitEndsWithTheRunOrItsContext(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Stopper: teller{&script{}}})
		impatient := errors.New("impatient")
		ctx, end := context.WithTimeoutCause(t.Context(), time.Second, impatient)
		defer end()
		if receipt, err := r.Wait(ctx); !errors.Is(err, impatient) || receipt != nil {
			t.Errorf("running: receipt %v, error %v", receipt, err)
		}
		r.Cancel(byUser())
		synctest.Wait()
		receipt, err := r.Wait(ctx)
		if !errors.Is(err, impatient) || receipt == nil || receipt.Final || receipt.Verdict != Signalled {
			t.Errorf("being stopped: receipt %+v, error %v", receipt, err)
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if receipt, err := r.Wait(t.Context()); err != nil || !receipt.Final {
					t.Errorf("receipt %+v, error %v", receipt, err)
				}
			})
		}
		wg.Wait()
		if receipt, err := r.Wait(ctx); err != nil || !receipt.Final {
			t.Errorf("a run that is over is over, whatever ctx says: %+v, %v", receipt, err)
		}
		fine := register(t, tree, Spec{})
		go fine.Finish(Completed)
		if receipt := wait(t, fine); receipt != nil {
			t.Errorf("receipt %+v without a cancellation", receipt)
		}
	})
}
