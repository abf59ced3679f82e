package belay

import (
	"slices"
	"time"
)

// stop is the state of one run's stopping. Guarded by tree.mu.
type stop struct {
	record
	first    *order   // the Stop that cancelled it
	acts     []StopID // further Stops than the cause's, the newest last; at most maxActs
	presses  int32    // by persons
	again    bool     // a person pressed while it was being stopped
	now      bool     // straight to kill
	climbing bool     // a ladder goroutine is at work
	over     bool     // evidence ended the ladder
	alarm    *alarm   // will start the climb, or give up where there is no force
	bell     chan struct{}
	ctx      stopContext // of the stopper's methods
}

const maxActs = 8 // Stops remembered per run; more presses than that have long been kills

// noteAct remembers that this Stop has come by.
func (s *stop) noteAct(act StopID) {
	s.acts = append(s.acts, act)
	if len(s.acts) > maxActs {
		s.acts = s.acts[1:]
	}
}

// knows reports whether this very Stop has come by before.
func (s *stop) knows(act StopID) bool {
	return s.first.cause.Stop == act || slices.Contains(s.acts, act)
}

// ring wakes the climber, if there is one, to look at what has changed.
func (s *stop) ring() {
	select {
	case s.bell <- struct{}{}:
	default: // nobody climbs, or a ring is waiting already
	}
}

// endLocked ends what the ladder has going on: the alarm, the climb, and the
// context of the stopper's methods. The context stays readable.
func (s *stop) endLocked() {
	s.disarmLocked()
	s.ring()
	s.ctx.finish()
}

// alarm wakes the runs of one Stop that have the same time to wait: a Stop of
// 100,000 runs needs one timer. Guarded by tree.mu.
type alarm struct {
	timer *time.Timer
	runs  []*Run
	armed int // how many of runs still wait for it
}

func (s *stop) disarmLocked() {
	a := s.alarm
	if a == nil {
		return
	}
	s.alarm = nil
	if a.armed--; a.armed == 0 {
		a.timer.Stop()
		a.runs = nil
	}
}

// goOff is what the timer calls.
func (a *alarm) goOff(t *Tree) {
	t.mu.Lock()
	runs := a.runs
	a.runs = nil
	t.mu.Unlock()
	for _, r := range runs {
		t.mu.Lock() // for each run anew: nobody waits for 100,000 of them
		if s := r.stop; s.alarm == a {
			s.alarm = nil
			t.climbLocked(r)
		}
		t.mu.Unlock()
	}
}

// armLocked gives the run the time to end by itself: until the first force, or
// until giving up where there is no force.
func (t *Tree) armLocked(b *batch, r *Run) {
	s, ladder := r.stop, r.spec.Ladder.WithDefaults()
	wait := ladder.Grace
	switch {
	case !forceful(r.spec.Stopper):
		wait = ladder.ConfirmAfter
	case s.now:
		wait = 0
	}
	a := b.alarms[wait]
	if a == nil {
		a = &alarm{runs: make([]*Run, 0, max(b.size, 1))}
		a.timer = time.AfterFunc(wait, func() { a.goOff(t) })
		if b.alarms == nil {
			b.alarms = make(map[time.Duration]*alarm, 1)
		}
		b.alarms[wait] = a
	}
	a.runs = append(a.runs, r)
	a.armed++
	s.alarm = a
}
