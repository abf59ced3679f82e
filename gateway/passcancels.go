package gateway

import (
	"bytes"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// With Config.PassCancels the caller's cancels are between it and the server
// (ORC-64): Belay is a wire that maps ids.
//
//   - notifications/cancelled goes to the server with its own id for the call, in
//     order behind the call. Nothing else of it is changed.
//   - The call stays in flight: no outcome, no receipt, no grace, no force, and
//     what the server says about it reaches the caller, its answer too. Belay
//     makes no -32800 of it.
//   - A cancel that names nothing in flight is dropped, since there is no id to
//     map it to; it stops no later call.
//   - tasks/cancel is a request like any other.
//   - A caller of the modern era that closes its exchange has cancelled by that. A
//     server that reads lines is sent notifications/cancelled; to one that is
//     reached by HTTP the exchange is closed as well, and the run ends as
//     cancelled, for no answer can come.
//   - A server that obeys a cancel never answers. Such a call is forgotten after
//     10 minutes, or when more than 1,024 of a session are waiting, oldest first:
//     its outcome is lost, and a later answer is dropped.
//
// Deadlines of the policy are not kept: their answer would be Belay's own. Other
// Stops stay what they are: a person's, by the tree; the end of the session.

// passing is a cancel of the caller that was or will be passed on.
type passing struct {
	frame []byte // nil: the exchange was closed
	at    jsonrpc.Span
	sent  bool
	timer *time.Timer
}

// passing is the cancel of the caller that goes to the server; nil: there is
// none.
func (c *call) passing() *passing {
	if c.names == nil {
		return nil
	}
	return c.names.cancel
}

// passTime is how long the answer to a call may come after its cancel.
const passTime = 10 * time.Minute

// passCancelLocked passes a cancel on. frame is nil where an exchange was
// closed.
func (s *Session) passCancelLocked(c *call, frame []byte, at jsonrpc.Span) {
	switch {
	case c.run == nil:
		s.log.Warn("a cancel of a handshake was ignored", "method", c.method)
		return
	case c.passing() == nil:
		if c.names == nil {
			c.names = &names{}
		}
		c.names.cancel = &passing{}
		c.names.cancel.timer = time.AfterFunc(passTime, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			c.passedOverLocked()
		})
		s.passedOnLocked(c)
	}
	p := c.passing()
	p.frame, p.at, p.sent = bytes.Clone(frame), at, false
	if c.up != nil {
		c.passLocked()
	}
}

// passLocked sends what is to be passed on of a call that was dispatched.
func (c *call) passLocked() {
	p, u := c.passing(), c.up
	if p.sent {
		return
	}
	p.sent = true
	if w, ok := u.wire.(*web); ok && c.era == mcp.Modern {
		u.removeLocked(c)
		c.endPassedLocked(belay.Cancelled)
		w.forget(c)
		return
	}
	if p.frame == nil {
		u.s.forwardLocked(u, mcp.AppendCancelled(nil, c.upID, "", c.era))
		return
	}
	u.s.forwardLocked(u, p.frame, jsonrpc.Edit{At: p.at, New: []byte(c.upID.Raw())})
	p.frame = nil
}

// passedOnLocked bounds the calls that wait for an answer after their cancel.
func (s *Session) passedOnLocked(c *call) {
	kept := s.passed[:0]
	for _, old := range s.passed {
		if !old.answered && old.run.Cancellation() == nil {
			kept = append(kept, old)
		} else {
			old.names.cancel.timer.Stop()
		}
	}
	clear(s.passed[len(kept):])
	s.passed = append(kept, c)
	if len(s.passed) > maxGhosts {
		s.passed[0].passedOverLocked()
	}
}

// passedOverLocked forgets a call whose server has not answered it since its
// cancel.
func (c *call) passedOverLocked() {
	if c.answered || c.run.Cancellation() != nil {
		return
	}
	if c.up == nil { // it still waits for a process
		c.dropped = true
	} else {
		c.up.removeLocked(c)
		c.up.forgotten.add(c.upID.Key())
		c.up.wire.forget(c)
		c.up.releaseLocked(c)
	}
	c.endPassedLocked(belay.Lost)
}

// endPassedLocked settles a call that gets no answer because of its cancel.
func (c *call) endPassedLocked(o belay.Outcome) {
	c.names.cancel.timer.Stop()
	if c.run.Finish(o) {
		c.s.forgetLocked(c)
		c.silenceLocked()
	}
}
