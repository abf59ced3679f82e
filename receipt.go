package belay

import (
	"slices"
	"time"
)

// maxSteps bounds a receipt's timeline; what comes after is only counted.
const maxSteps = 64

// Step is one entry in a receipt's timeline.
type Step struct {
	At       time.Time `json:"at"`
	Step     Means     `json:"step"`
	Detail   string    `json:"detail,omitempty"`
	Error    string    `json:"error,omitempty"`
	Evidence *Evidence `json:"evidence,omitempty"`
}

// Receipt is the timeline of one cancellation and what it proves. A Receipt
// that a caller holds is a copy and never changes.
type Receipt struct {
	Run          RunID         `json:"run"`
	Kind         Kind          `json:"kind"`
	Name         string        `json:"name"`
	Server       string        `json:"server,omitempty"`
	Cancellation *Cancellation `json:"cancellation"`
	Outcome      Outcome       `json:"outcome"`
	Work         Work          `json:"work"`
	Verdict      Verdict       `json:"verdict"`
	Scope        Scope         `json:"scope,omitempty"` // of the proof; empty without one
	Steps        []Step        `json:"steps"`
	Dropped      int           `json:"dropped,omitempty"`   // steps beyond the bound
	Held         string        `json:"held,omitempty"`      // why no (further) force was used, and what would use it
	Survivors    []Process     `json:"survivors,omitempty"` // seen alive at the last look
	Spared       []Process     `json:"spared,omitempty"`    // left alive on purpose
	Remote       []string      `json:"remote,omitempty"`    // remote connections that the dead processes held
	Partial      string        `json:"partial,omitempty"`   // what the tool had when it was stopped
	Late         int           `json:"late,omitempty"`      // answers that came after the caller was settled
	StillActive  bool          `json:"still_active,omitempty"`
	Final        bool          `json:"final"` // no further step will be taken by Belay itself
	Ended        time.Time     `json:"ended,omitzero"`
}

// OK reports whether the Stop may be called done (DESIGN 11, 4): confirmed, or
// acknowledged with nothing of the work seen alive.
func (r *Receipt) OK() bool {
	return r.Verdict == Confirmed || r.Verdict == Acknowledged && len(r.Survivors) == 0 && !r.StillActive
}

// Took is the time from the Stop to the step that settled the verdict; zero
// while it is not final.
func (r *Receipt) Took() time.Duration {
	if r.Ended.IsZero() || r.Cancellation == nil {
		return 0
	}
	return r.Ended.Sub(r.Cancellation.At)
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

func (r *Receipt) add(s Step) {
	if len(r.Steps) >= maxSteps {
		r.Dropped++
		return
	}
	r.Steps = append(r.Steps, s)
}

// observe records evidence and raises the verdict as far as it justifies.
func (r *Receipt) observe(e Evidence) {
	r.add(Step{At: e.At, Step: StepEvidence, Detail: e.Detail, Evidence: &e})
	switch e.Kind {
	case SeenStillActive:
		r.StillActive = true
		return
	case SeenSurvivors, SeenProcessGone:
		r.Survivors = e.Survivors
	case SeenHandlerReturned, SeenInterrupted, SeenResult, SeenTaskCancelled:
		if !e.Open {
			r.StillActive = false
		}
		if len(e.Survivors) > 0 {
			r.Survivors = e.Survivors
		}
	}
	if e.Kind == SeenProcessGone && len(e.Survivors) == 0 {
		r.StillActive = false
	}
	r.Spared = appendNew(r.Spared, e.Spared)
	for _, c := range e.Remote {
		if !slices.Contains(r.Remote, c) {
			r.Remote = append(r.Remote, c)
		}
	}
	if v := e.verdict(); rank(v) > rank(r.Verdict) {
		r.Verdict = v
		r.Scope = e.Scope
	} else if e.Scope == ScopeRemote && r.Scope == "" {
		r.Scope = ScopeRemote
	}
}

func appendNew(list, more []Process) []Process {
	for _, p := range more {
		known := slices.ContainsFunc(list, func(q Process) bool { return q.PID == p.PID && q.Born.Equal(p.Born) })
		if !known {
			list = append(list, p)
		}
	}
	return list
}

func (r *Receipt) clone() *Receipt {
	c := *r
	c.Steps = slices.Clone(r.Steps)
	c.Survivors = slices.Clone(r.Survivors)
	c.Spared = slices.Clone(r.Spared)
	c.Remote = slices.Clone(r.Remote)
	return &c
}
