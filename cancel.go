package belay

import (
	"runtime"
	"slices"
	"time"
)

// order is one Stop on its way through the tree.
type order struct {
	cause    *Cancellation
	begun    time.Time // by our own clock, from which the ladder's times count
	text     string    // the cause in words, made once for all runs
	escalate bool      // a person pressed
	now      bool      // straight to kill
}

// below is the order as the descendants of r get it.
func (o *order) below(r *Run) *order {
	c := o.cause.forChild(r.id)
	return &order{cause: c, begun: o.begun, text: CleanReason(c.Error()), escalate: o.escalate, now: o.now}
}

// presses reports whether runs that are being stopped take their next step.
func (o *order) presses() bool { return o.escalate || o.now }

// samePress is how long one press may take on its ways to a run.
const samePress = time.Second

// overtaken reports whether the Stop was made before the run was stopped, and only
// arrives after that: where a person stops a run of one process, what runs below it
// in another one may hear of it first from its own caller, who was told as well.
// That is one press and not two, and no reason for force.
func (o *order) overtaken(s *stop) bool {
	late := s.first.cause.At.Sub(o.cause.At)
	return !o.now && late > 0 && late <= samePress
}

// batch collects under the lock what has to be done without it.
type batch struct {
	tells    []task // newly cancelled runs that have a stopper, children before parents
	others   []task // and those that have none, or of which nothing was started
	requests []func()
	size     int // about how many runs there are
	alarms   map[time.Duration]*alarm
	touched  bool // something was stopped or escalated
}

// stopAll stops the runs that pick returns, each with its subtree, and returns
// all of them. Under one lock every run gets its cancellation and its outcome,
// so that nothing slips in between; what can block follows in dispatch. pick
// is called under that lock; a run must not come before one above it.
func (t *Tree) stopAll(o *order, pick func() []*Run) (all []*Run, touched bool) {
	o.begun, o.text = time.Now(), CleanReason(o.cause.Error())
	var b batch
	t.mu.Lock()
	t.walks++
	for _, root := range pick() {
		if root.walk == t.walks {
			continue // lies below a run that was picked too
		}
		from := len(all)
		all = root.subtreeLocked(all)
		if under := all[from : len(all)-1]; len(under) > 0 {
			b.tells, b.size = slices.Grow(b.tells, len(under)), len(under)+1
			below := o.below(root)
			for _, r := range under {
				t.stopOneLocked(&b, r, below)
			}
		}
		t.stopOneLocked(&b, root, o)
	}
	t.wg.Add(len(b.requests) + len(b.tells))
	t.mu.Unlock()
	t.dispatch(&b)
	return all, b.touched
}

// subtreeLocked appends all below the run and the run itself, children before
// parents. Runs that are over but have living ones below are among them.
func (r *Run) subtreeLocked(list []*Run) []*Run {
	at := r
	for {
		for at.first != nil {
			at = at.first
		}
		list = append(list, at)
		for at != r && at.next == nil {
			at = at.parent
			list = append(list, at)
		}
		if at == r {
			return list
		}
		at = at.next
	}
}

// stopOneLocked does what a Stop means for one run: it cancels a run in
// flight, takes one that is being stopped a step further if a person pressed,
// and passes over the rest: runs that are over, and a Stop that came by before
// or was repeated by machinery.
func (t *Tree) stopOneLocked(b *batch, r *Run, o *order) {
	r.walk = t.walks
	s := r.stop
	switch {
	case t.gone:
		return
	case s == nil && r.place == inFlight:
		t.markLocked(b, r, o)
		b.touched = true
	case s != nil && !s.over && r.place != forgotten && o.presses() && !s.knows(o.cause.Stop):
		if o.overtaken(s) {
			s.noteAct(o.cause.Stop)
			break
		}
		t.pressLocked(r, o)
		b.touched = true
	}
	for _, a := range r.hooks {
		if request := a.askLocked(r, o); request != nil {
			b.requests = append(b.requests, request)
			b.touched = true
		}
	}
}

// markLocked gives the run its cancellation and, first of all, its outcome.
func (t *Tree) markLocked(b *batch, r *Run, o *order) {
	job := task{run: r, end: r.end, stopper: r.spec.Stopper, idle: r.work == Waiting && !r.paused}
	if r.outcome == Pending {
		if !r.spec.Deferred {
			r.outcome = Cancelled
		}
		job.settle = r.spec.OnCancel
	}
	r.spec.OnCancel = nil
	r.dropClockLocked()
	r.work = Stopping
	s := &stop{first: o, record: record{verdict: Unreachable}, now: o.now, ctx: stopContext{cause: o.cause}}
	job.stop, job.order = s, o
	if o.escalate {
		s.presses = 1
	}
	r.stop = s
	t.emitLocked(EventCancelled, r)
	t.emitLocked(EventStep, r) // that it was requested
	if r.asking > 0 {
		t.withdrawLocked(r)
	}
	switch {
	case job.idle:
		t.observeLocked(r, Evidence{Kind: SeenNotStarted, Scope: ScopeHandler, Detail: "it was still waiting; nothing was started"})
		b.others = append(b.others, job)
	case job.stopper == nil:
		t.armLocked(b, r)
		b.others = append(b.others, job)
	default:
		t.armLocked(b, r)
		b.tells = append(b.tells, job)
	}
}

// pressLocked is a person's second Stop: the next step, now. Where there is no
// force it is noted, and the wait for evidence goes on.
func (t *Tree) pressLocked(r *Run, o *order) {
	s := r.stop
	s.noteAct(o.cause.Stop)
	s.presses++
	s.again = true
	s.now = s.now || o.now
	force := forceful(r.spec.Stopper)
	if force && s.final {
		t.reviveLocked(r) // before the step, so that who watches sees it stopping
	}
	t.stepLocked(r, s, Step{At: time.Now(), Step: StepEscalated, Detail: o.text})
	switch {
	case s.climbing:
		s.ring()
	case force:
		s.disarmLocked()
		t.climbLocked(r)
	}
}

// dispatch does without the lock what a Stop set in motion: contexts end and
// callers are settled first, then every backend is told, all concurrently.
func (t *Tree) dispatch(b *batch) {
	for _, jobs := range [][]task{b.tells, b.others} {
		for i := range jobs {
			jobs[i].settleCaller()
		}
	}
	for _, request := range b.requests {
		go func() {
			defer t.wg.Done()
			request()
		}()
	}
	lanes := runtime.GOMAXPROCS(0)
	for i := range min(lanes, len(b.tells)) {
		go t.tell(b.tells[i:], lanes)
	}
	for i := range b.others {
		if job := &b.others[i]; !job.idle {
			t.tellByContext(job)
		}
	}
}
