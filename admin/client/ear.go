package client

import (
	"context"
	"errors"
	"sync"

	"github.com/belayhq/belay"
)

// ear is one event stream for all leases of an owner that a client holds: a
// server gives a principal few streams, and a runtime may have many turns. It
// listens while there are holders.
type ear struct {
	client *Client
	owner  string

	mu      sync.Mutex
	holders map[belay.RunID]*holder
	end     context.CancelCauseFunc // of the goroutine; nil: none
	ended   chan struct{}           // closed when it has returned
}

// ear returns the one of an owner.
func (c *Client) ear(owner string) *ear {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.ears[owner]
	if e == nil {
		if c.ears == nil {
			c.ears = make(map[string]*ear)
		}
		e = &ear{client: c, owner: owner, holders: make(map[belay.RunID]*holder)}
		c.ears[owner] = e
	}
	return e
}

// join lets a holder hear of its run until leave is called. The last one to leave
// waits for the goroutine.
func (e *ear) join(h *holder) (leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holders[h.lease.run] = h
	if e.end == nil {
		ctx, end := context.WithCancelCause(context.Background())
		e.end, e.ended = end, make(chan struct{})
		go func(ended chan struct{}) {
			defer close(ended)
			e.listen(ctx)
		}(e.ended)
	}
	return func() { e.leave(h) }
}

func (e *ear) leave(h *holder) {
	e.mu.Lock()
	if e.holders[h.lease.run] == h {
		delete(e.holders, h.lease.run)
	}
	if len(e.holders) > 0 || e.end == nil {
		e.mu.Unlock()
		return
	}
	end, ended := e.end, e.ended
	e.end = nil // whoever joins now begins anew
	e.mu.Unlock()
	end(errReleased)
	<-ended
}

// listen tells holders of Stops, and rings for a heartbeat, whose answer says
// more: there is one place where orders come from.
func (e *ear) listen(ctx context.Context) {
	events := e.client.Watch(ctx, belay.Filter{Owner: e.owner})
	e.ringAll() // a Stop may have come before the stream was open
	for event, err := range events {
		switch {
		case errors.Is(err, ErrLost), err == nil && event.Lost > 0:
			e.ringAll()
		case err != nil:
			continue // the stream goes on behind what was seen last
		}
		if event.Run.Cancellation == nil {
			continue // a heartbeat of ours may have made it
		}
		e.mu.Lock()
		h := e.holders[event.Run.ID]
		e.mu.Unlock()
		if h != nil {
			h.stop(event.Run.Cancellation)
			h.ring()
		}
	}
}

func (e *ear) ringAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.holders {
		h.ring()
	}
}
