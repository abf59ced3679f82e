package belay

import "time"

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
