package gateway

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// responded delivers the server's answer to the call it belongs to, unless the
// caller was settled before: then it is evidence (MCP-G27).
func (u *upstream) responded(m *mcp.Message, status int) {
	s := u.s
	s.mu.Lock()
	key := m.ID.Key()
	if answer, ok := u.replay[key]; ok {
		delete(u.replay, key)
		s.mu.Unlock()
		answer <- bytes.Clone(m.Frame) // capacity 1, one answer
		return
	}
	if u.taskCancelAnsweredLocked(key, m) {
		s.mu.Unlock()
		return
	}
	c := u.calls[key]
	if c == nil || c.work != nil { // a task's request was answered before
		gaveUp := c == nil && u.forgotten.has(key)
		s.mu.Unlock()
		if gaveUp { // the answer and our cancel have passed each other, which is nobody's fault
			s.log.Debug("the server answered a request that was given up; the answer was dropped", "id", m.ID)
			return
		}
		u.warn("the server answered an id that is not in flight; the answer was dropped", "id", m.ID)
		return
	}
	s.stood = true
	u.served = u.served || c.method == mcp.MethodCallTool
	s.hand.Answered(c.method, c.first, m)
	if c.run == nil {
		s.learnAcksLocked()
		s.openedLocked()
	}
	outcome := outcomeOf(m)
	if s.cfg.Asks {
		m, outcome = saidOutcome(m)
	}
	parked := u.parkLocked(c, m)
	if c.run != nil && !parked && !c.run.Finish(outcome) {
		c.lateLocked(m)
		u.releaseLocked(c)
		s.mu.Unlock()
		return
	}
	task := u.becameTaskLocked(c, m)
	elsewhere := s.aboutTaskLocked(c, m)
	u.removeLocked(c)
	if c.byCaller { // its cancel was read while the answer was on its way
		c.silenceLocked()
		u.releaseLocked(c)
		s.mu.Unlock()
		task.unwanted()
		return
	}
	if why := s.unfitLocked(c); why != "" {
		c.failLocked(mcp.CodeInternal, why)
		s.failLocked(fmt.Errorf("%w: %s", ErrConfig, why))
		s.mu.Unlock()
		return
	}
	s.forgetLocked(c)
	c.answered = true
	u.releaseLocked(c)
	if c.method == mcp.MethodInitialize && c.batch == nil && m.IsError() && !m.SpeaksModern() && s.explainLocked(u, c, m, status) {
		s.mu.Unlock()
		return
	}
	edits := append(make([]jsonrpc.Edit, 0, 2), jsonrpc.Edit{At: m.IDAt, New: []byte(c.id.Raw())})
	if c.standing() { // its last message names the subscription as well (MCP-73, A2)
		if at := m.ResultSubscription(); at.Ok() {
			edits = append(edits, jsonrpc.Edit{At: at, New: []byte(c.id.Raw())})
		}
	}
	if s.cfg.NameRuns && c.run != nil {
		edits = c.appendRunName(edits, m, task)
	}
	if c.method == mcp.MethodListTasks {
		edits = mcp.FilterTasks(edits, m, s.ownsTask)
	}
	if elsewhere != nil {
		defer elsewhere()
	}
	if c.batch != nil || c.apart {
		s.replyLocked(c, jsonrpc.AppendSplice(nil, m.Frame, edits...))
		s.mu.Unlock()
		return
	}
	to := s.outlet(c)
	s.mu.Unlock()
	s.forwardAnswer(to, status, m.Frame, edits...)
}

// appendRunName tells the caller which run its request was: where that did work
// or became work, which is then the run that can be stopped.
func (c *call) appendRunName(edits []jsonrpc.Edit, m *mcp.Message, became *task) []jsonrpc.Edit {
	switch {
	case became != nil:
		return mcp.AppendRunName(edits, m, became.run.ID())
	case works(c.method):
		return mcp.AppendRunName(edits, m, c.run.ID())
	}
	return edits
}

// unfitLocked says why a server cannot be used with isolation call: what it
// keeps between calls would be in the wrong process (DESIGN 11, 2).
func (s *Session) unfitLocked(c *call) string {
	if s.cfg.Isolation != IsolationCall || !mcp.Handshaking(c.method) {
		return ""
	}
	for _, path := range [][]string{{"resources", "subscribe"}, {"tasks"}, {"extensions", "io.modelcontextprotocol/tasks"}} {
		if s.hand.Capability(path...) {
			return fmt.Sprintf("isolation call cannot be used with server %q: it declares %s; use isolation shared", s.cfg.Name, strings.Join(path, "."))
		}
	}
	return ""
}

func outcomeOf(m *mcp.Message) belay.Outcome {
	if m.IsError() || mcp.ToolFailed(m) {
		return belay.Failed
	}
	return belay.Completed
}

// noticed takes a notification of the server.
func (u *upstream) noticed(m *mcp.Message, about jsonrpc.ID) {
	switch m.Method {
	case mcp.NoticeProgress:
		u.progressed(m)
	case mcp.NoticeTaskStatus, mcp.NoticeTask:
		u.taskNoticed(m)
		u.announced(m, about)
	case mcp.NoticeStopAck:
		u.acked(m)
	case mcp.NoticeCancelled:
		u.cancelled(m)
	default:
		u.announced(m, about)
	}
}

// progressed gives progress back under the caller's own token; for a stopped
// call it is a sign of life and goes nowhere (MCP-G8, MCP-G27).
func (u *upstream) progressed(m *mcp.Message) {
	s := u.s
	s.mu.Lock()
	key := m.ProgressToken().Key()
	c := u.calls[key]
	if c == nil {
		s.mu.Unlock()
		return // of a call or task that has ended (MCP-41, MCP-51)
	}
	if c.stopped || c.byCaller {
		c.signOfLifeLocked("progress")
		s.mu.Unlock()
		return
	}
	token, to := c.token, s.outlet(c)
	s.mu.Unlock()
	s.progress(to, m, token)
}

// progress forwards a progress notification under the caller's token; a caller
// that gave none gets none.
func (s *Session) progress(to mcp.Outlet, m *mcp.Message, token jsonrpc.ID) {
	if !token.IsZero() {
		s.forward(to, m.Frame, jsonrpc.Edit{At: m.Token, New: []byte(token.Raw())})
	}
}

// signOfLifeLocked is signLocked for a call whose cancel may only just be on
// its way.
func (c *call) signOfLifeLocked(what string) {
	if c.stopped && c.run != nil {
		c.signLocked(what)
	}
}

// announced passes on any other notification: on the outlet of the call on
// whose stream it came (MCP-74), else of the only one that can have caused it.
// For a stopped call a log message is a sign of life.
func (u *upstream) announced(m *mcp.Message, about jsonrpc.ID) {
	s := u.s
	s.mu.Lock()
	ready := u.ready && !u.worker || u.worker && u.lease != nil && m.Method == mcp.NoticeLog
	var of *call
	switch {
	case !about.IsZero():
		of = u.calls[about.Key()]
	case m.Method == mcp.NoticeLog:
		of = u.soleLocked()
	}
	if of != nil && (of.stopped || of.byCaller) {
		if m.Method == mcp.NoticeLog {
			of.signOfLifeLocked("a log message")
			ready = false
		}
		of = nil
	}
	to := s.outlet(of)
	var edits []jsonrpc.Edit
	if m.Sub.Ok() { // of a modern subscription: its id is that of the listen request
		id, err := jsonrpc.ReadID(m.Frame, m.Sub)
		c := u.calls[id.Key()]
		if err != nil || c == nil || c.stopped {
			ready = false
		} else {
			to = s.outlet(c)
			edits = append(edits, jsonrpc.Edit{At: m.Sub, New: []byte(c.id.Raw())})
		}
	}
	s.mu.Unlock()
	if ready {
		s.forward(to, m.Frame, edits...)
	}
}

// cancelled takes a cancel of the server: of its own request to the caller
// (MCP-G9), or of a modern subscription (MCP-52).
func (u *upstream) cancelled(m *mcp.Message) {
	cancel, err := m.ReadCancel()
	if err != nil {
		u.warn("the server sent a malformed cancel; it was ignored", "error", err)
		return
	}
	s := u.s
	key := cancel.Request.Key()
	s.mu.Lock()
	if u.withdrawnLocked(key) {
		s.mu.Unlock()
		return
	}
	if a := u.asks[key]; a != nil {
		u.forgetAskLocked(a)
		s.mu.Unlock()
		s.forward(a.to, m.Frame, jsonrpc.Edit{At: cancel.At, New: []byte(a.ours.Raw())})
		return
	}
	c := u.calls[key]
	if c == nil || c.work != nil || !c.standing() || c.stopped {
		s.mu.Unlock()
		return // an id that is none of its own (MCP-20)
	}
	u.removeLocked(c)
	s.forgetLocked(c)
	c.run.Finish(belay.Completed)
	c.answered = true
	to := s.outlet(c)
	s.mu.Unlock()
	s.forward(to, m.Frame, jsonrpc.Edit{At: cancel.At, New: []byte(c.id.Raw())})
	to.Drop() // it was the last message on that stream (A2)
}
