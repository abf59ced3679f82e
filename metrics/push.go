package metrics

import (
	"net/http"
	"strconv"
)

// Door says by which way an early Stop came.
type Door string

// The doors of early Stops.
const (
	DoorCaller Door = "caller" // the caller's own cancel overtook its call (MCP-G17)
	DoorREST   Door = "rest"   // a cancel over REST of an id that nobody knew yet (ORC-79)
)

// TombstoneHit counts a call that a Stop had overtaken and that was therefore not
// started.
func (m *Metrics) TombstoneHit(by Door) {
	if m == nil {
		return
	}
	if by != DoorCaller && by != DoorREST {
		by = other
	}
	m.count.stones.WithLabelValues(string(by)).Inc()
}

// ForcedRestart counts a server process that was replaced because a call on it
// had to be stopped by force. A server of which no run was seen is "other".
func (m *Metrics) ForcedRestart(server string) {
	if m == nil {
		return
	}
	m.count.restarts.WithLabelValues(m.servers.label(server)).Inc()
}

// EarlyStop counts a call that its caller's own cancel had overtaken. With
// ForcedRestart it is what the one who pumps calls reports; neither takes a lock
// that is held for more than a moment.
func (m *Metrics) EarlyStop(string) { m.TombstoneHit(DoorCaller) }

// Surface is where a request was refused.
type Surface string

// The surfaces.
const (
	SurfaceAPI         Surface = "api"         // /v1
	SurfaceOrchestrate Surface = "orchestrate" // the Orchestrate families
	SurfaceMCP         Surface = "mcp"         // callers' requests
	SurfaceMetrics     Surface = "metrics"     // this page
)

// Class is why a request was refused.
type Class string

// The classes of refusal.
const (
	Unauthenticated Class = "unauthenticated" // no credentials, or bad ones
	Forbidden       Class = "forbidden"       // not permitted, a foreign Host or Origin
	NotFound        Class = "not_found"       // unknown, or not to be seen by the asker
	Conflict        Class = "conflict"        // ambiguous, or over
	TooLarge        Class = "too_large"       // header or body over the bound
	Malformed       Class = "malformed"       // cannot be read
	RateLimited     Class = "rate_limited"    // too often
	Latched         Class = "latched"         // the stop-all latch is engaged
	Unavailable     Class = "unavailable"     // shutting down, or full
)

// Refused counts a request that was refused. What is none of the constants
// counts as "other".
func (m *Metrics) Refused(at Surface, why Class) {
	if m == nil {
		return
	}
	switch at {
	case SurfaceAPI, SurfaceOrchestrate, SurfaceMCP, SurfaceMetrics:
	default:
		at = other
	}
	switch why {
	case Unauthenticated, Forbidden, NotFound, Conflict, TooLarge, Malformed, RateLimited, Latched, Unavailable:
	default:
		why = other
	}
	m.count.refused.WithLabelValues(string(at), string(why)).Inc()
}

// Refusals counts what next refuses, by the status of its answers. It adds one
// small value to each request and keeps the abilities of the ResponseWriter
// reachable for [http.ResponseController], and Flush besides.
func (m *Metrics) Refusals(at Surface, next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w, told: func(status int) {
			if why := classOf(status); why != "" {
				m.Refused(at, why)
			}
		}}
		next.ServeHTTP(s, r)
	})
}

// classOf is the class of an HTTP status; empty for what is no refusal.
func classOf(status int) Class {
	switch status {
	case http.StatusUnauthorized:
		return Unauthenticated
	case http.StatusForbidden, http.StatusMisdirectedRequest:
		return Forbidden
	case http.StatusNotFound:
		return NotFound
	case http.StatusConflict:
		return Conflict
	case http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
		return TooLarge
	case http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return Malformed
	case http.StatusTooManyRequests:
		return RateLimited
	case http.StatusServiceUnavailable:
		return Unavailable
	}
	if status >= http.StatusBadRequest {
		return Class(strconv.Itoa(status)) // counted as "other"
	}
	return ""
}

// statusWriter tells the status once.
type statusWriter struct {
	http.ResponseWriter
	told func(int)
	done bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(status int) {
	if !w.done && status >= http.StatusOK { // 1xx are not the answer
		w.done = true
		w.told(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Flush implements [http.Flusher] for handlers that ask for it.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
