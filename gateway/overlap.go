package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// After a stop without proof the tool may still be at work, and a model likes to
// try again at once: what becomes of such a call is a setting (DESIGN 11, 9).

// doubtFor is how long a stop that nothing proved is held against new calls of
// the same tool.
const doubtFor = 10 * time.Minute

// maxDoubts bounds what is remembered of one session.
const maxDoubts = 1000

// doubtLocked remembers a stopped tool call until it is proven to be over.
func (s *Session) doubtLocked(c *call) {
	if c.method != mcp.MethodCallTool || c.up == nil {
		return
	}
	if len(s.doubts) >= s.pruneAt {
		s.pruneDoubtsLocked()
		s.pruneAt = max(64, 2*len(s.doubts)) // so that many stops at once do not look at each other
	}
	if len(s.doubts) >= maxDoubts {
		s.doubts = s.doubts[1:]
	}
	s.doubts = append(s.doubts, c)
	if c.policy.Overlap != OverlapWait {
		return
	}
	s.goLocked(func() {
		_, _ = c.run.Wait(s.life)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flushLocked() // who waits for the end of this one looks again
	})
}

// pruneDoubtsLocked forgets what is proven to be over, and what is long ago.
func (s *Session) pruneDoubtsLocked() {
	kept := s.doubts[:0]
	for _, c := range s.doubts {
		if c.inDoubt() {
			kept = append(kept, c)
		}
	}
	clear(s.doubts[len(kept):])
	s.doubts = kept
}

func (c *call) inDoubt() bool {
	r := c.run.Receipt()
	switch {
	case c.withdrawn || time.Since(c.run.Cancellation().At) > doubtFor:
		return false
	case r == nil:
		return true
	}
	return r.Verdict != belay.Confirmed && r.Verdict != belay.Acknowledged
}

// overlapsLocked returns an earlier call of the same tool that was stopped and
// may still be at work; nil if there is none. With settling, only one whose
// receipt is not final.
func (s *Session) overlapsLocked(c *call, settling bool) *call {
	if c.method != mcp.MethodCallTool || len(s.doubts) == 0 {
		return nil
	}
	for _, d := range slices.Backward(s.doubts) { // the newest is the likeliest
		if d.name != c.name || !d.inDoubt() {
			continue
		}
		if r := d.run.Receipt(); settling && r != nil && r.Final {
			continue
		}
		return d
	}
	return nil
}

// admitLocked decides about a call that overlaps with a stopped one: false if
// it was refused.
func (s *Session) admitLocked(c *call) bool {
	d := s.overlapsLocked(c, false)
	if d == nil {
		return true
	}
	if c.policy.Overlap == OverlapRefuse {
		text := fmt.Sprintf("Refused: an earlier call of %s was stopped (%s), and nothing proves that its work has ended. Wait, or look first what it is doing.", c.name, d.run.ID())
		c.run.Finish(belay.Failed)
		s.forgetLocked(c)
		c.answered = true
		s.replyLocked(c, mcp.AppendToolError(nil, c.id, text, c.era))
		return false
	}
	s.log.Warn("a tool is called again while a stopped call of it may still be at work", "tool", c.name, "stopped", d.run.ID(), "overlap", c.policy.Overlap)
	return true
}
