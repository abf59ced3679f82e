package belay

import (
	"context"
	"sync/atomic"
	"time"
)

// stopContext is the context of a stopper's methods. It ends with the run's
// cancellation as its cause. The real one behind it is made when somebody
// looks: most tells send one message and do not, and a Stop of 100,000 runs
// need not make 100,000 contexts under the lock.
type stopContext struct {
	real  atomic.Pointer[endable]
	ended atomic.Bool
	cause *Cancellation // set before it is used
}

type endable struct {
	context.Context
	end context.CancelCauseFunc
}

var _ context.Context = (*stopContext)(nil)

// get is the real context. Being a standard one, it makes contexts that derive
// from this one as cheap as any, and context.Cause find the cause.
func (c *stopContext) get() *endable {
	if e := c.real.Load(); e != nil {
		return e
	}
	e := &endable{}
	e.Context, e.end = context.WithCancelCause(context.Background())
	if !c.real.CompareAndSwap(nil, e) {
		e.end(c.cause) // somebody else was first
		return c.real.Load()
	}
	if c.ended.Load() { // end may have come before there was anything to end
		e.end(c.cause)
	}
	return e
}

func (c *stopContext) finish() {
	c.ended.Store(true)
	if e := c.real.Load(); e != nil {
		e.end(c.cause)
	}
}

// Deadline implements [context.Context].
func (c *stopContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements [context.Context].
func (c *stopContext) Done() <-chan struct{} { return c.get().Done() }

// Err implements [context.Context].
func (c *stopContext) Err() error { return c.get().Err() }

// Value implements [context.Context].
func (c *stopContext) Value(key any) any { return c.get().Value(key) }

// stepContext is the context of one step of force.
type stepContext struct {
	context.Context
	patience context.Context
}

type patienceKey struct{}

// Value implements [context.Context].
func (c stepContext) Value(key any) any {
	if key == (patienceKey{}) {
		return c.patience
	}
	return c.Context.Value(key)
}

// Patience returns the context for a pause that a step of force makes of its own
// accord: for a tool that is known to clean up slowly. It ends with ctx, which is that
// of the step, and as soon as a person presses Stop while force is used: a press does
// not wait for anybody (DESIGN 11, 7). It may be called concurrently.
func Patience(ctx context.Context) context.Context {
	if p, ok := ctx.Value(patienceKey{}).(context.Context); ok {
		return p
	}
	return ctx
}
