package belay

import (
	"context"
	"slices"
	"time"
)

// stop is the state of one run's stopping. Guarded by tree.mu.
type stop struct {
	cause    *Cancellation
	receipt  Receipt
	acts     []StopID // the Stops seen, the newest last; at most maxActs
	presses  int      // by persons
	again    bool     // a person pressed while it was being stopped
	now      bool     // straight to kill
	climbing bool     // a ladder goroutine is at work
	over     bool     // evidence ended the ladder
	grace    *time.Timer
	wake     chan struct{} // capacity 1: a press or evidence
	stopper  Stopper       // the spec's, kept as long as the ladder may need it
	ctx      context.Context
	end      context.CancelCauseFunc // ends ctx when the ladder is over
}

const maxActs = 8 // Stops remembered per run; more presses than that have long been kills

func (s *stop) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// attachment is somebody else's set of runs below a run of ours.
type attachment struct {
	fn func(CancelRequest)
}

// Attach hangs runs that another process holds below a run of this tree: fn is
// called, in a goroutine of its own, when that run or one above it is stopped,
// and again when a person presses once more. If the run is cancelled already,
// fn is called at once. The request's Filter is empty and its cause is parent.
// detach is idempotent. A run that is over is [ErrEnded].
func (t *Tree) Attach(id RunID, fn func(CancelRequest)) (detach func(), err error) {
	r, err := t.Run(id)
	if err != nil {
		return nil, err
	}
	a := &attachment{fn: fn}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, ErrClosed
	case r.outcome.Terminal() && r.stop == nil:
		return nil, ErrEnded
	case r.stop != nil:
		req := CancelRequest{Cancellation: *r.stop.cause.forChild(r.id), Now: r.stop.now}
		t.wg.Go(func() { fn(req) })
	default:
		r.hooks = append(r.hooks, a)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		r.hooks = slices.DeleteFunc(r.hooks, func(b *attachment) bool { return a == b })
	}, nil
}

// batch collects under the lock what has to be done without it.
type batch struct {
	todo     []task // newly cancelled, children before parents
	touched  bool   // something was stopped or escalated
	requests []func()
}

// task is what is owed to one newly cancelled run.
type task struct {
	run     *Run
	cause   *Cancellation
	end     context.CancelCauseFunc
	settle  func(*Run, *Cancellation)
	stopper Stopper
	tell    bool
}

// stopRun stops one run with its subtree; see CancelRequest for the flags.
func (t *Tree) stopRun(r *Run, c Cancellation, escalate, now bool) bool {
	if err := c.complete(time.Now()); err != nil {
		panic("belay: " + err.Error()) // a cause is a constant in our own code; Control checks foreign ones
	}
	var b batch
	t.mu.Lock()
	below := c.forChild(r.id)
	for _, d := range r.subtreeLocked() {
		cause := below
		if d == r {
			cause = &c
		}
		t.stopOneLocked(&b, d, cause, escalate, now)
	}
	t.wg.Add(len(b.requests) + len(b.todo))
	t.mu.Unlock()
	t.dispatch(&b)
	return b.touched
}

// subtreeLocked lists the run and all below it, children before parents.
func (r *Run) subtreeLocked() []*Run {
	if r.first == nil {
		return []*Run{r}
	}
	var list []*Run
	at := r
	for at.first != nil {
		at = at.first
	}
	for {
		list = append(list, at)
		if at == r {
			return list
		}
		if at.next == nil {
			at = at.parent
			continue
		}
		for at = at.next; at.first != nil; at = at.first {
		}
	}
}

func (t *Tree) stopOneLocked(b *batch, r *Run, c *Cancellation, escalate, now bool) {
	switch {
	case r.work == Stopped:
		return // over; it may still have had children, which are stopped
	case r.stop == nil:
		t.markLocked(b, r, c, escalate, now)
	case !escalate && !now || slices.Contains(r.stop.acts, c.Stop):
		return // the same Stop by another way, or machinery repeating itself
	default:
		t.pressLocked(r, c, now)
	}
	b.touched = true
	for _, a := range r.hooks {
		req := CancelRequest{Cancellation: *c.forChild(r.id), Escalate: escalate, Now: now}
		b.requests = append(b.requests, func() { a.fn(req) })
	}
}

// markLocked gives the run its cancellation and, first of all, its outcome.
func (t *Tree) markLocked(b *batch, r *Run, c *Cancellation, byPerson, now bool) {
	if r.outcome == Pending {
		r.outcome = Cancelled
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	queued := r.work == Waiting
	r.work = Stopping
	s := &stop{cause: c, acts: []StopID{c.Stop}, wake: make(chan struct{}, 1), now: now, stopper: r.spec.Stopper}
	if byPerson {
		s.presses = 1
	}
	s.receipt = Receipt{
		Run: r.id, Kind: r.spec.Kind, Name: r.spec.Name, Server: r.spec.Server,
		Cancellation: c, Outcome: r.outcome, Work: Stopping, Verdict: Unreachable, Partial: r.partial,
		Steps: make([]Step, 0, 4),
	}
	r.stop = s
	job := task{run: r, cause: c, end: r.end, settle: r.spec.OnCancel, stopper: s.stopper, tell: !queued}
	t.emitLocked(EventCancelled, r)
	t.stepLocked(r, Step{At: c.At, Step: StepRequested, Detail: c.Error()})
	if queued {
		t.observeLocked(r, Evidence{Kind: SeenNotStarted, Scope: ScopeHandler, Detail: "it was still waiting; nothing was started"})
	} else {
		t.armLocked(r)
	}
	b.todo = append(b.todo, job)
}

// armLocked sets the time of the first step after the tell.
func (t *Tree) armLocked(r *Run) {
	s := r.stop
	if s.stopper != nil {
		s.ctx, s.end = context.WithCancelCause(t.base)
	}
	l := r.spec.Ladder.WithDefaults()
	wait := l.Grace
	switch {
	case !forceful(s.stopper):
		wait = l.ConfirmAfter // nothing to be done between telling and giving up
	case s.now:
		wait = 0
	}
	s.grace = time.AfterFunc(wait, func() { t.climb(r) })
}

// pressLocked is a person's second Stop: the next step, now.
func (t *Tree) pressLocked(r *Run, c *Cancellation, now bool) {
	s := r.stop
	s.acts = append(s.acts, c.Stop)
	if len(s.acts) > maxActs {
		s.acts = s.acts[1:]
	}
	s.presses++
	s.again = true
	s.now = s.now || now
	s.receipt.Held = ""
	r.work = Stopping
	s.receipt.Final = false
	s.receipt.Ended = time.Time{}
	t.stepLocked(r, Step{At: time.Now(), Step: StepEscalated, Detail: c.Error()})
	if s.climbing {
		s.signal()
		return
	}
	s.grace.Stop()
	s.grace = time.AfterFunc(0, func() { t.climb(r) })
}

// dispatch does without the lock what a Stop set in motion: contexts end and
// callers are settled first, then every backend is told, all concurrently.
func (t *Tree) dispatch(b *batch) {
	for _, job := range b.todo {
		if job.end != nil {
			job.end(job.cause)
		}
		if job.settle != nil {
			job.settle(job.run, job.cause)
		}
	}
	for _, request := range b.requests {
		go func() { defer t.wg.Done(); request() }()
	}
	for _, job := range b.todo {
		switch {
		case !job.tell:
			t.wg.Done()
		case job.stopper == nil:
			t.toldContext(job.run, job.end != nil)
			t.wg.Done()
		default:
			go func() { defer t.wg.Done(); t.tell(job) }()
		}
	}
}

func (t *Tree) toldContext(r *Run, listens bool) {
	step := Step{At: time.Now(), Step: StepTold, Detail: "its context was ended"}
	if !listens {
		step.Detail, step.Error = "", "nobody listens: the run has neither a stopper nor a context in use"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.toldLocked(r, step)
}

func (t *Tree) tell(job task) {
	e, err := job.stopper.Tell(job.run.stop.ctx, job.cause) // stop and ctx never change once set
	step := Step{At: time.Now(), Step: StepTold}
	if err != nil {
		step.Error = err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.toldLocked(job.run, step)
	if e != nil {
		t.observeLocked(job.run, *e)
	}
}

func (t *Tree) toldLocked(r *Run, step Step) {
	s := r.stop
	if step.Error == "" && rank(s.receipt.Verdict) < rank(Signalled) {
		s.receipt.Verdict = Signalled
	}
	t.stepLocked(r, step)
}
