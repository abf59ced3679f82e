package rap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/egress"
)

// HandlerOptions are the settings of a [Handler]. Toolset and Authenticator are
// required; the zero value of any other field means what its comment says.
type HandlerOptions struct {
	Toolset       Toolset
	Authenticator Authenticator // guards invocations, cancels, closes and discovery alike (RAP-32)

	// Tree is where calls are runs; nil: one of the Handler's own, which Close ends.
	Tree   *belay.Tree
	Server string // the runs' server, for people; "": the manifest's name is not asked for, there is none
	Ladder belay.Ladder

	// Owner is the owner of a caller's runs; nil: its name. Callers that are told
	// apart may have one.
	Owner func(caller string) string

	// BaseURL is the address below which callers reach this Handler, as they
	// configured it (RAP-6); "": what the request's Host says, with http or https as
	// the connection is. Set it behind a proxy.
	BaseURL string

	// Timeout ends calls that take longer, with cause deadline (RAP-21); 0: none does.
	Timeout time.Duration

	// MaxCalls and MaxCallsPerCaller bound the calls that are not over, or whose
	// result is not delivered; what is over that is answered 503, which runtimes try
	// again. 0: 1024 and 256.
	MaxCalls, MaxCallsPerCaller int
	// MaxHeld bounds the bytes of their arguments together, in the same way; 0: 256 MiB.
	MaxHeld int

	// PartialWait is how long a stopped call's result waits for the tool to return
	// with what it has; 0: 200 ms.
	PartialWait time.Duration

	// OwnWait is PartialWait for a Stop by the runtime itself, which tells its model
	// at once what happened, and can wait for the better result; 0: PartialWait.
	OwnWait time.Duration

	// AskWait is how long a call waits for its user: a choice, an authorisation
	// (RAP-81); 0: 15 min.
	AskWait time.Duration

	// Private, Plain and NoLoopback say where callback URLs may lead beside https to
	// public addresses and this machine: to private addresses, by http to other
	// machines, not to this machine. Addresses are looked at when a connection is
	// made, and redirects are never followed.
	Private, Plain, NoLoopback bool
	Off                        bool // nowhere: no call can be taken
	// Client posts to callback URLs in place of one that keeps to these rules.
	Client *http.Client

	// Retries are the waits before a message is posted again after a 5xx, a timeout
	// or no connection (RAP-69); nil: 8 of them, half a second to half a minute,
	// together one and a half minutes.
	Retries []time.Duration

	// Migrate moves a session to another server, and returns when all has arrived
	// (RAP-89). A *[MigrateError] is answered with its status, [ErrNoMigration] and
	// belay.ErrNotFound with 404, every other error with 502.
	// Nil: nothing is to be moved, and the manifest must not say otherwise.
	Migrate func(ctx context.Context, caller string, m Migration) error

	Log *slog.Logger // nil: nothing is logged
}

// Handler serves one toolset to runtimes. It is an http.Handler for the paths
// below its base URL, which are to reach it without that base's own path
// ([http.StripPrefix]). Make one with [NewHandler] and end it with Close.
type Handler struct {
	o       HandlerOptions
	log     *slog.Logger
	tree    *belay.Tree
	ownTree bool
	client  *http.Client
	send    func(*http.Request) (*http.Response, error) // posts JSON by client
	policy  egress.Policy
	rates   *rates
	crew    crew // for jobs

	// draining is closed when Close begins: nobody waits for a next attempt any more.
	draining chan struct{}
	// live ends when Close gives up waiting: attempts under way end, too.
	live    context.Context
	endLive context.CancelCauseFunc
	wg      sync.WaitGroup // of jobs' goroutines and of what closes threads; Add under mu while !closed

	mu      sync.Mutex // guards the fields below; before a tree's lock and Job.mu
	closed  bool
	jobs    map[jobKey]*Job // not yet answered for good
	threads map[threadKey]map[*Job]struct{}
	active  map[string]int // goroutines of jobs, by caller: a tool may run on after its answer
	held    int            // bytes of the arguments of calls
	total   int            // of active
	early   *belay.Tombstones[jobKey, belay.Cancellation]
	ended   *belay.Tombstones[jobKey, struct{}]
	choices map[string]*choice // open ones, by the token of their URL
}

// jobKey names a call: ids of two callers, and of two threads, never meet (RAP-96).
type jobKey struct{ caller, thread, id string }

// threadKey names a thread of a caller.
type threadKey struct{ caller, thread string }

// Numbers of a Handler.
const (
	defaultMaxCalls     = 1024
	defaultMaxPerCaller = 256
	defaultMaxHeld      = 256 << 20
	defaultPartialWait  = 200 * time.Millisecond
	defaultAskWait      = 15 * time.Minute
	noticeRate          = 50 // cancels and closes that stop nothing, per second and caller (RAP-34)
	noticeBurst         = 100
	endedFor            = 10 * time.Minute // a repeated invocation is recognised, a late cancel leaves no mark
	endedMax            = 10_000
	deliverIdle         = 30 * time.Second
)

var defaultRetries = []time.Duration{
	500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second,
}

// NewHandler makes a Handler. Errors wrap belay.ErrBadRequest and say which option
// is no good.
func NewHandler(o HandlerOptions) (*Handler, error) {
	if o.Toolset == nil || o.Authenticator == nil {
		return nil, fmt.Errorf("%w: a handler needs a Toolset and an Authenticator; Loopback is one for this machine alone", belay.ErrBadRequest)
	}
	if o.BaseURL != "" {
		base, err := ParseBase(o.BaseURL)
		if err != nil {
			return nil, fmt.Errorf("BaseURL: %w", err)
		}
		o.BaseURL = base.String()
	}
	orInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if o.Owner == nil {
		o.Owner = func(caller string) string { return caller }
	}
	orInt(&o.MaxCalls, defaultMaxCalls)
	orInt(&o.MaxCallsPerCaller, min(defaultMaxPerCaller, o.MaxCalls))
	orInt(&o.MaxHeld, defaultMaxHeld)
	orTime(&o.PartialWait, defaultPartialWait)
	orTime(&o.OwnWait, o.PartialWait)
	orTime(&o.AskWait, defaultAskWait)
	if o.Retries == nil {
		o.Retries = defaultRetries
	}
	h := &Handler{
		o: o, log: o.Log, tree: o.Tree, client: o.Client,
		policy:   egress.Policy{Private: o.Private, Plain: o.Plain, NoLoopback: o.NoLoopback, Off: o.Off},
		rates:    newRates(noticeRate, noticeBurst),
		draining: make(chan struct{}),
		jobs:     map[jobKey]*Job{}, threads: map[threadKey]map[*Job]struct{}{}, active: map[string]int{},
		early:   belay.NewTombstones[jobKey, belay.Cancellation](0, 0),
		ended:   belay.NewTombstones[jobKey, struct{}](endedFor, endedMax),
		choices: map[string]*choice{},
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.tree == nil {
		h.tree, h.ownTree = belay.NewTree(belay.Options{}), true
	}
	h.send = func(r *http.Request) (*http.Response, error) {
		r.Header.Set("Content-Type", ContentType)
		return h.client.Do(r) //nolint:gosec // G704: its owner has brought the client, and sees to where it goes
	}
	if h.client == nil {
		h.client = h.policy.Client(egress.ClientOptions{Timeout: deliverWait, Idle: deliverIdle})
		h.send = func(r *http.Request) (*http.Response, error) {
			r.Header = jsonHeader
			return h.client.Transport.RoundTrip(r) // there are no redirects and cookies to see to
		}
	}
	h.crew = newCrew(h.draining)
	h.live, h.endLive = context.WithCancelCause(context.Background())
	return h, nil
}

// Close refuses new calls, stops those that run with the cancellation (cause
// shutdown, unless it says another), delivers their results in one attempt, and
// waits for everything that the Handler has started. When ctx ends first, the
// error says how many tools have not returned. It may be called again.
func (h *Handler) Close(ctx context.Context, c belay.Cancellation) error {
	if c.Cause == "" {
		c.Cause = belay.CauseShutdown
	}
	if c.Via == "" {
		c.Via = viaRAP
	}
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.draining)
	}
	runs := make([]*belay.Run, 0, len(h.jobs))
	for _, j := range h.jobs {
		runs = append(runs, j.run)
	}
	h.mu.Unlock()
	for _, r := range runs {
		r.Cancel(c)
	}
	done := make(chan struct{})
	go func() { defer close(done); h.wg.Wait() }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		h.endLive(context.Cause(ctx))
		select { // what only waited for an answer ends now
		case <-done:
		case <-time.After(closeLinger):
			h.mu.Lock()
			err = fmt.Errorf("%d calls of tools have not returned: %w", h.total, context.Cause(ctx))
			h.mu.Unlock()
		}
	}
	h.endLive(errHandlerClosed)
	h.client.CloseIdleConnections()
	if h.ownTree {
		err = errors.Join(err, h.tree.Close(ctx))
	}
	return err
}

// closeLinger is how long Close waits after it has ended all attempts to deliver.
const closeLinger = 100 * time.Millisecond

var errHandlerClosed = fmt.Errorf("%w: the tool server has ended", belay.ErrClosed)

// route is one path of a Handler.
type route struct {
	method string
	limit  int // of the body
	serve  func(h *Handler, w http.ResponseWriter, r *http.Request, caller string, body []byte)
}

// routes are all that there are: exact paths, no prefixes (R11).
var routes = map[string]route{
	PathDiscovery: {http.MethodGet, 0, (*Handler).discover},
	PathInvoke:    {http.MethodPost, MaxInvocation, (*Handler).invoke},
	PathCancel:    {http.MethodPost, MaxNotice, (*Handler).cancel},
	PathClose:     {http.MethodPost, MaxNotice, (*Handler).closeThread},
	PathMigrate:   {http.MethodPost, MaxNotice, (*Handler).migrate},
}

// ServeHTTP serves one request. Nothing is looked up for a caller that has not
// shown who it is; only the answer to a choice is known by its URL alone.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if token, ok := strings.CutPrefix(path, PathChoice+"/"); ok {
		h.serveChoice(w, r, token)
		return
	}
	to, ok := routes[path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if r.Method != to.method {
		w.Header().Set("Allow", to.method)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	b := &body{w: w, r: r, limit: to.limit}
	caller, err := h.o.Authenticator.Authenticate(r, b.read)
	if err == nil && caller == "" {
		err = fmt.Errorf("%w: the caller has no name", ErrUnauthenticated) // nobody is not somebody
	}
	if err != nil {
		h.turnAway(w, r, err)
		return
	}
	text, err := b.read()
	if err != nil {
		h.turnAway(w, r, err)
		return
	}
	to.serve(h, w, r, caller, text)
}

// turnAway answers what went wrong before a route was reached, with an empty body.
func (h *Handler) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	var special interface {
		Refusal() (status int, header http.Header)
	}
	status := http.StatusInternalServerError
	switch {
	case errors.As(err, &special):
		var header http.Header
		status, header = special.Refusal()
		maps.Copy(w.Header(), header)
	case errors.Is(err, ErrTooLarge):
		status = http.StatusRequestEntityTooLarge
		w.Header().Set("Connection", "close") // the rest of the body is not wanted
	case errors.Is(err, belay.ErrTooMany):
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close")
	case errors.Is(err, ErrUnauthenticated):
		status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", h.o.Authenticator.Challenge())
	case errors.Is(err, belay.ErrForbidden):
		status = http.StatusForbidden
	case errors.Is(err, ErrMalformed):
		status = http.StatusBadRequest
	}
	h.log.Debug("request refused", "path", r.URL.Path, "remote", r.RemoteAddr, "status", status, "error", belay.CleanReason(err.Error()))
	w.WriteHeader(status)
}

// refuse answers with an error for people.
func refuse(w http.ResponseWriter, status int, text string) {
	body, err := json.Marshal(struct {
		Error string `json:"error"`
	}{belay.CleanReason(text)})
	if err != nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// base is the address of this Handler as the caller knows it.
func (h *Handler) base(r *http.Request) string {
	if h.o.BaseURL != "" {
		return h.o.BaseURL
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	// What a prefix that was stripped has been is in the line of the request.
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") { // the whole URL, as proxies are asked
		u, err := url.ParseRequestURI(r.RequestURI)
		if err != nil {
			return scheme + "://" + r.Host
		}
		path = u.EscapedPath()
	}
	prefix, _ := strings.CutSuffix(path, r.URL.EscapedPath())
	return scheme + "://" + r.Host + prefix
}

// discover serves the manifest (RAP-43).
func (h *Handler) discover(w http.ResponseWriter, r *http.Request, caller string, _ []byte) {
	m, err := h.o.Toolset.Manifest(r.Context(), caller)
	var body []byte
	if err == nil {
		own := *m
		own.Endpoint = h.base(r) + PathInvoke
		own.NeedsMigration = m.NeedsMigration && h.o.Migrate != nil
		body, err = own.Append(nil)
	}
	if err != nil {
		h.log.Warn("there is no manifest", "caller", caller, "error", err)
		refuse(w, http.StatusServiceUnavailable, "the toolset cannot be had now: "+complaint(err))
		return
	}
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) //nolint:gosec // it is JSON, for programs, and says so
}

// migrate answers whether a session's state has arrived elsewhere.
func (h *Handler) migrate(w http.ResponseWriter, r *http.Request, caller string, body []byte) {
	m, err := ParseMigration(body)
	switch {
	case !isJSON(r):
		refuse(w, http.StatusBadRequest, "the content type must be "+ContentType)
	case err != nil:
		refuse(w, http.StatusBadRequest, complaint(err))
	case h.o.Migrate == nil:
		refuse(w, http.StatusNotFound, "this toolset keeps nothing that has to be moved")
	default:
		if err := h.o.Migrate(r.Context(), caller, m); err != nil {
			refuse(w, statusOf(err), complaint(err))
			return
		}
		empty(w)
	}
}

// statusOf is how a failed migration is answered: as the server that failed did.
func statusOf(err error) int {
	refused, ok := errors.AsType[*MigrateError](err)
	switch {
	case ok && refused.Status >= 400 && refused.Status <= 599:
		return refused.Status
	case errors.Is(err, ErrNoMigration), errors.Is(err, belay.ErrNotFound):
		return http.StatusNotFound
	}
	return http.StatusBadGateway
}

// empty is the one answer to a cancel or close, whatever it did (RAP-33): that of
// a handler which writes nothing, 200 with Content-Length 0.
func empty(http.ResponseWriter) {}
