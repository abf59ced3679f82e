package httpserver

import (
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// serveOldStream serves the one stream of a 2024-11-05 connection. Its first
// event names the URL that all of the caller's messages are posted to; whoever
// knows that URL is the caller. Losing the stream is the end of the session
// (MCP-26, MCP-G15).
func (h *Handler) serveOldStream(w http.ResponseWriter, r *http.Request, who Caller) {
	switch {
	case r.Method != http.MethodGet:
		notAllowed(w, "GET")
		return
	case !accepts(r).stream:
		refuse(w, fail(http.StatusNotAcceptable, codeInvalidRequest, noID, "Accept must have text/event-stream"))
		return
	}
	s := &session{h: h, id: rand.Text(), who: who, old: true, streams: make(map[uint64]*stream)}
	s.main = newStream(shape{owner: s, standing: true}, h.cfg.QueueBytes, 0)
	p := pump{h: h, w: w, r: r, s: s.main, reader: s.main.attach(false, 0), eager: true, prelude: endpointEvent(r, s.id), expires: who.expires, back: true}
	if f := s.begin(r.Context(), s.main, noID); f != nil {
		refuse(w, f)
		return
	}
	end := p.run(s.be.Ended(), nil)
	s.main.kill()
	s.close(withoutCaller(r.Context()), disconnect(who.Principal, end.reason()))
}

// endpointEvent names the message URL, by the path as the caller knows it.
func endpointEvent(r *http.Request, id string) []byte {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if i := strings.Index(path, "://"); i >= 0 { // an absolute form, as proxies get it
		_, rest, _ := strings.Cut(path[i+3:], "/")
		path = "/" + rest
	}
	path = strings.TrimSuffix(path, "/sse") + "/message"
	return []byte("event: endpoint\ndata: " + path + "?session=" + id + "\n\n")
}

// serveOldMessage takes one message; every answer goes to the stream.
func (h *Handler) serveOldMessage(w http.ResponseWriter, r *http.Request, who Caller) {
	if r.Method != http.MethodPost {
		notAllowed(w, "POST")
		return
	}
	s := h.lookup(r.URL.Query().Get("session"), who.Principal, true)
	if s == nil {
		turnAway(w, fail(http.StatusNotFound, codeInvalidRequest, noID, "session not found; its stream may have ended"))
		return
	}
	in, f := h.readBody(w, r)
	if f == nil {
		f = h.takeOld(r, s, in)
		in.release()
	}
	if f != nil {
		refuse(w, f)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (h *Handler) takeOld(r *http.Request, s *session, in *intake) *failure {
	if jsonrpc.IsBatch(in.body) {
		return h.takeOldBatch(s, in, about(r))
	}
	m := &in.m
	err := m.Read(in.body)
	switch {
	case m.Method == mcp.NoticeCancelled && (err != nil || m.Kind != jsonrpc.Notification):
		h.cfg.Log.Info("a malformed cancel was ignored", "error", err, "session", s.short())
		return nil
	case m.Method != mcp.NoticeCancelled && !isJSON(r):
		return fail(http.StatusUnsupportedMediaType, codeInvalidRequest, m.ID, "Content-Type is %.64q, it must be application/json", header(r, "Content-Type"))
	case err != nil:
		return fail(http.StatusBadRequest, jsonrpc.Code(err), m.ID, "%v", err)
	}
	a := about(r)
	a.Message = m
	s.be.Deliver(a)
	return nil
}

// takeOldBatch delivers the messages of a batch, which JSON-RPC has even though
// this revision does not mention it.
func (h *Handler) takeOldBatch(s *session, in *intake, a mcp.Arrival) *failure {
	frames, err := jsonrpc.SplitBatch(in.body, h.cfg.MaxBatch)
	if err != nil {
		return fail(http.StatusBadRequest, jsonrpc.Code(err), noID, "%v", err)
	}
	for _, frame := range frames {
		if err := in.m.Read(frame); err != nil {
			_ = s.main.Send(jsonrpc.AppendError(nil, in.m.ID, jsonrpc.Code(err), err.Error(), nil))
			continue
		}
		a.Message = &in.m
		s.be.Deliver(a)
	}
	return nil
}
