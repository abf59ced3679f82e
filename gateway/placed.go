package gateway

import (
	"context"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// A session may serve work that is divided in a way it does not see: the turns of
// an editor's session with its agent, say. Somebody who sees it says of each call
// below which run it hangs. The run may be one of another process; its Stops then
// come as Stops of what hangs below it, and the placer remembers them for calls
// that were on their way.
//
// Unlike a parent that the caller names (below.go), this is nobody's wish: a call
// whose place is gone hangs where the session does.

// Placer says where the calls of a session hang. Safe for concurrent use.
type Placer interface {
	// Place is asked about a call that does work when it arrives, before anything
	// is locked; it may take a moment, during which nothing else of the caller is
	// read. tool is the tool or prompt, "" for others; toolUse the id under which
	// the model asked for it, as far as the caller says. The zero id, or that of a
	// run that is over, means the session's own place.
	Place(ctx context.Context, tool, toolUse string) belay.RunID

	// StopOf is the Stop of a run of another process that Place has named, or nil.
	// It is asked with locks held, when the call is registered: who first
	// remembers a Stop and then stops what the tree knows has missed nothing.
	StopOf(run belay.RunID) *belay.Cancellation
}

// placeOf asks where a call hangs; zero: with the session.
func (s *Session) placeOf(a *mcp.Arrival) belay.RunID {
	if s.cfg.Placer == nil || a.Kind != jsonrpc.Request || !works(a.Method) {
		return belay.RunID{}
	}
	said := a.ReadNames()
	return s.cfg.Placer.Place(s.life, a.ToolName(), a.Text(said.ToolUse))
}

// placeLocked puts a call where it was placed.
func (n *names) placeLocked(s *Session, place belay.RunID) {
	if n.above != nil || place.IsZero() || place == s.run.ID() || place == s.cfg.Parent {
		return
	}
	run, err := s.tree.Run(place)
	if err == nil && over(run) || s.watchOutsideLocked() != nil {
		return
	}
	n.placed = true
	if err == nil {
		n.above = run
	} else {
		n.elsewhere = place
	}
}

// over reports whether a run has ended without a Stop.
func over(run *belay.Run) bool {
	info := run.Info()
	return info.Cancellation == nil && info.Over()
}

// stopElsewhere is the Stop of the run of another process below which a call
// hangs, as it concerns the call; nil: there is none.
func (c *call) stopElsewhere() *belay.Cancellation {
	n := c.names
	if n == nil || n.elsewhere.IsZero() {
		return nil
	}
	cause := c.s.cfg.Placer.StopOf(n.elsewhere)
	if cause == nil {
		return nil
	}
	return belowStopped(cause, n.elsewhere)
}

// belowStopped is the cancellation of a call below a run that is stopped.
func belowStopped(cause *belay.Cancellation, run belay.RunID) *belay.Cancellation {
	origin := cause.Origin
	if cause.Cause != belay.CauseParent || origin.IsZero() {
		origin = run
	}
	return &belay.Cancellation{Stop: cause.Stop, Cause: belay.CauseParent, By: cause.By, Reason: cause.Reason, Via: cause.Via, Origin: origin}
}
