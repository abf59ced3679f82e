package belay

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// other is another process's end of an attachment.
type other struct {
	mu  sync.Mutex
	got []CancelRequest
}

func (o *other) hear(req CancelRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, req)
}

func (o *other) heard() int {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.got)
}

// The tree spans processes: an attached process hears each Stop once, and a
// person's second one again.
func TestAttachedProcessesHearEachStopOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		top := register(t, tree, Spec{Name: "top"})
		r := register(t, tree, Spec{Name: "exec", Parent: top, Stopper: killer{teller{&script{}}}})
		var o other
		detach, err := tree.Attach(r.ID(), o.hear)
		if err != nil {
			t.Fatal(err)
		}
		if o.heard() != 0 {
			t.Error("called without a Stop")
		}
		c := byUser()
		top.Cancel(c)
		r.Cancel(byUser())
		top.Cancel(c)
		if o.heard() != 1 {
			t.Errorf("heard %d times of one Stop", o.heard())
		}
		if req := o.got[0]; req.Cancellation.Cause != CauseParent || req.Cancellation.Origin != top.ID() || req.Cancellation.Stop != c.Stop || req.Escalate || len(req.Filter.IDs) != 0 {
			t.Errorf("heard %+v", req)
		}
		again := byUser()
		ask(t, tree, CancelRequest{Cancellation: again, Escalate: true}, top)
		ask(t, tree, CancelRequest{Cancellation: again, Escalate: true}, r)
		if o.heard() != 2 || !o.got[1].Escalate || o.got[1].Cancellation.Stop != again.Stop {
			t.Errorf("heard %+v", o.got)
		}
		detach()
		detach()
		press(t, tree, r)
		if o.heard() != 2 {
			t.Error("called after detach")
		}
	})
}

// Attached late: the Stop is passed on at once, and so are later presses.
func TestAttachToACancelledRunIsToldAtOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Stopper: killer{teller{&script{}}}})
		press(t, tree, r)
		var o other
		if _, err := tree.Attach(r.ID(), o.hear); err != nil {
			t.Fatal(err)
		}
		if o.heard() != 1 || !o.got[0].Escalate || o.got[0].Cancellation.Stop != r.Cancellation().Stop {
			t.Errorf("heard %+v", o.got)
		}
		press(t, tree, r)
		if o.heard() != 2 {
			t.Errorf("heard %d times after a press", o.heard())
		}
	})
}

// An attached process is reached through a run that is over, as a local child
// is, until it goes away.
func TestAttachedProcessesAreReachedThroughARunThatIsOver(t *testing.T) {
	bubble(t, Options{KeepRuns: 1}, func(t *testing.T, tree *Tree) {
		top := register(t, tree, Spec{Name: "top"})
		r := register(t, tree, Spec{Name: "over", Parent: top})
		var o other
		detach, err := tree.Attach(r.ID(), o.hear)
		if err != nil {
			t.Fatal(err)
		}
		r.Finish(Completed)
		register(t, tree, Spec{}).Finish(Completed)
		top.Cancel(byUser())
		if o.heard() != 1 {
			t.Errorf("heard %d times", o.heard())
		}
		if r.parent == nil {
			t.Error("unlinked although something is attached")
		}
		detach()
		if r.parent != nil || top.first != nil {
			t.Error("still linked after detach")
		}
	})
}

func TestAttachRefusesWhatCannotBeStopped(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		var o other
		if _, err := tree.Attach(NewRunID(), o.hear); !errors.Is(err, ErrNotFound) {
			t.Errorf("unknown: %v", err)
		}
		r := register(t, tree, Spec{})
		r.Finish(Completed)
		if _, err := tree.Attach(r.ID(), o.hear); !errors.Is(err, ErrEnded) {
			t.Errorf("over: %v", err)
		}
		stuck := register(t, tree, Spec{})
		if err := tree.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := tree.Attach(stuck.ID(), o.hear); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if o.heard() != 0 {
			t.Error("called all the same")
		}
	})
}

// Two trees, as in two processes: the origin stays the run that was stopped,
// however many processes lie between.
func TestStopCrossesTreesAndKeepsItsOrigin(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, first *Tree) {
		second, third := NewTree(Options{}), NewTree(Options{})
		pass := func(from *Run, to *Tree, r *Run) {
			_, err := from.tree.Attach(from.ID(), func(req CancelRequest) {
				req.Filter.IDs = []RunID{r.ID()}
				if _, err := to.Cancel(t.Context(), req); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		top := register(t, first, Spec{Name: "top"})
		a := register(t, first, Spec{Name: "a", Parent: top})
		b := register(t, second, Spec{Name: "b", ParentID: a.ID()})
		tool := &script{}
		c := register(t, third, Spec{Name: "c", ParentID: b.ID(), Stopper: worker{killer{teller{tool}}}})
		pass(a, second, b)
		pass(b, third, c)
		press(t, first, top)
		synctest.Wait()
		got := c.Cancellation()
		if got == nil || got.Cause != CauseParent || got.Origin != top.ID() || got.Stop != top.Cancellation().Stop {
			t.Errorf("three processes down: %+v", got)
		}
		press(t, first, top)
		synctest.Wait()
		wantSteps(t, "asked", tool.steps(), StepTold, StepInterrupt)
		for _, tree := range []*Tree{second, third} {
			if err := tree.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
	})
}
