package gateway

import (
	"bytes"
	"fmt"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// ask is a request of the server to the caller: sampling, elicitation, roots
// (MCP-G9). Guarded by Session.mu.
type ask struct {
	up     *upstream
	to     mcp.Outlet // where the caller was asked
	ours   jsonrpc.ID // towards the caller
	id     jsonrpc.ID // the server's
	token  jsonrpc.ID // the server's progress token, if it gave one
	method string
	start  bool    // asked before a tool was called: it belongs to no call
	params []byte  // of such a question
	about  *call   // the call it was opened for, where that is certain
	dialog *dialog // that is asked; nil: the server asks
}

// maxAsks bounds what one process may have open towards the caller.
const maxAsks = 1000

// asked passes a request of the server on to the caller under an id of ours.
func (u *upstream) asked(m *mcp.Message, about jsonrpc.ID) {
	s := u.s
	if s.cfg.Asks && m.Method == mcp.MethodAsk {
		u.scriptAsked(m)
		return
	}
	if s.cfg.Modern {
		u.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeMethodNotFound, "servers of this revision send no requests", nil)) // MCP-65
		return
	}
	s.mu.Lock()
	if !u.ready || u.fresh && !u.served {
		ready := u.ready
		s.mu.Unlock()
		if u.answerFromMemory(m) || !ready && u.refuseDuringReplay(m) {
			return
		}
		s.mu.Lock()
	}
	if _, ok := u.asks[m.ID.Key()]; ok || len(u.asks) >= maxAsks {
		s.mu.Unlock()
		u.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidRequest, fmt.Sprintf("the id is in flight, or more than %d requests are open", maxAsks), nil))
		return
	}
	a := &ask{up: u, ours: s.askIDs.Next(), id: m.ID, token: m.ProgressToken(), method: m.Method}
	related := u.relatedLocked(m)
	switch {
	case !about.IsZero():
		a.about = u.calls[about.Key()]
	case m.Method == mcp.MethodSampling || m.Method == mcp.MethodElicitation: // others, a ping too, belong to no call
		a.about = u.soleLocked()
	}
	a.to = s.outlet(a.about)
	if related != nil { // it is the task's, whoever's stream it takes
		if about.IsZero() {
			a.to = s.taskOutletLocked(related.work)
		}
		a.about = related
	}
	if a.about != nil && a.about.stopped {
		s.mu.Unlock()
		u.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidRequest, "the call was cancelled", nil))
		return
	}
	if a.start = u.firstCall == 0; a.start {
		a.params = bytes.Clone(m.Params.Of(m.Frame))
	}
	s.asks[a.ours.Key()] = a
	u.asks[a.id.Key()] = a
	s.mu.Unlock()
	raw := []byte(a.ours.Raw())
	edits := []jsonrpc.Edit{{At: m.IDAt, New: raw}}
	if !a.token.IsZero() {
		edits = append(edits, jsonrpc.Edit{At: m.Token, New: raw})
	}
	if err := s.pass(a.to, m.Frame, edits...); err != nil {
		u.unaskable(a, err)
	}
}

// unaskable answers a question that cannot reach the caller, who has gone or
// takes no stream: the server would wait for ever, and with it the call.
func (u *upstream) unaskable(a *ask, why error) {
	s := u.s
	s.mu.Lock()
	open := s.asks[a.ours.Key()] == a
	if open {
		u.forgetAskLocked(a)
	}
	s.mu.Unlock()
	if open {
		u.send(jsonrpc.AppendError(nil, a.id, mcp.CodeInvalidRequest, fmt.Sprintf("the caller cannot be asked: %v", why), nil))
	}
}

func (u *upstream) send(frame []byte) {
	if err := u.wire.send(frame); err != nil {
		u.s.log.Debug("a message to the server was dropped", "error", err)
	}
}

func (u *upstream) forgetAskLocked(a *ask) {
	delete(u.s.asks, a.ours.Key())
	delete(u.asks, a.id.Key())
}

// answeredLocked passes the caller's answer back to the server that asked.
func (s *Session) answeredLocked(m *mcp.Message) {
	a := s.asks[m.ID.Key()]
	if a == nil {
		s.log.Debug("the caller answered an id that is not in flight; the answer was dropped", "id", m.ID)
		return
	}
	a.up.forgetAskLocked(a)
	if a.dialog != nil {
		a.dialog.toldLocked(m.Frame, m.Result)
		return
	}
	s.hand.Told(a.method, a.params, a.start, m)
	s.forwardLocked(a.up, m.Frame, jsonrpc.Edit{At: m.IDAt, New: []byte(a.id.Raw())})
}

// askProgressLocked gives the caller's progress on a request of the server back
// under the server's own token.
func (s *Session) askProgressLocked(m *mcp.Message) {
	if a := s.asks[m.ProgressToken().Key()]; a != nil && !a.token.IsZero() {
		s.forwardLocked(a.up, m.Frame, jsonrpc.Edit{At: m.Token, New: []byte(a.token.Raw())})
	}
}

// cancelAsksLocked cancels at the caller what a stopped call had asked it; its
// answers are dropped from then on (MCP-G22).
func (s *Session) cancelAsksLocked(c *call) {
	for _, a := range s.asks {
		if a.about == c {
			s.cancelAskLocked(a, c.era, "the call was cancelled")
		}
	}
}

func (s *Session) cancelAskLocked(a *ask, era mcp.Era, why string) {
	a.up.forgetAskLocked(a)
	s.sendLocked(a.to, mcp.AppendCancelled(nil, a.ours, why, era))
}

// answerFromMemory answers what a fresh process asks at its start with what the
// caller said to the same question of an earlier one: nobody is asked twice
// (DESIGN 11, 3).
func (u *upstream) answerFromMemory(m *mcp.Message) bool {
	answer := u.s.hand.Recall(m.Method, m.Params.Of(m.Frame))
	if answer == nil {
		return false
	}
	u.send(jsonrpc.AppendResponse(nil, m.ID, answer))
	return true
}

// refuseDuringReplay answers what nobody was asked before; the caller cannot
// know that a process is put into its session. Only its roots, which no person
// has to be asked for, are asked for again.
func (u *upstream) refuseDuringReplay(m *mcp.Message) bool {
	switch m.Method {
	case mcp.MethodListRoots:
		return false
	case mcp.MethodPing:
		u.send(jsonrpc.AppendResponse(nil, m.ID, nil))
	default:
		u.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeMethodNotFound, "not available while the server is restarted", nil))
	}
	return true
}
