package rap

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Server is one tool server of a runtime. Name and one of Base and Process are
// required.
type Server struct {
	// Name is for people and unique; it becomes the server of the runs.
	Name string
	// Base is the address below which the server is discovered, told of cancels and
	// closed threads, and asked to migrate (RAP-8).
	Base string
	// Process is a server that this program starts, in place of Base (RAP-95).
	Process Process

	// Client and Sign bring the credentials along: certificates and headers, or a
	// signature. Nil: none. The client's Timeout and CheckRedirect are not heeded.
	Client *http.Client
	Sign   Signer

	// KillProcess lets the Stop of a single call end the process, if being told has
	// not helped (RAP-95). It never does while other calls are in flight there.
	KillProcess bool
	// Grace and KillAfter are the times of that force; see [belay.Ladder].
	Grace, KillAfter time.Duration

	ConfirmAfter time.Duration // how long a sign of the end is waited for; default 10 s (RAP-94)
	CallTimeout  time.Duration // each call is stopped then, cause deadline (RAP-71); 0: never
}

// Process is a server that is started when it is needed. Safe for concurrent
// use.
type Process interface {
	// Start returns the running server, and starts one if there is none. It waits
	// for the start that another call has begun.
	Start(ctx context.Context) (Instance, error)
	// Current is the running server; nil: there is none.
	Current() Instance
}

// Instance is one process tree of a server. Safe for concurrent use.
type Instance interface {
	// Base is where it listens.
	Base() string
	// Done is closed when every process has ended; Evidence then says what that
	// proves about the work.
	Done() <-chan struct{}
	Evidence() belay.Evidence
	// Interrupt, Terminate and Kill are the steps of force on the whole tree, as
	// [belay.Interrupter] and so on name them.
	Interrupt(ctx context.Context) (*belay.Evidence, error)
	Terminate(ctx context.Context) (*belay.Evidence, error)
	Kill(ctx context.Context) (*belay.Evidence, error)
}

// RuntimeOptions are the settings of a [Runtime]. Tree and Callback are required; the
// zero value of any other field means its default.
type RuntimeOptions struct {
	Tree *belay.Tree

	// Callback is the public URL of the handler that [Runtime.ServeHTTP] is: tool
	// servers post to the paths below it. It may be given later, by SetCallback, but
	// before the first call.
	Callback string

	Servers []Server

	// Store keeps live subscriptions over a restart; nil: they end with the program.
	Store Store

	// Events take what calls and subscriptions of threads say that have no Events of
	// their own: those above all that were live before a restart.
	Events Events

	// Validate checks arguments against a tool's schema (RAP-55), package rap/schema has
	// one. Nil: only that they are an object; the server checks them anyway.
	Validate func(schema, arguments json.RawMessage) error

	// AllowURL says whether a URL that a server named, and that does not lead to the
	// server's own host, may be posted to: an endpoint, a response_url. Nil: none may.
	// Foreign, if set, is the client for those addresses; it has no credentials.
	AllowURL func(*url.URL) error
	Foreign  *http.Client

	NotifyTimeout time.Duration // for each server; default [DefaultNotifyTimeout]
	PostTimeout   time.Duration // for the acknowledgement of an invocation; default 10 s
	Log           *slog.Logger  // nil: nowhere
}

// Bounds of a [Runtime].
const (
	// MaxSubscriptions is how many live subscriptions one thread may have (RAP-79).
	MaxSubscriptions = 64
	// MaxPending is how many calls of one runtime may be pending.
	MaxPending = 100_000
	// KeepCallbacks is how long the callback URL of an ended call is remembered, so
	// that a late message is told from a stranger's (RAP-41).
	KeepCallbacks = 10 * time.Minute

	maxEnded       = 10_000
	maxThreads     = 100_000
	defaultPost    = 10 * time.Second
	defaultConfirm = belay.DefaultConfirmAfter
)

// Runtime is the runtime side of the protocol: it discovers tool servers,
// invokes their tools as runs, takes their callbacks, and stops them. It is the
// http.Handler of its callback URLs. All methods are safe for concurrent use;
// it must be ended with Close.
//
// A call is stopped by the cancellation of its run, by whatever door. Then, in
// this order (RAP-90): the outcome is recorded, whoever waits for the call is
// settled, its prompts are dismissed, and every server is told at the same time,
// each for itself, once. Nothing of that waits for any server.
type Runtime struct {
	o      RuntimeOptions
	log    *slog.Logger
	notify *Notifier
	life   context.Context
	end    context.CancelCauseFunc
	crew   crew // for what posts invocations

	draining chan struct{} // closed when Close begins

	mu       sync.Mutex // guards the fields below; never held together with a thread's
	callback string     // without a slash at its end
	path     string     // of callback
	servers  map[string]*server
	order    []*server // as they were configured
	threads  map[string]*Thread
	calls    map[tokenKey]*slot // by the digest of the callback token; of ended ones for a while
	subs     map[tokenKey]*Subscription
	untold   map[chan struct{}]struct{} // of Stops that are not yet handed to all deliveries
	ended    endedCalls
	pending  int
	closed   bool
	wg       sync.WaitGroup // of goroutines; Add under mu while !closed
}

// slot is what a callback URL leads to. Of a call that has its result there is only
// enough left to know a duplicate: results may be large.
type slot struct {
	th   *Thread
	id   string
	rate meter
	call *Pending // nil: it has its result; guarded by Runtime.mu
}

// server is a [Server] made ready.
type server struct {
	Server
	base Base // of one that is not started here
	link link

	mu       sync.Mutex // guards the fields below
	cached   *Manifest  // the last good one
	instance Instance   // whose manifest it is
	pending  map[*Pending]struct{}
	wake     chan struct{} // closed when a call leaves pending; nil: nobody waits for that
}

// NewRuntime returns a runtime. Subscriptions in the store are live again. Errors
// wrap [ErrMalformed], or are the store's.
func NewRuntime(o RuntimeOptions) (*Runtime, error) {
	if o.Tree == nil {
		return nil, fmt.Errorf("%w: a runtime needs a tree", ErrMalformed)
	}
	if o.PostTimeout <= 0 {
		o.PostTimeout = defaultPost
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	rt := &Runtime{
		o: o, log: o.Log,
		servers: map[string]*server{}, threads: map[string]*Thread{},
		calls: map[tokenKey]*slot{}, subs: map[tokenKey]*Subscription{}, untold: map[chan struct{}]struct{}{}, draining: make(chan struct{}),
	}
	rt.crew = newCrew(rt.draining)
	rt.life, rt.end = context.WithCancelCause(context.Background())
	var err error
	if rt.notify, err = NewNotifier(NotifierOptions{Timeout: o.NotifyTimeout, Log: o.Log}); err != nil {
		return nil, err
	}
	rt.notify.list = rt.targets
	if o.Callback != "" {
		if err := rt.SetCallback(o.Callback); err != nil {
			return nil, err
		}
	}
	if err := rt.SetServers(o.Servers); err != nil {
		return nil, err
	}
	return rt, rt.restore()
}

// SetCallback says under which URL tool servers reach the runtime, for calls
// from now on. An error wraps [ErrMalformed] and changes nothing.
func (rt *Runtime) SetCallback(address string) error {
	base, err := ParseBase(address)
	if err != nil {
		return fmt.Errorf("the callback URL: %w", err)
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.callback, rt.path = base.String(), strings.TrimRight(base.url.Path, "/")
	return nil
}

// SetServers replaces the servers; those that are the same keep everything. Calls in
// flight on one that is gone go on, and it is still told of their cancels. An
// error wraps [ErrMalformed] and changes nothing.
func (rt *Runtime) SetServers(list []Server) error {
	if len(list) > MaxTargets {
		return fmt.Errorf("%w: %d servers, at most %d can be had", ErrMalformed, len(list), MaxTargets)
	}
	next := make(map[string]*server, len(list))
	order := make([]*server, 0, len(list))
	for i := range list {
		s, err := newServer(&list[i])
		if err != nil {
			return err
		}
		if next[s.Name] != nil {
			return fmt.Errorf("%w: there are two servers %q", ErrMalformed, s.Name)
		}
		next[s.Name] = s
		order = append(order, s)
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return fmt.Errorf("set servers: %w", belay.ErrClosed)
	}
	for i, s := range order {
		if before := rt.servers[s.Name]; before != nil && before.same(s) {
			next[s.Name], order[i] = before, before
		}
	}
	rt.servers, rt.order = next, order
	return nil
}

// same reports whether two servers are reached alike.
func (s *server) same(o *server) bool {
	return s.Base == o.Base && s.Process == o.Process && s.Client == o.Client && sameSigner(s.Sign, o.Sign) &&
		s.KillProcess == o.KillProcess && s.Grace == o.Grace && s.KillAfter == o.KillAfter && s.ConfirmAfter == o.ConfirmAfter && s.CallTimeout == o.CallTimeout
}

func sameSigner(a, b Signer) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return reflect.TypeOf(a).Comparable() && a == b
}

func newServer(o *Server) (*server, error) {
	s := &server{Server: *o, link: newLink(o.Client, o.Sign), pending: map[*Pending]struct{}{}}
	switch {
	case s.Name == "":
		return nil, fmt.Errorf("%w: a server needs a name", ErrMalformed)
	case (s.Base == "") == (s.Process == nil):
		return nil, fmt.Errorf("%w: server %q needs either a base URL or a process", ErrMalformed, s.Name)
	}
	if s.ConfirmAfter <= 0 {
		s.ConfirmAfter = defaultConfirm
	}
	var err error
	if s.Base != "" {
		if s.base, err = ParseBase(s.Base); err != nil {
			return nil, fmt.Errorf("server %q: %w", s.Name, err)
		}
	}
	return s, nil
}

// address is where the server can be reached now; false for a process that does
// not run.
func (s *server) address() (Base, bool) {
	if s.Process == nil {
		return s.base, true
	}
	in := s.Process.Current()
	if in == nil {
		return Base{}, false
	}
	base, err := ParseBase(in.Base())
	return base, err == nil
}

func (s *server) target() (target, bool) {
	base, ok := s.address()
	return readyTarget(s.Name, base, s.link), ok
}

// targets are all servers that can be told something.
func (rt *Runtime) targets() []target {
	rt.mu.Lock()
	order := rt.order
	rt.mu.Unlock()
	list := make([]target, 0, len(order))
	for _, s := range order {
		if t, ok := s.target(); ok {
			list = append(list, t)
		}
	}
	return list
}

// targetsWith are all servers, and one that may have left the configuration
// since its call began.
func (rt *Runtime) targetsWith(own *server) []target {
	list := rt.targets()
	rt.mu.Lock()
	here := own == nil || rt.servers[own.Name] != nil && rt.servers[own.Name].Base == own.Base
	rt.mu.Unlock()
	if !here {
		if t, ok := own.target(); ok {
			list = append(list, t)
		}
	}
	return list
}

// spawn starts a goroutine that Close waits for; false once closed.
func (rt *Runtime) spawn(f func()) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return false
	}
	rt.crew.run(f, rt.wg.Go)
	return true
}

// handOver waits, before the notifier is closed, for Stops whose callers are settled
// already: the servers are still to be told.
func (rt *Runtime) handOver() {
	rt.mu.Lock()
	told := make([]<-chan struct{}, 0, len(rt.untold))
	for ch := range rt.untold {
		told = append(told, ch)
	}
	rt.mu.Unlock()
	awaitAll(told)
}

// Close stops every pending call with c (cause shutdown unless it says another),
// tells the servers that their threads are over, and waits for all goroutines,
// as long as ctx allows. Live subscriptions of durable threads stay in the store.
func (rt *Runtime) Close(ctx context.Context, c belay.Cancellation) error {
	if c.Cause == "" {
		c.Cause = belay.CauseShutdown
	}
	if c.Stop.IsZero() {
		c.Stop = belay.NewStopID()
	}
	rt.mu.Lock()
	threads := make([]*Thread, 0, len(rt.threads))
	for _, th := range rt.threads {
		threads = append(threads, th)
	}
	if !rt.closed {
		rt.closed = true
		close(rt.draining)
	}
	rt.mu.Unlock()
	for _, th := range threads {
		th.shut(c, true)
	}
	rt.handOver()
	err := rt.notify.Close(ctx) // first: nothing else may end under a cancel
	rt.end(&c)
	done := make(chan struct{})
	go func() { defer close(done); rt.wg.Wait() }()
	select {
	case <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return err
}
