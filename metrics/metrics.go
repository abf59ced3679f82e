package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belayhq/belay"
)

// Metrics counts what happens to the runs of a Control. Make one with [New] and
// end it with Close. All methods are safe for concurrent use, and on nil.
type Metrics struct {
	opts    Options
	reg     *prometheus.Registry
	count   *counters
	servers *servers

	life     context.Context
	end      context.CancelCauseFunc
	wg       sync.WaitGroup
	watching chan struct{} // closed when the first Watch has begun
	resync   chan struct{} // capacity 1: the runs are to be counted anew

	// mu guards the fields below.
	mu     sync.Mutex
	book   *book
	events uint64 // that were counted
	looked uint64 // events at the last look at all runs
}

var errClosed = errors.New("metrics were closed")

// New begins to count. Runs that are in flight already are counted as started.
// Without a Control it fails with [belay.ErrBadRequest].
func New(o Options) (*Metrics, error) {
	if o.Control == nil {
		return nil, fmt.Errorf("%w: metrics need a Control", belay.ErrBadRequest)
	}
	o = o.withDefaults()
	reg := prometheus.NewRegistry()
	c := newCounters(reg)
	b := newBook(&o, c)
	c.begin(&b.words)
	m := &Metrics{
		opts: o, reg: reg, count: c, book: b, servers: b.servers,
		watching: make(chan struct{}), resync: make(chan struct{}, 1),
	}
	reg.MustRegister(&pulled{m: m}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(o.Version))
	m.life, m.end = context.WithCancelCause(context.Background())
	m.wg.Go(m.follow)
	m.wg.Go(m.check)
	<-m.watching // so that a run that is registered after New is seen from its start
	return m, nil
}

// Close stops counting and returns when nothing of m runs any more. The page
// stays readable. It may be called several times.
func (m *Metrics) Close() {
	if m == nil {
		return
	}
	m.end(errClosed)
	m.wg.Wait()
}

// Handler serves the counts in the formats that Prometheus reads. It asks
// nobody who they are. At most four pages are made at a time; who asks for a
// fifth gets 503.
func (m *Metrics) Handler() http.Handler {
	if m == nil {
		return http.NotFoundHandler()
	}
	return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(m.opts.Log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}
