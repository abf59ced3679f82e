package serve

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Health is what /healthz says.
type Health struct {
	Status  string         `json:"status"` // ok, or stopping
	Version string         `json:"version,omitempty"`
	Servers []ServerHealth `json:"servers"`
}

// ServerHealth is one server of [Health].
type ServerHealth struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	State    string `json:"state"`             // idle: no session; serving; failed: the last session could not be opened
	Sessions int    `json:"sessions"`          // open ones
	Leaving  int    `json:"leaving,omitempty"` // older definitions whose calls are still in flight
}

// Health is the state of all servers, in their order.
func (h *Hub) Health() Health {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := Health{Status: "ok", Version: h.o.Version, Servers: make([]ServerHealth, 0, len(h.order))}
	if h.closing {
		out.Status = "stopping"
	}
	for _, name := range h.order {
		s := ServerHealth{Name: name, Path: Path(name), State: "idle", Leaving: len(h.leaving[name])}
		e := h.current[name]
		e.mu.Lock()
		s.Sessions = len(e.sessions)
		switch {
		case s.Sessions > 0:
			s.State = "serving"
		case e.failed:
			s.State = "failed"
		}
		e.mu.Unlock()
		out.Servers = append(out.Servers, s)
	}
	return out
}

func (h *Hub) serveHealth(w http.ResponseWriter, _ *http.Request) {
	health := h.Health()
	status := http.StatusOK
	if health.Status != "ok" {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, typeJSON, health)
}

// Forms of answers.
const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// refuse answers what no server is asked for, in a form that MCP clients read.
func refuse(w http.ResponseWriter, status int, text string) {
	const invalid = -32600 // as the transport says it of paths that it does not serve
	writeJSON(w, status, typeJSON, map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": invalid, "message": text}})
}

// drainWait is how long net/http may go on reading a body that nobody has looked
// at.
const drainWait = time.Second

// turnAway refuses a request that the guard does not let in.
func turnAway(w http.ResponseWriter, r *http.Request, why error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainWait))
	if r.URL.Path == JoinedPath || strings.HasPrefix(r.URL.Path, JoinedPath+"/") {
		refuse(w, http.StatusForbidden, why.Error())
		return
	}
	writeJSON(w, http.StatusForbidden, typeProblem, map[string]any{
		"type": "about:blank", "title": http.StatusText(http.StatusForbidden), "status": http.StatusForbidden, "detail": why.Error(),
	})
}

// writeJSON answers with a value of ours, which always marshals.
func writeJSON(w http.ResponseWriter, status int, kind string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
