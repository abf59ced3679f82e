package httpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// closeWait is how long the end of a session may take when nobody else says so.
const closeWait = 30 * time.Second

// session is what one legacy caller and the server have between them: the
// backend's session, the stream of what belongs to no request, and the streams
// of its requests, those that wait for a resume included.
type session struct {
	h    *Handler
	id   string // 128 bits and more: who knows it, and is the same principal, is the caller
	who  Caller
	old  bool // a 2024-11-05 connection, whose one stream is main
	be   Session
	main *stream
	kept atomic.Int64 // bytes of all events that are kept
	used atomic.Int64 // when it was last used, in nanoseconds since 1970

	mu      sync.Mutex
	done    chan struct{}           // closed when close has finished; nil before it begins
	ending  context.Context         // of what close does
	giveUp  context.CancelCauseFunc // ends that
	streams map[uint64]*stream
	parked  []parked // oldest first; some are stale
	parks   uint64   // parkings so far
	expiry  *time.Timer
	idle    *time.Timer
	closed  bool
}

// open makes a session and its conversation with the server.
func (h *Handler) open(ctx context.Context, who Caller, id jsonrpc.ID) (*session, *failure) {
	s := &session{h: h, id: rand.Text(), who: who, streams: make(map[uint64]*stream)}
	s.main = newStream(shape{owner: s, named: true, standing: true}, h.cfg.QueueBytes, 0)
	return s, s.begin(ctx, outlet{s}, id)
}

// begin opens the backend's session and puts this one into the table.
func (s *session) begin(ctx context.Context, out mcp.Outlet, id jsonrpc.ID) *failure {
	h := s.h
	if !h.reserve() {
		return h.unopened(ErrBusy, id, mcp.Legacy, s.who.Revision)
	}
	be, err := h.cfg.Backend.Open(ctx, s.who, out)
	h.mu.Lock()
	h.opening--
	closed := h.closed
	if err == nil && !closed {
		s.be = be
		h.sessions[s.id] = s
	}
	h.mu.Unlock()
	switch {
	case err != nil:
		return h.unopened(err, id, mcp.Legacy, s.who.Revision)
	case closed:
		ctx, cancel := context.WithTimeoutCause(withoutCaller(ctx), closeWait, errCloseWait)
		defer cancel()
		_ = be.Close(ctx, *h.stop.Load()) // nobody ever had it
		return fail(http.StatusServiceUnavailable, codeInternal, id, "%v", errClosing)
	}
	s.touch()
	s.mu.Lock()
	if !s.old && !s.closed {
		s.idle = time.AfterFunc(h.cfg.SessionIdle, s.whenIdle)
	}
	s.mu.Unlock()
	return nil
}

// reserve makes room for one more session. Those whose server has gone make way.
func (h *Handler) reserve() bool {
	h.mu.Lock()
	full := len(h.sessions)+h.opening >= h.cfg.MaxSessions
	var over []*session
	if full {
		for _, s := range h.sessions {
			if s.over() {
				over = append(over, s)
			}
		}
	}
	if !full {
		h.opening++
	}
	h.mu.Unlock()
	if !full || len(over) == 0 {
		return !full
	}
	for _, s := range over {
		s.bury()
	}
	return h.reserve()
}

// find is the session that a request names (MCP-37). Another principal's
// session does not exist for this one (MCP-G12).
func (h *Handler) find(r *http.Request, who Caller) (*session, *failure) {
	id := header(r, headerSession)
	if id == "" {
		return nil, fail(http.StatusBadRequest, codeInvalidRequest, noID, "header Mcp-Session-Id is missing; begin with initialize")
	}
	s := h.lookup(id, who.Principal, false)
	if s == nil {
		return nil, fail(http.StatusNotFound, codeInvalidRequest, noID, "session not found; it may have ended: begin with initialize")
	}
	return s, nil
}

func (h *Handler) lookup(id, principal string, old bool) *session {
	h.mu.Lock()
	s := h.sessions[id]
	h.mu.Unlock()
	if s == nil || s.who.Principal != principal || s.old != old {
		return nil
	}
	if s.over() {
		s.bury()
		return nil
	}
	s.touch()
	return s
}

func (s *session) touch() { s.used.Store(time.Now().UnixNano()) }

// short is enough of the id to find it in a log, and too little to use it.
func (s *session) short() string { return s.id[:6] }

// over reports whether the conversation with the server has ended.
func (s *session) over() bool {
	select {
	case <-s.be.Ended():
		return true
	default:
		return false
	}
}

// bury closes a session whose server has ended it.
func (s *session) bury() {
	if err := s.be.Err(); err != nil {
		s.h.cfg.Log.Warn("a session was ended by its server", "session", s.short(), "error", err)
	}
	s.close(context.Background(), belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CausePeer, Via: "mcp", Reason: "the server ended the session", At: time.Now()})
}

// whenIdle runs when the session could have been idle for long enough.
func (s *session) whenIdle() {
	if !s.h.enter() {
		return
	}
	defer s.h.leave()
	rest := s.h.cfg.SessionIdle - time.Since(time.Unix(0, s.used.Load()))
	if s.busy() {
		s.touch()
		rest = s.h.cfg.SessionIdle
	}
	if rest > 0 {
		s.mu.Lock()
		if !s.closed {
			s.idle.Reset(rest)
		}
		s.mu.Unlock()
		return
	}
	s.h.cfg.Log.Info("an idle session was ended", "session", s.short())
	s.close(context.Background(), disconnect(s.who.Principal, "the session was idle for "+s.h.cfg.SessionIdle.String()))
}

// busy reports whether a stream is being read or a request waits for its answer.
func (s *session) busy() bool {
	if s.main.attached.Load() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if st.attached.Load() || len(st.open()) > 0 {
			return true
		}
	}
	return false
}

// close ends the session: nobody finds it any more, its calls are stopped, and
// its streams end. Who comes second waits for the first; the server is waited for
// until the first of their contexts ends.
func (s *session) close(ctx context.Context, c belay.Cancellation) {
	s.mu.Lock()
	first := s.done == nil
	if first {
		s.done = make(chan struct{})
		s.ending, s.giveUp = context.WithCancelCause(context.WithoutCancel(ctx))
	}
	s.mu.Unlock()
	defer context.AfterFunc(ctx, func() { s.giveUp(context.Cause(ctx)) })()
	if !first {
		<-s.done
		return
	}
	s.end(c)
	s.giveUp(nil)
	close(s.done)
}

// end does the work of close, once.
func (s *session) end(c belay.Cancellation) {
	s.h.mu.Lock()
	delete(s.h.sessions, s.id)
	s.h.leaving[s] = struct{}{}
	s.h.mu.Unlock()
	defer func() {
		s.h.mu.Lock()
		delete(s.h.leaving, s)
		s.h.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeoutCause(s.ending, closeWait, errCloseWait)
	defer cancel()
	if err := s.be.Close(ctx, c); err != nil {
		s.h.cfg.Log.Warn("a session did not end in good order", "session", s.short(), "error", err)
	}
	// Whoever went away by itself needs no answers; the others get one even
	// where the server had none.
	f := stopped(&c)
	if c.Cause == belay.CauseDisconnect {
		f = nil
	}
	s.mu.Lock()
	s.closed = true
	streams := s.streams
	s.streams, s.parked = nil, nil
	for _, t := range []*time.Timer{s.expiry, s.idle} {
		if t != nil {
			t.Stop()
		}
	}
	for _, st := range streams {
		if st.later != nil {
			st.later.Stop()
		}
	}
	s.mu.Unlock()
	s.main.settle(nil)
	for _, st := range streams {
		st.settle(f)
	}
}

var errCloseWait = errors.New("the session did not end in time")

// withoutCaller is ctx without the caller's disconnect: what ends a session has
// to be finished whoever waits for it. It is bounded by [closeWait].
func withoutCaller(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// outlet is the session's own [mcp.Outlet]: for what belongs to no request.
type outlet struct{ s *session }

// Send implements [mcp.Outlet]. The message goes to the GET stream, or to the
// newest response that is open as long as there is none; else it waits for the
// former (MCP-36: to one stream only).
func (o outlet) Send(frame []byte, edits ...jsonrpc.Edit) error {
	if !o.s.main.attached.Load() {
		if st := o.s.newest(); st != nil && st.Send(frame, edits...) == nil {
			return nil
		}
	}
	return o.s.main.Send(frame, edits...)
}

// Answer implements [mcp.Outlet].
func (o outlet) Answer(_ int, frame []byte, edits ...jsonrpc.Edit) error {
	return o.Send(frame, edits...)
}

// Drop implements [mcp.Outlet].
func (o outlet) Drop() {}

// newest is the youngest response that somebody reads and that can still take
// a message.
func (s *session) newest() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *stream
	for n, st := range s.streams {
		if st.attached.Load() && !st.plain && (best == nil || n > best.number) && len(st.open()) > 0 {
			best = st
		}
	}
	return best
}
