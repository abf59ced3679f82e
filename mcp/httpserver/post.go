package httpserver

import (
	"net/http"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// servePost takes what a caller posts: one message, or in 2025-03-26 several.
func (h *Handler) servePost(w http.ResponseWriter, r *http.Request, who Caller) {
	in, f := h.readBody(w, r)
	if f != nil {
		refuse(w, f)
		return
	}
	batch := jsonrpc.IsBatch(in.body)
	if !batch {
		in.err = in.m.Read(in.body)
	}
	modern := modernVersion(header(r, headerVersion)) || (!batch && in.m.Era() == mcp.Modern)
	// A cancel is taken whatever else is wrong with it (MCP-G10).
	if !batch && in.m.Method == mcp.NoticeCancelled {
		h.serveCancel(w, r, who, in, modern)
		return
	}
	accept := accepts(r)
	switch {
	case !isJSON(r):
		f = fail(http.StatusUnsupportedMediaType, codeInvalidRequest, in.m.ID, "Content-Type is %.64q, it must be application/json", header(r, "Content-Type"))
	case !accept.json && !accept.stream:
		f = fail(http.StatusNotAcceptable, codeInvalidRequest, in.m.ID, "Accept must have application/json and text/event-stream")
	case in.err != nil:
		f = fail(http.StatusBadRequest, jsonrpc.Code(in.err), in.m.ID, "%v", in.err)
	}
	switch {
	case f != nil:
		in.release()
		refuse(w, f)
	case modern:
		h.serveModern(w, r, who, in, accept, batch)
	default:
		h.serveLegacy(w, r, who, in, accept, batch)
	}
}

// serveCancel takes a cancel notification: 202 without a body, however unknown,
// late or malformed it is, since some clients give up their session over
// anything else. Only a session that has ended is told so (MCP-G10, MCP-37).
func (h *Handler) serveCancel(w http.ResponseWriter, r *http.Request, who Caller, in *intake, modern bool) {
	defer in.release()
	var be Session
	if modern {
		// Beside a closed stream such a notification says nothing new; whether it
		// means a call is for the session to find out (MCP-G13).
		shared, err := h.cfg.Backend.Shared(r.Context(), withRevision(who, mcp.Revision26))
		if err != nil {
			h.cfg.Log.Debug("a cancel came while the server cannot be reached", "error", err)
		}
		be = shared
	} else if header(r, headerSession) != "" {
		s, f := h.find(r, who)
		if f != nil {
			f.id = in.m.ID
			refuse(w, f)
			return
		}
		be = s.be
	}
	switch {
	case in.err != nil, in.m.Kind != jsonrpc.Notification:
		h.cfg.Log.Info("a malformed cancel was ignored", "error", in.err, "remote", r.RemoteAddr)
	case be == nil:
		h.cfg.Log.Info("a cancel without a session was ignored", "remote", r.RemoteAddr)
	default:
		// Ids can be guessed: without authentication nobody knows whose call it
		// would be (MCP-G13).
		be.Deliver(mcp.Arrival{Message: &in.m, ByExchange: modern && !who.unproven})
	}
	w.WriteHeader(http.StatusAccepted)
}

func withRevision(who Caller, revision string) Caller {
	who.Revision = revision
	return who
}
