package belay

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Options are the settings of a [Tree]. The zero value of a field means its
// default.
type Options struct {
	MaxRuns  int           // runs in flight; default 1,100,000
	KeepFor  time.Duration // how long an ended run is remembered; default 10 min
	KeepRuns int           // how many ended runs are remembered; default 10,000

	MaxQuestions int // open at once; default 2,000, of which an owner gets at most half
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
	if o.MaxQuestions <= 0 {
		o.MaxQuestions = 2000
	}
	return o
}

// Tree holds the runs of one process. It implements [Control] and [Approvals]. Make one with
// [NewTree] and end it with Close. All methods are safe for concurrent use.
type Tree struct {
	opts  Options
	wg    sync.WaitGroup // tellers, ladders, attachments; Add only under mu while !gone
	tells tellBox

	// mu guards the fields below and the guarded fields of every Run. It is
	// held for moments only: no hook, stopper or channel send under it.
	mu       sync.Mutex
	runs     map[RunID]*Run // in flight, and the ended ones that are remembered
	inFlight int
	kept     memory // the remembered ones
	watchers map[*watcher]struct{}
	seq      uint64 // of events
	nr       uint64 // of runs
	head     uint64 // the first half of the newest run's id
	shelves  shelves
	asked    questions
	walks    uint64 // of Stops through the tree
	closed   bool   // no new runs
	gone     bool   // no new goroutines: Close has given up what was left
}

var _ Control = (*Tree)(nil)

// NewTree returns an empty tree.
func NewTree(o Options) *Tree {
	return &Tree{
		opts:     o.withDefaults(),
		runs:     make(map[RunID]*Run),
		watchers: make(map[*watcher]struct{}),
	}
}

// Register makes a run known before its work is dispatched. It fails with
// [ErrClosed], [ErrTooMany], [ErrBadRequest], or, if the run above it is
// over, with [ErrEnded], or, if that is cancelled, with its *Cancellation
// ([ErrCancelled]); then nothing may start.
func (t *Tree) Register(spec Spec) (*Run, error) {
	return t.register(nil, &spec) //nolint:staticcheck // nil costs a run without a context nothing
}

// register makes a run whose context derives from base; nil: from Background.
func (t *Tree) register(base context.Context, spec *Spec) (*Run, error) {
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("register a run: %w", err)
	}
	now, parent := time.Now(), spec.Parent
	r := &Run{tree: t, id: RunID(mint(now)), spec: *spec, started: now, outcome: Pending, work: Running, base: base}
	r.spec.own()
	if spec.Queued {
		r.work = Waiting
	}
	signed := signOf(&r.spec)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admitLocked(parent); err != nil {
		return nil, err
	}
	t.head = r.id.follow(t.head)
	if parent != nil {
		r.linkLocked(parent)
	}
	t.nr++
	r.nr = t.nr
	t.runs[r.id] = r
	t.shelves.push(r, signed)
	t.inFlight++
	r.setClockLocked(now)
	t.emitLocked(EventRegistered, r)
	return r, nil
}

func (t *Tree) admitLocked(parent *Run) error {
	switch {
	case t.closed:
		return fmt.Errorf("register a run: %w: Belay is shutting down", ErrClosed)
	case t.inFlight >= t.opts.MaxRuns:
		return fmt.Errorf("register a run: %w: the bound is %d in flight", ErrTooMany, t.opts.MaxRuns)
	case parent == nil:
		return nil
	case parent.tree != t:
		return fmt.Errorf("register a run: %w: the run above belongs to another tree", ErrBadRequest)
	case parent.stop != nil:
		return fmt.Errorf("register a run below %s: %w", parent.id, parent.stop.first.cause)
	case parent.place != inFlight:
		return fmt.Errorf("register a run below %s: %w", parent.id, ErrEnded)
	}
	return nil
}

func (r *Run) linkLocked(parent *Run) {
	r.parent, r.next = parent, parent.first
	if parent.first != nil {
		parent.first.prev = r
	}
	parent.first = r
}

// unlinkLocked takes a run out of the tree once no Stop can have anything to
// do there, for itself or below, and then looks at the run above, which may
// have waited for that.
func (r *Run) unlinkLocked() {
	for r.spentLocked() && r.parent != nil {
		p := r.parent
		if r.prev != nil {
			r.prev.next = r.next
		} else {
			p.first = r.next
		}
		if r.next != nil {
			r.next.prev = r.prev
		}
		r.parent, r.next, r.prev = nil, nil, nil
		r = p
	}
}

// spentLocked reports whether a Stop that comes by has nothing to do here. A
// run whose ladder gave up is not spent while it is remembered: a person's
// next Stop, on it or on a run above, climbs again.
func (r *Run) spentLocked() bool {
	if r.first != nil || len(r.hooks) > 0 {
		return false
	}
	return r.place == forgotten || r.place == remembered && (r.stop == nil || r.stop.over)
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
	return t.runLocked(id)
}

func (t *Tree) runLocked(id RunID) (*Run, error) {
	t.trimLocked(time.Now())
	if r := t.runs[id]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
}
