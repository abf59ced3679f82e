package serve

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// endpoint is one definition being served. It implements httpserver.Backend.
type endpoint struct {
	o       *Options
	def     Definition
	handler *httpserver.Handler
	rap     *toolServer // nil: it is none

	tasks  gateway.TaskRegistry // whose the tasks are that its sessions make
	places gateway.Places       // of the calls of all its sessions

	exchanges atomic.Int64 // that were given to handler and are not over

	mu       sync.Mutex
	sessions map[*held]struct{} // open ones, shared ones included; each removes itself
	shared   map[string]*shared // by principal
	legacy   error              // the server does not speak 2026-07-28; nil: it may
	asked    time.Time          // when that was found out
	failed   bool               // the last attempt to open a session failed
	closed   bool
	closing  chan struct{}  // closed when closed is set
	wg       sync.WaitGroup // of sessions' keepers; Add under mu while !closed
}

// shared is the one session of all modern callers of a principal, or the
// attempt to open it.
type shared struct {
	ready   chan struct{} // closed when session or err is set
	session *held
	err     error
}

// overLocked reports whether the session takes nothing more.
func (sh *shared) overLocked() bool {
	if sh == nil || sh.session == nil {
		return false
	}
	select {
	case <-sh.session.opened.Ended():
		return true
	default:
		return false
	}
}

// Bounds and times of shared sessions.
const (
	maxShared = 1000            // principals at once, per server
	legacyFor = 5 * time.Minute // before a server is asked again whether it speaks 2026-07-28
)

// newEndpoint is a definition that is served at a path.
func newEndpoint(o *Options, def Definition, path string) *endpoint {
	e := &endpoint{
		o: o, def: def,
		sessions: map[*held]struct{}{}, shared: map[string]*shared{}, closing: make(chan struct{}),
	}
	e.handler = httpserver.New(def.handler(o, e, path))
	return e
}

var errLeaving = errors.New("this server is not served any more")

// Open implements [httpserver.Backend].
func (e *endpoint) Open(ctx context.Context, who httpserver.Caller, out mcp.Outlet) (httpserver.Session, error) {
	s, err := e.open(ctx, who, out, false)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// open opens a session and starts its keeper.
func (e *endpoint) open(ctx context.Context, who httpserver.Caller, out mcp.Outlet, modern bool) (*held, error) {
	cfg := e.def.gateway(e.o)
	cfg.Modern, cfg.Tasks, cfg.Places = modern, &e.tasks, &e.places
	if e.rap != nil {
		cfg.Serve, cfg.TellRun = e.rap.serve, true
		cfg.Ladder.ConfirmAfter = e.rap.server.ConfirmAfter // as long as for the call below
		for name, p := range cfg.Tools {
			p.Ladder.ConfirmAfter = e.rap.server.ConfirmAfter
			cfg.Tools[name] = p
		}
	}
	if e.o.Identify != nil && who.Principal != "" {
		cfg.Owner = who.Principal
	}
	in, err := e.o.open(ctx, cfg, out)
	e.mu.Lock()
	e.failed = err != nil
	if err != nil {
		e.mu.Unlock()
		return nil, err
	}
	s := &held{opened: in, e: e, owner: cfg.Owner, modern: modern, part: who.Part, over: make(chan struct{})}
	s.use()
	if e.closed {
		e.mu.Unlock()
		_ = s.opened.Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: errLeaving.Error()})
		return nil, errLeaving
	}
	e.sessions[s] = struct{}{}
	idle := time.Duration(0)
	if modern {
		idle = e.def.Idle.Value
	}
	e.wg.Go(func() { s.keep(idle) })
	e.mu.Unlock()
	return s, nil
}

// Shared implements [httpserver.Backend]. The first caller of a principal opens
// the session; others wait for it.
func (e *endpoint) Shared(ctx context.Context, who httpserver.Caller) (httpserver.Session, error) {
	e.mu.Lock()
	sh := e.shared[who.Principal]
	if sh.overLocked() { // what was stopped takes a moment to end, for which nobody has to wait
		e.forgetLocked(sh)
		sh = nil
	}
	if sh == nil {
		if err := e.mayShareLocked(); err != nil {
			e.mu.Unlock()
			return nil, err
		}
		sh = &shared{ready: make(chan struct{})}
		e.shared[who.Principal] = sh
		e.wg.Go(func() { e.openShared(sh, who) })
	}
	if sh.session != nil {
		sh.session.use() // under the lock under which an idle one is given up
	}
	e.mu.Unlock()
	select {
	case <-sh.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if sh.err != nil {
		return nil, sh.err
	}
	return sh.session, nil
}

// mayShareLocked refuses a new shared session.
func (e *endpoint) mayShareLocked() error {
	switch {
	case e.closed:
		return errLeaving
	case e.legacy != nil && time.Since(e.asked) < legacyFor:
		return e.legacy
	case len(e.shared) >= maxShared:
		return httpserver.ErrBusy
	}
	return nil
}

// openShared opens a shared session for whoever waits for it. It does not
// depend on the caller who asked first: others may wait, too.
func (e *endpoint) openShared(sh *shared, who httpserver.Caller) {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		select {
		case <-e.closing:
			end(errLeaving)
		case <-ctx.Done():
		}
	}()
	s, err := e.open(ctx, who, nowhere{}, true)
	end(nil)
	<-stop
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(sh.ready)
	if errors.Is(err, gateway.ErrEra) {
		err = &httpserver.EraError{Supported: legacyRevisions}
		e.legacy, e.asked = err, time.Now()
		e.failed = false // it is well; it is only old
	}
	sh.session, sh.err = s, err
	if err != nil {
		e.forgetLocked(sh)
		return
	}
	s.shared = sh
	if _, open := e.sessions[s]; !open { // it has ended already
		e.forgetLocked(sh)
	}
}

// legacyRevisions are named to a modern caller of a server that is not.
var legacyRevisions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// forgetLocked makes the next caller open a session anew.
func (e *endpoint) forgetLocked(sh *shared) {
	for who, other := range e.shared {
		if other == sh {
			delete(e.shared, who)
		}
	}
}

// remove forgets a session that is over.
func (e *endpoint) remove(s *held) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, s)
	if s.shared != nil {
		e.forgetLocked(s.shared)
	}
}

// giveUpIdle takes a shared session that has been idle out of use, and reports
// whether it did: nobody can get it any more then.
func (e *endpoint) giveUpIdle(s *held, idle time.Duration) bool {
	if s.InFlight() > 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.quiet() < idle {
		return false
	}
	if s.shared != nil {
		e.forgetLocked(s.shared)
	}
	return true
}

// Times of an endpoint that leaves.
const (
	leaveTick  = 50 * time.Millisecond
	leaveQuiet = time.Second // a shared session may have just been given to an exchange
	leaveLimit = 5 * time.Second
)

// leave ends each session as soon as no call is in flight in it, and all that is
// left after drain. Exchanges that came before it began, of which some may still
// be on their way to a session, are served.
func (e *endpoint) leave() {
	c := belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: "the definition of server " + e.def.Name + " was changed or removed"}
	limit := time.NewTimer(e.def.Drain.Value)
	defer limit.Stop()
	tick := time.NewTicker(leaveTick)
	defer tick.Stop()
	began := time.Now()
	for more := true; more; {
		select {
		case <-e.closing:
			more = false
		case <-limit.C:
			more = false
			e.o.Log.Warn("calls of a server that was changed or removed are stopped: drain is over", "server", e.def.Name, "drain", e.def.Drain.Value)
		case <-tick.C:
			// /mcp hands over without an exchange, from a list that it has just read.
			more = e.endQuiet(c) || e.exchanges.Load() > 0 || time.Since(began) < leaveQuiet
		}
	}
	ctx, end := context.WithTimeoutCause(context.Background(), leaveLimit, &c)
	defer end()
	if err := e.close(ctx, c); err != nil {
		e.o.Log.Warn("a server that was changed or removed has not ended", "server", e.def.Name, "error", err)
	}
}

// endQuiet ends the sessions in which nothing is in flight, and reports whether
// there are others.
func (e *endpoint) endQuiet(c belay.Cancellation) (more bool) {
	e.mu.Lock()
	all := make(map[*held]bool, len(e.sessions)) // whether it is a shared one
	for s := range e.sessions {
		all[s] = s.shared != nil
	}
	opening := len(e.shared)
	for _, sh := range e.shared {
		if sh.session != nil {
			opening--
		}
	}
	e.mu.Unlock()
	if len(all) == 0 {
		return opening > 0
	}
	var wg sync.WaitGroup
	for s, shared := range all {
		if s.InFlight() > 0 || shared && s.quiet() < leaveQuiet {
			more = true
			continue
		}
		wg.Go(func() { _ = s.Close(context.Background(), c) })
	}
	wg.Wait()
	return more
}

// close stops what is left and waits for it, as long as ctx allows.
func (e *endpoint) close(ctx context.Context, c belay.Cancellation) error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
	}
	all := make([]*held, 0, len(e.sessions))
	for s := range e.sessions {
		all = append(all, s)
	}
	e.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() { _ = s.Close(ctx, c) })
	}
	wg.Wait()
	if err := e.handler.Close(ctx, c); err != nil {
		_ = e.rap.close(ctx) // its processes end all the same
		return err
	}
	done := make(chan struct{})
	go func() { defer close(done); e.wg.Wait() }()
	select {
	case <-done:
		return e.rap.close(ctx)
	case <-ctx.Done():
		_ = e.rap.close(ctx)
		return context.Cause(ctx)
	}
}
