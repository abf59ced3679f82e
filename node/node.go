package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/internal/rapdoor"
	"github.com/belayhq/belay/lease"
	"github.com/belayhq/belay/ledger"
	"github.com/belayhq/belay/metrics"
	"github.com/belayhq/belay/serve"
	"github.com/belayhq/belay/tracing"
)

// Options say what a server is. Serve with its Tree and Log is required; the
// zero value of any other field means what its comment says.
type Options struct {
	// Serve are the hub's options. Owner, Identify, Gate and the fields about
	// runs' names are set by this package.
	Serve serve.Options

	// Auth says who there is. LocalToken and Socket are set by this package.
	Auth auth.Config
	// TokenFile holds this user's own token, and is made if it is not there.
	TokenFile string
	// InTree names the runs inside whose process trees a process lies,
	// innermost first; nil: nobody is.
	InTree func(pid int) []string

	Ledger *LedgerOptions // nil: none
	// LatchFile keeps the latch over restarts; empty: nothing does.
	LatchFile string

	Permissions    []string       // that open the Orchestrate family; nil: admin.system_config
	Rate           float64        // requests per second and principal; 0: 20
	Burst          int            // 0: 40
	Broadcast      admin.Audience // default owner
	ExposeOwner    bool           // status names a run's owner (ORC-52)
	NoOrchestrate  bool           // the Orchestrate family answers 404 (ORC-65)
	NoCancellation bool           // Belay acts on no cancel at all (ORC-64)

	// Leases are runs that other runtimes register; nil: they cannot.
	Leases *lease.Options

	RAP *RAPOptions // nil: servers are not offered to runtimes of that protocol

	Metrics *MetricsOptions // nil: there is no /metrics
	Traces  *tracing.Config // nil: calls are no spans
}

// LedgerOptions say where ended runs and receipts are kept.
type LedgerOptions struct {
	Path     string
	Required bool // refuse to start without it
	ledger.Options
}

// Server is one node at work. Make it with [Open] and end it with Close. All
// methods are safe for concurrent use.
type Server struct {
	o       Options
	log     *slog.Logger
	tree    *belay.Tree
	hub     *serve.Hub
	api     *admin.API
	who     atomic.Pointer[auth.Authenticator]
	open    atomic.Bool // nobody is configured: MCP callers are local
	local   string      // this user's own token
	ledger  *ledger.Ledger
	leases  *lease.Registry // nil: none
	latch   admin.Switch
	early   *admin.Tombstones
	rap     *rapdoor.Door    // nil: there is none
	metrics *metrics.Metrics // nil counts nothing
	tracer  *tracing.Tracer  // nil: none

	following sync.WaitGroup // what watches the tree for the log
	endStops  context.CancelCauseFunc
}

// Open makes a server that serves nothing yet: apply definitions to its Hub.
// Errors of settings wrap [belay.ErrBadRequest]; nothing is left behind by a
// failed Open but files that were made.
func Open(o Options) (_ *Server, err error) {
	s := &Server{o: o, log: o.Serve.Log, tree: o.Serve.Tree, early: admin.NewTombstones()}
	if err := s.restoreLatch(); err != nil {
		return nil, err
	}
	if s.local, err = auth.LocalToken(o.TokenFile); err != nil {
		return nil, err
	}
	if err := s.SetAuth(o.Auth); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release(context.Background()))
		}
	}()
	if err := s.openLedger(); err != nil {
		return nil, err
	}
	s.hub = serve.New(s.hubOptions())
	s.logStops()
	if err := s.openTraces(); err != nil {
		return nil, err
	}
	if err := s.openMetrics(); err != nil {
		return nil, err
	}
	if err := s.openAPI(); err != nil {
		return nil, err
	}
	if err := s.openRAP(); err != nil {
		return nil, err
	}
	return s, nil
}

// hubOptions completes what the hub is told.
func (s *Server) hubOptions() serve.Options {
	o := s.o.Serve
	o.Owner = auth.LocalName
	o.Identify = s.identify
	o.Gate, o.Counter = gate{s}, counter{s}
	o.PassCancels = s.o.NoCancellation
	o.NameRuns, o.Trace = true, s.o.Traces != nil
	o.Ready = s.ready
	return o
}

// openAPI makes the admin API and mounts it.
func (s *Server) openAPI() (err error) {
	o := admin.Options{
		Control: s.tree, Authorizer: authorizer{s}, Limiter: admin.NewRates(s.o.Rate, s.o.Burst),
		Broadcaster: broadcaster{s}, Early: s.early, Latch: &s.latch, Approvals: s.tree,
		Permissions: s.o.Permissions, Broadcast: s.o.Broadcast, ExposeOwner: s.o.ExposeOwner,
		NoOrchestrate: s.o.NoOrchestrate, NoCancellation: s.o.NoCancellation,
		Protocol: protocolOf, Logger: s.log, Version: s.o.Serve.Version,
	}
	if s.ledger != nil {
		h := history{s.ledger}
		o.History, o.Commit, o.Export, o.Erase = h, s.ledger.Commit, h.export, s.erase
	}
	if s.o.Leases != nil {
		l := *s.o.Leases
		l.Logger = s.log
		s.leases = lease.New(s.tree, l)
		o.Leases = s.leases
	}
	if s.api, err = admin.New(o); err != nil {
		return err
	}
	v1, family := s.surfaces(s.api)
	for _, pattern := range []string{"/v1/", "/openapi.json"} {
		s.hub.Handle(pattern, v1)
	}
	for _, pattern := range []string{
		"/orchestrate/", "/cancellation/", "/v1/cancellation/", "/protocol/notifications", "/notifications", "/rpc",
	} {
		s.hub.Handle(pattern, family)
	}
	return nil
}

// Hub is what serves MCP; its Server serves everything.
func (s *Server) Hub() *serve.Hub { return s.hub }

// HTTP is the server for everything, with the hub's limits.
func (s *Server) HTTP() *http.Server { return s.hub.Server(s.remember) }

// Close ends what this package has opened: event streams, leases, spans that
// were not sent yet, the ledger, and what fetches keys. The hub is closed and the
// tree ended before, so that everything that ended is written down. ctx bounds
// how long the last records may take.
func (s *Server) Close(ctx context.Context) error {
	s.api.Close()
	return errors.Join(s.CloseRAP(ctx, belay.Cancellation{}), s.release(ctx))
}

// release ends what Open has opened so far. Spans are worth less than records,
// and their receiver may not be there: they get a part of the time.
func (s *Server) release(ctx context.Context) error {
	if s.leases != nil {
		s.leases.Close()
	}
	if s.endStops != nil {
		s.endStops(errClosed)
		s.following.Wait()
	}
	if s.metrics != nil {
		s.metrics.Close()
	}
	brief, end := context.WithTimeoutCause(ctx, spanLimit, errSpanLimit)
	defer end()
	if err := s.tracer.Close(brief); err != nil {
		s.log.Warn("not every span could be sent", "error", err)
	}
	if a := s.who.Load(); a != nil {
		a.Close()
	}
	if s.ledger == nil {
		return nil
	}
	return s.ledger.Close(ctx)
}

const spanLimit = 2 * time.Second

var errSpanLimit = errors.New("the last spans were not taken in time")

// openTraces makes runs spans.
func (s *Server) openTraces() (err error) {
	if s.o.Traces == nil {
		return nil
	}
	s.tracer, err = tracing.New(tracing.Options{Control: s.tree, Config: *s.o.Traces, Log: s.log, Version: s.o.Serve.Version})
	return err
}

// openLedger opens the file and follows the tree.
func (s *Server) openLedger() error {
	o := s.o.Ledger
	if o == nil {
		return nil
	}
	o.Log = s.log
	l, err := ledger.Open(o.Path, o.Options)
	switch {
	case err == nil:
		s.ledger = l
		return l.Follow(s.tree)
	case o.Required:
		return fmt.Errorf("%w (%s)", err, o.Path)
	case errors.Is(err, ledger.ErrLocked):
		s.log.Warn("another belay serve keeps the ledger; receipts of this one are kept in memory only; give it a file of its own with ledger.path", "ledger", o.Path)
	default:
		s.log.Warn("there is no ledger: receipts are kept in memory only", "ledger", o.Path, "error", err)
	}
	return nil
}
