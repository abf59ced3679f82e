package httpserver

import "net/http"

// Has reports whether a request belongs to a session of this handler that is
// still open. Whoever replaces one handler by another sends such requests to
// the old one.
func (h *Handler) Has(r *http.Request) bool {
	id := header(r, headerSession)
	if id == "" {
		id = r.URL.Query().Get("session") // of a 2024-11-05 caller's POST
	}
	if id == "" {
		return false
	}
	h.mu.Lock()
	s := h.sessions[id]
	h.mu.Unlock()
	return s != nil && !s.over()
}
