package belay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Close refuses new runs, stops what is left, and waits until all is over.
func TestCloseStopsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := NewTree(Options{})
		tool := &script{on: map[Means]method{StepTerminate: saw(gone)}}
		top := register(t, tree, Spec{Name: "top", Stopper: teller{&script{on: map[Means]method{StepTold: saw(returned)}}}})
		child := register(t, tree, Spec{Name: "child", Parent: top, Stopper: killer{teller{tool}}, Deadline: time.Now().Add(time.Hour)})
		queued := register(t, tree, Spec{Name: "queued", Queued: true})
		over := register(t, tree, Spec{Name: "over", Parent: top})
		orphan := register(t, tree, Spec{Name: "orphan", Parent: over, Stopper: teller{&script{on: map[Means]method{StepTold: saw(returned)}}}})
		over.Finish(Completed)
		start := time.Now()
		go func() {
			synctest.Wait()
			if _, err := tree.Register(Spec{Kind: KindCall, Name: "late"}); !errors.Is(err, ErrClosed) {
				t.Errorf("register during Close: %v", err)
			}
		}()
		if err := tree.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("Close took %s", d)
		}
		for _, r := range []*Run{top, child, queued, orphan} {
			receipt := r.Receipt()
			if receipt == nil || receipt.Verdict != Confirmed || receipt.Outcome != Cancelled {
				t.Errorf("%s: %+v", r.Name(), receipt)
			}
		}
		if c := top.Cancellation(); c.Cause != CauseShutdown {
			t.Errorf("%+v", c)
		}
		if c := child.Cancellation(); c.Cause != CauseParent || c.Origin != top.ID() {
			t.Errorf("%+v", c)
		}
		if over.Cancellation() != nil || over.Info().Outcome != Completed {
			t.Error("a run that was over was cancelled")
		}
		checkEmpty(t, tree)
		if err := tree.Close(t.Context()); err != nil {
			t.Errorf("a second Close: %v", err)
		}
		if _, err := tree.Register(Spec{Kind: KindCall, Name: "late"}); !errors.Is(err, ErrClosed) {
			t.Errorf("register after Close: %v", err)
		}
	})
}

// When its context ends Close gives up: every receipt becomes final, every
// method is told to return, and no timer or goroutine is left, even for a
// person who presses afterwards.
func TestCloseGivesUpAtTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := NewTree(Options{})
		tool := &script{on: map[Means]method{StepTold: blocks, StepTerminate: blocks, StepKill: blocks}}
		guarded := &script{gate: func(ctx context.Context, _ Pressure) error { <-ctx.Done(); return nil }}
		early := register(t, tree, Spec{Name: "early", Stopper: killer{teller{tool}}})
		gate := register(t, tree, Spec{Name: "gate", Stopper: gated{killer{teller{guarded}}}})
		late := register(t, tree, Spec{Name: "late", Stopper: killer{teller{tool}}, Ladder: Ladder{Grace: time.Hour}})
		alone := register(t, tree, Spec{Name: "alone"})
		var o other
		if _, err := tree.Attach(alone.ID(), o.hear); err != nil {
			t.Fatal(err)
		}
		early.Cancel(byUser())
		gate.Cancel(byUser())
		time.Sleep(3 * time.Second)
		impatient := errors.New("impatient")
		ctx, end := context.WithTimeoutCause(t.Context(), time.Second, impatient)
		defer end()
		start := time.Now()
		second := make(chan error)
		go func() { second <- tree.Close(context.Background()) }()
		if err := tree.Close(ctx); !errors.Is(err, impatient) {
			t.Errorf("error %v", err)
		}
		if err := <-second; err != nil {
			t.Errorf("the patient Close: %v", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("Close took %s", d)
		}
		for _, r := range []*Run{early, gate, late, alone} {
			receipt := r.Receipt()
			if !receipt.Final || receipt.Work != Unconfirmed || receipt.Held != "" {
				t.Errorf("%s: %+v", r.Name(), receipt)
			}
		}
		checkEmpty(t, tree)
		heard := o.heard()
		press(t, tree, early, gate, late, alone)
		early.Cancel(byUser())
		time.Sleep(2 * time.Hour)
		wantSteps(t, "asked of the gated one", guarded.steps(), StepTold)
		if o.heard() != heard {
			t.Error("an attachment was called after Close")
		}
		early.Observe(gone)
		if receipt := early.Receipt(); receipt.Verdict != Confirmed {
			t.Errorf("late evidence after Close: %+v", receipt)
		}
		checkEmpty(t, tree)
	})
}

// A ladder that a person started again is waited for as well.
func TestCloseWaitsForLaddersThatAreClimbedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := NewTree(Options{})
		n := 0
		tool := &script{on: map[Means]method{StepKill: func(context.Context, *Cancellation) (*Evidence, error) {
			if n++; n == 2 {
				return &gone, nil
			}
			return nil, nil
		}}}
		r := register(t, tree, Spec{Stopper: deadly{tool}})
		r.Cancel(byUser())
		wait(t, r)
		press(t, tree, r)
		if err := tree.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if receipt := r.Receipt(); receipt.Verdict != Confirmed {
			t.Errorf("%+v", receipt)
		}
	})
}

func TestCloseOfAnEmptyTree(t *testing.T) {
	tree := NewTree(Options{})
	register(t, tree, Spec{}).Finish(Completed)
	over, end := context.WithCancel(t.Context())
	end()
	if err := tree.Close(over); err != nil {
		t.Errorf("nothing was in flight, and yet: %v", err)
	}
	checkEmpty(t, tree)
}
