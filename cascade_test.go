package belay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// One Stop reaches the whole subtree, over runs that are over, in one moment.
func TestStopReachesTheWholeSubtree(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		start := time.Now()
		top := register(t, tree, Spec{Kind: KindSession, Name: "top"})
		ended := register(t, tree, Spec{Name: "ended", Parent: top})
		var below []*Run
		var tools []*script
		for i := range 5 {
			tool := &script{}
			parent := top
			if i%2 == 0 {
				parent = ended
			}
			mid := register(t, tree, Spec{Name: fmt.Sprint("mid", i), Parent: parent, Stopper: teller{tool}})
			leaf := register(t, tree, Spec{Name: fmt.Sprint("leaf", i), Parent: mid, Stopper: teller{tool}})
			below, tools = append(below, mid, leaf), append(tools, tool)
		}
		ended.Finish(Completed)
		beside := register(t, tree, Spec{Name: "beside"})
		c := byUser()
		if !top.Cancel(c) {
			t.Fatal("nothing was stopped")
		}
		synctest.Wait()
		for _, r := range below {
			got := r.Cancellation()
			if got == nil || got.Cause != CauseParent || got.Origin != top.ID() || got.Stop != c.Stop {
				t.Errorf("%s: %+v", r.Name(), got)
			}
		}
		for i, tool := range tools {
			wantSteps(t, fmt.Sprint("tool ", i), tool.steps(), StepTold, StepTold)
			if d := tool.after(start, StepTold); d != 0 {
				t.Errorf("tool %d was told after %s", i, d)
			}
		}
		if c := top.Cancellation(); c.Cause != CauseUser || !c.Origin.IsZero() {
			t.Errorf("the top one: %+v", c)
		}
		if ended.Cancellation() != nil || beside.Cancellation() != nil {
			t.Error("a run that was over, or beside the tree, was cancelled")
		}
	})
}

// The whole subtree can also be stopped through a run that is over and even
// forgotten in between.
func TestStopPassesForgottenRuns(t *testing.T) {
	bubble(t, Options{KeepRuns: 1}, func(t *testing.T, tree *Tree) {
		top := register(t, tree, Spec{Name: "top"})
		mid := register(t, tree, Spec{Name: "mid", Parent: top})
		leaf := register(t, tree, Spec{Name: "leaf", Parent: mid})
		mid.Finish(Completed)
		for range 3 {
			register(t, tree, Spec{}).Finish(Completed)
		}
		if _, err := tree.Run(mid.ID()); !errors.Is(err, ErrNotFound) {
			t.Fatalf("the run in between is still remembered: %v", err)
		}
		list, err := tree.List(t.Context(), Filter{Under: top.ID()})
		if err != nil || len(list) != 2 {
			t.Errorf("under the top: %v, %v", list, err)
		}
		top.Cancel(byUser())
		if leaf.Cancellation() == nil {
			t.Error("the leaf was not reached")
		}
		leaf.Observe(returned)
		if top.first != nil || mid.parent != nil || leaf.parent != nil {
			t.Error("the runs are linked although nothing is left below")
		}
	})
}

// Tell is concurrent: one backend that blocks delays nobody.
func TestABlockingTellDelaysNobody(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		const n = 200
		top := register(t, tree, Spec{Name: "top"})
		start := time.Now()
		var tools [n]*script
		for i := range tools {
			tools[i] = &script{on: map[Means]method{StepTold: blocks}}
			register(t, tree, Spec{Parent: top, Stopper: killer{teller{tools[i]}}})
		}
		top.Cancel(byUser())
		time.Sleep(2*time.Second + time.Millisecond)
		for i, tool := range tools {
			if tool.after(start, StepTold) != 0 || tool.after(start, StepTerminate) != 2*time.Second {
				t.Fatalf("tool %d: told after %s, terminated after %s", i, tool.after(start, StepTold), tool.after(start, StepTerminate))
			}
		}
	})
}

// Register: no run under a run that is cancelled or over.
func TestRegisterUnderACancelledRunIsRefusedWithItsCancellation(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		top := register(t, tree, Spec{})
		c := byUser()
		c.Reason, c.By = "enough", "ana"
		top.Cancel(c)
		_, err := tree.Register(Spec{Kind: KindCall, Name: "child", Parent: top})
		var got *Cancellation
		if !errors.As(err, &got) || got != top.Cancellation() || got.Reason != "enough" || !errors.Is(err, ErrCancelled) {
			t.Errorf("error %v", err)
		}
		over := register(t, tree, Spec{})
		over.Finish(Completed)
		if _, err := tree.Register(Spec{Kind: KindCall, Name: "child", Parent: over}); !errors.Is(err, ErrEnded) {
			t.Errorf("under a run that is over: %v", err)
		}
	})
}

func TestRegisterRefusesWhatItCannotKeep(t *testing.T) {
	bubble(t, Options{MaxRuns: 2}, func(t *testing.T, tree *Tree) {
		many := map[string]string{}
		for i := range maxLabels + 1 {
			many[fmt.Sprint(i)] = ""
		}
		long := string(make([]byte, maxName+1))
		other := NewTree(Options{})
		foreign := register(t, other, Spec{})
		for name, spec := range map[string]Spec{
			"no kind":      {Name: "x"},
			"no name":      {Kind: KindCall},
			"labels":       {Kind: KindCall, Name: "x", Labels: many},
			"empty key":    {Kind: KindCall, Name: "x", Labels: map[string]string{"": "x"}},
			"long key":     {Kind: KindCall, Name: "x", Labels: map[string]string{long: "x"}},
			"long value":   {Kind: KindCall, Name: "x", Labels: map[string]string{"x": long}},
			"another tree": {Kind: KindCall, Name: "x", Parent: foreign},
		} {
			if _, err := tree.Register(spec); !errors.Is(err, ErrBadRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
		foreign.Finish(Completed)
		a := register(t, tree, Spec{})
		register(t, tree, Spec{})
		if _, err := tree.Register(Spec{Kind: KindCall, Name: "x"}); !errors.Is(err, ErrTooMany) {
			t.Errorf("beyond the bound: %v", err)
		}
		a.Finish(Completed)
		register(t, tree, Spec{})
	})
}

// What callers give is copied, bounded and harmless to show.
func TestSpecsAreCopiedBoundedAndCleaned(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		labels := map[string]string{"k": "v"}
		r := register(t, tree, Spec{Name: "evil\x1b[2J\nname", Owner: string(make([]byte, 10_000)), Server: "\u202eserver", Labels: labels})
		labels["k"] = "changed"
		info := r.Info()
		info.Labels["k"] = "changed too"
		if i := r.Info(); i.Name != "evil[2J name" || i.Server != "server" || len(i.Owner) > maxName || i.Labels["k"] != "v" {
			t.Errorf("%+v", i)
		}
	})
}

// DESIGN 2: context.Cause(ctx) is the *Cancellation, also for contexts that
// are made after the Stop, and it is what the standard library expects.
func TestCauseOfTheContextIsTheCancellation(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		early, late := register(t, tree, Spec{}), register(t, tree, Spec{})
		ctx := early.Context()
		if ctx.Err() != nil || RunFrom(ctx) != early || RunFrom(t.Context()) != nil {
			t.Fatal("the context of a run is not its own")
		}
		early.Cancel(byUser())
		late.Cancel(byUser())
		for _, r := range []*Run{early, late} {
			cause := context.Cause(r.Context())
			if cause != error(r.Cancellation()) || CancellationOf(r.Context()) != r.Cancellation() {
				t.Errorf("cause %v", cause)
			}
			if !errors.Is(cause, ErrCancelled) || !errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
				t.Errorf("%v is not what errors.Is should say", cause)
			}
		}
		if CancellationOf(t.Context()) != nil {
			t.Error("a context that is alive has a cancellation")
		}
	})
}

// A deadline is a cancel, at its moment, of everything below too.
func TestADeadlineIsACancel(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		start := time.Now()
		r := register(t, tree, Spec{Deadline: start.Add(3 * time.Second)})
		child := register(t, tree, Spec{Parent: r})
		ctx := r.Context()
		<-ctx.Done()
		c := r.Cancellation()
		if time.Since(start) != 3*time.Second || c.Cause != CauseDeadline || c.Stop.IsZero() {
			t.Errorf("after %s: %+v", time.Since(start), c)
		}
		if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v is not a deadline", err)
		}
		if c := child.Cancellation(); c == nil || c.Cause != CauseParent || errors.Is(c, context.DeadlineExceeded) {
			t.Errorf("the child: %+v", c)
		}
		fine := register(t, tree, Spec{Deadline: time.Now().Add(time.Second)})
		fine.Finish(Completed)
		past := register(t, tree, Spec{Deadline: time.Now().Add(-time.Hour)})
		time.Sleep(2 * time.Second)
		if fine.Cancellation() != nil {
			t.Error("a run that is over was cancelled by its deadline")
		}
		if past.Cancellation() == nil {
			t.Error("a deadline in the past was passed over")
		}
	})
}

// Machinery that repeats itself changes nothing.
func TestAMachinesRepeatChangesNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		tool := &script{}
		r := register(t, tree, Spec{Stopper: killer{teller{tool}}})
		r.Cancel(byUser())
		synctest.Wait()
		before, c := r.Receipt(), r.Cancellation()
		for _, cause := range []Cause{CauseUser, CauseDisconnect, CauseShutdown} {
			if r.Cancel(Cancellation{Cause: cause}) {
				t.Errorf("a repeat with cause %s claims to have stopped something", cause)
			}
		}
		for _, result := range ask(t, tree, CancelRequest{}, r) {
			if result.Affected {
				t.Error("a cancel without a person behind it claims to have changed something")
			}
		}
		synctest.Wait()
		if after := r.Receipt(); len(after.Steps) != len(before.Steps) || r.Cancellation() != c {
			t.Errorf("the receipt changed: %v", timeline(after))
		}
		wantSteps(t, "asked", tool.steps(), StepTold)
	})
}

// A Stop never fails for want of a word, and never lies about the future.
func TestCancelAcceptsWhatForeignCodeGives(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		if !r.Cancel(Cancellation{Cause: "whim", Reason: "a\x00b\nc", At: time.Now().Add(time.Hour)}) {
			t.Fatal("nothing was stopped")
		}
		if c := r.Cancellation(); c.Cause != CauseUser || c.Reason != "ab c" || c.At.After(time.Now()) {
			t.Errorf("%+v", c)
		}
		if _, err := tree.Cancel(t.Context(), CancelRequest{Cancellation: Cancellation{Cause: "whim"}}); !errors.Is(err, ErrBadRequest) {
			t.Errorf("Control takes any cause: %v", err)
		}
	})
}
