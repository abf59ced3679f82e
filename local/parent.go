package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Parent is this process's place below a run of another process. A nil Parent
// is valid and means that there is none.
type Parent struct {
	runs []belay.RunID // the run of the ticket, then what lies above it
	wire *wire
	done chan struct{} // closed when the connection is over and no call of onCancel runs

	places bool // calls can be placed; see place.go

	mu      sync.Mutex // guards the fields below
	stopped *belay.Cancellation
	below   memory // of Stops of the runs that calls were placed below
	asked   uint64 // questions
	asks    map[uint64]chan placed
	deaf    time.Time // the parent did not answer in time; not asked again before
}

// Attach shows the ticket to the process that issued it and stays connected
// until Close. Each time the ticket's run, or one above it, is stopped or
// pressed again, onCancel is called, one call at a time, with a request that
// means everything this process does: its Filter is empty, its cause is
// parent, its Stop is the same act everywhere. If the run is being stopped
// already, that comes at once. For a run below which calls of this process were
// placed ([Parent.Place]) the same comes with Filter.Under set to that run: it
// means what hangs there, and nothing else.
//
// ctx limits the attaching, not the attachment. Errors wrap
// [belay.ErrBadRequest] (no ticket at all), [belay.ErrUnreachable] (stale),
// [belay.ErrForbidden] (of another process or user), [belay.ErrNotFound] or
// [belay.ErrEnded] (the run is over); none of them is a reason not to work.
func Attach(ctx context.Context, text string, onCancel func(belay.CancelRequest)) (*Parent, error) {
	t, err := parseTicket(text)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithTimeoutCause(ctx, DefaultTimeout, errTooSlow)
	defer end()
	if err := CheckDir(filepath.Dir(t.socket)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w", belay.ErrUnreachable, err)
		}
		return nil, err
	}
	w, _, err := greet(ctx, t.socket)
	if err != nil {
		return nil, err
	}
	p := &Parent{wire: w, done: make(chan struct{}), asks: make(map[uint64]chan placed)}
	if err := p.introduce(text); err != nil {
		_ = w.conn.Close()
		return nil, err
	}
	go p.listen(onCancel)
	return p, nil
}

func (p *Parent) introduce(text string) error {
	if err := p.wire.send(request{Op: opAttach, Ticket: text}); err != nil {
		return fmt.Errorf("%w: %w", belay.ErrUnreachable, err)
	}
	var a answer
	switch err := p.wire.receive(&a, maxAnswer, DefaultTimeout); {
	case timedOut(err):
		return errTooSlow
	case err != nil:
		return fmt.Errorf("%w: %w", belay.ErrUnreachable, err)
	}
	switch {
	case a.Error != nil:
		return a.Error.err()
	case a.Attached == nil || len(a.Attached.Runs) == 0:
		return fmt.Errorf("%w: the answer to a ticket names no run", belay.ErrBadRequest)
	}
	p.runs, p.places = a.Attached.Runs, a.Attached.Places
	return nil
}

func (p *Parent) listen(onCancel func(belay.CancelRequest)) {
	defer close(p.done)
	for {
		var a answer
		if err := p.wire.receive(&a, maxAnswer, 0); err != nil || a.Done {
			return
		}
		switch {
		case a.Placed != nil:
			p.answered(a.Placed)
		case a.Stop != nil:
			p.noteStop(a.Stop)
			onCancel(*a.Stop)
		}
	}
}

// noteStop remembers a Stop before it is carried out: whoever registers a call
// below the run and then asks [Parent.StopOf] misses none.
func (p *Parent) noteStop(req *belay.CancelRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch run := req.Filter.Under; {
	case !run.IsZero():
		p.below.put(run, &req.Cancellation)
	case p.stopped == nil:
		p.stopped = &req.Cancellation
	}
}

// attachTries is how often a parent is asked that does not answer in time: to work
// without it means that its Stops are missed.
const attachTries = 3

// FromEnv attaches with the ticket in getenv([EnvParent]), if there is one. A
// ticket that does not work costs one call of warn, and the process works
// without a parent: it returns nil.
func FromEnv(ctx context.Context, getenv func(string) string, onCancel func(belay.CancelRequest), warn func(string)) *Parent {
	text := getenv(EnvParent)
	if text == "" {
		return nil
	}
	p, err := Attach(ctx, text, onCancel)
	for n := 1; n < attachTries && errors.Is(err, errTooSlow); n++ { // on a busy machine everything begins at once
		p, err = Attach(ctx, text, onCancel)
	}
	if err != nil {
		warn(fmt.Sprintf("%s: not attached to the run above, a Stop there will not be heard here directly: %v", EnvParent, err))
		return nil
	}
	return p
}

// Run is the run that this process's own top runs hang below; zero for nil.
func (p *Parent) Run() belay.RunID {
	if p == nil {
		return belay.RunID{}
	}
	return p.runs[0]
}

// Above is the runs above Run, the nearest first, as of attaching.
func (p *Parent) Above() []belay.RunID {
	if p == nil {
		return nil
	}
	return slices.Clone(p.runs[1:])
}

// Stopped is the cancellation of the run above once it was stopped, else nil.
// Nothing new should be started then.
func (p *Parent) Stopped() *belay.Cancellation {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// Done is closed when the connection to the parent is over, because of Close
// or because the parent's process ended; nil for a nil Parent.
func (p *Parent) Done() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.done
}

// Close detaches and waits for a call of onCancel that runs. It must not be
// called from onCancel. It may be called more than once.
func (p *Parent) Close() error {
	if p == nil {
		return nil
	}
	err := p.wire.conn.Close()
	<-p.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
