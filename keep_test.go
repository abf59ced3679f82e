package belay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Bounded memory: ended runs are remembered up to a count, the newest ones.
func TestEndedRunsAreKeptUpToACount(t *testing.T) {
	bubble(t, Options{KeepRuns: 10}, func(t *testing.T, tree *Tree) {
		top := register(t, tree, Spec{Name: "top"})
		for i := range 100 {
			r := register(t, tree, Spec{Name: fmt.Sprint(i), Parent: top})
			if i%2 == 0 {
				r.Finish(Completed)
			} else {
				r.Cancel(byUser())
				r.Observe(returned)
			}
		}
		list, err := tree.List(t.Context(), Filter{Ended: true})
		if err != nil || len(list) != 11 || list[1].Name != "90" || list[10].Name != "99" {
			t.Errorf("%v, %v", names(list), err)
		}
		if len(tree.runs) != 11 || tree.kept.len != 10 || top.first != nil || tree.inFlight != 1 {
			t.Errorf("%d known, %d remembered, %d in flight, linked %t", len(tree.runs), tree.kept.len, tree.inFlight, top.first != nil)
		}
	})
}

// And for a time.
func TestEndedRunsAreKeptForATime(t *testing.T) {
	bubble(t, Options{KeepFor: time.Minute}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		r.Finish(Completed)
		time.Sleep(time.Minute - time.Nanosecond)
		if _, err := tree.Run(r.ID()); err != nil {
			t.Errorf("forgotten too early: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := tree.Run(r.ID()); !errors.Is(err, ErrNotFound) {
			t.Errorf("remembered too long: %v", err)
		}
		if i := r.Info(); i.Outcome != Completed || r.Finish(Failed) {
			t.Errorf("who holds the run can no longer use it: %+v", i)
		}
	})
}

// A run whose ladder gave up can be stopped again as long as it is
// remembered; then its stopper's context ends and nothing of it is left.
func TestAForgottenRunLetsGoOfItsStopper(t *testing.T) {
	bubble(t, Options{KeepFor: time.Minute}, func(t *testing.T, tree *Tree) {
		hung := make(chan error, 1)
		tool := &script{on: map[Means]method{StepTold: func(ctx context.Context, _ *Cancellation) (*Evidence, error) {
			<-ctx.Done()
			hung <- context.Cause(ctx)
			return nil, nil
		}}}
		top := register(t, tree, Spec{Name: "top"})
		r := register(t, tree, Spec{Stopper: killer{teller{tool}}, Parent: top})
		r.Cancel(byUser())
		wait(t, r)
		if r.parent != top || r.stop.ctx.Err() != nil {
			t.Error("let go too early: a second Stop could not reach it any more")
		}
		time.Sleep(time.Minute)
		if _, err := tree.Run(r.ID()); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := <-hung; !errors.Is(err, ErrCancelled) {
			t.Errorf("the method ended with %v", err)
		}
		if r.parent != nil || top.first != nil || r.spec.Stopper != nil {
			t.Error("a forgotten run is still linked")
		}
		press(t, tree, top)
		r.Observe(gone)
		if receipt := r.Receipt(); receipt.Verdict != Confirmed {
			t.Errorf("late evidence for who holds the run: %+v", receipt)
		}
		wantSteps(t, "asked", tool.steps(), StepTold, StepTerminate, StepKill)
	})
}

// Labels, names, reasons, timelines and lists are bounded, and what a chatty
// tool says does not crowd out what Belay did.
func TestReceiptsAreBounded(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		tool := &script{on: map[Means]method{
			StepTerminate: func(context.Context, *Cancellation) (*Evidence, error) {
				return nil, errors.New(strings.Repeat("x", 1<<20))
			},
			StepKill: saw(gone),
		}}
		r := register(t, tree, Spec{Stopper: killer{teller{tool}}})
		press(t, tree, r)
		synctest.Wait()
		r.Partial(strings.Repeat("é", 1<<20))
		r.Partial("second")
		many := make([]Process, 10_000)
		for i := range many {
			many[i] = Process{PID: i}
		}
		long := strings.Repeat("y", 1<<20)
		for i := range 60 {
			r.Finish(Completed)
			r.Observe(Evidence{Kind: SeenStillActive, Detail: long})
			r.Observe(Evidence{Kind: SeenErrorReply, Open: true, Spared: many[100*i:], Survivors: many, Remote: []string{fmt.Sprint(i)}})
		}
		receipt := wait(t, r)
		if n := len(receipt.Steps); n > maxSteps || receipt.Dropped == 0 || receipt.Late != 60 {
			t.Errorf("%d steps, %d dropped, %d late", n, receipt.Dropped, receipt.Late)
		}
		if last := receipt.Steps[len(receipt.Steps)-1]; last.Evidence == nil || last.Evidence.Kind != SeenProcessGone {
			t.Errorf("the last step is %+v", last)
		}
		for _, s := range receipt.Steps {
			if len(s.Detail) > MaxReason || len(s.Error) > MaxReason || s.Evidence != nil && (len(s.Evidence.Detail) > MaxReason || len(s.Evidence.Survivors) > maxSeen) {
				t.Errorf("a step of %d and %d bytes", len(s.Detail), len(s.Error))
			}
		}
		if len(receipt.Partial) != 64<<10 || len(receipt.Spared) > maxListed || len(receipt.Remote) > maxListed {
			t.Errorf("partial %d bytes, %d spared, %d remote", len(receipt.Partial), len(receipt.Spared), len(receipt.Remote))
		}
	})
}

// Forget takes an owner's ended runs away at once and leaves the rest: others'
// runs, those in flight, and the order in which runs are forgotten by age.
func TestForget(t *testing.T) {
	bubble(t, Options{KeepRuns: 10}, func(t *testing.T, tree *Tree) {
		top := register(t, tree, Spec{Name: "top", Owner: "ann"})
		var mine RunID
		for i := range 6 {
			owner := []string{"ann", "bob"}[i%2]
			r := register(t, tree, Spec{Name: fmt.Sprint(i), Parent: top, Owner: owner, Address: fmt.Sprint(i)})
			if i == 2 {
				mine = r.ID()
			}
			if i < 4 {
				r.Finish(Completed)
			} else {
				r.Cancel(byUser())
				r.Observe(returned)
			}
		}
		if n := tree.Forget("ann"); n != 3 {
			t.Errorf("%d forgotten", n)
		}
		if n := tree.Forget("ann"); n != 0 {
			t.Errorf("%d forgotten again", n)
		}
		list, err := tree.List(t.Context(), Filter{Ended: true})
		if err != nil || fmt.Sprint(names(list)) != "[top 1 3 5]" || tree.kept.len != 3 || tree.inFlight != 1 {
			t.Errorf("%v, %v; %d remembered, %d in flight", names(list), err, tree.kept.len, tree.inFlight)
		}
		if _, err := tree.Get(t.Context(), mine); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
		if found, err := tree.FindRequest(t.Context(), "2", "", true); err != nil || len(found) != 0 {
			t.Errorf("found %v, %v", names(found), err)
		}
		for i := range 20 {
			register(t, tree, Spec{Name: fmt.Sprint("more ", i), Owner: "bob"}).Finish(Completed)
		}
		if tree.kept.len != 10 || len(tree.runs) != 11 {
			t.Errorf("%d remembered, %d known", tree.kept.len, len(tree.runs))
		}
	})
}

// Bounded memory: partial results of ended runs are remembered up to a size, those
// of the newest; a run that was not stopped keeps none, for no receipt shows it.
func TestPartialsAreKeptUpToASize(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		large := strings.Repeat("x", 64<<10)
		var last *Run
		for i := range 3000 {
			r := register(t, tree, Spec{})
			if i%2 == 0 {
				r.Partial(large)
				r.Finish(Completed)
				continue
			}
			r.Cancel(byUser())
			if i%4 == 1 {
				r.Partial(large)
			}
			r.Observe(returned)
			if i%4 == 3 {
				r.Partial(large) // late
			}
			last = r
		}
		sum, sizes := 0, 0
		for r := tree.kept.oldest; r != nil; r = r.newer {
			sum += len(r.partial)
			sizes++
		}
		if sum != tree.kept.bytes || sum > keepPartials || sum < keepPartials/2 || sizes != 3000 {
			t.Errorf("%d runs hold %d bytes, counted as %d, at most %d", sizes, sum, tree.kept.bytes, keepPartials)
		}
		if got := len(wait(t, last).Partial); got != len(large) {
			t.Errorf("the newest receipt has %d bytes of a partial result", got)
		}
	})
}
