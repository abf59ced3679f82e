package belay

import (
	"slices"
	"time"
)

// Bounds of a receipt; what comes after is only counted.
const (
	maxSteps  = 64  // of the timeline
	spareFor  = 16  // of these, kept free for what a chatty tool must not crowd out: the ladder's own steps
	maxSeen   = 256 // processes or connections in one piece of evidence
	maxListed = 512 // and in the receipt
)

// record is what a receipt says beyond what the run and its cancellation know.
// It is kept small, for a Stop of 100,000 runs makes as many. Guarded by
// tree.mu.
type record struct {
	verdict     Verdict
	scope       Scope
	steps       []Step // without the first, the request, which the order knows
	dropped     int
	held        string
	seen        *sights // nil: nothing
	stillActive bool
	final       bool
	ended       time.Time
}

// sights are the processes and connections that evidence named.
type sights struct {
	survivors, spared []Process
	remote            []string
}

// receiptLocked is the receipt as it stands, for others to keep; nil if the
// run was not cancelled.
func (r *Run) receiptLocked() *Receipt {
	s := r.stop
	if s == nil {
		return nil
	}
	c := &Receipt{
		Run: r.id, Kind: r.spec.Kind, Name: r.spec.Name, Server: r.spec.Server,
		Cancellation: s.first.cause, Outcome: r.outcome, Work: r.work, Verdict: s.verdict, Scope: s.scope,
		Steps: make([]Step, 1, 1+len(s.steps)), Dropped: s.dropped, Held: s.held,
		Partial: r.partial, Late: r.late, StillActive: s.stillActive, Final: s.final, Ended: s.ended,
	}
	c.Steps[0] = Step{At: s.first.cause.At, Step: StepRequested, Detail: s.first.text}
	c.Steps = append(c.Steps, s.steps...)
	if s.seen != nil {
		c.Survivors, c.Spared, c.Remote = slices.Clone(s.seen.survivors), slices.Clone(s.seen.spared), slices.Clone(s.seen.remote)
	}
	return c
}

// rank orders verdicts; a receipt's verdict only ever rises.
func rank(v Verdict) int {
	switch v {
	case Confirmed:
		return 3
	case Acknowledged:
		return 2
	case Signalled:
		return 1
	}
	return 0
}

// raise lifts the verdict to v, and reports whether that was higher.
func (c *record) raise(v Verdict) bool {
	if rank(v) <= rank(c.verdict) {
		return false
	}
	c.verdict = v
	return true
}

func (c *record) add(s Step) {
	limit := maxSteps - 1
	if s.repeats() {
		limit -= spareFor
	}
	if len(c.steps) >= limit {
		c.dropped++
		return
	}
	if c.steps == nil {
		c.steps = make([]Step, 0, 1) // that it was told, which is all that a Stop of many runs often has to say
	}
	c.steps = append(c.steps, s)
}

// repeats reports whether there can be any number of such steps in one ladder.
func (s *Step) repeats() bool {
	switch s.Step {
	case StepLate, StepEscalated, StepHeld:
		return true
	case StepEvidence:
		return s.Evidence.Kind == SeenStillActive || s.Evidence.Open
	}
	return false
}

// observe records evidence and raises the verdict as far as it justifies.
func (c *record) observe(e *Evidence) {
	c.add(Step{At: e.At, Step: StepEvidence, Detail: e.Detail, Evidence: e})
	if e.Kind == SeenStillActive {
		c.stillActive = true
		return
	}
	c.look(e)
	if e.quiet() {
		c.stillActive = false
	}
	if c.raise(e.verdict()) {
		c.scope = e.Scope
	} else if e.Scope == ScopeRemote && c.scope == "" {
		c.scope = ScopeRemote
	}
}

// quiet reports whether the evidence outweighs an earlier sign of life.
func (e *Evidence) quiet() bool {
	switch e.Kind {
	case SeenHandlerReturned, SeenInterrupted, SeenResult, SeenTaskCancelled:
		return !e.Open
	case SeenProcessGone, SeenHookGone:
		return len(e.Survivors) == 0
	}
	return false
}

// look takes over what the evidence names. A look at the processes replaces
// the survivors of the one before.
func (c *record) look(e *Evidence) {
	looked := e.Kind == SeenSurvivors || e.Kind == SeenProcessGone
	if c.seen == nil {
		if len(e.Survivors)+len(e.Spared)+len(e.Remote) == 0 {
			return
		}
		c.seen = &sights{}
	}
	if looked || len(e.Survivors) > 0 {
		c.seen.survivors = e.Survivors
	}
	for _, p := range e.Spared {
		if !slices.ContainsFunc(c.seen.spared, p.is) && len(c.seen.spared) < maxListed {
			c.seen.spared = append(c.seen.spared, p)
		}
	}
	for _, to := range e.Remote {
		if !slices.Contains(c.seen.remote, to) && len(c.seen.remote) < maxListed {
			c.seen.remote = append(c.seen.remote, to)
		}
	}
}

func (p Process) is(q Process) bool { return p.PID == q.PID && p.Born.Equal(q.Born) }
