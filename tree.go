package belay

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Options are the settings of a [Tree]. The zero value of a field means its
// default.
type Options struct {
	MaxRuns  int           // runs in flight; default 1,100,000
	KeepFor  time.Duration // how long an ended run is remembered; default 10 min
	KeepRuns int           // how many ended runs are remembered; default 10,000
}

func (o Options) withDefaults() Options {
	if o.MaxRuns <= 0 {
		o.MaxRuns = 1_100_000
	}
	if o.KeepFor <= 0 {
		o.KeepFor = 10 * time.Minute
	}
	if o.KeepRuns <= 0 {
		o.KeepRuns = 10_000
	}
	return o
}

// Tree holds the runs of one process. It implements [Control]. Make one with
// [NewTree] and end it with Close. All methods are safe for concurrent use.
type Tree struct {
	opts Options
	wg   sync.WaitGroup // tellers, ladders, attachments; Add only under mu while !closed

	// mu guards the fields below and the guarded fields of every Run. It is
	// held for moments only: no hook, stopper or channel send under it.
	mu       sync.Mutex
	runs     map[RunID]*Run // in flight, and the ended ones that are remembered
	inFlight int
	ended    []*Run // oldest first, from index oldest on
	oldest   int
	watchers map[*watcher]struct{}
	seq      uint64
	closed   bool

	base context.Context // of every ladder; ended when Close gives up waiting
	quit context.CancelCauseFunc
}

var _ Control = (*Tree)(nil)

// NewTree returns an empty tree.
func NewTree(o Options) *Tree {
	t := &Tree{
		opts:     o.withDefaults(),
		runs:     make(map[RunID]*Run),
		watchers: make(map[*watcher]struct{}),
	}
	t.base, t.quit = context.WithCancelCause(context.Background())
	return t
}

// Register makes a run known before its work is dispatched. It fails with
// [ErrClosed], [ErrTooMany], [ErrBadRequest], or, if the run above it is
// cancelled, with that *Cancellation ([ErrCancelled]); then nothing may start.
func (t *Tree) Register(spec Spec) (*Run, error) {
	return t.register(spec, nil)
}

func (t *Tree) register(spec Spec, base context.Context) (*Run, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	now := time.Now()
	r := &Run{tree: t, id: RunID(mint(now)), spec: spec, started: now, outcome: Pending, work: Running, base: base}
	r.spec.Name, r.spec.Server = bound(spec.Name), bound(spec.Server)
	r.spec.Owner, r.spec.Address = bound(spec.Owner), bound(spec.Address)
	if len(spec.Labels) > 0 {
		r.spec.Labels = maps.Clone(spec.Labels)
	}
	if spec.Queued {
		r.work = Waiting
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admitLocked(spec.Parent); err != nil {
		return nil, err
	}
	if p := spec.Parent; p != nil {
		r.linkLocked(p)
		r.spec.ParentID, r.spec.Parent = p.id, nil
	}
	t.runs[r.id] = r
	t.inFlight++
	if !spec.Deadline.IsZero() {
		r.timer = time.AfterFunc(time.Until(spec.Deadline), func() { t.expire(r) })
	}
	t.emitLocked(EventRegistered, r)
	return r, nil
}

func bound(s string) string {
	if len(s) <= maxName {
		return s
	}
	return clean(s, maxName)
}

func (t *Tree) admitLocked(parent *Run) error {
	switch {
	case t.closed:
		return fmt.Errorf("register a run: %w: Belay is shutting down", ErrClosed)
	case t.inFlight >= t.opts.MaxRuns:
		return fmt.Errorf("register a run: %w: the bound is %d", ErrTooMany, t.opts.MaxRuns)
	case parent == nil:
		return nil
	case parent.tree != t:
		return fmt.Errorf("register a run: %w: the run above belongs to another tree", ErrBadRequest)
	case parent.stop != nil:
		return fmt.Errorf("register a run below %s: %w", parent.id, parent.stop.cause)
	case parent.outcome.Terminal():
		return fmt.Errorf("register a run below %s: %w", parent.id, ErrEnded)
	}
	return nil
}

func (t *Tree) expire(r *Run) {
	r.Cancel(Cancellation{Cause: CauseDeadline, Via: "deadline", Reason: "its time was up"})
}

func (r *Run) linkLocked(parent *Run) {
	r.parent, r.next = parent, parent.first
	if parent.first != nil {
		parent.first.prev = r
	}
	parent.first = r
}

// unlinkLocked takes a run that is over out of the tree once nothing hangs
// below it, and then looks at the run above, which may have waited for that.
func (r *Run) unlinkLocked() {
	for r != nil && r.first == nil && r.kept {
		p := r.parent
		switch {
		case p == nil:
			return
		case r.prev != nil:
			r.prev.next = r.next
		default:
			p.first = r.next
		}
		if r.next != nil {
			r.next.prev = r.prev
		}
		r.parent, r.next, r.prev = nil, nil, nil
		r = p
	}
}

// overLocked notices that a run is over, wakes who waits for it, moves it to
// the ended ones and lets go of what only a living run needs.
func (t *Tree) overLocked(r *Run) {
	if !r.final() {
		t.emitLocked(EventChanged, r)
		return
	}
	if r.done != nil {
		close(r.done)
		r.done = nil
	}
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if r.work == Stopped {
		r.spec.Stopper, r.spec.OnCancel, r.hooks, r.base = nil, nil, nil, nil
	}
	if !r.kept {
		r.kept = true
		r.ended = time.Now()
		t.inFlight--
		t.keepLocked(r)
		r.unlinkLocked()
	}
	t.emitLocked(EventEnded, r)
}

func (t *Tree) keepLocked(r *Run) {
	t.ended = append(t.ended, r)
	t.trimLocked(r.ended)
	if t.oldest > len(t.ended)/2 && t.oldest > 64 { // amortised: each run is moved once or twice
		t.ended = append(t.ended[:0], t.ended[t.oldest:]...)
		clear(t.ended[len(t.ended):cap(t.ended)])
		t.oldest = 0
	}
}

// trimLocked forgets ended runs beyond the count and the time.
func (t *Tree) trimLocked(now time.Time) {
	for t.oldest < len(t.ended) {
		r := t.ended[t.oldest]
		if len(t.ended)-t.oldest <= t.opts.KeepRuns && now.Sub(r.ended) < t.opts.KeepFor {
			return
		}
		t.ended[t.oldest] = nil
		t.oldest++
		delete(t.runs, r.id)
	}
}

// InFlight is the number of runs that are not over.
func (t *Tree) InFlight() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inFlight
}

// Run returns a run that is in flight or still remembered.
func (t *Tree) Run(id RunID) (*Run, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trimLocked(time.Now())
	if r := t.runs[id]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
}

// Close refuses new runs, stops everything with CauseShutdown, and waits until
// all is over or ctx ends; then it gives up what ladders are left and returns
// the cause of ctx. It may be called more than once.
func (t *Tree) Close(ctx context.Context) error {
	c := Cancellation{Stop: NewStopID(), Cause: CauseShutdown, Via: "belay", Reason: "Belay is shutting down", At: time.Now()}
	t.mu.Lock()
	t.closed = true
	var left []*Run
	for _, r := range t.runs {
		if !r.kept {
			left = append(left, r)
		}
	}
	t.mu.Unlock()
	for _, r := range left {
		if !t.below(r) {
			r.Cancel(c)
		}
	}
	var err error
	for _, r := range left {
		if _, err = r.Wait(ctx); err != nil {
			err = fmt.Errorf("close: %d runs are not over: %w", t.InFlight(), err)
			break
		}
	}
	t.quit(&c)
	t.wg.Wait()
	return err
}

// below reports whether a run in flight is above r, which will stop it.
func (t *Tree) below(r *Run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := r.parent; p != nil; p = p.parent {
		if !p.kept {
			return true
		}
	}
	return false
}
