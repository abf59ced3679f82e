package aggregate

import (
	"bytes"
	"errors"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// ask is a request of a member to the caller: sampling, elicitation, roots
// (MCP-G9). Each member counts its own from b-1. Guarded by session.mu.
type ask struct {
	on    httpserver.Session // who asks
	of    *call              // on whose stream; nil: on none
	to    mcp.Outlet
	ours  jsonrpc.ID // towards the caller
	id    jsonrpc.ID // the member's
	token jsonrpc.ID // the member's progress token, if it gave one
}

var (
	errManyAsks  = errors.New("too many requests to the caller are open")
	errModernAsk = errors.New("servers of this revision send no requests")
)

// said passes on what a member says. It is called from within outlets: it must
// not call members. on may be nil for one that is not in the session yet.
func (s *session) said(name string, on httpserver.Session, of *call, to mcp.Outlet, frame []byte, edits []jsonrpc.Edit) error {
	var e jsonrpc.Envelope
	if err := jsonrpc.Parse(frame, &e); err != nil {
		return err // members send messages
	}
	switch {
	case e.Kind == jsonrpc.Request:
		return s.asked(on, of, to, frame, edits)
	case e.Kind != jsonrpc.Notification:
		s.log.Debug("an answer without its request was dropped", "server", name)
		return nil
	case e.Method == mcp.NoticeCancelled:
		return s.askCancelled(on, frame, edits)
	case e.Method == noticeResources:
		s.learnt.outdate()
	}
	if s.early(e.Method) {
		return nil
	}
	return to.Send(frame, edits...)
}

// early reports whether a notice is of a list that the caller cannot have asked
// for yet.
func (s *session) early(method string) bool {
	switch method {
	case mcp.NoticeTools, noticePrompts, noticeResources:
	default:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era == mcp.Legacy && s.ready == nil
}

// asked passes a member's request on to the caller under an id of ours.
func (s *session) asked(on httpserver.Session, of *call, to mcp.Outlet, frame []byte, edits []jsonrpc.Edit) error {
	switch {
	case s.era == mcp.Modern:
		return errModernAsk // MCP-65
	case on == nil:
		return errAway
	}
	m := &mcp.Message{}
	if err := m.Read(jsonrpc.AppendSplice(nil, frame, edits...)); err != nil {
		return err
	}
	a := &ask{on: on, of: of, to: to, id: m.ID, token: m.ProgressToken()}
	s.mu.Lock()
	if s.closing || len(s.asks) >= maxAsks {
		answer := jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidRequest, errManyAsks.Error(), nil)
		s.goLocked(func() { deliver(on, answer) })
		s.mu.Unlock()
		return errManyAsks
	}
	a.ours = s.askIDs.Next()
	s.asks[a.ours.Key()] = a
	s.mu.Unlock()
	raw := []byte(a.ours.Raw())
	change := []jsonrpc.Edit{{At: m.IDAt, New: raw}}
	if !a.token.IsZero() {
		change = append(change, jsonrpc.Edit{At: m.Token, New: raw})
	}
	if err := to.Send(m.Frame, change...); err != nil {
		s.takeAsk(a.ours)
		return err
	}
	return nil
}

func (s *session) takeAsk(id jsonrpc.ID) *ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asks[id.Key()]
	delete(s.asks, id.Key())
	return a
}

// takeAsks takes those that fit.
func (s *session) takeAsks(fits func(*ask) bool) []*ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*ask
	for key, a := range s.asks {
		if fits(a) {
			delete(s.asks, key)
			list = append(list, a)
		}
	}
	return list
}

// askCancelled passes on a member's cancel of its own request.
func (s *session) askCancelled(on httpserver.Session, frame []byte, edits []jsonrpc.Edit) error {
	m := &mcp.Message{}
	if err := m.Read(jsonrpc.AppendSplice(nil, frame, edits...)); err != nil {
		return err
	}
	cancel, err := m.ReadCancel()
	if err != nil {
		return err
	}
	for _, a := range s.takeAsks(func(a *ask) bool { return a.on == on && a.id.Same(cancel.Request) }) {
		a.send(s, m.Frame, jsonrpc.Edit{At: cancel.At, New: []byte(a.ours.Raw())})
	}
	return nil // else an id that is none of its own (MCP-20)
}

// send sends what concerns a question where it was asked, or if that stream has
// ended, where everything goes.
func (a *ask) send(s *session, frame []byte, edits ...jsonrpc.Edit) {
	if a.to.Send(frame, edits...) != nil {
		_ = s.home.Send(frame, edits...)
	}
}

// dropAsks cancels at the caller what nobody wants to know any more (MCP-G22).
func (s *session) dropAsks(why string, fits func(*ask) bool) {
	for _, a := range s.takeAsks(fits) {
		a.send(s, mcp.AppendCancelled(nil, a.ours, why, mcp.Legacy))
	}
}

// answered passes the caller's answer back to the member that asked.
func (s *session) answered(m *mcp.Message) {
	a := s.takeAsk(m.ID)
	if a == nil {
		s.log.Debug("the caller answered an id that is not in flight; the answer was dropped", "id", m.ID)
		return
	}
	s.pass(a.on, m, jsonrpc.Edit{At: m.IDAt, New: []byte(a.id.Raw())})
}

// askProgress gives the caller's progress on a member's request back under the
// member's own token.
func (s *session) askProgress(m *mcp.Message) {
	s.mu.Lock()
	a := s.asks[m.ProgressToken().Key()]
	s.mu.Unlock()
	if a != nil && !a.token.IsZero() {
		s.pass(a.on, m, jsonrpc.Edit{At: m.Token, New: []byte(a.token.Raw())})
	}
}

// pass gives a member a message of the caller that is no request.
func (s *session) pass(on httpserver.Session, m *mcp.Message, edit jsonrpc.Edit) {
	out, err := edited(m.Frame, func(*mcp.Message) []jsonrpc.Edit { return []jsonrpc.Edit{edit} })
	if err != nil {
		s.log.Warn("a message to a server was dropped", "error", err)
		return
	}
	on.Deliver(mcp.Arrival{Message: out})
}

// doorstep is a member's outlet for what belongs to no request of the caller.
type doorstep struct {
	s *session
	p *peer
}

var _ mcp.Outlet = (*doorstep)(nil)

// Send implements [mcp.Outlet].
func (d *doorstep) Send(frame []byte, edits ...jsonrpc.Edit) error {
	d.s.mu.Lock()
	on := d.p.on
	d.s.mu.Unlock()
	return d.s.said(d.p.name, on, nil, d.s.home, frame, edits)
}

// Answer implements [mcp.Outlet]. Each request has an outlet of its own.
func (d *doorstep) Answer(_ int, frame []byte, _ ...jsonrpc.Edit) error {
	d.s.log.Warn("an answer without its request was dropped", "server", d.p.name, "begins", string(frame[:min(len(frame), 60)]))
	return errOver
}

// Drop implements [mcp.Outlet].
func (d *doorstep) Drop() {}

// learnTask remembers which member has the task that a request became.
func (s *session) learnTask(name string, answer []byte) {
	m := &mcp.Message{}
	if m.Read(answer) != nil {
		return
	}
	raw := bytes.Clone(m.TaskID())
	if raw == nil {
		return
	}
	s.ownTask(name, textAt(raw, jsonrpc.Span{End: len(raw)}, maxName))
}

func (s *session) ownTask(name, task string) {
	if task == "" {
		return
	}
	s.mu.Lock()
	was, known := s.tasks.get(task)
	s.tasks.put(task, name)
	s.mu.Unlock()
	if known && was != name {
		s.log.Warn("two servers have tasks of one id; the older cannot be reached any more", "older", was, "newer", name)
	}
}
