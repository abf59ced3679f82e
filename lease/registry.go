package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Defaults and limits.
const (
	DefaultTTL = time.Minute
	MinTTL     = 5 * time.Second
	MaxTTL     = time.Hour

	DefaultPerOwner = 1_000
	DefaultTotal    = 10_000

	keepEnded = 10 * time.Minute // as long as the tree remembers the run (DESIGN 12)
)

// Options are the settings of a [Registry]. The zero value of a field means its
// default.
type Options struct {
	PerOwner int   // leases of one principal that have not ended; default 1,000
	Total    int   // of all principals; default 10,000
	Hooks    Hooks // where webhooks may go

	Logger *slog.Logger // nil: nothing is logged
}

// Spec describes a run of another runtime. Kind and Name are required.
type Spec struct {
	Kind     belay.Kind
	Name     string
	Server   string
	Address  string            // how its protocol names it, as [belay.Spec] has it
	Labels   map[string]string // bounded as those of a [belay.Spec]
	Parent   belay.RunID       // a run of the same tree; zero: none
	Deadline time.Time         // zero: none
	Webhook  string            // where orders are sent; empty: nowhere
}

// State is a lease as it stands.
type State struct {
	Run     belay.Info
	TTL     time.Duration
	Until   time.Time // when the run is lost unless there is a heartbeat before
	Webhook bool
	Order   *Order // nil: the run was not stopped
}

// Registry is the leases of one tree. Make one with [New] and end it with Close,
// after the tree: a tree that ends tells the runtimes so. Safe for concurrent
// use.
type Registry struct {
	tree *belay.Tree
	o    Options
	post *poster

	ctx   context.Context // of the goroutine and of every delivery
	end   context.CancelCauseFunc
	wake  chan struct{} // capacity 1: a lease ends earlier than the goroutine thinks
	tasks sync.WaitGroup

	// mu guards the fields below and those of every lease that say so. It is
	// never held while the tree is called.
	mu     sync.Mutex
	leases map[belay.RunID]*lease
	alive  map[string]int // leases that have not ended, by owner, reserved places included
	total  int            // their sum
	ended  []*lease       // that are kept, oldest first
	closed bool
}

var errClosed = errors.New("the registry of leases is closed")

// New returns an empty registry for a tree.
func New(tree *belay.Tree, o Options) *Registry {
	if o.PerOwner <= 0 {
		o.PerOwner = DefaultPerOwner
	}
	if o.Total <= 0 {
		o.Total = DefaultTotal
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		tree: tree, o: o, post: newPoster(o.Hooks), wake: make(chan struct{}, 1),
		leases: make(map[belay.RunID]*lease), alive: make(map[string]int),
	}
	r.ctx, r.end = context.WithCancelCause(context.Background())
	r.tasks.Go(r.watch)
	return r
}

// Close ends deliveries that are under way, and returns when nothing of the
// registry runs any more. Runs are left to the tree. It may be called again.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end(errClosed)
	r.tasks.Wait()
}

// Register makes a run known that has started, or starts now, elsewhere. ttl
// zero means [DefaultTTL]; outside of [MinTTL] and [MaxTTL] it is
// [belay.ErrBadRequest], as is a webhook that is not allowed. A parent that the
// tree does not hold is [belay.ErrNotFound], one that is over
// [belay.ErrEnded], one that was stopped [belay.ErrCancelled]; a bound that is
// reached is [belay.ErrTooMany]. After an error no run exists.
func (r *Registry) Register(owner string, s Spec, ttl time.Duration) (State, error) {
	ttl, err := r.check(owner, &s, ttl)
	if err != nil {
		return State{}, fmt.Errorf("register a run of another runtime: %w", err)
	}
	spec := belay.Spec{
		Kind: s.Kind, Name: s.Name, Server: s.Server, Owner: owner, Address: s.Address,
		Labels: s.Labels, Deadline: s.Deadline,
	}
	if !s.Parent.IsZero() {
		if spec.Parent, err = r.tree.Run(s.Parent); err != nil {
			return State{}, fmt.Errorf("the parent: %w", err)
		}
	}
	if err := r.reserve(owner); err != nil {
		return State{}, err
	}
	l := &lease{reg: r, owner: owner, hook: s.Webhook, ready: make(chan struct{}), news: make(chan struct{})}
	spec.Stopper = stopper{l}
	run, err := r.tree.Register(spec)
	if err != nil {
		r.release(owner)
		return State{}, err
	}
	r.mu.Lock()
	l.run, l.ttl, l.until = run, ttl, time.Now().Add(ttl)
	r.leases[run.ID()] = l
	r.mu.Unlock()
	close(l.ready)
	r.ring()
	return r.state(l), nil
}

func (r *Registry) check(owner string, s *Spec, ttl time.Duration) (time.Duration, error) {
	if ttl == 0 {
		ttl = DefaultTTL
	}
	switch s.Kind {
	case belay.KindSession, belay.KindTurn, belay.KindCall, belay.KindTask, belay.KindScript, belay.KindProcess:
	default:
		return 0, fmt.Errorf("%w: kind %.32q (want session, turn, call, task, script or process)", belay.ErrBadRequest, s.Kind)
	}
	switch {
	case owner == "":
		return 0, fmt.Errorf("%w: a lease needs an owner", belay.ErrBadRequest)
	case ttl < MinTTL || ttl > MaxTTL:
		return 0, fmt.Errorf("%w: a lease of %s (from %s to %s)", belay.ErrBadRequest, ttl, MinTTL, MaxTTL)
	case s.Webhook != "":
		return ttl, r.o.Hooks.check(s.Webhook)
	}
	return ttl, nil
}

// reserve takes a place for a lease of the owner.
func (r *Registry) reserve(owner string) error {
	r.mu.Lock()
	full := r.alive[owner] >= r.o.PerOwner || r.total >= r.o.Total
	r.mu.Unlock()
	if full {
		r.sweep(time.Now()) // some may have run out since the goroutine looked
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return fmt.Errorf("%w: %w", belay.ErrClosed, errClosed)
	case r.alive[owner] >= r.o.PerOwner:
		return fmt.Errorf("%w: %q has %d leases, which is the bound; report on some", belay.ErrTooMany, owner, r.o.PerOwner)
	case r.total >= r.o.Total:
		return fmt.Errorf("%w: there are %d leases, which is the bound", belay.ErrTooMany, r.o.Total)
	}
	r.alive[owner]++
	r.total++
	return nil
}

func (r *Registry) release(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseLocked(owner)
}

func (r *Registry) releaseLocked(owner string) {
	r.total--
	if r.alive[owner]--; r.alive[owner] == 0 {
		delete(r.alive, owner)
	}
}

// find returns the owner's lease on a run; to anybody else there is none.
func (r *Registry) find(owner string, id belay.RunID) (*lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.leases[id]; l != nil && l.owner == owner {
		return l, nil
	}
	return nil, belay.ErrNotFound
}

// Get returns a lease as it stands, ended ones that are still kept included.
// One of somebody else is [belay.ErrNotFound], as an unknown one.
func (r *Registry) Get(owner string, id belay.RunID) (State, error) {
	l, err := r.find(owner, id)
	if err != nil {
		return State{}, err
	}
	return r.state(l), nil
}

// state is the lease for others to keep. The tree marks a run as stopped before
// it tells us of it: the order of one that was is there from that moment on.
func (r *Registry) state(l *lease) State {
	info := l.run.Info()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := State{Run: info, TTL: l.ttl, Until: l.until, Webhook: l.hook != "", Order: l.order}
	if c := info.Cancellation; s.Order == nil && c != nil {
		s.Order = &Order{Run: info.ID, Stop: c.Stop, Step: belay.StepTold, Cause: c.Cause, Reason: c.Reason, At: c.At}
	}
	return s
}

// Heartbeat says that the runtime is there: the lease lasts for ttl from now, or
// for as long as before if that is zero. The order of the state, if there is
// one, counts as delivered. [belay.ErrNotFound] as with Get; [belay.ErrEnded] if
// the run was reported on or is lost: then there is nothing to keep alive.
func (r *Registry) Heartbeat(owner string, id belay.RunID, ttl time.Duration) (State, error) {
	if ttl != 0 && (ttl < MinTTL || ttl > MaxTTL) {
		return State{}, fmt.Errorf("%w: a lease of %s (from %s to %s)", belay.ErrBadRequest, ttl, MinTTL, MaxTTL)
	}
	l, err := r.find(owner, id)
	if err != nil {
		return State{}, err
	}
	if err := r.extend(l, ttl); err != nil {
		return State{}, err
	}
	r.ring()
	s := r.state(l)
	if s.Order != nil {
		l.delivered(s.Order.Step)
	}
	return s, nil
}

func (r *Registry) extend(l *lease, ttl time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case l.lost:
		return fmt.Errorf("%w: the lease ran out and the run is lost; stop the work and report what came of it", belay.ErrEnded)
	case l.ended:
		return belay.ErrEnded
	}
	if ttl != 0 {
		l.ttl = ttl
	}
	l.until = time.Now().Add(l.ttl)
	return nil
}

// Delivered says that an event stream of the owner has just shown that the run
// was stopped ([belay.StepTold]) or that its ladder took a step (terminate,
// kill). For a run that is no lease of the owner it does nothing.
func (r *Registry) Delivered(owner string, id belay.RunID, step belay.Means) {
	if l, err := r.find(owner, id); err == nil && rank(step) > 0 {
		l.delivered(step)
	}
}
