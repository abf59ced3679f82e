package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Pace of holding a lease.
const (
	leastBeat = time.Second     // between two heartbeats
	beatLimit = 5 * time.Second // for one
	firstBeat = 100 * time.Millisecond
)

var errReleased = errors.New("the lease was released")

// Hold keeps the run alive and returns a context for its work, which ends when
// the run is stopped, with the *[belay.Cancellation] as its cause, or when ctx
// ends. A Stop arrives by the event stream, one for all leases of a client, within
// milliseconds, and by the next heartbeat where the stream is not permitted or
// broken.
//
// The run is kept until release is called, also while stopped work cleans up:
// release is always called, at the end of the work, and waits for what Hold
// started. That the server cannot be reached, or has forgotten the run
// ([Lease.OnLost]), ends no work.
func (l *Lease) Hold(ctx context.Context) (held context.Context, release func()) {
	held, stop := context.WithCancelCause(ctx)
	// The run must be kept until the work has ended, not until it was told to.
	own, end := context.WithCancelCause(context.WithoutCancel(ctx))
	h := &holder{lease: l, stop: stop, bell: make(chan struct{}, 1), done: make(chan struct{})}
	leave := l.client.ear(l.owner).join(h)
	go func() {
		defer close(h.done)
		h.beat(own) // the first one finds a Stop that came before we listened
	}()
	var once sync.Once
	return held, func() {
		once.Do(func() {
			end(errReleased)
			<-h.done
			leave()
			stop(errReleased)
		})
	}
}

// holder is one Hold.
type holder struct {
	lease *Lease
	stop  context.CancelCauseFunc // of the work
	bell  chan struct{}           // capacity 1: beat now, there is news
	done  chan struct{}           // closed when beat has returned
	told  belay.Means             // the last step that OnOrder was told; only beat uses it
}

func (h *holder) ring() {
	select {
	case h.bell <- struct{}{}:
	default: // it was rung and not yet answered
	}
}

// beat sends heartbeats until the lease is released or lost.
func (h *holder) beat(ctx context.Context) {
	every := max(h.lease.length/3, leastBeat)
	failed := 0
	for {
		switch err := h.once(ctx); {
		case ctx.Err() != nil:
			return
		case settledForUs(err):
			h.over(ctx, err)
			return
		case err != nil:
			failed++
		default:
			failed = 0
		}
		wait := every
		if failed > 0 {
			wait = min(firstBeat<<min(failed, 10), every)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-h.bell:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// over is the end of the run behind our back: it was stopped and given up on
// while the server could not be reached, or nobody counts on it any more.
func (h *holder) over(ctx context.Context, err error) {
	if d, failed := h.lease.client.Get(ctx, h.lease.run); failed == nil && d.Cancellation != nil {
		h.stop(d.Cancellation)
		return
	}
	if h.lease.OnLost != nil {
		h.lease.OnLost(err)
	}
}

// once sends one heartbeat and does what the answer says.
func (h *holder) once(ctx context.Context) error {
	limited, end := context.WithTimeoutCause(ctx, beatLimit, errSilent)
	defer end()
	b, err := h.lease.Heartbeat(limited)
	if err != nil {
		return err
	}
	c := b.Run.Cancellation
	if o := b.Order; o != nil {
		if c == nil {
			c = &belay.Cancellation{Stop: o.Stop, Cause: o.Cause, Reason: belay.CleanReason(o.Reason), At: o.At}
		}
		if o.Step != h.told && h.lease.OnOrder != nil {
			h.lease.OnOrder(*o)
		}
		h.told = o.Step
	}
	if c != nil {
		h.stop(c)
	}
	return nil
}
