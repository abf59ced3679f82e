package httpserver

import (
	"net/http"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// serveLegacy serves one message, or one batch, of a caller of 2025-03-26 to
// 2025-11-25.
func (h *Handler) serveLegacy(w http.ResponseWriter, r *http.Request, who Caller, in *intake, accept takes, batch bool) {
	m := &in.m
	if f := checkLegacyVersion(r, m.ID); f != nil {
		in.release()
		refuse(w, f)
		return
	}
	if !batch && m.Kind == jsonrpc.Request && m.Method == mcp.MethodInitialize && header(r, headerSession) == "" {
		h.serveInitialize(w, r, who, in, accept)
		return
	}
	s, f := h.find(r, who)
	if f != nil {
		f.id = m.ID
		in.release()
		refuse(w, f)
		return
	}
	switch {
	case batch:
		h.serveBatch(w, r, who, s, in, accept)
	case m.Kind == jsonrpc.Request:
		h.legacyCall(w, r, who, s, in, accept, shape{number: h.exchanges.Add(1), priming: canPrime(header(r, headerVersion))}, "")
	default:
		s.be.Deliver(mcp.Arrival{Message: m})
		in.release()
		w.WriteHeader(http.StatusAccepted)
	}
}

// checkLegacyVersion refuses a version that no revision has (MCP-39). A missing
// one is 2025-03-26.
func checkLegacyVersion(r *http.Request, id jsonrpc.ID) *failure {
	switch version := header(r, headerVersion); version {
	case "", revision24, revision25a, revision25b, revision25c:
		return nil
	default:
		return fail(http.StatusBadRequest, codeInvalidRequest, id, "Unsupported protocol version %.64q in header MCP-Protocol-Version; supported: %s, %s, %s, %s",
			version, revision25c, revision25b, revision25a, revision24)
	}
}

// canPrime reports whether a client of this revision can take an event that has
// an id and no message.
func canPrime(revision string) bool { return revision >= revision25c }

// serveInitialize opens a session. Its id goes out with the answer, unless that
// is an error.
func (h *Handler) serveInitialize(w http.ResponseWriter, r *http.Request, who Caller, in *intake, accept takes) {
	m := &in.m
	at, _, _ := jsonrpc.Member(m.Frame, m.Params, "protocolVersion")
	who.Revision = metaText(m, at)
	s, f := h.open(r.Context(), who, m.ID)
	if f != nil {
		in.release()
		refuse(w, f)
		return
	}
	h.legacyCall(w, r, who, s, in, accept, shape{number: h.exchanges.Add(1), priming: canPrime(who.Revision), opens: true}, s.id)
}

// legacyCall serves one request.
func (h *Handler) legacyCall(w http.ResponseWriter, r *http.Request, who Caller, s *session, in *intake, accept takes, what shape, announce string) {
	st := s.stream(what, accept, 1)
	st.id = in.m.ID
	p := pump{h: h, w: w, r: r, s: st, reader: st.attach(false, 0), session: announce, expires: who.expires}
	if accept.eager && what.priming && !what.opens {
		// Whoever prefers a stream gets it, and with it an id to come back with,
		// before anything was said. A session's id needs the answer first.
		st.committed, p.eager = true, true
		p.prime()
	}
	s.add(st)
	a := about(r)
	a.Message, a.To, a.Exchange = &in.m, st, st.number
	s.be.Deliver(a)
	in.release()
	s.after(&p, p.run(s.be.Ended(), nil))
}

// serveBatch splits a batch of 2025-03-26 into its messages, which share one
// response (MCP-40, MCP-G38). They are delivered in their order, so that a
// cancel finds the requests before it.
func (h *Handler) serveBatch(w http.ResponseWriter, r *http.Request, who Caller, s *session, in *intake, accept takes) {
	b, f := h.readBatch(r, in)
	if f != nil {
		in.release()
		refuse(w, f)
		return
	}
	if b.requests == 0 {
		for i := range b.messages {
			s.be.Deliver(mcp.Arrival{Message: &b.messages[i]})
		}
		in.release()
		w.WriteHeader(http.StatusAccepted)
		return
	}
	st := s.stream(shape{number: h.exchanges.Add(1), batch: true}, accept, b.requests)
	p := pump{h: h, w: w, r: r, s: st, reader: st.attach(false, 0), expires: who.expires}
	b.prepare(st)
	s.add(st)
	b.deliver(s.be, st, about(r))
	in.release()
	s.after(&p, p.run(s.be.Ended(), nil))
}

// batch is a split batch.
type batch struct {
	messages []mcp.Message
	errs     []error // of reading them
	requests int     // that get an answer, those that could not be read included
}

func (h *Handler) readBatch(r *http.Request, in *intake) (*batch, *failure) {
	if version := header(r, headerVersion); version >= revision25b {
		return nil, fail(http.StatusBadRequest, codeInvalidRequest, noID, "there are no batches in revision %s", version)
	}
	frames, err := jsonrpc.SplitBatch(in.body, h.cfg.MaxBatch)
	if err != nil {
		return nil, fail(http.StatusBadRequest, jsonrpc.Code(err), noID, "%v", err)
	}
	b := &batch{messages: make([]mcp.Message, len(frames)), errs: make([]error, len(frames))}
	for i, frame := range frames {
		m := &b.messages[i]
		b.errs[i] = m.Read(frame)
		if m.Method == mcp.MethodInitialize {
			return nil, fail(http.StatusBadRequest, codeInvalidRequest, m.ID, "initialize must not be in a batch")
		}
		if b.answered(i) {
			b.requests++
		}
	}
	return b, nil
}

// answered reports whether message i gets an answer.
func (b *batch) answered(i int) bool {
	if b.errs[i] != nil {
		return b.messages[i].Kind != jsonrpc.Response && b.messages[i].Method != mcp.NoticeCancelled
	}
	return b.messages[i].Kind == jsonrpc.Request
}

// prepare gives each message that gets an answer its outlet, before the first
// of them is delivered.
func (b *batch) prepare(st *stream) {
	st.parts = make([]*part, 0, b.requests)
	for i := range b.messages {
		if b.answered(i) {
			number := st.number
			if len(st.parts) > 0 {
				number = st.owner.h.exchanges.Add(1)
			}
			st.parts = append(st.parts, &part{stream: st, number: number, id: b.messages[i].ID})
		}
	}
}

// deliver gives the messages to the session; a is what is known of all of them.
func (b *batch) deliver(be Session, st *stream, a mcp.Arrival) {
	parts := st.parts
	for i := range b.messages {
		m := &b.messages[i]
		var to *part
		if b.answered(i) {
			to, parts = parts[0], parts[1:]
		}
		switch {
		case b.errs[i] != nil && to != nil:
			_ = to.Answer(0, jsonrpc.AppendError(nil, m.ID, jsonrpc.Code(b.errs[i]), b.errs[i].Error(), nil))
		case b.errs[i] != nil:
		case to != nil:
			a.Message, a.To, a.Exchange = m, to, to.number
			be.Deliver(a)
		default:
			be.Deliver(mcp.Arrival{Message: m})
		}
	}
}

// serveGet opens the session's own stream, or resumes a stream that broke
// (MCP-33, MCP-36). A resume that has nothing to give is 405: an empty stream
// would be asked for again and again by some clients (MCP-G24).
func (h *Handler) serveGet(w http.ResponseWriter, r *http.Request, who Caller) {
	s, f := h.find(r, who)
	if f == nil {
		f = checkLegacyVersion(r, noID)
	}
	if f == nil && !accepts(r).stream {
		f = fail(http.StatusNotAcceptable, codeInvalidRequest, noID, "Accept must have text/event-stream")
	}
	if f != nil {
		refuse(w, f)
		return
	}
	st, after, resume := s.main, uint64(0), false
	if last := header(r, headerLast); last != "" {
		id, ok := parseEventID(last)
		if ok {
			st = s.resume(id)
		}
		if !ok || st == nil {
			notAllowed(w, "POST, DELETE")
			return
		}
		after, resume = id.seq, true
	}
	p := pump{h: h, w: w, r: r, s: st, reader: st.attach(resume, after), eager: true, expires: who.expires, back: true}
	s.after(&p, p.run(s.be.Ended(), nil))
}

// serveDelete ends a session and everything in it (MCP-38, A10). The answer
// comes when it is over.
func (h *Handler) serveDelete(w http.ResponseWriter, r *http.Request, who Caller) {
	s, f := h.find(r, who)
	if f != nil {
		refuse(w, f)
		return
	}
	s.close(withoutCaller(r.Context()), disconnect(who.Principal, "the client deleted the session"))
	w.WriteHeader(http.StatusNoContent)
}
