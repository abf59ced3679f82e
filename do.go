package belay

import (
	"context"
	"fmt"
)

// Do runs fn as a run: registered before it starts, below the run of ctx (or
// spec.Parent), stopped by a Stop or by the end of ctx, and with the return of
// fn as its evidence. The context that fn gets ends with a *Cancellation as
// its cause. Do returns what fn returns, except that a fn which fails after a
// Stop yields an error that wraps the *Cancellation.
func (t *Tree) Do(ctx context.Context, spec Spec, fn func(context.Context) error) error {
	if spec.Parent == nil && spec.ParentID.IsZero() {
		if above := RunFrom(ctx); above != nil && above.tree == t {
			spec.Parent = above
		}
	}
	r, err := t.register(spec, context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	unhook := context.AfterFunc(ctx, func() { r.Cancel(causeOf(ctx)) })
	defer unhook()
	returned := false
	defer func() {
		if !returned { // fn panicked or ended its goroutine: the handler is over all the same
			r.conclude(Failed)
		}
	}()
	err = fn(r.Context())
	returned = true
	outcome := Completed
	if err != nil {
		outcome = Failed
	}
	c := r.conclude(outcome)
	if err != nil && c != nil {
		return fmt.Errorf("%w (%w)", c, err)
	}
	return err
}

// conclude settles a native run whose handler has returned.
func (r *Run) conclude(o Outcome) *Cancellation {
	if r.Finish(o) {
		return nil
	}
	r.Observe(Evidence{Kind: SeenHandlerReturned, Scope: ScopeHandler})
	return r.Cancellation()
}

// causeOf turns the end of a context that is not ours into a cancellation.
func causeOf(ctx context.Context) Cancellation {
	if c := CancellationOf(ctx); c != nil {
		return *c
	}
	c := Cancellation{Cause: CauseUser, Via: "context", Reason: context.Cause(ctx).Error()}
	if context.Cause(ctx) == context.DeadlineExceeded {
		c.Cause = CauseDeadline
	}
	return c
}
