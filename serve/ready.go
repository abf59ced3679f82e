package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/belayhq/belay"
)

// Readiness is what /readyz says: whether calls should be sent here.
type Readiness struct {
	Status   string   `json:"status"` // ready, or not ready
	Problems []string `json:"problems,omitempty"`
}

// readyWait bounds [Options.Ready].
const readyWait = 2 * time.Second

var errNotReadyInTime = errors.New("it did not answer in time")

// Readiness asks Options.Ready. A hub that is being closed is not ready.
func (h *Hub) Readiness(ctx context.Context) Readiness {
	h.mu.RLock()
	closing := h.closing
	h.mu.RUnlock()
	if closing {
		return Readiness{"not ready", []string{"Belay is shutting down"}}
	}
	if h.o.Ready == nil {
		return Readiness{Status: "ready"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyWait, fmt.Errorf("%w: %v", errNotReadyInTime, readyWait))
	defer cancel()
	err := h.o.Ready(ctx)
	if err == nil {
		return Readiness{Status: "ready"}
	}
	return Readiness{"not ready", problems(err)}
}

// problems are the texts of an error, one for each of those that were joined.
func problems(err error) []string {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	list := make([]string, 0, len(all))
	for _, e := range all {
		list = append(list, belay.CleanReason(e.Error()))
	}
	return list
}

func (h *Hub) serveReady(w http.ResponseWriter, r *http.Request) {
	ready := h.Readiness(r.Context())
	status := http.StatusOK
	if ready.Status != "ready" {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, status, typeJSON, ready)
}
