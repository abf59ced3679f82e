package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Options are the settings of [New]. Control and Config are required; the zero
// value of any other field means its default.
type Options struct {
	Control belay.Control // whose runs are traced
	Config  Config        // see [FromEnv]; must be on
	Log     *slog.Logger  // nil: nothing is logged
	Version string        // service.version
	Console io.Writer     // of the console exporter; nil: standard error, for standard output may be a protocol's
}

// Stats are counts since the start; all but Queued only rise.
type Stats struct {
	Exported uint64 // spans that the receiver took
	Dropped  uint64 // spans that were given up: no room, or not taken
	Missed   uint64 // events of runs that were not seen in time; at most so many spans are missing
	Queued   int    // spans that wait
}

// Tracer sends spans of runs. Make one with [New] and end it with Close. All
// methods are safe for concurrent use, and on nil.
type Tracer struct {
	opts   Options
	origin origin
	send   sender
	places *places // of the follower's goroutine

	life      context.Context // of the follower
	end       context.CancelCauseFunc
	following sync.WaitGroup
	watching  chan struct{} // closed when the first Watch has begun

	exports   context.Context // of the exporter
	stop      context.CancelCauseFunc
	exporting sync.WaitGroup
	bell      chan struct{} // capacity 1: there is a full batch, or the queue is closed

	// mu guards the fields below.
	mu     sync.Mutex
	queue  []*span // at most Config.Queue
	closed bool    // the exporter sends what is left and ends
	stats  Stats
	events uint64    // that were seen
	moaned time.Time // when a loss was logged last
}

var errClosed = errors.New("tracing was closed")

// New begins to trace. It does not wait for the receiver, and does not fail if
// that is not there. Settings that cannot be used are errors that wrap
// [ErrConfig].
func New(o Options) (*Tracer, error) {
	if o.Control == nil || !o.Config.On() {
		return nil, fmt.Errorf("%w: there is no Control, or no exporter is set", ErrConfig)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Console == nil {
		o.Console = os.Stderr
	}
	send, err := newSender(&o)
	if err != nil {
		return nil, err
	}
	c := &o.Config
	c.Queue, c.Batch = max(c.Queue, 1), max(min(c.Batch, c.Queue), 1)
	if c.Delay <= 0 {
		c.Delay = 5 * time.Second
	}
	t := &Tracer{
		opts: o, origin: origin{service: c.Service, version: o.Version, more: c.Resource}, send: send,
		places: newPlaces(o.Control), watching: make(chan struct{}), bell: make(chan struct{}, 1),
	}
	t.life, t.end = context.WithCancelCause(context.Background())
	t.exports, t.stop = context.WithCancelCause(context.Background())
	t.following.Go(t.follow)
	t.exporting.Go(t.export)
	<-t.watching // so that runs that begin after New are all seen
	return t, nil
}

// Stats returns the counts as they are now.
func (t *Tracer) Stats() Stats {
	if t == nil {
		return Stats{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Queued = len(t.queue)
	return s
}

// settled is how long no event must come before Close takes it that all that
// has happened was seen.
const settled = 20 * time.Millisecond

// Close sends the spans of the runs that are over and returns when nothing of t
// runs any more. What could not be sent before ctx ended is dropped, and the
// error says how many that were. End the runs first. It may be called several
// times; later calls return nil.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	again := t.closed
	t.mu.Unlock()
	if again {
		return nil
	}
	t.catchUp(ctx)
	t.end(errClosed)
	t.following.Wait()
	t.mu.Lock()
	t.closed = true
	before := t.stats.Dropped
	t.mu.Unlock()
	ring(t.bell)
	release := context.AfterFunc(ctx, func() { t.stop(context.Cause(ctx)) })
	t.exporting.Wait()
	release()
	t.stop(errClosed)
	t.send.close()
	if n := t.Stats().Dropped - before; n > 0 {
		return fmt.Errorf("close tracing: %d spans were not sent", n)
	}
	return nil
}

// catchUp waits until the events that are on their way have come.
func (t *Tracer) catchUp(ctx context.Context) {
	for seen := t.seen(); ctx.Err() == nil; {
		rest := time.NewTimer(settled)
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Stop()
		now := t.seen()
		if now == seen {
			return
		}
		seen = now
	}
}

func (t *Tracer) seen() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.events
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it was rung and not yet answered
	}
}
