package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/lease"
)

// Options are the parts of an [API]. Control and Authorizer are required; the
// zero value of any other field means what its comment says.
type Options struct {
	Control    belay.Control
	Authorizer Authorizer

	Limiter     Limiter     // nil: NewRates(0, 0)
	History     History     // nil: nothing is known of runs that the Control has forgotten
	Broadcaster Broadcaster // nil: nobody is told
	Early       EarlyStops  // nil: a cancel of an unknown id waits for nothing
	Latch       Latch       // nil: /v1/latch answers 501

	// Approvals are what waits for a person; nil: those operations answer 501. Where it
	// is a [belay.Previewer], previews are shown.
	Approvals belay.Approvals

	// Leases are the runs that other runtimes register; nil: those operations
	// answer 501. The Control must show the runs of their tree.
	Leases *lease.Registry
	// LeaseLimiter bounds registrations, heartbeats and reports of a principal,
	// which come much more often than cancels. Nil: NewRates(500, 1000).
	LeaseLimiter Limiter

	// Commit has runs with final receipts written down, and returns when they
	// will be found after a crash. It is called before an answer that shows such
	// a receipt; when it fails the answer says stored: false. Nil: nothing is
	// stored, and nothing is said about it.
	Commit func(ctx context.Context, runs ...belay.Detail) error
	// Export writes all receipts that the query selects, in pieces, as they come;
	// nil: the export answers 501. Its Filter, Stop and Stopped are set.
	Export func(ctx context.Context, w io.Writer, f Format, q HistoryQuery) error
	// Erase removes a principal from what is remembered, and says what it did in
	// a form that can be written as JSON; nil: erasure answers 501.
	Erase func(ctx context.Context, principal string) (any, error)

	// Permissions open the Orchestrate family (ORC-35); default
	// [PermSystemConfig]. runs.read, runs.cancel and their .own forms open the
	// verb that they name; any other permission both, for all runs.
	Permissions []string

	Broadcast      Audience // whose sessions hear of a cancel; default ToOwner
	ExposeOwner    bool     // status names the run's owner (ORC-52)
	NoOrchestrate  bool     // the Orchestrate family answers 404 (ORC-65)
	NoCancellation bool     // everything here answers 404 (ORC-64)

	// Protocol names the protocol by which a run arrived; nil: its label
	// "protocol". An empty name is shown as null.
	Protocol func(*belay.Info) string

	Logger *slog.Logger // nil: nothing is logged

	Version string // of Belay, for /openapi.json; default "dev"
}

// API is the REST door. It is an [http.Handler], to be mounted at the root of a
// server whose MaxHeaderBytes and ReadHeaderTimeout are set. End it with Close.
type API struct {
	o       Options
	memory  *memory // of cancels
	begun   *memory // of registrations
	feed    *feed
	streams streams
	opens   map[string][]string // permissions that open an operation of /v1, by its pattern
	queries map[string][]string // what may stand in its query
	v1      http.Handler
	doc     *huma.OpenAPI // what /openapi.json shows

	patience time.Duration // for a body; tests have less
	calm     time.Duration // before a refusal of too many requests; tests have less
	held     chan struct{} // such refusals that wait
}

// New returns a door to a Control. It fails if a required option is missing or
// one has a value that means nothing.
func New(o Options) (*API, error) {
	if o.Control == nil || o.Authorizer == nil {
		return nil, fmt.Errorf("admin: %w: Options needs a Control and an Authorizer", belay.ErrBadRequest)
	}
	switch o.Broadcast {
	case "":
		o.Broadcast = ToOwner
	case ToOwner, ToAll, ToNobody:
	default:
		return nil, fmt.Errorf("admin: %w: broadcast %.32q is none of owner, all and off", belay.ErrBadRequest, o.Broadcast)
	}
	if o.Limiter == nil {
		o.Limiter = NewRates(0, 0)
	}
	if o.LeaseLimiter == nil {
		o.LeaseLimiter = NewRates(500, 1000)
	}
	if o.Protocol == nil {
		o.Protocol = func(i *belay.Info) string { return i.Labels["protocol"] }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	o.Permissions = checkPermissions(o.Permissions)
	a := &API{o: o, memory: newMemory(), begun: newMemory(), opens: make(map[string][]string), patience: bodyPatience, calm: calmFor, held: make(chan struct{}, calmMax)}
	a.feed = newFeed(o.Control)
	a.v1 = a.newV1()
	return a, nil
}

// Close ends the event streams and waits for the goroutine that feeds them.
// Requests after it are answered, but for streams. It may be called again.
func (a *API) Close() { a.feed.close() }

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.EscapedPath(); {
	case a.o.NoCancellation:
		refuse(w, http.StatusNotFound, "Not Found")
	case a.serveFamily(w, r, path), a.serveDirect(w, r, path):
	case path == "/v1", strings.HasPrefix(path, "/v1/"), path == "/openapi.json":
		a.v1.ServeHTTP(w, r)
	default:
		refuse(w, http.StatusNotFound, "Not Found")
	}
}

// who asks the Authorizer; a principal without a name is nobody.
func (a *API) who(r *http.Request) (Principal, error) {
	p, err := a.o.Authorizer.Principal(r)
	if err != nil {
		return nil, err
	}
	if p == nil || p.Name() == "" {
		return nil, ErrBadCredentials
	}
	return p, nil
}

// denial is what a request without an accepted principal is told.
func denial(r *http.Request, err error) (status int, detail string) {
	switch {
	case errors.Is(err, ErrAuthUnavailable):
		return http.StatusServiceUnavailable, "Authentication is not available"
	case errors.Is(err, ErrNoCredentials) && r.Header.Get("Cookie") != "":
		return http.StatusUnauthorized, "Cookie authentication not allowed for API requests. Use Authorization header."
	case errors.Is(err, ErrNoCredentials):
		return http.StatusUnauthorized, "Authorization token required"
	}
	return http.StatusUnauthorized, "Invalid authentication credentials"
}

// challenge sets the headers that go with a denial.
func challenge(w http.ResponseWriter, status int) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	} else {
		w.Header().Set("Retry-After", "1")
	}
}

// broadcast tells observers and sessions of a cancel; whatever goes wrong stays
// here (ORC-45). Observers are the event streams of who may see the run, which is
// nil where nobody knows the id. A run that no protocol named has no id that
// anybody could be told of.
func (a *API) broadcast(ctx context.Context, n Notice, run *belay.Info) {
	if n.RequestID == "" {
		return
	}
	n.Audience, n.Frame = a.o.Broadcast, n.frame()
	if run != nil {
		a.feed.add(entry{Event: belay.Event{Run: *run, At: time.Now()}, frame: n.Frame})
	}
	if a.o.Broadcaster == nil || a.o.Broadcast == ToNobody {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			a.o.Logger.ErrorContext(ctx, "telling sessions of a cancel panicked", "run", n.Run, "panic", fmt.Sprint(v))
		}
	}()
	if err := a.o.Broadcaster.Broadcast(context.WithoutCancel(ctx), n); err != nil {
		a.o.Logger.WarnContext(ctx, "not every session was told of a cancel", "run", n.Run, "error", err)
	}
}

// frame is the notification as the seed writes it, with the run behind it.
func (n *Notice) frame() []byte {
	type params struct {
		RequestID string      `json:"requestId"`
		Reason    string      `json:"reason,omitempty"`
		Run       belay.RunID `json:"run,omitzero"`
	}
	return compact(struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  params `json:"params"`
	}{"2.0", "notifications/cancelled", params{n.RequestID, n.Reason, n.Run}})
}
