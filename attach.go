package belay

import (
	"fmt"
	"slices"
)

// attachment is somebody else's set of runs below a run of ours. Guarded by
// tree.mu.
type attachment struct {
	fn   func(CancelRequest)
	told StopID // the last Stop that was passed on; zero: none yet
}

// Attach hangs runs that another process holds below a run of this tree: fn is
// called, in a goroutine of its own, when that run or one above it is stopped,
// and again when a person presses once more; that holds while it is attached,
// even when the run itself is over. If the run is cancelled already, fn is
// called at once. The request's Filter is empty and its cause is parent.
// detach is idempotent; a call of fn may still be under way when it returns.
// A run that is over and was not cancelled is [ErrEnded]. fn must not wait for
// [Tree.Close], which waits for it.
func (t *Tree) Attach(id RunID, fn func(CancelRequest)) (detach func(), err error) {
	a := &attachment{fn: fn}
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.runLocked(id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("attach: %w", err)
	case t.gone:
		return nil, fmt.Errorf("attach below %s: %w", id, ErrClosed)
	case r.stop == nil && r.place != inFlight:
		return nil, fmt.Errorf("attach below %s: %w", id, ErrEnded)
	}
	if s := r.stop; s != nil {
		request := a.askLocked(r, &order{cause: s.first.cause, escalate: s.presses > 0, now: s.now})
		t.wg.Go(request)
	}
	r.hooks = append(r.hooks, a)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		r.hooks = slices.DeleteFunc(r.hooks, func(b *attachment) bool { return a == b })
		r.unlinkLocked()
	}, nil
}

// askLocked is the call that a Stop of the run or of one above owes to the
// attachment; nil if it has been made, or if machinery repeats itself.
func (a *attachment) askLocked(r *Run, o *order) func() {
	if a.told == o.cause.Stop || !a.told.IsZero() && !o.presses() {
		return nil
	}
	a.told = o.cause.Stop
	request := CancelRequest{Cancellation: *o.cause.forChild(r.id), Escalate: o.escalate, Now: o.now}
	return func() { a.fn(request) }
}
