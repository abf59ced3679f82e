package node

import (
	"context"
	"errors"
	"net/http"

	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/metrics"
)

// MetricsOptions say who may read /metrics.
type MetricsOptions struct {
	Public bool // everybody; else who may read all runs
}

// openMetrics counts what happens, and serves the counts.
func (s *Server) openMetrics() error {
	if s.o.Metrics == nil {
		return nil
	}
	o := metrics.Options{
		Control: s.tree, Log: s.log, Version: s.o.Serve.Version, Known: s.serves, Sessions: s.sessions,
		Latched: func() bool { return s.latch.Refuses() != nil },
	}
	if s.ledger != nil {
		o.Ledger = s.ledgerStats
	}
	if s.tracer != nil {
		o.Traces = func() metrics.TraceStats { return metrics.TraceStats(s.tracer.Stats()) }
	}
	m, err := metrics.New(o)
	if err != nil {
		return err
	}
	s.metrics = m
	s.hub.Handle("/metrics", m.Refusals(metrics.SurfaceMetrics, s.scraped(m.Handler())))
	return nil
}

// scraped lets in who may read all runs: the page says what runs and how often
// it was stopped.
func (s *Server) scraped(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.o.Metrics.Public {
			p, err := s.principal(r)
			if err == nil {
				err = p.Need(auth.RunsRead)
			}
			if err != nil {
				a := auth.Describe(err)
				a.Header(w.Header())
				http.Error(w, a.Detail, a.Status)
				return
			}
		}
		page.ServeHTTP(w, r)
	})
}

// serves reports whether a server of this name is configured.
func (s *Server) serves(name string) bool {
	for _, is := range s.hub.Health().Servers {
		if is.Name == name {
			return true
		}
	}
	return false
}

func (s *Server) sessions() (n int) {
	for _, is := range s.hub.Health().Servers {
		n += is.Sessions
	}
	return n
}

func (s *Server) ledgerStats() metrics.LedgerStats {
	l := s.ledger.Stats()
	return metrics.LedgerStats{
		Written: l.Written, Batches: l.Batches, Failed: l.Failed, Dropped: l.Dropped, Refused: l.Refused,
		Missed: l.Missed, Resyncs: l.Resyncs, Lost: l.Lost + l.Unseen, Trimmed: l.Trimmed,
		Queued: l.Queued, Bytes: l.Bytes, Trouble: l.Trouble != nil, LastSync: l.LastSync,
	}
}

// counter passes on what sessions count: they are opened after the counting has
// begun, the hub is made before.
type counter struct{ s *Server }

// EarlyStop implements [gateway.Counter].
func (c counter) EarlyStop(server string) { c.s.metrics.EarlyStop(server) }

// ForcedRestart implements [gateway.Counter].
func (c counter) ForcedRestart(server string) { c.s.metrics.ForcedRestart(server) }

// countRefusal counts a caller of an MCP endpoint that was not let in.
func (s *Server) countRefusal(err error) {
	switch {
	case errors.Is(err, auth.ErrForbidden):
		s.metrics.Refused(metrics.SurfaceMCP, metrics.Forbidden)
	case errors.Is(err, auth.ErrUnavailable):
		s.metrics.Refused(metrics.SurfaceMCP, metrics.Unavailable)
	default:
		s.metrics.Refused(metrics.SurfaceMCP, metrics.Unauthenticated)
	}
}

// surfaces counts what the admin API refuses, its two halves apart.
func (s *Server) surfaces(api *admin.API) (v1, family http.Handler) {
	return s.metrics.Refusals(metrics.SurfaceAPI, api), s.metrics.Refusals(metrics.SurfaceOrchestrate, api)
}

// ready says why the server should get no calls, for /readyz.
func (s *Server) ready(context.Context) error {
	switch {
	case s.latch.Refuses() != nil:
		return errors.New("the latch is engaged")
	case s.ledger != nil && s.ledger.Stats().Trouble != nil:
		return errors.New("the ledger cannot be written")
	}
	return nil
}
