package gateway

import (
	"slices"
	"sync"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// Places says how many calls of one tool a principal has at once, in all sessions
// that share it (AT-88). A call has its place from its registration until it is
// over, whether it waits, runs or is being stopped: what may still be at work takes
// room. The zero value is ready for use; safe for concurrent use.
type Places struct {
	mu    sync.Mutex
	taken map[place][]*belay.Run
}

// place is whose calls of what are counted together.
type place struct{ owner, tool string }

// maxPlaces is how many names may be remembered before those with nothing in
// flight are forgotten: callers choose them.
const maxPlaces = 1024

// take gives a run one of so many places, and reports whether there was one. A run
// that has its place keeps it.
func (p *Places) take(of place, run *belay.Run, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == nil {
		p.taken = make(map[place][]*belay.Run)
	}
	if len(p.taken) >= maxPlaces {
		for other, runs := range p.taken {
			if len(inFlight(runs)) == 0 {
				delete(p.taken, other)
			}
		}
	}
	runs := inFlight(p.taken[of])
	defer func() { p.taken[of] = runs }()
	switch {
	case slices.Contains(runs, run):
		return true
	case len(runs) >= most:
		return false
	}
	runs = append(runs, run)
	return true
}

// inFlight keeps the runs that are not over.
func inFlight(runs []*belay.Run) []*belay.Run {
	kept := runs[:0]
	for _, r := range runs {
		stopped := r.Receipt()
		if stopped == nil && r.Info().Outcome == belay.Pending || stopped != nil && !stopped.Final {
			kept = append(kept, r)
		}
	}
	clear(runs[len(kept):])
	return kept
}

// textBusy is what the caller of a tool gets that has no place free.
const textBusy = "Error: the tool is busy."

// seatedLocked reports whether a registered call may start beside the others of its
// tool; if not, it was answered.
func (s *Session) seatedLocked(c *call) bool {
	if s.cfg.AtOnce == 0 || c.method != mcp.MethodCallTool || c.run == nil {
		return true
	}
	if s.cfg.Places.take(place{s.cfg.Owner, c.name}, c.run, s.cfg.AtOnce) {
		return true
	}
	s.log.Info("a call was refused: as many calls of its tool as may be are in flight", "tool", c.name, "at_once", s.cfg.AtOnce)
	c.failTextLocked(textBusy)
	return false
}
