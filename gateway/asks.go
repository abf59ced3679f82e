package gateway

import (
	"fmt"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// ask is a request of the server to the caller: sampling, elicitation, roots
// (MCP-G9). Guarded by Session.mu.
type ask struct {
	up     *upstream
	ours   jsonrpc.ID // towards the caller
	id     jsonrpc.ID // the server's
	token  jsonrpc.ID // the server's progress token, if it gave one
	method string
	about  *call // the call it was opened for, where that is certain
}

// maxAsks bounds what one process may have open towards the caller.
const maxAsks = 1000

// asked passes a request of the server on to the caller under an id of ours.
func (u *upstream) asked(m *mcp.Message) {
	s := u.s
	s.mu.Lock()
	if !u.ready {
		s.mu.Unlock()
		u.answerDuringReplay(m)
		return
	}
	if _, ok := u.asks[m.ID.Key()]; ok || len(u.asks) >= maxAsks {
		s.mu.Unlock()
		u.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidRequest, fmt.Sprintf("the id is in flight, or more than %d requests are open", maxAsks), nil))
		return
	}
	a := &ask{up: u, ours: s.askIDs.Next(), id: m.ID, token: m.ProgressToken(), method: m.Method, about: u.soleLocked()}
	if a.about != nil && a.about.stopped {
		s.mu.Unlock()
		u.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidRequest, "the call was cancelled", nil))
		return
	}
	s.asks[a.ours.Key()] = a
	u.asks[a.id.Key()] = a
	s.mu.Unlock()
	raw := []byte(a.ours.Raw())
	edits := []jsonrpc.Edit{{At: m.IDAt, New: raw}}
	if !a.token.IsZero() {
		edits = append(edits, jsonrpc.Edit{At: m.Token, New: raw})
	}
	s.forward(m.Frame, edits...)
}

func (u *upstream) send(frame []byte) {
	if _, err := u.in.SendFrame(frame); err != nil {
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
	if a.method == mcp.MethodListRoots {
		s.hand.Roots(m)
	}
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
	s.sendLocked(mcp.AppendCancelled(nil, a.ours, why, era))
}

// answerDuringReplay answers what a fresh process asks while it is put into
// the session: the caller was asked that before and is not asked again
// (DESIGN 11, 3).
func (u *upstream) answerDuringReplay(m *mcp.Message) {
	roots := u.s.hand.KnownRoots()
	switch {
	case m.Method == mcp.MethodPing:
		u.send(jsonrpc.AppendResponse(nil, m.ID, nil))
	case m.Method == mcp.MethodListRoots && roots != nil:
		u.send(jsonrpc.AppendResponse(nil, m.ID, roots))
	default:
		u.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeMethodNotFound, "not available while the server is restarted", nil))
	}
}
