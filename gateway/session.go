package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/supervise"
)

// Session is one caller's connection to one server. Make it with Open, feed it
// with Receive from one goroutine, and end it with Close.
type Session struct {
	cfg    Config
	log    *slog.Logger
	tree   *belay.Tree
	run    *belay.Run
	home   mcp.Outlet      // to the caller: what belongs to no request that has an outlet of its own
	lines  *jsonrpc.Writer // the same, where the caller reads lines; else nil
	hand   mcp.Handshake
	stones *belay.Tombstones[string, string] // early cancels: the id's key and the reason
	inbox  mcp.Message                       // what Receive is at; nobody keeps it
	rest   idler
	done   chan struct{}   // closed when Close has finished
	ended  chan struct{}   // closed when the session cannot go on
	wg     sync.WaitGroup  // pumps, spawners, followers; Add under mu while !closing
	life   context.Context // of what the session starts
	end    context.CancelCauseFunc

	// mu guards the fields below, and those of calls, asks and upstreams.
	mu        sync.Mutex
	stood     bool             // the server has answered something
	calls     map[string]*call // in flight, by the caller's id
	acks      mcp.StopAckDoors // by which ways the server acknowledges stops
	passes    map[uint64]*call // of them, those that an HTTP exchange brought
	asks      map[string]*ask  // server's requests to the caller, by our id
	askIDs    jsonrpc.Minter
	unwatch   func()           // set with the first call that hangs below another run; see below.go
	passed    []*call          // cancelled ones that the server may still answer (PassCancels)
	traceID   string           // of calls that are part of no trace; "" before the first
	rounds    rounds           // calls between two legs
	held      int              // bytes of answers that wait for the next leg of theirs
	tasks     map[string]*task // by id, while something is waited for of them
	seen      recent
	current   *upstream   // takes what the caller sends; nil while a fresh one is made
	all       []*upstream // every process that may still be alive
	idle      []*upstream // leased-out processes that are free again
	leased    int         // processes for calls, idle and coming ones included
	coming    int         // of them, those that are being started
	warm      bool        // spares are kept
	lean      *time.Timer // after which few are; nil before the first call has ended
	queue     []waiting   // for a process
	queued    int         // bytes in queue
	doubts    []*call     // stopped tool calls that may still be at work
	pruneAt   int         // how many doubts there are when they are looked through
	spawning  bool
	forced    []time.Time // the last forced restarts, for the circuit
	explained bool        // the first forced restart was explained
	closing   bool
	failure   error // why the session cannot go on
}

// waiting is something of the caller's that waits for a process.
type waiting struct {
	call   *call  // nil for a notification
	method string // of a notification
	frame  []byte // a copy
}

// Bounds of what waits for a process.
const (
	maxWaiting      = 10_000
	maxWaitingBytes = 32 << 20
)

// Open starts the server and returns a session whose answers go to out, as
// lines. The session's run is registered; a process is running. The errors of
// starting a process are those of [proc.Start].
func Open(ctx context.Context, cfg Config, out io.Writer) (*Session, error) {
	w := jsonrpc.NewWriter(out, jsonrpc.WriterOptions{MaxQueued: cfg.maxUnread})
	s, err := openSession(ctx, cfg, lines{w}, w)
	if err != nil {
		w.CloseNow()
	}
	return s, err
}

// OpenTo is [Open] for a caller who does not read lines: what belongs to a
// request goes to the outlet with which it is delivered, all else to home.
func OpenTo(ctx context.Context, cfg Config, home mcp.Outlet) (*Session, error) {
	return openSession(ctx, cfg, home, nil)
}

func openSession(ctx context.Context, cfg Config, home mcp.Outlet, w *jsonrpc.Writer) (*Session, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Session{
		cfg: cfg, tree: cfg.Tree, log: cfg.Log.With("server", cfg.Name), home: home, lines: w,
		stones: belay.NewTombstones[string, string](0, 0),
		calls:  make(map[string]*call), passes: make(map[uint64]*call), asks: make(map[string]*ask),
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	s.rest.f = cfg.Idle
	s.life, s.end = context.WithCancelCause(context.Background())
	spec := belay.Spec{
		Kind: belay.KindSession, Name: cfg.Name, Server: cfg.Name, Owner: cfg.Owner, Labels: cfg.Labels,
		ParentID: cfg.Parent, Stopper: (*sessionStopper)(s), Ladder: cfg.Ladder, OnCancel: s.stopped,
	}
	if above, err := cfg.Tree.Run(cfg.Parent); err == nil {
		spec.Parent = above
	}
	s.run, err = cfg.Tree.Register(spec)
	if err != nil {
		return nil, err
	}
	up, err := s.start(ctx, s.run.ID())
	if err != nil {
		s.run.Finish(belay.Failed)
		return nil, err
	}
	if err := s.speaksModern(ctx, up); err != nil {
		s.run.Finish(belay.Failed)
		_ = s.Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: err.Error()})
		return nil, err
	}
	s.mu.Lock()
	s.current, up.ready = up, true
	if s.lines != nil {
		s.goLocked(s.watchCaller)
	}
	if cfg.Modern { // nobody will say that the session stands
		s.warmLocked()
	}
	if cfg.Modern && cfg.URL != "" {
		s.goLocked(func() { s.discoverSoon(up) })
	}
	s.mu.Unlock()
	return s, nil
}

// ErrCallerGone says that the caller takes no answers any more.
var ErrCallerGone = errors.New("the caller takes no answers any more")

// watchCaller ends the session when its writer has ended although nobody closed
// it: whoever was to read is gone, and work for nobody must not go on.
func (s *Session) watchCaller() {
	select {
	case <-s.life.Done():
		return
	case <-s.lines.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(fmt.Errorf("%w: %w", ErrCallerGone, s.lines.Err()))
}

// Run is the session's run.
func (s *Session) Run() *belay.Run { return s.run }

// Ended is closed when the session cannot go on: its server died before the
// session stood, the caller does not take answers any more, or the session's
// run was stopped. Whoever opened the session then closes it.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Err says why the session ended, or nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// failLocked ends the session for a reason that leaves nothing to be saved.
func (s *Session) failLocked(why error) {
	if s.failure != nil {
		return
	}
	s.failure = why
	close(s.ended)
}

// Close ends the session: every call in flight is stopped for this cause,
// every process gets SIGTERM at once and SIGKILL half a second later, and all
// goroutines are waited for. It may be called more than once; ctx bounds only
// the waiting.
func (s *Session) Close(ctx context.Context, c belay.Cancellation) error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	if first && s.failure == nil {
		s.failure = &c
		close(s.ended)
	}
	s.mu.Unlock()
	if first {
		go s.shutdown(c)
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeLimit bounds the last writes to a caller that may not be reading.
const closeLimit = 500 * time.Millisecond

// shutdown does the work of Close, once.
func (s *Session) shutdown(c belay.Cancellation) {
	defer close(s.done)
	s.endRun(c)
	s.end(&c) // frees what waits for a caller that does not read
	s.mu.Lock()
	ups := append([]*upstream(nil), s.all...)
	if s.lean != nil {
		s.lean.Stop()
	}
	s.mu.Unlock()
	var trees sync.WaitGroup
	for _, u := range ups {
		trees.Go(u.close)
	}
	trees.Wait()
	s.wg.Wait()
	s.mu.Lock()
	s.queue, s.queued = nil, 0 // the calls in it are cancelled, and answered
	for _, c := range s.passed {
		c.names.cancel.timer.Stop()
	}
	s.passed = nil
	s.all, s.current = nil, nil
	s.dropTasksLocked()
	unwatch := s.unwatch
	s.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	s.answerAll()
	if len(s.cfg.Command) > 0 {
		s.run.Observe(belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree, Detail: "every process of the session has ended"})
	}
	if s.cfg.Serve != nil {
		s.run.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler, Detail: "the server inside Belay has returned"})
	}
	if s.lines == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeLimit, &c)
	defer cancel()
	s.lines.Close(ctx)
}

// endRun stops everything in flight. Where nothing is, and no process either,
// there is nothing to stop: the session is just over.
func (s *Session) endRun(c belay.Cancellation) {
	if c.Stop.IsZero() {
		c.Stop = belay.NewStopID()
	}
	s.endRounds(c)
	s.mu.Lock()
	idle := len(s.calls) == 0 && !s.hasTasksLocked() && len(s.cfg.Command) == 0
	s.mu.Unlock()
	if !idle || !s.run.Finish(belay.Completed) {
		s.run.Cancel(c)
	}
	// The tree tells stopOutside of that in its own time; here it must be before
	// the processes end, or the calls would fail with them.
	elsewhere := belay.Cancellation{Stop: c.Stop, Cause: belay.CauseParent, By: c.By, Reason: c.Reason, Via: c.Via, Origin: s.run.ID()}
	s.stopOutside(belay.CancelRequest{Cancellation: elsewhere})
}

// answerAll answers the calls whose partial result is still waited for: none
// can come any more (MCP-G25, MCP-G28). A handshake is no run that could be
// stopped; it fails.
func (s *Session) answerAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		switch {
		case c.stopped:
			c.answerLocked()
		case c.run == nil:
			c.failLocked(mcp.CodeInternal, tooLate)
		}
	}
}

// tooLate is what is asked too late, or was not answered in time, reads.
const tooLate = "Belay is ending this session"

// goLocked starts a goroutine that Close waits for; false once closing.
func (s *Session) goLocked(f func()) bool {
	if s.closing {
		return false
	}
	s.wg.Go(f)
	return true
}

// stopped is the session run's OnCancel: whoever opened the session sees Ended
// and closes it.
func (s *Session) stopped(_ *belay.Run, c *belay.Cancellation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(c)
}

// sessionStopper stops a whole session. Its owner closes it as soon as Ended
// says so; the force here is for an owner that does not.
type sessionStopper Session

// Tell needs no message: Close follows from the end of the session.
func (s *sessionStopper) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	return nil, nil
}

// Kill ends every process of the session.
func (s *sessionStopper) Kill(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	s.mu.Lock()
	ups := append([]*upstream(nil), s.all...)
	s.mu.Unlock()
	for _, u := range ups {
		u.close()
	}
	return nil, nil
}

// Plan implements [belay.Planner].
func (s *sessionStopper) Plan(context.Context) belay.Plan {
	s.mu.Lock()
	ups := append([]*upstream(nil), s.all...)
	s.mu.Unlock()
	plan := belay.Plan{Tell: "every call of the session", Force: "the whole session ends: SIGTERM at once, SIGKILL after 0.5 s"}
	for _, u := range ups {
		u.addPlan(&plan, supervise.Whole())
	}
	return plan
}
