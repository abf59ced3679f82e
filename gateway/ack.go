package gateway

import (
	"context"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// The stop-ack extension (docs/stop-ack.md): a server that has it says when the
// handler of a stopped call has really returned, which proves the stop without
// anybody having to die (DESIGN 11, 5). Each tool call gets a token of Belay's
// own; a caller who gave one of his own gets the ack under that.

// learnAcksLocked notes by which ways the server acknowledges, when it has said
// what it can.
func (s *Session) learnAcksLocked() { s.acks = s.hand.StopAck() }

// acksLocked reports whether the call is to be acknowledged.
func (c *call) acksLocked() bool {
	return c.method == mcp.MethodCallTool && (c.s.acks.Notify || c.s.acks.Await)
}

// askAckLocked asks the server to acknowledge the end of a call.
func (u *upstream) askAckLocked(c *call, m *mcp.Message) mcp.MetaMember {
	c.ackFor, c.ack = mcp.StopAckToken(m), mcp.NewStopAckToken()
	if u.acks == nil {
		u.acks = make(map[string]*call)
	}
	u.acks[c.ack] = c
	return mcp.StopAckMeta(c.ack)
}

// awaitLocked is the edit that puts our token into a caller's own question for an
// acknowledgement, where it is about a call that we gave one.
func (u *upstream) awaitLocked(edits []jsonrpc.Edit, m *mcp.Message) []jsonrpc.Edit {
	token, _, err := mcp.ReadAwaitStop(m)
	at, ok, _ := jsonrpc.Member(m.Frame, m.Params, "token")
	if err != nil || !ok {
		return edits // the server refuses it
	}
	for ours, c := range u.acks {
		if c.ackFor == token {
			return append(edits, jsonrpc.Edit{At: at, New: jsonrpc.AppendString(nil, ours)})
		}
	}
	return edits
}

// acked takes the server's word that the handler of a call has returned.
func (u *upstream) acked(m *mcp.Message) {
	a, err := mcp.ReadStopAck(m)
	if err != nil {
		u.warn("the server sent a malformed stop-ack; it was ignored", "error", err)
		return
	}
	s := u.s
	s.mu.Lock()
	c := u.acks[a.Token]
	if c == nil || !c.stopped {
		s.mu.Unlock()
		return // of nobody's call, or of one that goes on
	}
	c.ackedLocked(a)
	to, token, id := s.outlet(nil), c.ackFor, c.id
	s.mu.Unlock()
	if token != "" {
		a.Token, a.Request = token, id
		s.forward(to, mcp.AppendStopAck(nil, a))
	}
}

// ackedLocked turns an acknowledgement into evidence, once.
func (c *call) ackedLocked(a mcp.StopAck) {
	if a.Partial != "" { // with the end, or before it: it hands back what it has, and takes its time
		c.run.Partial(a.Partial)
		c.partialLocked(a.Partial)
	}
	e := a.Evidence()
	if e == nil || c.replied == belay.SeenHandlerReturned {
		return
	}
	c.replied = belay.SeenHandlerReturned
	c.judgeLocked(*e)
}

// partialLocked takes what the tool had when it was stopped, if the caller can
// still be told.
func (c *call) partialLocked(text string) {
	if text == "" || c.method != mcp.MethodCallTool || c.byCaller || c.answered {
		return
	}
	c.partial = &text
	if c.waiting != nil {
		c.answerLocked()
	}
}

// awaitAckUnlessSent asks for the acknowledgement where none comes by itself.
func (c *call) awaitAckUnlessSent() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	// Over HTTP a notification travels on the call's stream, which is closed
	// long before a handler that does not listen returns.
	if doors := c.s.acks; doors.Await && (!doors.Notify || c.era == mcp.Modern || c.s.cfg.URL != "") {
		c.s.goLocked(c.awaitAck)
	}
}

// awaitAck asks a server that does not send acknowledgements by itself, as none
// can in the modern era (MCP-55), whether the handler has returned. The answer
// comes when it has, or when the server will not wait any longer.
func (c *call) awaitAck() {
	s := c.s
	giveUp := c.run.Cancellation().At.Add(c.policy.Ladder.WithDefaults().ConfirmAfter)
	ctx, end := context.WithDeadlineCause(s.life, giveUp, errStepOver)
	defer end()
	for handed := false; time.Until(giveUp) > 0; {
		began := time.Now()
		m, err := c.up.askWith(ctx, func(id jsonrpc.ID) []byte {
			return mcp.AppendAwaitStop(nil, id, c.ack, time.Until(giveUp), c.era)
		})
		if err != nil {
			return
		}
		a, err := mcp.ReadStopAck(m)
		if err != nil || a.Outcome == mcp.StopUnknown {
			return
		}
		s.mu.Lock()
		c.ackedLocked(a)
		s.mu.Unlock()
		if a.Outcome.Returned() {
			return
		}
		if a.Partial != "" && !handed { // it did not wait because it had something to hand back
			handed = true
			continue
		}
		if time.Since(began) < ackPause && !s.pause(ackPause) { // a server that does not wait
			return
		}
	}
}

// ackPause is the least time between two questions of awaitAck.
const ackPause = 250 * time.Millisecond
