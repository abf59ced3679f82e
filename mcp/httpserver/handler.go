package httpserver

import (
	"context"
	"net/http"

	"github.com/belayhq/belay"
)

// Handler serves one MCP server to callers over HTTP.
type Handler struct {
	cfg Config
}

// New returns a Handler. It must be ended with [Handler.Close].
func New(cfg Config) *Handler { return &Handler{cfg: cfg.withDefaults()} }

// ServeHTTP serves one exchange.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.Error(w, "not yet", http.StatusNotImplemented)
}

// Close ends all sessions with c, answers what is in flight, and waits for the
// exchanges to end, or for ctx.
func (h *Handler) Close(ctx context.Context, c belay.Cancellation) error { return nil }
