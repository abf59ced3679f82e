package belay

import (
	"context"
	"maps"
	"os"
	"time"
)

// Run is one cancellable piece of work. All methods are safe for concurrent
// use. A Run is made by [Tree.Register] and stays valid after the tree has
// forgotten it.
type Run struct {
	tree    *Tree
	id      RunID
	nr      uint64 // in the order of registration, which is that of the ids
	started time.Time

	// The fields below are guarded by tree.mu. Those that a Stop of 100,000
	// runs looks at come first and lie together.

	stop              *stop  // nil until cancelled
	parent            *Run   // nil at the top, and once this run was unlinked
	first, next, prev *Run   // children, and the place among the siblings
	walk              uint64 // the last walk of a Stop that came by; see stopAll
	outcome           Outcome
	work              Work
	place             place
	paused            bool          // waiting, but was dispatched before: see Pause
	halted            bool          // paused by a question; see Ask
	asking            uint16        // open questions, at most maxAsking
	hooks             []*attachment // other processes' runs below this one
	clock             *clock        // the deadline's; nil: it has none, or is stopped or over
	end               context.CancelCauseFunc
	ctx               context.Context // made on first use
	spec              Spec            // never changed after registration, but for Deadline and what releaseLocked clears

	base         context.Context // what ctx derives from; nil: Background
	ended        time.Time
	older, newer *Run          // neighbours among the remembered runs
	done         chan struct{} // made on first use, closed when the run is over
	late         int
	partial      string
}

// place is where the tree keeps a run.
type place uint8

const (
	inFlight   place = iota // caller or work are waited for
	remembered              // over; found by its id for a while
	forgotten               // only those who hold the *Run know it
)

// ID is the run's id.
func (r *Run) ID() RunID { return r.id }

// Name is the run's name, bounded and without control characters.
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
			r.end(r.stop.first.cause)
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
		r.work, r.paused = Running, false
		t.emitLocked(EventChanged, r)
	}
	return r.work == Running && r.stop == nil
}

// Pause says that work which was dispatched does nothing until somebody gives it
// what it waits for (an answer, an approval); Start says that it goes on. Unlike
// one that was never started it is told of a Stop. It returns false, and changes
// nothing, unless the work was running.
func (r *Run) Pause() bool {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.work != Running || r.stop != nil || r.place != inFlight {
		return false
	}
	r.work, r.paused = Waiting, true
	t.emitLocked(EventChanged, r)
	return true
}

// Finish says that the work has ended by itself and that the caller is to be
// told o. It returns true if this settled the caller; false if the caller had
// been settled before: then the answer is late and must not be delivered. For
// a cancelled run it proves nothing about the work; see Observe. An o that is
// not terminal counts as Failed.
func (r *Run) Finish(o Outcome) bool {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	settled := r.settleLocked(o)
	if r.stop == nil && r.place == inFlight {
		r.work = Stopped
		t.overLocked(r)
	}
	return settled
}

// Settle says what the caller was told while the work may go on; Finish then
// says when the work has ended. It returns false if the caller had been
// settled before. An o that is not terminal counts as Failed.
func (r *Run) Settle(o Outcome) bool {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	if !r.settleLocked(o) {
		return false
	}
	r.tree.emitLocked(EventChanged, r)
	return true
}

// settleLocked sets the outcome, once. A run gets its outcome together with its
// cancellation, unless that is deferred.
func (r *Run) settleLocked(o Outcome) bool {
	if !r.outcome.Terminal() {
		if !o.Terminal() {
			o = Failed
		}
		r.outcome = o
		return true
	}
	r.late++
	if s := r.stop; s != nil {
		r.tree.stepLocked(r, s, Step{At: time.Now(), Step: StepLate, Detail: "an answer came after the caller was settled; it was not delivered"})
	}
	return false
}

// conclude is the end of a run whose handler has returned, which is evidence
// for one that was cancelled. It returns the cancellation, if there is one.
func (r *Run) conclude(o Outcome) *Cancellation {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.stop != nil {
		t.observeLocked(r, Evidence{Kind: SeenHandlerReturned, Scope: ScopeHandler})
		return r.stop.first.cause
	}
	if r.place == inFlight {
		if !r.outcome.Terminal() {
			r.outcome = o
		}
		r.work = Stopped
		t.overLocked(r)
	}
	return nil
}

// Partial keeps what the tool had when it was stopped, for the receipt. The
// first text wins; it is bounded to 64 KiB.
func (r *Run) Partial(text string) {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	if r.partial != "" {
		return
	}
	r.partial = cut(text, 64<<10)
	if r.place == remembered {
		r.tree.kept.hold(len(r.partial))
	}
}

// Cancel stops the run and everything below it, on behalf of machinery: a
// protocol's cancel, a disconnect, a shutdown. On a run that is cancelled or
// over it changes nothing. It reports whether anything was stopped by it. A
// cause that is none of the constants counts as [CauseUser], since a Stop must
// never fail for want of a word. A person's Stop goes through [Tree.Cancel].
func (r *Run) Cancel(c Cancellation) bool {
	if c.complete(time.Now()) != nil {
		c.Cause = CauseUser
	}
	_, touched := r.tree.stopAll(&order{cause: &c}, func() []*Run { return []*Run{r} })
	return touched
}

// Cancellation is what the run was cancelled with, or nil.
func (r *Run) Cancellation() *Cancellation {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	if r.stop == nil {
		return nil
	}
	return r.stop.first.cause
}

// Info is the run as it stands now.
func (r *Run) Info() Info {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	return r.infoLocked()
}

// Wait returns when neither the caller nor the work waits for anything any
// more, or when ctx ends. The receipt is nil if the run was not cancelled. On
// an error, which is the cause of ctx, the receipt, if there is one, is how
// things stand.
func (r *Run) Wait(ctx context.Context) (*Receipt, error) {
	for {
		done := r.doneOrNil()
		if done == nil {
			return r.Receipt(), nil
		}
		select {
		case <-done:
		case <-ctx.Done():
			if r.doneOrNil() == nil {
				return r.Receipt(), nil
			}
			return r.Receipt(), context.Cause(ctx)
		}
	}
}

// doneOrNil is what to wait for until the run is over; nil if it is.
func (r *Run) doneOrNil() <-chan struct{} {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	if r.place != inFlight {
		return nil
	}
	if r.done == nil {
		r.done = make(chan struct{})
	}
	return r.done
}

// Receipt is the receipt as it stands now, or nil if the run was not cancelled.
func (r *Run) Receipt() *Receipt {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	return r.receiptLocked()
}

// infoLocked is the run for others to keep.
func (r *Run) infoLocked() Info {
	i := r.viewLocked()
	i.Labels = maps.Clone(i.Labels)
	return i
}

// viewLocked is the run for a look only: its labels are the run's own.
func (r *Run) viewLocked() Info {
	i := Info{
		ID: r.id, Parent: r.spec.ParentID, Kind: r.spec.Kind, Name: r.spec.Name,
		Server: r.spec.Server, Owner: r.spec.Owner, Address: r.spec.Address,
		Labels: r.spec.Labels, Outcome: r.outcome, Work: r.work,
		Started: r.started, Ended: r.ended, Deadline: r.deadlineLocked(), Pid: pid,
	}
	if s := r.stop; s != nil {
		i.Cancellation, i.Verdict, i.Held = s.first.cause, s.verdict, s.held
	}
	return i
}

var pid = os.Getpid()
