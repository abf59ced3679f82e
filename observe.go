package belay

import (
	"slices"
	"time"
)

// Observe records evidence about a cancelled run: it raises the verdict as far
// as it justifies, and ends the ladder if it says so. Evidence that comes
// after the ladder gave up upgrades the receipt all the same (MCP-G32). On a
// run that is not cancelled it does nothing.
func (r *Run) Observe(e Evidence) {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeLocked(r, e)
}

func (t *Tree) observeLocked(r *Run, e Evidence) {
	s := r.stop
	if s == nil {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.own()
	s.observe(&e)
	t.emitLocked(EventStep, r)
	if !e.ends() || s.over {
		return
	}
	s.over = true
	s.held = ""
	r.work = Stopped
	if e.verdict() == Signalled {
		r.work = Unconfirmed // the local end is gone; of the work itself nothing is known
	}
	t.sealLocked(r)
}

// own bounds and copies what a stopper or a peer gave.
func (e *Evidence) own() {
	e.Detail = CleanReason(e.Detail)
	e.Survivors = slices.Clone(e.Survivors[:min(len(e.Survivors), maxSeen)])
	e.Spared = slices.Clone(e.Spared[:min(len(e.Spared), maxSeen)])
	e.Remote = slices.Clone(e.Remote[:min(len(e.Remote), maxSeen)])
}

// GiveUp ends the ladder of a cancelled run now, without evidence: its owner knows
// that nothing more is to be done or seen unless a person presses Stop once more,
// which climbs again. held says what then would be done, for the receipt and for
// ps; it may be empty. It returns false, and changes nothing, if the run is not
// cancelled or its verdict is final.
func (r *Run) GiveUp(held string) bool {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.stop == nil || r.stop.final {
		return false
	}
	t.giveUpLocked(r, CleanReason(held), "")
	return true
}

// giveUpLocked makes the verdict final without evidence that ends the ladder.
func (t *Tree) giveUpLocked(r *Run, held, detail string) {
	s := r.stop
	s.held = held
	if held != "" {
		t.stepLocked(r, s, Step{At: time.Now(), Step: StepHeld, Detail: held})
	}
	t.stepLocked(r, s, Step{At: time.Now(), Step: StepGaveUp, Detail: detail})
	r.work = Unconfirmed
	t.sealLocked(r)
}

// sealLocked makes the receipt final: Belay itself will take no further step,
// unless a person presses again after the ladder gave up. Methods that still
// run go on after that, for they may bring late evidence.
func (t *Tree) sealLocked(r *Run) {
	s := r.stop
	s.final, s.ended = true, time.Now()
	if r.outcome == Pending {
		r.outcome = Cancelled // deferred, and nobody has said anything else
	}
	if s.over {
		s.endLocked()
	} else {
		s.disarmLocked()
		s.ring()
	}
	t.emitLocked(EventFinal, r)
	t.overLocked(r)
}

// stepLocked adds a step to the receipt of a cancelled run.
func (t *Tree) stepLocked(r *Run, s *stop, step Step) {
	step.Detail, step.Error = cut(step.Detail, MaxReason), CleanReason(step.Error)
	s.add(step)
	t.emitLocked(EventStep, r)
}
