package acp

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// notes brings notifications to Options.Notify in their order, one at a time, and
// lets others wait until those that were read before something have been handled.
type notes struct {
	conn *Conn
	ctx  context.Context // of the handler
	read atomic.Uint64   // how many were read; changed by the reader only
	done atomic.Uint64   // how many were handled

	mu      sync.Mutex
	queue   []note
	bytes   int
	working bool // a goroutine works on the queue
	waiters []noteWaiter
	calm    chan struct{} // closed when the goroutine ends
}

type note struct {
	method string
	params []byte
}

type noteWaiter struct {
	until uint64
	ch    chan struct{}
}

type notesKey struct{}

// noteCost is added to the length of each, so that many empty ones cannot take
// more memory than a few long ones.
const noteCost = 64

func (n *notes) init(c *Conn) {
	n.conn = c
	n.ctx = context.WithValue(c.ctx, notesKey{}, n)
}

// add takes a notification from the reader. An error is the end of the connection.
func (n *notes) add(method string, params []byte) error {
	if n.conn.o.Notify == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bytes += len(params) + noteCost
	if n.bytes > n.conn.o.MaxNotes && len(n.queue) > 0 {
		return fmt.Errorf("%w: %d notifications with %d bytes wait for a handler", ErrFlooded, len(n.queue), n.bytes)
	}
	n.read.Add(1)
	n.queue = append(n.queue, note{method, bytes.Clone(params)})
	if !n.working {
		n.working, n.calm = true, make(chan struct{})
		go n.work(n.calm)
	}
	return nil
}

func (n *notes) work(calm chan struct{}) {
	defer close(calm)
	for {
		n.mu.Lock()
		if len(n.queue) == 0 {
			n.working, n.queue = false, nil
			n.mu.Unlock()
			return
		}
		next := n.queue[0]
		n.queue = n.queue[1:]
		n.bytes -= len(next.params) + noteCost
		n.mu.Unlock()
		n.handle(next)
		n.mu.Lock()
		done := n.done.Add(1)
		kept := n.waiters[:0]
		for _, w := range n.waiters {
			if w.until > done {
				kept = append(kept, w)
				continue
			}
			close(w.ch)
		}
		clear(n.waiters[len(kept):])
		n.waiters = kept
		n.mu.Unlock()
	}
}

func (n *notes) handle(next note) {
	defer func() {
		if p := recover(); p != nil {
			n.conn.o.Log.Error("the handler of notifications panicked", "method", next.method, "panic", fmt.Sprint(p))
		}
	}()
	n.conn.o.Notify(n.ctx, next.method, next.params)
}

// after waits until the first upTo notifications have been handled, but not long:
// a handler that hangs must not hold up everything else. It waits after the end of
// ctx too, for what was read before an answer is seen before it all the same. From
// within the handler it does not wait.
func (n *notes) after(ctx context.Context, upTo uint64) {
	if n.done.Load() >= upTo || ctx.Value(notesKey{}) == n {
		return
	}
	n.mu.Lock()
	if n.done.Load() >= upTo {
		n.mu.Unlock()
		return
	}
	w := noteWaiter{upTo, make(chan struct{})}
	n.waiters = append(n.waiters, w)
	n.mu.Unlock()
	limit := time.NewTimer(orderWait)
	defer limit.Stop()
	select {
	case <-w.ch:
		return
	case <-limit.C:
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.waiters {
		if n.waiters[i].ch == w.ch {
			n.waiters = append(n.waiters[:i], n.waiters[i+1:]...)
			return
		}
	}
}

// wait is for the end: until the handler has returned, or limit has passed. It
// reports whether it has.
func (n *notes) wait(limit <-chan time.Time) bool {
	n.mu.Lock()
	calm := n.calm
	n.queue = nil
	n.mu.Unlock()
	if calm == nil {
		return true
	}
	select {
	case <-calm:
		return true
	case <-limit:
		return false
	}
}
