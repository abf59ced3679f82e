package rapdoor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	// Relay finds a server that speaks the protocol itself: its handler gets the
	// requests as they are, with their path below the server, and the caller in
	// their context ([CallerFrom]). Nil: there is none.
	Relay func(name string) (http.Handler, bool)

	// BaseURL is how runtimes reach this process, without a path; "": as the Host of
	// the request says.
	BaseURL string

	Private, Plain, NoLoopback, Off bool // see [rap.HandlerOptions]

	Version string
	Log     *slog.Logger // nil: nothing is logged
}

// Door serves toolsets. It is an http.Handler for paths below [Prefix]. Make one with
// [New] and end it with Close.
type Door struct {
	o   Options
	log *slog.Logger

	life context.Context // ends with Close, or when it gives up waiting
	end  context.CancelCauseFunc
	wg   sync.WaitGroup // of links' goroutines; Add under mu while !closed

	mu       sync.Mutex // guards the fields below
	closed   bool
	handlers map[string]*rap.Handler // by server; one stays when its server goes
	links    map[linkKey]*link
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
	d := &Door{o: o, log: o.Log, handlers: map[string]*rap.Handler{}, links: map[linkKey]*link{}}
	d.life, d.end = context.WithCancelCause(context.Background())
	return d, nil
}

// answerWait is how long a stopped call waits for what its tool has: as long as the
// gateway does, and what the way takes.
const answerWait = 300 * time.Millisecond

// callerKey is the context's key of who sent a request.
type callerKey struct{}

// CallerFrom is who sent a request that [Options.Relay]'s handler serves.
func CallerFrom(ctx context.Context) string {
	who, _ := ctx.Value(callerKey{}).(string)
	return who
}

// ServeHTTP serves one request. Whether a server exists is said to nobody who has
// not shown who they are.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), Prefix)
	name, path, below := strings.Cut(rest, "/")
	if !ok || !below || name == "" || strings.Contains(name, "%") { // no configured name needs an escape
		w.WriteHeader(http.StatusNotFound)
		return
	}
	prefix := Prefix + name
	if d.o.Relay != nil {
		if to, ok := d.o.Relay(name); ok {
			d.relay(w, r, to, prefix)
			return
		}
	}
	h, err := d.handler(name)
	if err != nil {
		// The same answers as where there is a handler, up to the credentials.
		h = nil
	}
	if h == nil {
		d.nobody(w, r, "/"+path)
		return
	}
	http.StripPrefix(prefix, h).ServeHTTP(w, r)
}

// handler is that of a server, made when it is first asked for. One whose server is
// gone takes no calls, since nothing prepares them, but its own are stopped there.
func (d *Door) handler(name string) (*rap.Handler, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.handlers[name]; h != nil {
		return h, nil
	}
	if d.closed {
		return nil, belay.ErrClosed
	}
	if _, ok := d.o.Servers(name); !ok {
		return nil, fmt.Errorf("%w: server %q", belay.ErrNotFound, name)
	}
	base := ""
	if d.o.BaseURL != "" {
		base = strings.TrimRight(d.o.BaseURL, "/") + Prefix + name
	}
	h, err := rap.NewHandler(rap.HandlerOptions{
		Toolset: &toolset{d: d, name: name}, Authenticator: d.o.Authenticator, Tree: d.o.Tree, Server: name,
		Owner: d.o.Owner, BaseURL: base, PartialWait: answerWait,
		Private: d.o.Private, Plain: d.o.Plain, NoLoopback: d.o.NoLoopback, Off: d.o.Off,
		Log: d.log.With("server", name),
	})
	if err == nil {
		d.handlers[name] = h
	}
	return h, err
}

// nobody answers for a server that there is not: the caller learns that only after
// it has shown who it is.
func (d *Door) nobody(w http.ResponseWriter, r *http.Request, _ string) {
	if _, ok := d.authenticate(w, r); ok {
		w.WriteHeader(http.StatusNotFound)
	}
}

// relay hands a request to a server that speaks the protocol itself.
func (d *Door) relay(w http.ResponseWriter, r *http.Request, to http.Handler, prefix string) {
	caller, ok := d.authenticate(w, r)
	if !ok {
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, caller))
	http.StripPrefix(prefix, to).ServeHTTP(w, r)
}

// authenticate finds out who sent a request for which no Handler does it, and
// answers it if that fails. The body can be read again.
func (d *Door) authenticate(w http.ResponseWriter, r *http.Request) (string, bool) {
	caller, err := d.o.Authenticator.Authenticate(r, func() ([]byte, error) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rap.MaxInvocation))
		r.Body = io.NopCloser(bytes.NewReader(body))
		return body, err
	})
	if err == nil && caller != "" {
		return caller, true
	}
	status := http.StatusUnauthorized
	if special, ok := errors.AsType[interface {
		error
		Refusal() (int, http.Header)
	}](err); ok {
		var header http.Header
		status, header = special.Refusal()
		for name, values := range header {
			w.Header()[name] = values
		}
	} else {
		w.Header().Set("WWW-Authenticate", d.o.Authenticator.Challenge())
	}
	w.WriteHeader(status)
	return "", false
}

// Close refuses new calls, stops those that run, delivers their results, and ends
// the sessions. It waits for all of it as long as ctx allows, and may be called
// again. Servers are to be closed after it.
func (d *Door) Close(ctx context.Context, c belay.Cancellation) error {
	d.mu.Lock()
	d.closed = true
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
		errs = append(errs, fmt.Errorf("sessions have not ended: %w", context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

var errClosed = fmt.Errorf("%w: Belay is shutting down", belay.ErrClosed)
