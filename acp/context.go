package acp

import (
	"context"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// requestContext is the context of a handler: that of the request's run, ended
// also when the handler has returned. The one behind it, which can be ended, is
// made when somebody looks: most handlers answer at once and do not.
type requestContext struct {
	of  *Request
	run context.Context

	mu sync.Mutex
	// The fields below are guarded by mu.
	real  context.Context
	end   context.CancelCauseFunc
	ended bool // the handler has returned
}

var _ context.Context = (*requestContext)(nil)

// get is the real context. Being a standard one, it makes contexts that derive
// from this one as cheap as any, and context.Cause find the cause.
func (c *requestContext) get() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		c.real, c.end = context.WithCancelCause(c.run)
		if c.ended {
			c.end(c.answered())
		}
	}
	return c.real
}

// finish ends what the handler has left behind.
func (c *requestContext) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.end != nil {
		c.end(c.answered())
	}
}

func (c *requestContext) answered() error {
	return &belay.Cancellation{Cause: belay.CauseParent, Via: "acp", Reason: "the request has been answered", At: time.Now(), Origin: c.of.run.ID()}
}

// Deadline implements [context.Context].
func (c *requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements [context.Context].
func (c *requestContext) Done() <-chan struct{} { return c.get().Done() }

// Err implements [context.Context].
func (c *requestContext) Err() error { return c.get().Err() }

// Value implements [context.Context].
func (c *requestContext) Value(key any) any {
	if key == (requestKey{}) {
		return c.of
	}
	return c.get().Value(key)
}
