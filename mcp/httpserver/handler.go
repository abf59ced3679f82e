package httpserver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
)

// errClosing is the reason for which a closed Handler refuses.
var errClosing = errors.New("Belay is shutting down") //nolint:staticcheck // a name

// Handler serves one MCP server to callers over HTTP. It is ready to be called
// concurrently and must be ended with [Handler.Close].
type Handler struct {
	cfg       Config
	exchanges atomic.Uint64 // numbers given out
	catalog   catalog
	closing   chan struct{} // closed when Close begins
	stop      atomic.Pointer[belay.Cancellation]

	mu       sync.Mutex
	closed   bool
	active   int           // exchanges, timers' functions, and closers that run
	idle     chan struct{} // closed when active is 0 after closed was set
	sessions map[string]*session
	leaving  map[*session]struct{} // that are being closed
	opening  int                   // sessions that are being opened, which count as well
}

// New returns a Handler.
func New(cfg Config) *Handler {
	return &Handler{
		cfg:      cfg.withDefaults(),
		closing:  make(chan struct{}),
		idle:     make(chan struct{}),
		sessions: make(map[string]*session),
		leaving:  make(map[*session]struct{}),
	}
}

// enter counts something that Close has to wait for. It is false once Close
// has begun.
func (h *Handler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.active++
	return true
}

func (h *Handler) leave() {
	h.mu.Lock()
	h.active--
	if h.closed && h.active == 0 {
		close(h.idle)
	}
	h.mu.Unlock()
}

// ServeHTTP serves one exchange. It returns when the response is complete or
// the caller has gone.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.enter() {
		w.Header().Set("Retry-After", "1")
		turnAway(w, &failure{status: http.StatusServiceUnavailable, code: codeInternal, text: errClosing.Error()})
		return
	}
	defer h.leave()
	if f := h.guard(r); f != nil {
		turnAway(w, f)
		return
	}
	who := Caller{Remote: r.RemoteAddr, Agent: agent(r)}
	if f := h.identify(w, r, &who); f != nil {
		turnAway(w, f)
		return
	}
	switch h.below(r) {
	case "", "/":
		h.serveEndpoint(w, r, who)
	case "/sse":
		h.serveOldStream(w, r, who)
	case "/message":
		h.serveOldMessage(w, r, who)
	default:
		turnAway(w, &failure{status: http.StatusNotFound, code: codeInvalidRequest, text: "nothing is served at this path"})
	}
}

// below is what the path names under the mount point.
func (h *Handler) below(r *http.Request) string {
	if r.URL.Path == h.cfg.Path {
		return ""
	}
	return strings.TrimPrefix(r.URL.Path, h.cfg.Path)
}

// serveEndpoint serves the one URL of Streamable HTTP in all its revisions.
func (h *Handler) serveEndpoint(w http.ResponseWriter, r *http.Request, who Caller) {
	switch {
	case r.Method == http.MethodPost:
		h.servePost(w, r, who)
	case r.Method != http.MethodGet && r.Method != http.MethodDelete:
		notAllowed(w, "GET, POST, DELETE")
	case modernVersion(header(r, headerVersion)), header(r, headerSession) == "":
		// There is nothing but POST without a session (MCP-64, MCP-36).
		notAllowed(w, "POST")
	case r.Method == http.MethodGet:
		h.serveGet(w, r, who)
	default:
		h.serveDelete(w, r, who)
	}
}

// Close ends all sessions with c, answers what is in flight, and waits until
// the last exchange is over. When ctx ends first it returns ctx's cause: a
// server that does not end is given up, and a peer that does not read keeps its
// exchange until WriteWait is over. The sessions that Backend.Shared returned are
// the backend's; if it closes them first, their callers read the better answer.
// Close may be called again.
func (h *Handler) Close(ctx context.Context, c belay.Cancellation) error {
	h.mu.Lock()
	if first := !h.closed; first {
		if c.Cause == "" {
			c.Cause = belay.CauseShutdown
		}
		h.closed = true
		h.stop.Store(&c)
		close(h.closing)
		if h.active == 0 {
			close(h.idle)
		}
	}
	all := make([]*session, 0, len(h.sessions))
	for _, s := range h.sessions {
		all = append(all, s)
	}
	for s := range h.leaving { // so that they are given up with ctx
		all = append(all, s)
	}
	h.mu.Unlock()

	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() { s.close(ctx, c) })
	}
	wg.Wait()
	select {
	case <-h.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// disconnect is the Stop of a caller that went away (MCP-G15).
func disconnect(who, reason string) belay.Cancellation {
	return belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseDisconnect, By: who, Via: "mcp", Reason: reason, At: time.Now()}
}

// agent is the caller's User-Agent, fit for logs.
func agent(r *http.Request) string {
	const limit = 128
	a := header(r, "User-Agent")
	if len(a) > limit {
		a = a[:limit]
	}
	return belay.CleanReason(a)
}
