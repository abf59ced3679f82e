package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belayhq/belay"
)

// lease is the right of one owner to speak for one run.
type lease struct {
	reg   *Registry
	owner string
	hook  string        // the webhook; empty: none
	ready chan struct{} // closed when run is set
	run   *belay.Run    // never changed after ready was closed

	// Guarded by reg.mu.
	ttl    time.Duration
	until  time.Time
	order  *Order // the newest; a new one for each step, so that it is never changed
	shown  [steps + 1]time.Time
	news   chan struct{} // closed and replaced when something was shown
	answer bool          // reported, finally
	lost   bool          // ran out
	ended  bool          // nothing more is owed; kept for late reports
	since  time.Time     // when it ended
}

// Order is what a runtime is told of a Stop. It holds no secret.
type Order struct {
	Run    belay.RunID  `json:"run"`
	Stop   belay.StopID `json:"stop"` // the act: the same for all runs that it stopped
	Step   belay.Means  `json:"step" doc:"told, then terminate, then kill: how urgent it is"`
	Cause  belay.Cause  `json:"cause"`
	Reason string       `json:"reason,omitempty"`
	At     time.Time    `json:"at" doc:"when the Stop was accepted"`
}

const steps = 3

// rank orders the steps that a runtime is told of; 0 for any other.
func rank(step belay.Means) int {
	switch step {
	case belay.StepTold:
		return 1
	case belay.StepTerminate:
		return 2
	case belay.StepKill:
		return 3
	}
	return 0
}

// How long each step tries to be delivered: less than the ladder gives it, so
// that the receipt says why it was not before it is final.
const (
	tellFor  = 8 * time.Second
	forceFor = 2500 * time.Millisecond
)

// before is how much earlier than its order an event may have been shown: the
// tree says that it takes a step before it takes it.
const before = time.Second

var errNobody = errors.New("nobody has fetched the order: there is no event stream of the owner, and no heartbeat since")

// stopper is how the tree stops a run of another runtime.
type stopper struct{ *lease }

var (
	_ belay.Stopper    = stopper{}
	_ belay.Terminator = stopper{}
	_ belay.Killer     = stopper{}
	_ belay.Planner    = stopper{}
)

// Tell implements [belay.Stopper].
func (s stopper) Tell(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	return nil, s.deliver(ctx, c, belay.StepTold, tellFor)
}

// Terminate implements [belay.Terminator]: nothing but the same word, louder.
func (s stopper) Terminate(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	return nil, s.deliver(ctx, c, belay.StepTerminate, forceFor)
}

// Kill implements [belay.Killer].
func (s stopper) Kill(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	return nil, s.deliver(ctx, c, belay.StepKill, forceFor)
}

// Plan implements [belay.Planner].
func (s stopper) Plan(context.Context) belay.Plan {
	tell := "its runtime, by the event stream or its next heartbeat"
	if s.hook != "" {
		tell = "its runtime, by the webhook at " + host(s.hook)
	}
	return belay.Plan{Tell: tell, Force: "none: the runtime is told again to terminate and to kill"}
}

// deliver makes an order of a step and returns when somebody has it, with an
// error when nobody has before the time is over.
func (l *lease) deliver(ctx context.Context, c *belay.Cancellation, step belay.Means, limit time.Duration) error {
	r := l.reg
	if !r.enter() {
		return errClosed
	}
	defer r.tasks.Done()
	ctx, end := context.WithTimeoutCause(ctx, limit, errNobody)
	defer end()
	defer context.AfterFunc(r.ctx, end)()
	select {
	case <-l.ready: // a Stop may come between the registration and our learning of it
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	begun := time.Now().Add(-before)
	order := &Order{Run: l.run.ID(), Stop: c.Stop, Step: step, Cause: c.Cause, Reason: c.Reason, At: c.At}
	r.mu.Lock()
	l.order = order
	r.mu.Unlock()
	if l.hook != "" {
		return l.send(ctx, order, begun)
	}
	return l.fetched(ctx, step, begun)
}

// send posts the order, again after pauses, until it was taken or somebody else
// has fetched it.
func (l *lease) send(ctx context.Context, order *Order, begun time.Time) error {
	for pause := 250 * time.Millisecond; ; pause *= 2 {
		failed := l.reg.post.send(ctx, l.owner, l.hook, order)
		if failed == nil {
			l.delivered(order.Step)
			return nil
		}
		wait, end := context.WithTimeoutCause(ctx, pause, errNobody)
		err := l.fetched(wait, order.Step, begun)
		end()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the webhook at %s: %w", host(l.hook), failed)
		}
	}
}

// fetched waits until the step, or a later one, has been shown.
func (l *lease) fetched(ctx context.Context, step belay.Means, begun time.Time) error {
	for {
		l.reg.mu.Lock()
		news := l.news
		l.reg.mu.Unlock()
		if l.wasShown(step, begun) {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			if l.wasShown(step, begun) {
				return nil // evidence ends ctx, too
			}
			return context.Cause(ctx)
		}
	}
}

// wasShown reports whether the runtime has been shown the step, or a later one,
// since then. One that has reported needs no telling.
func (l *lease) wasShown(step belay.Means, begun time.Time) bool {
	l.reg.mu.Lock()
	defer l.reg.mu.Unlock()
	if l.answer {
		return true
	}
	for _, at := range l.shown[rank(step):] {
		if at.After(begun) {
			return true
		}
	}
	return false
}

// delivered notes that the runtime has been shown a step.
func (l *lease) delivered(step belay.Means) {
	l.reg.mu.Lock()
	defer l.reg.mu.Unlock()
	l.shown[rank(step)] = time.Now()
	close(l.news)
	l.news = make(chan struct{})
}

// enter counts a delivery that Close waits for; false: it is too late for one.
func (r *Registry) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.tasks.Add(1)
	return true
}
