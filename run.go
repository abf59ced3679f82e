package belay

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"
)

// Bounds of what a caller may give a run.
const (
	maxName   = 256
	maxLabels = 32
)

// Spec describes a run to be registered. Only Kind and Name are required.
type Spec struct {
	Kind    Kind
	Name    string            // for people: the tool, the command
	Server  string            // who does the work, for people and for filters
	Owner   string            // the principal on whose behalf it runs
	Address string            // how the protocol names it, for people
	Labels  map[string]string // copied; at most 32, each key and value at most 256 bytes

	Parent   *Run      // the run above, in the same tree
	ParentID RunID     // the run above when another process holds it; ignored with Parent
	Deadline time.Time // cancelled with CauseDeadline then; zero: none
	Queued   bool      // register as Waiting; Start makes it Running

	Stopper Stopper // nil: the run is stopped by the end of its context alone
	Ladder  Ladder

	// OnCancel settles the caller. It is called once, without any lock, after
	// the outcome became Cancelled and before the backend is told. It must
	// not block. Nil: nobody is waiting for an answer.
	OnCancel func(*Run, *Cancellation)
}

func (s *Spec) check() error {
	if s.Kind == "" || s.Name == "" {
		return fmt.Errorf("%w: a run needs a kind and a name (got kind %q, name %.64q)", ErrBadRequest, s.Kind, s.Name)
	}
	if len(s.Labels) > maxLabels {
		return fmt.Errorf("%w: %d labels, at most %d are kept", ErrBadRequest, len(s.Labels), maxLabels)
	}
	for k, v := range s.Labels {
		if k == "" || len(k) > maxName || len(v) > maxName {
			return fmt.Errorf("%w: label %.64q=%.64q (keys have 1 to %d bytes, values at most %d)", ErrBadRequest, k, v, maxName, maxName)
		}
	}
	return nil
}

// Run is one cancellable piece of work. All methods are safe for concurrent
// use. A Run is made by [Tree.Register] and stays valid after the tree has
// forgotten it.
type Run struct {
	tree    *Tree
	id      RunID
	spec    Spec // never changed after registration, but for what forget clears
	started time.Time

	// The fields below are guarded by tree.mu.

	parent            *Run // nil at the top, and once this run was unlinked
	first, next, prev *Run // children, and the place among the siblings

	outcome Outcome
	work    Work
	ended   time.Time
	base    context.Context // what Context derives from; nil: Background
	ctx     context.Context // made on first use
	end     context.CancelCauseFunc
	timer   *time.Timer   // the deadline's
	done    chan struct{} // made on first use, closed when the run is over
	stop    *stop         // nil until cancelled
	hooks   []*attachment // other processes' runs below this one
	late    int
	partial string
	kept    bool // is in the ring of ended runs
}

// ID is the run's id.
func (r *Run) ID() RunID { return r.id }

// Name is the run's name.
func (r *Run) Name() string { return r.spec.Name }

// Started is when the run was registered.
func (r *Run) Started() time.Time { return r.started }

type runKey struct{}

// RunFrom returns the run whose context ctx is or derives from, or nil.
func RunFrom(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	return r
}

// Context is ended when the run is cancelled, with the *Cancellation as its
// cause, and by nothing else.
func (r *Run) Context() context.Context {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	if r.ctx == nil {
		base := r.base
		if base == nil {
			base = context.Background()
		}
		r.ctx, r.end = context.WithCancelCause(context.WithValue(base, runKey{}, r))
		if r.stop != nil {
			r.end(r.stop.cause)
		}
	}
	return r.ctx
}

// Start says that a queued run is being dispatched. It returns false if the
// run was cancelled before: then nothing may be dispatched.
func (r *Run) Start() bool {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.work == Waiting {
		r.work = Running
		t.emitLocked(EventChanged, r)
	}
	return r.work == Running && r.stop == nil
}

// Finish says that the work has ended by itself and that the caller is to be
// told o. It returns true if this settled the caller; false if the caller had
// been settled before: then the answer is late and must not be delivered. For
// a cancelled run it proves nothing about the work; see Observe.
func (r *Run) Finish(o Outcome) bool {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if !r.settleLocked(o) {
		return false
	}
	if r.stop == nil {
		r.work = Stopped
	}
	t.overLocked(r)
	return true
}

// Settle says what the caller was told while the work may go on. It returns
// false if the caller had been settled before.
func (r *Run) Settle(o Outcome) bool {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	if !r.settleLocked(o) {
		return false
	}
	r.tree.emitLocked(EventChanged, r)
	return true
}

func (r *Run) settleLocked(o Outcome) bool {
	if r.outcome.Terminal() {
		r.late++
		if s := r.stop; s != nil {
			s.receipt.Late = r.late
			r.tree.stepLocked(r, Step{At: time.Now(), Step: StepLate, Detail: "an answer came after the caller was settled; it was not delivered"})
		}
		return false
	}
	r.outcome = o
	if s := r.stop; s != nil {
		s.receipt.Outcome = o
	}
	return true
}

// Partial keeps what the tool had when it was stopped, for the receipt. The
// first text wins; it is bounded to 64 KiB.
func (r *Run) Partial(text string) {
	const limit = 64 << 10
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	if r.partial == "" {
		r.partial = text[:min(len(text), limit)]
	}
}

// Cancel stops the run and everything below it, on behalf of machinery: a
// protocol's cancel, a disconnect, a shutdown. On a run that is cancelled or
// over it changes nothing. It reports whether anything was stopped by it. A
// person's Stop goes through [Tree.Cancel].
func (r *Run) Cancel(c Cancellation) bool {
	return r.tree.stopRun(r, c, false, false)
}

// Cancellation is what the run was cancelled with, or nil.
func (r *Run) Cancellation() *Cancellation {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	if r.stop == nil {
		return nil
	}
	return r.stop.cause
}

// Info is the run as it stands now.
func (r *Run) Info() Info {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	return r.infoLocked()
}

// Wait returns when neither the caller nor the work waits for anything any
// more, or when ctx ends. The receipt is nil if the run was not cancelled. On
// an error the receipt, if there is one, is how things stand.
func (r *Run) Wait(ctx context.Context) (*Receipt, error) {
	t := r.tree
	for {
		t.mu.Lock()
		final := r.final()
		receipt := r.receiptLocked()
		if final {
			t.mu.Unlock()
			return receipt, nil
		}
		if r.done == nil {
			r.done = make(chan struct{})
		}
		done := r.done
		t.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return receipt, context.Cause(ctx)
		}
	}
}

// final reports whether Wait may return: the run is over, and its receipt, if
// any, will not change by Belay's own doing.
func (r *Run) final() bool {
	over := r.outcome.Terminal() && (r.work == Stopped || r.work == Unconfirmed)
	return over && (r.stop == nil || r.stop.receipt.Final)
}

// Receipt is the receipt as it stands now, or nil if the run was not cancelled.
func (r *Run) Receipt() *Receipt {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	return r.receiptLocked()
}

func (r *Run) receiptLocked() *Receipt {
	if r.stop == nil {
		return nil
	}
	c := r.stop.receipt.clone()
	c.Work, c.Partial, c.Outcome = r.work, r.partial, r.outcome
	return c
}

func (r *Run) infoLocked() Info {
	i := Info{
		ID: r.id, Parent: r.spec.ParentID, Kind: r.spec.Kind, Name: r.spec.Name,
		Server: r.spec.Server, Owner: r.spec.Owner, Address: r.spec.Address,
		Labels: maps.Clone(r.spec.Labels), Outcome: r.outcome, Work: r.work,
		Started: r.started, Ended: r.ended, Deadline: r.spec.Deadline, Pid: pid,
	}
	if s := r.stop; s != nil {
		i.Cancellation, i.Verdict, i.Held = s.cause, s.receipt.Verdict, s.receipt.Held
	}
	return i
}

var pid = os.Getpid()
