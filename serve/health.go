package serve

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
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

func (h *Hub) serveHealth(w http.ResponseWriter, r *http.Request) {
	if h.foreign(r) {
		refuse(w, http.StatusForbidden, "this Host is not served")
		return
	}
	health := h.Health()
	status := http.StatusOK
	if health.Status != "ok" {
		status = http.StatusServiceUnavailable
	}
	body, err := json.Marshal(health)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, status, body)
}

// foreign reports whether a request came over loopback under a name that is not
// this machine's: a web page that has re-bound its own name to it, and must not
// read which servers there are (MCP-43). Servers' endpoints check it themselves.
func (h *Hub) foreign(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() {
		return false
	}
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = strings.Trim(r.Host, "[]")
	}
	return !loopback(name) && !slices.ContainsFunc(h.o.AllowedHosts, func(allowed string) bool {
		return allowed == "*" || strings.EqualFold(allowed, name) || strings.EqualFold(allowed, r.Host)
	})
}

// refuse answers what no server is asked for, in a form that MCP clients read.
func refuse(w http.ResponseWriter, status int, text string) {
	const invalid = -32600 // as the transport says it of paths that it does not serve
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": invalid, "message": text}})
	if err != nil {
		http.Error(w, text, status)
		return
	}
	writeJSON(w, status, body)
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
