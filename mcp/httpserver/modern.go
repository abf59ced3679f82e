package httpserver

import (
	"net/http"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// serveModern serves one message of a 2026-07-28 caller: no session, and the
// response is the caller's hold on the call, whose end is a Stop (MCP-54).
func (h *Handler) serveModern(w http.ResponseWriter, r *http.Request, who Caller, in *intake, accept takes, batch bool) {
	m := &in.m
	f := h.checkModern(r, m, batch)
	var be Session
	var list []mcp.HeaderParam
	if f == nil && m.Method == mcp.MethodCallTool {
		f = h.catalog.check(r, who.Principal, m)
	}
	if f == nil {
		var ok bool
		if list, ok = params(r); !ok {
			f = fail(http.StatusBadRequest, codeHeader, m.ID, "more than %d Mcp-Param headers", maxParams)
		}
	}
	if f == nil {
		var err error
		if be, err = h.cfg.Backend.Shared(r.Context(), withRevision(who, mcp.Revision26)); err != nil {
			f = h.unopened(err, m.ID, mcp.Modern, mcp.Revision26)
		}
	}
	if f != nil {
		in.release()
		refuse(w, f)
		return
	}
	if m.Kind == jsonrpc.Notification {
		be.Deliver(mcp.Arrival{Message: m, Params: list})
		in.release()
		w.WriteHeader(http.StatusAccepted)
		return
	}
	h.modernCall(w, r, who, in, accept, be, list)
}

// checkModern is everything that can be wrong with a modern message before its
// server has seen it (MCP-57…60, MCP-63, MCP-67, MCP-G37).
func (h *Handler) checkModern(r *http.Request, m *mcp.Message, batch bool) *failure {
	switch {
	case batch:
		return fail(http.StatusBadRequest, codeInvalidRequest, noID, "one message for each POST: there are no batches in this revision")
	case m.Kind == jsonrpc.Response:
		return fail(http.StatusBadRequest, codeInvalidRequest, noID, "clients send no responses in this revision")
	case m.Kind == jsonrpc.Request && m.ID.IsNull():
		return fail(http.StatusBadRequest, codeInvalidRequest, m.ID, "the id of a request must not be null")
	}
	if f := h.checkVersion(r, m); f != nil {
		return f
	}
	if m.Method == mcp.MethodInitialize {
		// A server of both eras would take it for the other one's handshake.
		return fail(http.StatusNotFound, mcp.CodeMethodNotFound, m.ID, "there is no initialize in this revision")
	}
	return checkHeaders(r, m)
}

// modernCall serves a request. Ids of different callers meet in one session, so
// that its exchange is what the call is known by (MCP-G7).
func (h *Handler) modernCall(w http.ResponseWriter, r *http.Request, who Caller, in *intake, accept takes, be Session, list []mcp.HeaderParam) {
	number := h.exchanges.Add(1)
	s := newStream(shape{number: number, modern: true, plain: !accept.stream, prefers: accept.eager}, h.cfg.QueueBytes, 1)
	s.id = in.m.ID
	s.committed = !accept.json
	p := pump{h: h, w: w, r: r, s: s, reader: s.attach(false, 0)}
	var to mcp.Outlet = s
	switch in.m.Method {
	case mcp.MethodListTools:
		to = &lister{s, &h.catalog, who.Principal}
	case mcp.MethodListen:
		// It has no end of its own and is begun anew at no cost; any other call goes
		// on to its end, because its caller has no other hold on it.
		p.expires, p.back = who.expires, true
	}
	a := about(r)
	a.Message, a.To, a.Exchange, a.ByExchange, a.Params = &in.m, to, number, true, list
	be.Deliver(a)
	in.release()

	end := p.run(be.Ended(), func() {
		// The backend closes its own sessions and has better answers than this
		// one; it is for calls that it has forgotten.
		c := h.stop.Load()
		s.settle(stopped(c))
		be.Abandon(number, *c)
	})
	if end != finished {
		// Also when the answer was on its way: until all of it was written, the
		// caller has broken off the call (A3).
		s.kill()
		be.Abandon(number, disconnect(who.Principal, end.reason()))
	}
}

// stopped is the answer to a call that Belay's own end stops.
func stopped(c *belay.Cancellation) *failure {
	return &failure{status: http.StatusServiceUnavailable, code: belay.CodeCancelled, text: "Cancelled", data: shutdownData(c)}
}

func shutdownData(c *belay.Cancellation) []byte {
	data := append([]byte(`{"cause":`), jsonrpc.AppendString(nil, string(c.Cause))...)
	if c.Reason != "" {
		data = append(data, `,"reason":`...)
		data = jsonrpc.AppendString(data, c.Reason)
	}
	return append(data, `,"partial":false}`...)
}
