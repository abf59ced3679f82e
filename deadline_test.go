package belay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// endsAfter waits for the run's deadline and holds that it comes then.
func endsAfter(t *testing.T, r *Run, d time.Duration) {
	t.Helper()
	begin := time.Now()
	<-r.Context().Done()
	if took := time.Since(begin); took != d || r.Cancellation().Cause != CauseDeadline {
		t.Errorf("it ended after %v by %s, want %v", took, r.Cancellation().Cause, d)
	}
}

// The clock of a deadline stands still while a person is asked, and goes on with
// what was left, whatever became of the question.
func TestTheDeadlineWaitsForAPerson(t *testing.T) {
	for name, decide := range map[string]func(*Tree, ApprovalID, context.CancelFunc){
		"approved": func(tree *Tree, id ApprovalID, _ context.CancelFunc) {
			_, _ = tree.Decide(context.Background(), id, Decision{Choice: ChoiceApproved})
		},
		"declined": func(tree *Tree, id ApprovalID, _ context.CancelFunc) {
			_, _ = tree.Decide(context.Background(), id, Decision{Choice: ChoiceDeclined})
		},
		"expired": func(*Tree, ApprovalID, context.CancelFunc) { time.Sleep(time.Minute) },
		"given up": func(_ *Tree, _ ApprovalID, end context.CancelFunc) {
			end()
		},
	} {
		for _, queued := range []bool{false, true} {
			bubble(t, Options{}, func(t *testing.T, tree *Tree) {
				r := register(t, tree, Spec{Deadline: time.Now().Add(10 * time.Second), Queued: queued})
				time.Sleep(4 * time.Second)
				ctx, end := context.WithCancel(t.Context())
				defer end()
				q, over, asked := mayI, make(chan struct{}), make(chan ApprovalID, 1)
				q.Timeout, q.Show = 2*time.Minute, func(a Approval) { asked <- a.ID }
				go func() {
					defer close(over)
					_, _ = r.Ask(ctx, q)
				}()
				time.Sleep(time.Minute)
				if left := time.Until(r.Info().Deadline); r.Cancellation() != nil || left != 6*time.Second {
					t.Errorf("%s: while a person is asked %v are left; %v", name, left, r.Cancellation())
				}
				decide(tree, <-asked, end)
				<-over
				if left := time.Until(r.Info().Deadline); left != 6*time.Second {
					t.Errorf("%s: afterwards %v are left", name, left)
				}
				endsAfter(t, r, 6*time.Second)
				if left := time.Until(r.Info().Deadline); left != 0 {
					t.Errorf("%s: at the end %v are left", name, left)
				}
			})
		}
	}
}

// Of several questions the last one counts, and of one that is never answered a
// Stop ends the clock too.
func TestTheDeadlineWaitsForAllQuestions(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Deadline: time.Now().Add(10 * time.Second)})
		first, got1 := asks(t, r, mayI)
		time.Sleep(30 * time.Second)
		second, got2 := asks(t, r, mayI)
		_, _ = tree.Decide(t.Context(), first.ID, Decision{Choice: ChoiceApproved})
		<-got1
		time.Sleep(30 * time.Second)
		_, _ = tree.Decide(t.Context(), second.ID, Decision{Choice: ChoiceApproved})
		<-got2
		time.Sleep(9 * time.Second)
		_, _ = asks(t, r, mayI)
		time.Sleep(time.Minute)
		if c := r.Cancellation(); c != nil {
			t.Fatalf("it was stopped: %v", c)
		}
		press(t, tree, r)
		synctest.Wait()
		if left := time.Until(r.Info().Deadline); left != time.Second {
			t.Errorf("stopped with %v left", left)
		}
	})
}

// A question that comes with the deadline does not hold it up, and the deadline of a
// run above goes on.
func TestADeadlineThatDoesNotWait(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		late := register(t, tree, Spec{Deadline: time.Now().Add(time.Second)})
		tree.mu.Lock() // the timer has gone off and waits, when the question comes
		time.Sleep(time.Second)
		late.haltClockLocked(time.Now())
		tree.mu.Unlock()
		endsAfter(t, late, 0)

		above := register(t, tree, Spec{Name: "turn", Deadline: time.Now().Add(3 * time.Second)})
		r := register(t, tree, Spec{Parent: above, Deadline: time.Now().Add(time.Second)})
		_, got := asks(t, r, mayI)
		endsAfter(t, above, 3*time.Second)
		if d := <-got; !errors.Is(d.err, ErrCancelled) || r.Cancellation().Cause != CauseParent {
			t.Errorf("%+v, stopped by %v", d, r.Cancellation())
		}
	})
}

// Questions that come and go while the timer goes off lose no time and win none.
func TestTheDeadlineAmongManyQuestions(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Deadline: time.Now().Add(time.Second)})
		begin, asked := time.Now(), time.Duration(0)
		for r.Cancellation() == nil {
			from := time.Now()
			var all sync.WaitGroup
			for i := range 8 {
				q := mayI
				q.Timeout = time.Duration(1+i) * 100 * time.Millisecond
				all.Go(func() { _, _ = r.Ask(t.Context(), q) })
			}
			all.Wait()
			asked += time.Since(from)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if worked := time.Since(begin) - asked; worked != time.Second {
			t.Errorf("it worked for %v", worked)
		}
	})
}
