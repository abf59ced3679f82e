package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/egress"
	"github.com/belayhq/belay/internal/raptools"
	"github.com/belayhq/belay/rap"
	"github.com/belayhq/belay/rap/sigv4"
	"github.com/belayhq/belay/rap/spawn"
)

// CallbackPath is where tool servers answer, with one more segment: the token of a
// call (RAP-39). It is no path of a server below /rap/.
const CallbackPath = "/rap-callback"

// RAPOptions are what all RAP tool servers of a hub have in common. The zero value
// of any field means what its comment says.
type RAPOptions struct {
	// Callback is the URL at which tool servers reach this hub, without a path; empty:
	// it has none, and their tools cannot be called.
	Callback string
	// Store keeps live subscriptions over a restart; nil: nothing does.
	Store rap.Store
	// Addresses are where what a tool server has named may be posted to, beside its
	// own host.
	Addresses egress.Policy
}

// raps are the tool servers of a hub.
type raps struct {
	o       *Options
	runtime *rap.Runtime
	foreign *http.Client
	life    context.Context
	end     context.CancelCauseFunc

	mu     sync.Mutex
	relays map[string]*rap.Relay // by server; made when they are first asked for
}

// toolServer is a definition's tool server; the zero value is none.
type toolServer struct {
	server  rap.Server
	process *spawn.Server // nil: it is not started here
	toolset *raptools.Toolset
}

func newRaps(o *Options) *raps {
	r := &raps{o: o, foreign: o.RAP.Addresses.Client(egress.ClientOptions{Idle: time.Minute})}
	r.relays = map[string]*rap.Relay{}
	r.life, r.end = context.WithCancelCause(context.Background())
	ro := rap.RuntimeOptions{
		Tree: o.Tree, Store: o.RAP.Store, Log: o.Log,
		Events:   rap.Events{Subscription: rap.ForwardKept(r.life, r.foreign, o.Log)},
		AllowURL: func(u *url.URL) error { return o.RAP.Addresses.Check(u.String()) }, Foreign: r.foreign,
	}
	if o.RAP.Callback != "" {
		if base, err := rap.ParseBase(o.RAP.Callback); err == nil {
			ro.Callback = base.At(CallbackPath)
		} else {
			o.Log.Error("tool servers cannot answer, and so cannot be called", "callback_url", err)
		}
	}
	var err error
	if r.runtime, err = rap.NewRuntime(ro); err != nil {
		o.Log.Error("subscriptions that were live are lost", "error", err)
		ro.Store = nil
		r.runtime, _ = rap.NewRuntime(ro) // nothing else of it can be wrong
	}
	return r
}

// make makes the tool server of a definition, if it is one.
func (r *raps) make(d *Definition) (*toolServer, error) {
	c := d.RAP
	if c == nil {
		return nil, nil //nolint:nilnil // most definitions are none
	}
	client, err := r.client(c)
	if err != nil {
		return nil, fmt.Errorf("%w: server %q: %w", ErrDefinition, d.Name, err)
	}
	t := &toolServer{
		server: rap.Server{
			Name: d.Name, Base: c.URL, Client: client,
			KillProcess: c.KillServer && !d.Observe.Value && d.Enforce.Value != string(gateway.EnforceNever),
			Grace:       d.Grace.Value, KillAfter: d.KillAfter.Value,
			ConfirmAfter: c.ConfirmAfter.Value, CallTimeout: c.CallTimeout.Value,
		},
		toolset: &raptools.Toolset{Runtime: r.runtime, Tree: r.o.Tree, Server: d.Name, Log: r.o.Log.With("server", d.Name), Version: r.o.Version},
	}
	if g := c.SigV4; g != nil {
		t.server.Sign = &sigv4.Signer{Credentials: sigv4.Static(g.AccessKey, g.SecretKey, g.SessionToken), Region: g.Region, Service: g.Service}
	}
	if len(c.Command) > 0 {
		so := spawn.Options{Name: d.Name, Command: c.Command, Dir: c.Dir, Stderr: r.o.Stderr, Facts: d.factsFor(r.o), Cgroup: r.o.Cgroup, Log: r.o.Log}
		if len(c.Env) > 0 {
			so.Env = environ(c.Env)
		}
		t.process = spawn.New(so)
		t.server.Process = t.process
	}
	return t, nil
}

// client brings the server's credentials along.
func (r *raps) client(c *config.RAPServer) (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the standard library's
	t.MaxIdleConnsPerHost = 256
	if c.MTLS != nil {
		conf, err := c.MTLS.Client()
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig = conf
	}
	h := make(http.Header, len(c.Headers)+1)
	for name, value := range c.Headers {
		h.Set(name, value)
	}
	if c.Bearer != "" {
		h.Set("Authorization", "Bearer "+c.Bearer)
	}
	if len(h) == 0 {
		return &http.Client{Transport: t}, nil
	}
	return &http.Client{Transport: headed{t, h}}, nil
}

// headed adds headers to every request.
type headed struct {
	next   *http.Transport
	header http.Header
}

// RoundTrip implements [http.RoundTripper].
func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	maps.Copy(r.Header, h.header)
	return h.next.RoundTrip(r)
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (h headed) CloseIdleConnections() { h.next.CloseIdleConnections() }

// close ends what the tool server has going on here.
func (t *toolServer) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.server.Client.CloseIdleConnections()
	if t.process == nil {
		return nil
	}
	return t.process.Close(ctx)
}

// serve is the MCP server that the gateway speaks to.
func (t *toolServer) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	return t.toolset.Serve(ctx, in, out)
}

// set makes the runtime know exactly these servers: all of them hear of every
// cancel (RAP-27).
func (r *raps) set(all map[string]*endpoint, order []string) error {
	var list []rap.Server
	for _, name := range order {
		if t := all[name].rap; t != nil {
			list = append(list, t.server)
		}
	}
	return r.runtime.SetServers(list)
}

// Relay is the tool server of that name for runtimes of its own protocol; false if
// the server is none.
func (h *Hub) Relay(name string) (*rap.Relay, bool) {
	h.mu.RLock()
	e := h.current[name]
	h.mu.RUnlock()
	if e == nil || e.rap == nil {
		return nil, false
	}
	r := h.raps
	r.mu.Lock()
	defer r.mu.Unlock()
	relay := r.relays[name]
	if relay == nil {
		relay = rap.NewRelay(r.runtime, name)
		r.relays[name] = relay
	}
	return relay, true
}

// close stops what is left and waits as long as ctx allows.
func (r *raps) close(ctx context.Context, c belay.Cancellation) error {
	r.end(&c)
	err := r.runtime.Close(ctx, c)
	r.foreign.CloseIdleConnections()
	if errors.Is(err, belay.ErrClosed) {
		return nil
	}
	return err
}
