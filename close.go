package belay

import (
	"context"
	"fmt"
	"time"
)

// Close refuses new runs, stops everything with CauseShutdown, and waits until
// all is over or ctx ends; then it gives up what ladders are left and returns
// an error that wraps the cause of ctx. Either way no goroutine of the tree is
// left, given that stoppers return when their context ends. It may be called
// more than once; the first caller whose ctx ends gives up for all of them.
func (t *Tree) Close(ctx context.Context) error {
	c := Cancellation{Cause: CauseShutdown, Via: "belay", Reason: "Belay is shutting down"}
	_ = c.complete(time.Now()) // fails for unknown causes only
	t.stopAll(&order{cause: &c}, func() []*Run {
		t.closed = true
		return t.selectLocked(want{}, 0, func(r *Run) bool { return r.place == inFlight })
	})
	err := t.drain(ctx)
	t.abandon()
	t.wg.Wait()
	return err
}

// drain waits until no run is in flight, or ctx ends.
func (t *Tree) drain(ctx context.Context) error {
	t.mu.Lock()
	left := t.selectLocked(want{}, 0, func(r *Run) bool { return r.place == inFlight })
	t.mu.Unlock()
	for _, r := range left {
		if _, err := r.Wait(ctx); err != nil {
			return fmt.Errorf("close: %d runs are not over: %w", t.InFlight(), err)
		}
	}
	return nil
}

// abandon ends every ladder and the context of every stopper's method.
func (t *Tree) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	for _, r := range t.runs {
		if r.stop == nil {
			continue
		}
		if !r.stop.final {
			t.giveUpLocked(r, "", "Belay ended before there was evidence")
		}
		r.stop.endLocked()
	}
}
