package rapdoor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp/httpserver"
	"github.com/belayhq/belay/rap"
)

// Prefix is the path below which toolsets are served.
const Prefix = "/rap/"

// Options are the settings of a [Door]. Tree, Servers and Authenticator are
// required.
type Options struct {
	Tree          *belay.Tree
	Authenticator rap.Authenticator // its callers are the owners of runs

	// Owner is the principal that a caller of the Authenticator is; nil: the caller
	// itself. Sessions and runs are the principal's, calls the caller's.
	Owner func(caller string) string

	// Servers finds a server that is offered. It is called for every request.
	Servers func(name string) (httpserver.Backend, bool)

	// Relay finds a server that speaks the protocol itself, so that nothing of it is
	// lost on the way through another. Nil: there is none.
	Relay func(name string) (Relay, bool)

	// BaseURL is how runtimes reach this process, without a path; "": as the Host of
	// the request says.
	BaseURL string

	Private, Plain, NoLoopback, Off bool // see [rap.HandlerOptions]

	Version string
	Log     *slog.Logger // nil: nothing is logged
}

// Relay is the toolset of a server that speaks the protocol itself.
type Relay interface {
	rap.Toolset
	Migrate(ctx context.Context, caller string, m rap.Migration) error
}

// Door serves toolsets. It is an http.Handler for paths below [Prefix]. Make one with
// [New] and end it with Close.
type Door struct {
	o   Options
	log *slog.Logger

	closing chan struct{} // closed when Close begins

	life context.Context // ends with Close, or when it gives up waiting
	end  context.CancelCauseFunc
	wg   sync.WaitGroup // of links' goroutines; Add under mu while !closed

	mu       sync.Mutex // guards the fields below
	closed   bool
	handlers map[handlerKey]*rap.Handler // one stays when its server goes
	links    map[linkKey]*link
	boards   map[boardKey]*board // of threads with calls
}

// handlerKey names a server of one of two kinds: after a change of the
// configuration its name may stand for the other.
type handlerKey struct {
	server  string
	relayed bool
}

// New returns a door that serves nothing before it is asked.
func New(o Options) (*Door, error) {
	if o.Tree == nil || o.Servers == nil || o.Authenticator == nil {
		return nil, fmt.Errorf("%w: a door needs a tree, servers and an authenticator", belay.ErrBadRequest)
	}
	if o.Owner == nil {
		o.Owner = func(caller string) string { return caller }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Door{o: o, log: o.Log, closing: make(chan struct{}), handlers: map[handlerKey]*rap.Handler{}, links: map[linkKey]*link{}, boards: map[boardKey]*board{}}
	d.life, d.end = context.WithCancelCause(context.Background())
	return d, nil
}

// answerWait is how long a stopped call waits for what its tool has: as long as the
// gateway does, and what the way takes.
const answerWait = 300 * time.Millisecond

// maxCalls bounds the calls of a server; half of them for one caller. A stopped call
// counts until its proof has come or was given up, which takes a while.
const maxCalls = 4096

// ownWait is how long the one result of a relayed call is waited for that its
// runtime has stopped (RAP-92, RAP-94).
const ownWait = 10 * time.Second

// ServeHTTP serves one request. Whether a server exists is said to nobody who has
// not shown who they are.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), Prefix)
	name, _, below := strings.Cut(rest, "/")
	if !ok || !below || name == "" || strings.Contains(name, "%") { // no configured name needs an escape
		w.WriteHeader(http.StatusNotFound)
		return
	}
	h, err := d.handler(name)
	if err != nil {
		d.nobody(w, r)
		return
	}
	http.StripPrefix(Prefix+name, h).ServeHTTP(w, r)
}

// handler is that of a server, made when it is first asked for. One whose server is
// gone takes no calls, since nothing prepares them, but its own are stopped there.
func (d *Door) handler(name string) (*rap.Handler, error) {
	var relay Relay
	key := handlerKey{server: name}
	if d.o.Relay != nil {
		relay, key.relayed = d.o.Relay(name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.handlers[key]; h != nil {
		return h, nil
	}
	if d.closed {
		return nil, belay.ErrClosed
	}
	o := rap.HandlerOptions{
		Authenticator: d.o.Authenticator, Tree: d.o.Tree, Server: name, Owner: d.o.Owner, PartialWait: answerWait,
		MaxCalls: maxCalls, MaxCallsPerCaller: maxCalls / 2,
		Private: d.o.Private, Plain: d.o.Plain, NoLoopback: d.o.NoLoopback, Off: d.o.Off, Log: d.log.With("server", name),
	}
	if d.o.BaseURL != "" {
		o.BaseURL = strings.TrimRight(d.o.BaseURL, "/") + Prefix + name
	}
	if key.relayed {
		o.Toolset, o.Migrate, o.OwnWait = relay, relay.Migrate, ownWait
	} else if _, ok := d.o.Servers(name); ok {
		o.Toolset = &toolset{d: d, name: name}
	} else {
		return nil, fmt.Errorf("%w: server %q", belay.ErrNotFound, name)
	}
	h, err := rap.NewHandler(o)
	if err == nil {
		d.handlers[key] = h
	}
	return h, err
}

// nobody answers for a server that there is not: the caller learns that only after
// it has shown who it is.
func (d *Door) nobody(w http.ResponseWriter, r *http.Request) {
	_, err := d.o.Authenticator.Authenticate(r, func() ([]byte, error) {
		return io.ReadAll(http.MaxBytesReader(w, r.Body, rap.MaxInvocation))
	})
	status, header := http.StatusNotFound, http.Header{}
	if special, ok := errors.AsType[interface {
		error
		Refusal() (int, http.Header)
	}](err); ok {
		status, header = special.Refusal()
	} else if err != nil {
		status = http.StatusUnauthorized
		header.Set("WWW-Authenticate", d.o.Authenticator.Challenge())
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
}

// Close refuses new calls, stops those that run, delivers their results, and ends
// the sessions. It waits for all of it as long as ctx allows, and may be called
// again. Servers are to be closed after it.
func (d *Door) Close(ctx context.Context, c belay.Cancellation) error {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.closing)
	}
	handlers := make([]*rap.Handler, 0, len(d.handlers))
	for _, h := range d.handlers {
		handlers = append(handlers, h)
	}
	d.mu.Unlock()
	errs := make([]error, len(handlers))
	var wg sync.WaitGroup
	for i, h := range handlers {
		wg.Go(func() { errs[i] = h.Close(ctx, c) })
	}
	wg.Wait()
	d.end(errClosed)
	done := make(chan struct{})
	go func() { defer close(done); d.wg.Wait() }()
	select {
	case <-done:
	case <-ctx.Done():
		return errors.Join(append([]error{fmt.Errorf("sessions have not ended: %w", context.Cause(ctx))}, errs...)...)
	}
	return errors.Join(errs...)
}

var errClosed = fmt.Errorf("%w: Belay is shutting down", belay.ErrClosed)
