package tracing

import (
	"context"
	"errors"
	"time"
)

// Trying again: after a failure that may pass, as long as a batch is not older
// than giveUp. Spans that come meanwhile wait in the queue, or are dropped.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
	giveUp     = 30 * time.Second
)

// sender takes batches somewhere. One goroutine uses it.
type sender interface {
	// send hands over the spans. It says how many the receiver rejected, which
	// is no error. A *temporary error may pass.
	send(ctx context.Context, o *origin, spans []*span) (rejected int, err error)
	close()
}

// temporary is an error after which it is worth to try again.
type temporary struct {
	error
	after time.Duration // what the receiver asks for; 0: nothing
}

func (e *temporary) Unwrap() error { return e.error }

// export sends batches until the queue is closed and empty.
func (t *Tracer) export() {
	tick := time.NewTicker(t.opts.Config.Delay)
	defer tick.Stop()
	for {
		select {
		case <-t.bell:
		case <-tick.C:
		}
		for {
			batch, last := t.takeBatch()
			if len(batch) == 0 {
				if last {
					return
				}
				break
			}
			t.deliver(batch)
		}
	}
}

// takeBatch takes the oldest spans. last says that none will come after them.
func (t *Tracer) takeBatch() (batch []*span, last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.queue), t.opts.Config.Batch)
	batch = t.queue[:n:n]
	t.queue = append([]*span(nil), t.queue[n:]...)
	return batch, t.closed
}

// deliver sends one batch, or gives it up.
func (t *Tracer) deliver(batch []*span) {
	rejected, err := t.try(batch)
	if err != nil {
		t.dropped(len(batch), err.Error())
		return
	}
	rejected = max(min(rejected, len(batch)), 0)
	t.mu.Lock()
	t.stats.Exported += uint64(len(batch) - rejected)
	t.mu.Unlock()
	if rejected > 0 {
		t.dropped(rejected, "the receiver rejected them")
	}
}

// try sends a batch again and again while that may help.
func (t *Tracer) try(batch []*span) (rejected int, err error) {
	began, pause := time.Now(), firstRetry
	for {
		if t.exports.Err() != nil {
			return 0, context.Cause(t.exports)
		}
		rejected, err = t.send.send(t.exports, &t.origin, batch)
		passing, ok := errors.AsType[*temporary](err)
		if !ok {
			return rejected, err
		}
		wait := max(pause, passing.after)
		if time.Since(began)+wait > giveUp {
			return 0, err
		}
		if !t.restFor(wait) {
			return 0, err
		}
		pause = min(2*pause, lastRetry)
	}
}

// restFor waits; false if that was cut short.
func (t *Tracer) restFor(d time.Duration) bool {
	rest := time.NewTimer(d)
	defer rest.Stop()
	select {
	case <-rest.C:
		return true
	case <-t.exports.Done():
		return false
	}
}
