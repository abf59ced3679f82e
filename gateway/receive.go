package gateway

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Receive takes one line from the caller. It is for one goroutine, and never
// waits for the server: a cancel behind a call that the server does not read
// must still be read.
func (s *Session) Receive(line []byte) {
	if jsonrpc.IsBatch(line) {
		s.receiveBatch(line)
		return
	}
	s.receiveOne(line, nil)
}

func (s *Session) receiveOne(frame []byte, b *batch) {
	m := &s.inbox
	if err := m.Read(frame); err != nil {
		s.refuse(m, err, b)
		return
	}
	s.deliver(&mcp.Arrival{Message: m}, b)
}

// Deliver takes one message that was read from its transport, with what belongs
// to it there. The message and its frame are used only during the call. It never
// waits for the server, and may be called from many goroutines at once; what one
// of them delivers first is dispatched first.
func (s *Session) Deliver(a mcp.Arrival) {
	s.rest.touch()
	s.deliver(&a, nil)
}

func (s *Session) deliver(a *mcp.Arrival, b *batch) {
	place := s.placeOf(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a.Kind {
	case jsonrpc.Request:
		s.cancelByTaskLocked(a.Message)
		s.requestLocked(a, b, place)
	case jsonrpc.Notification:
		s.noticeLocked(a)
	case jsonrpc.Response:
		s.answeredLocked(a.Message)
	}
}

// Abandon stops the call that an HTTP exchange brought, because its caller went
// away (MCP-54, MCP-G15). A call that has ended, or an exchange that brought
// none, changes nothing.
func (s *Session) Abandon(exchange uint64, why belay.Cancellation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c := s.passes[exchange]; {
	case c == nil:
	case s.cfg.PassCancels:
		s.passCancelLocked(c, nil, jsonrpc.Span{})
	default:
		s.cancelCallLocked(c, why)
	}
}

// exchangeKey is the key of a call that is known by its exchange alone.
// No id has it: those begin with a character of JSON (MCP-G7).
func exchangeKey(n uint64) string { return "\x00" + strconv.FormatUint(n, 36) }

// refuse answers a message that is none, where there is somebody to answer.
func (s *Session) refuse(m *mcp.Message, err error, b *batch) {
	s.log.Warn("the caller sent something that is no message; it was refused", "error", err, "begins", begins(m.Frame))
	if m.Kind == jsonrpc.Response || m.Kind == jsonrpc.Notification {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	frame := jsonrpc.AppendError(nil, m.ID, jsonrpc.Code(err), err.Error(), nil)
	if b != nil {
		b.add(frame)
		return
	}
	s.settleLocked(s.home, frame)
}

// TooLong answers a line of the caller that was over the bound: it costs that
// call, not the connection (MCP-G3).
func (s *Session) TooLong(e *jsonrpc.TooLongError) {
	s.log.Warn("the caller sent a line over the bound; it was dropped", "bytes", e.Size, "bound", e.Max)
	id, kind, ok := e.Salvage()
	if !ok || kind != jsonrpc.Request {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(s.home, jsonrpc.AppendError(nil, id, mcp.CodeInvalidRequest, e.Error(), nil))
}

// begins is the first part of a frame, for logs.
func begins(frame []byte) string {
	const most = 60
	if len(frame) > most {
		frame = frame[:most]
	}
	return fmt.Sprintf("%q", frame)
}

// requestLocked registers a request before anything is dispatched.
func (s *Session) requestLocked(a *mcp.Arrival, b *batch, place belay.RunID) {
	m := a.Message
	c := s.newCall(a, b)
	if s.closing || s.failure != nil {
		s.replyLocked(c, jsonrpc.AppendError(nil, c.id, mcp.CodeInternal, tooLate, nil))
		return
	}
	if _, ok := s.calls[c.key]; ok {
		s.replyLocked(c, jsonrpc.AppendError(nil, c.id, mcp.CodeInvalidRequest,
			fmt.Sprintf("the id %s is in flight already; each request needs an id of its own", c.id), nil))
		return
	}
	if s.refuseTaskLocked(c, m) || s.refuseNamelessLocked(c, m) {
		return
	}
	if !s.nameLocked(c, a, place) {
		return
	}
	leg := c
	if c = s.retriedLocked(leg, m); c == nil {
		return
	}
	if c == leg && !s.admittedLocked(c) {
		return
	}
	before := s.stoppedBeforeLocked(c, a)
	var up *upstream
	if !before.is() {
		up = s.routeLocked(c)
	}
	if err := c.register(up == nil, &before); err != nil {
		s.unrouteLocked(up)
		s.replyLocked(c, jsonrpc.AppendError(nil, c.id, belay.JSONRPCCode(err), err.Error(), nil))
		return
	}
	s.calls[c.key] = c
	if c.pass != 0 {
		s.passes[c.pass] = c
	}
	if c == leg && !before.is() {
		// A Stop that found no run a moment ago has left its mark since then.
		before.cause = s.earlyLocked(c)
	}
	if before.is() {
		s.unrouteLocked(up) // of a call below a run that is stopped this is known only now
		s.stopBeforeLocked(c, &before)
		return
	}
	s.hand.Sent(m)
	s.outdateLocked(m.Method)
	switch {
	case up != nil && !c.mayStart(leg):
		s.unrouteLocked(up) // it was stopped a moment ago: onCancel settles it
	case !s.admittedLocked(c), !s.seatedLocked(c), !s.admitLocked(c):
		s.unrouteLocked(up)
	case up == nil:
		s.enqueueLocked(c, m.Frame)
	default:
		up.dispatchLocked(c, m)
	}
}

// refuseNamelessLocked refuses the call of no tool: it would be a run that does
// nothing (ORC-63).
func (s *Session) refuseNamelessLocked(c *call, m *mcp.Message) bool {
	if c.method != mcp.MethodCallTool || m.NamesTool() {
		return false
	}
	s.replyLocked(c, jsonrpc.AppendError(nil, c.id, mcp.CodeInvalidParams, "tools/call needs the name of a tool: params.name is not a text, or an empty one", nil))
	return true
}

// cancelEarlyLocked stops a call whose cancel came before it (MCP-G17).
func (s *Session) cancelEarlyLocked(c *call, reason string) {
	c.byCaller = true
	s.forgetLocked(c)
	c.silenceLocked()
	s.goLocked(func() { c.run.Cancel(s.byCaller(reason)) })
}

func (s *Session) byCaller(reason string) belay.Cancellation {
	return belay.Cancellation{Cause: belay.CauseUser, By: s.cfg.Owner, Via: "mcp", Reason: reason}
}

// enqueueLocked lets a call wait for a process.
func (s *Session) enqueueLocked(c *call, frame []byte) {
	if len(s.queue) >= maxWaiting || s.queued+len(frame) > maxWaitingBytes {
		c.failLocked(mcp.CodeInternal, fmt.Sprintf("too much is waiting for server %q to be ready (%d messages)", s.cfg.Name, len(s.queue)))
		return
	}
	s.queue = append(s.queue, waiting{call: c, frame: bytes.Clone(frame)})
	s.queued += len(frame)
	s.hireLocked()
}

// noticeLocked takes a notification of the caller.
func (s *Session) noticeLocked(a *mcp.Arrival) {
	m := a.Message
	switch m.Method {
	case mcp.NoticeCancelled:
		s.cancelledLocked(a)
		return
	case mcp.NoticeProgress:
		s.askProgressLocked(m)
		return
	}
	s.hand.Sent(m)
	s.outdateLocked(m.Method)
	if m.Method == mcp.NoticeInitialized && s.hand.Stands() {
		s.warmLocked()
	}
	if s.current == nil || !s.current.ready {
		if len(s.queue) < maxWaiting && s.queued+len(m.Frame) <= maxWaitingBytes {
			s.queue = append(s.queue, waiting{method: m.Method, frame: bytes.Clone(m.Frame)})
			s.queued += len(m.Frame)
		}
		return
	}
	s.forwardLocked(s.current, m.Frame)
}

func (s *Session) forwardLocked(u *upstream, frame []byte, edits ...jsonrpc.Edit) {
	if err := u.wire.send(frame, edits...); err != nil {
		s.log.Warn("a message to the server was dropped", "error", err, "begins", begins(frame))
	}
}

// cancelledLocked takes a cancel of the caller (MCP-G10 to G14, G17). It is
// looked up only among the caller's own requests.
func (s *Session) cancelledLocked(a *mcp.Arrival) {
	cancel, err := a.ReadCancel()
	if err != nil {
		s.log.Warn("a malformed cancel was ignored", "error", err)
		return
	}
	key := cancel.Request.Key()
	if a.ByExchange {
		s.cancelledBesideLocked(key, a.Message, &cancel)
		return
	}
	c := s.calls[key]
	switch {
	case s.cfg.PassCancels && c == nil:
		s.log.Debug("a cancel came for an id that is not in flight; it was dropped", "id", cancel.Request)
	case s.cfg.PassCancels:
		s.passCancelLocked(c, a.Frame, cancel.At)
	case c == nil && (s.seen.has(key) || s.closing):
		s.log.Debug("a cancel came after its call had ended; nothing was changed", "id", cancel.Request)
	case c == nil:
		s.log.Debug("a cancel came for an id that was not seen yet; it is remembered", "id", cancel.Request)
		s.stones.Put(key, cancel.Reason)
	default:
		s.cancelCallLocked(c, s.byCaller(cancel.Reason))
	}
}

// cancelCallLocked stops a call for its caller, who gets no answer.
func (s *Session) cancelCallLocked(c *call, why belay.Cancellation) {
	if c.run == nil {
		s.log.Warn("a cancel of a handshake was ignored", "method", c.method)
		return
	}
	c.byCaller = true
	s.forgetLocked(c)
	c.silenceLocked()
	s.mu.Unlock() // Cancel calls onCancel, which takes the lock
	c.run.Cancel(why)
	runtime.Gosched() // the server is told before anything is written elsewhere
	s.log.Info("the caller cancelled a call", "run", c.run.ID(), "call", c.title(), "cause", why.Cause, "reason", why.Reason)
	s.mu.Lock()
}

// cancelledBesideLocked takes a cancel that came by an exchange of its own,
// where ids of different clients meet: it counts only if exactly one call in
// flight has that id (MCP-G13).
func (s *Session) cancelledBesideLocked(key string, m *mcp.Message, cancel *mcp.Cancel) {
	var found *call
	for _, c := range s.calls {
		if c.id.Key() != key {
			continue
		}
		if found != nil {
			s.log.Warn("a cancel names an id that several calls in flight have; nothing was changed", "id", found.id)
			return
		}
		found = c
	}
	if found == nil {
		s.log.Debug("a cancel came for an id that no call in flight has; nothing was changed")
		return
	}
	if s.cfg.PassCancels {
		s.passCancelLocked(found, m.Frame, cancel.At)
		return
	}
	s.cancelCallLocked(found, s.byCaller(cancel.Reason))
}
