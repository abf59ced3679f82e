package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/aggregate"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
	"github.com/belayhq/belay/proc"
)

// Options are what all servers of a hub have in common. Tree and Log are
// required; the zero value of any other field means its default.
type Options struct {
	Tree    *belay.Tree
	Parent  belay.RunID  // the run in another process below which sessions hang
	Owner   string       // of the runs of local callers
	Log     *slog.Logger // of the hub, its sessions and transports
	Facts   *peers.Facts // nil: the built-in ones
	Cgroup  proc.CgroupMode
	Stderr  *os.File                 // of the servers; nil: Belay's own
	Ticket  func(belay.RunID) string // see [gateway.Config]
	Idle    func()                   // see [gateway.Config]
	Version string                   // for /healthz

	// Identify, AllowedHosts and AllowedOrigins are those of
	// httpserver.Config; nil: everybody is the Owner.
	Identify       func(*http.Request) (httpserver.Identity, error)
	AllowedHosts   []string
	AllowedOrigins []string

	// Gate, Placer, Asker, Counter, PassCancels, NameRuns and Trace are those of
	// [gateway.Config], of every session.
	Gate        gateway.Gate
	Placer      gateway.Placer
	Asker       gateway.Asker
	Counter     gateway.Counter
	PassCancels bool
	NameRuns    bool
	Trace       bool

	// RAP is what all tool servers of the Reactive Agent Protocol have in common.
	RAP RAPOptions

	// Worker is the command line that serves scripted tools on stdio, without their
	// folders; nil: this program's own ("belay script-worker").
	Worker []string

	// Ready says whether Belay can do its work, for /readyz: nil, or an error whose
	// text names the problem and nothing secret. It is given 2 s. Nil: always.
	Ready func(context.Context) error

	open func(context.Context, gateway.Config, mcp.Outlet) (opened, error) // nil: gateway.OpenTo
}

// Hub serves a changing set of servers. It is an http.Handler. All methods may
// be called concurrently; it must be ended with Close.
type Hub struct {
	o      Options
	mux    *http.ServeMux
	below  []prefixed // what Handle was given for all below a path, longest first
	joined *joined    // all servers as one
	raps   *raps      // tool servers of another protocol
	guard  httpserver.Guard

	apply sync.Mutex // held by Apply and by the beginning of Close; before mu

	mu      sync.RWMutex       // guards the fields below
	order   []string           // names, as they were defined
	members []aggregate.Member // in that order; never changed, only replaced
	current map[string]*endpoint
	leaving map[string][]*endpoint // by name; each removes itself when it has left
	closing bool
	wg      sync.WaitGroup // of leaving endpoints; Add under mu while !closing
}

func (o Options) withDefaults() Options {
	if o.Facts == nil {
		o.Facts = &peers.Facts{}
	}
	if o.Worker == nil {
		o.Worker = ownWorker()
	}
	if o.open == nil {
		o.open = func(ctx context.Context, c gateway.Config, out mcp.Outlet) (opened, error) {
			s, err := gateway.OpenTo(ctx, c, out)
			if err != nil {
				return nil, err // not a nil *Session in an interface
			}
			return s, nil
		}
	}
	return o
}

// New returns a hub without servers.
func New(o Options) *Hub {
	o = o.withDefaults()
	guard := httpserver.Guard{AllowedHosts: o.AllowedHosts, AllowedOrigins: o.AllowedOrigins}
	h := &Hub{o: o, mux: http.NewServeMux(), guard: guard, current: map[string]*endpoint{}, leaving: map[string][]*endpoint{}}
	h.joined = newJoined(&h.o, h.list)
	h.raps = newRaps(&h.o)
	h.Handle(CallbackPath+"/", h.raps.runtime)
	h.mux.Handle("/mcp", h.joined.handler)
	h.mux.HandleFunc("/mcp/{server}", h.serveServer)
	h.mux.HandleFunc("/mcp/{server}/{rest...}", h.serveServer)
	h.mux.HandleFunc("GET /healthz", h.serveHealth)
	h.mux.HandleFunc("GET /readyz", h.serveReady)
	h.mux.HandleFunc("/", h.serveNothing)
	return h
}

// Handle serves a pattern of [http.ServeMux] that the hub does not serve itself.
// It panics if the pattern is taken, and is called before anything is served.
// A path that ends in a slash is the prefix of all below it, and gets requests
// with their paths as they were sent. Requests get there only if their Host and
// Origin are served, as everywhere (see [httpserver.Guard]); nobody has asked who
// sent them.
func (h *Hub) Handle(pattern string, handler http.Handler) {
	h.mux.Handle(pattern, handler)
	if strings.HasPrefix(pattern, "/") && strings.HasSuffix(pattern, "/") {
		h.below = append(h.below, prefixed{pattern, handler})
		slices.SortStableFunc(h.below, func(x, y prefixed) int { return len(y.prefix) - len(x.prefix) })
	}
}

// prefixed is a handler of all below a path.
type prefixed struct {
	prefix  string // ends in a slash
	handler http.Handler
}

// route is who serves a path. A ServeMux would redirect what has two slashes, or
// dots, to another path; here that is another path, at which nothing is (ORC: a
// raw slash in an id is 404, and nobody is redirected).
func (h *Hub) route(path string) http.Handler {
	for _, b := range h.below {
		if strings.HasPrefix(path, b.prefix) || path == b.prefix[:len(b.prefix)-1] {
			return b.handler
		}
	}
	if untidy(path) {
		return http.HandlerFunc(h.serveNothing)
	}
	return h.mux
}

// untidy reports whether a ServeMux would change the path.
func untidy(path string) bool {
	return strings.Contains(path, "//") || strings.Contains(path, "/./") || strings.Contains(path, "/../") ||
		strings.HasSuffix(path, "/.") || strings.HasSuffix(path, "/..")
}

// ServeHTTP serves one exchange. What a foreign page could have sent gets no
// further than here, whatever it asks for (ORC, DESIGN section 8).
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.guard.Check(r); err != nil {
		turnAway(w, r, err)
		return
	}
	if r.ContentLength != 0 {
		// Whoever reads the body sets a limit of its own and takes it away. Where
		// nobody does, net/http reads some of it before it answers.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadWait))
	}
	h.route(r.URL.EscapedPath()).ServeHTTP(w, r)
}

// unreadWait is how long a body may take that nobody wants: else anybody could
// keep connections open for ever by announcing one.
const unreadWait = 5 * time.Second

// Changes says what an Apply did, by names.
type Changes struct {
	Added, Changed, Removed []string
}

// None reports whether nothing is different.
func (c Changes) None() bool { return len(c.Added)+len(c.Changed)+len(c.Removed) == 0 }

// String is for people: "added a, b; removed c".
func (c Changes) String() string {
	var parts []string
	for _, p := range []struct {
		verb  string
		names []string
	}{{"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}} {
		if len(p.names) > 0 {
			parts = append(parts, p.verb+" "+strings.Join(p.names, ", "))
		}
	}
	if len(parts) == 0 {
		return "nothing has changed"
	}
	return strings.Join(parts, "; ")
}

// Apply makes the hub serve exactly these servers, from now on for new sessions;
// see the package comment for those that are there. It does not wait for
// sessions that have to end. Nothing is changed when it returns an error, which
// matches [ErrDefinition], or [belay.ErrClosed] after Close has begun.
func (h *Hub) Apply(defs []Definition) (Changes, error) {
	if err := check(defs); err != nil {
		return Changes{}, err
	}
	h.apply.Lock()
	defer h.apply.Unlock()
	var done Changes
	next := make(map[string]*endpoint, len(defs))
	order := make([]string, 0, len(defs))
	var left []*endpoint
	for i := range defs {
		d := &defs[i]
		order = append(order, d.Name)
		is := h.current[d.Name] // Apply alone writes it
		switch {
		case is == nil:
			done.Added = append(done.Added, d.Name)
		case is.def.equal(d):
			next[d.Name] = is
			continue
		default:
			done.Changed = append(done.Changed, d.Name)
			left = append(left, is)
		}
		e := newEndpoint(&h.o, *d, Path(d.Name))
		var err error
		if e.rap, err = h.raps.make(d); err != nil {
			return Changes{}, err
		}
		next[d.Name] = e
	}
	for _, name := range h.order {
		if next[name] == nil {
			done.Removed = append(done.Removed, name)
			left = append(left, h.current[name])
		}
	}
	if err := h.raps.set(next, order); err != nil {
		return Changes{}, fmt.Errorf("%w: %w", ErrDefinition, err)
	}
	if err := h.install(next, order, left); err != nil {
		return Changes{}, err
	}
	if !done.None() {
		h.joined.backend.Changed() // it asks for the list, which needs the lock
	}
	return done, nil
}

// install puts new endpoints in place of those that leave.
func (h *Hub) install(next map[string]*endpoint, order []string, left []*endpoint) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return fmt.Errorf("%w: the hub is being closed", belay.ErrClosed)
	}
	h.current, h.order = next, order
	h.members = make([]aggregate.Member, 0, len(order))
	for _, name := range order {
		h.members = append(h.members, aggregate.Member{Name: name, Backend: next[name]})
	}
	for _, e := range left {
		h.leaving[e.def.Name] = append(h.leaving[e.def.Name], e)
		h.wg.Go(func() { h.leave(e) })
	}
	return nil
}

// leave waits until an endpoint has no more to do, and forgets it.
func (h *Hub) leave(e *endpoint) {
	e.leave()
	h.mu.Lock()
	defer h.mu.Unlock()
	name := e.def.Name
	rest := slices.DeleteFunc(h.leaving[name], func(o *endpoint) bool { return o == e })
	if h.leaving[name] = rest; len(rest) == 0 {
		delete(h.leaving, name)
	}
}

// Backend is that of a server as it is defined now, for doors of other protocols:
// what is called through it is called like everybody's.
func (h *Hub) Backend(name string) (httpserver.Backend, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	e := h.current[name]
	if e == nil || h.closing {
		return nil, false
	}
	return e, true
}

// Close stops everything with c, cause shutdown unless it says another, and
// waits until it is over or ctx is. New exchanges are refused from the first
// moment on. It may be called again.
func (h *Hub) Close(ctx context.Context, c belay.Cancellation) error {
	if c.Cause == "" {
		c.Cause = belay.CauseShutdown
	}
	h.apply.Lock() // no endpoint is made from here on
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	all := h.endpoints()
	h.apply.Unlock()
	errs := make([]error, len(all)+2)
	var wg sync.WaitGroup
	for i, e := range all {
		wg.Go(func() { errs[i] = e.close(ctx, c) })
	}
	wg.Go(func() { errs[len(all)] = h.joined.close(ctx, c) })
	wg.Wait()
	errs[len(all)+1] = h.raps.close(ctx, c) // when the sessions have closed their threads
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	h.wg.Wait() // every endpoint is closed, so that those that leave have left
	return nil
}

// serveServer gives an exchange to the endpoint of its path: to a leaving one
// only what belongs to a session there.
func (h *Hub) serveServer(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("server")
	h.mu.RLock()
	e, leaving := h.current[name], h.leaving[name]
	for _, l := range leaving {
		if l.handler.Has(r) {
			e = l
			break
		}
	}
	closing := h.closing
	if e != nil {
		e.exchanges.Add(1) // under the lock under which it begins to leave
		defer e.exchanges.Add(-1)
	}
	h.mu.RUnlock()
	switch {
	case e != nil:
		e.handler.ServeHTTP(w, r)
	case closing:
		refuse(w, http.StatusServiceUnavailable, "Belay is shutting down")
	default:
		h.serveNothing(w, r)
	}
}

// serveNothing says what there is instead.
func (h *Hub) serveNothing(w http.ResponseWriter, _ *http.Request) {
	h.mu.RLock()
	paths := make([]string, 0, len(h.order))
	for _, name := range h.order {
		paths = append(paths, Path(name))
	}
	h.mu.RUnlock()
	text := "nothing is served at this path; there are no servers"
	if len(paths) > 0 {
		text = "nothing is served at this path; there is " + strings.Join(paths, ", ") + ", and all of them as one at " + JoinedPath
	}
	refuse(w, http.StatusNotFound, text)
}
