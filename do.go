package belay

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Do runs fn as a run: registered before it starts, below the run of ctx (or
// spec.Parent), stopped by a Stop or by the end of ctx, and with the return of
// fn as its evidence. The context that fn gets ends with a *Cancellation as
// its cause. Do returns what fn returns, except that a fn which fails after a
// Stop yields an error that wraps the *Cancellation; one that fails with
// [ErrDeclined] leaves the outcome Declined. If ctx has ended already
// or the run is refused, fn is not called. spec.Queued is ignored.
func (t *Tree) Do(ctx context.Context, spec Spec, fn func(context.Context) error) error {
	if ctx.Err() != nil {
		c := causeOf(ctx)
		return fmt.Errorf("%.64q was not started: %w", spec.Name, &c)
	}
	if spec.Parent == nil && spec.ParentID.IsZero() {
		if above := RunFrom(ctx); above != nil && above.tree == t {
			spec.Parent = above
		}
	}
	spec.Queued = false
	r, err := t.register(context.WithoutCancel(ctx), &spec)
	if err != nil {
		return err
	}
	defer r.follow(ctx)()
	returned := false
	defer func() {
		if !returned { // fn panicked or ended its goroutine: the handler is over all the same
			_ = r.conclude(Failed)
		}
	}()
	err = fn(r.Context())
	returned = true
	outcome := Completed
	switch {
	case errors.Is(err, ErrDeclined):
		outcome = Declined
	case err != nil:
		outcome = Failed
	}
	if c := r.conclude(outcome); c != nil && err != nil && !errors.Is(err, error(c)) {
		return fmt.Errorf("%w (%w)", c, err)
	}
	return err
}

// follow cancels the run when ctx ends. unfollow waits for a cancel that is
// under way, so that no goroutine outlives Do.
func (r *Run) follow(ctx context.Context) (unfollow func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		r.Cancel(causeOf(ctx))
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

// causeOf turns the end of a context that is not ours into a cancellation.
func causeOf(ctx context.Context) Cancellation {
	var c Cancellation
	if known := CancellationOf(ctx); known != nil {
		c = *known
	} else {
		c = Cancellation{Cause: CauseUser, Via: "context", Reason: context.Cause(ctx).Error()}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.Cause = CauseDeadline
		}
	}
	if c.complete(time.Now()) != nil {
		c.Cause = CauseUser
	}
	return c
}
