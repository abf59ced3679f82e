package aggregate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// Methods that only an aggregate has to know.
const (
	methodListPrompts   = "prompts/list"
	methodGetPrompt     = "prompts/get"
	methodListResources = "resources/list"
	methodListTemplates = "resources/templates/list"
	methodReadResource  = "resources/read"
	methodComplete      = "completion/complete"
	methodListTasks     = "tasks/list"
	methodTaskResult    = "tasks/result"
	methodUpdateTask    = "tasks/update"
	noticePrompts       = "notifications/prompts/list_changed"
	noticeResources     = "notifications/resources/list_changed"
	noticeAcknowledged  = "notifications/subscriptions/acknowledged"
)

// Bounds of a session.
const (
	maxCalls  = 65_536
	maxSeen   = 4096
	maxTasks  = 10_000
	maxOwners = 50_000   // URIs
	maxURIs   = 16 << 20 // bytes of them
	maxAsks   = 1000     // of all members towards the caller
)

var (
	errOver    = errors.New("the call is over")
	errClosing = errors.New("the session is over")
)

// session is one conversation: with a legacy caller, or with all modern ones of
// a principal.
type session struct {
	b    *Backend
	log  *slog.Logger
	who  httpserver.Caller
	home mcp.Outlet // what belongs to no request
	era  mcp.Era
	used atomic.Int64 // of a shared one: when it was last given out
	open atomic.Int64 // calls in flight
	busy atomic.Int64 // of them, those that are worked on here

	ended chan struct{}
	once  sync.Once
	done  chan struct{} // closed when Close has finished
	life  context.Context
	end   context.CancelCauseFunc
	wg    sync.WaitGroup // Add under mu while !closing

	stones *belay.Tombstones[string, string] // early cancels: the id's key and the reason (MCP-G17)
	ids    jsonrpc.Minter                    // of our own requests to members
	learnt library

	mu      sync.Mutex // guards the fields below, and those of calls and peers. Leaf: nothing is called with it held
	closing bool
	calls   map[string]*call
	passes  map[uint64]*call
	seen    memo[struct{}]
	tasks   memo[string] // task id -> member
	asks    map[string]*ask
	listens map[*listening]struct{}
	askIDs  jsonrpc.Minter
	peers   map[string]*peer  // legacy: members in which this caller has, or had, a session
	hello   []byte            // the caller's initialize, from then on
	greeted bool              // it was answered
	ready   []byte            // the caller's notifications/initialized, from then on
	level   []byte            // its last logging/setLevel
	told    map[string]string // what was logged of members that are left out
}

var _ httpserver.Session = (*session)(nil)

func newSession(b *Backend, who httpserver.Caller, home mcp.Outlet, era mcp.Era) *session {
	s := &session{
		b: b, log: b.cfg.Log, who: who, home: home, era: era,
		ended: make(chan struct{}), done: make(chan struct{}),
		stones: belay.NewTombstones[string, string](0, 0),
		ids:    jsonrpc.Minter{Prefix: "belay-" + belay.NewStopID().String() + "-"}, // no caller's id
		calls:  map[string]*call{}, passes: map[uint64]*call{}, asks: map[string]*ask{}, listens: map[*listening]struct{}{}, peers: map[string]*peer{},
		seen: memo[struct{}]{max: maxSeen}, tasks: memo[string]{max: maxTasks},
	}
	s.learnt.init()
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// exchanges numbers the exchanges with members. A member's shared session also
// serves callers that do not come through here, whose transports count from 1;
// and several aggregates may have one member.
var exchanges atomic.Uint64

func nextExchange() uint64 { return 1<<63 | exchanges.Add(1) }

// Ended implements [httpserver.Session]. A session goes on whatever becomes of
// its members.
func (s *session) Ended() <-chan struct{} { return s.ended }

// Err implements [httpserver.Session].
func (s *session) Err() error { return nil }

// goLocked starts a goroutine that Close waits for; false once closing.
func (s *session) goLocked(f func()) bool {
	if s.closing {
		return false
	}
	s.wg.Go(f)
	return true
}

func (s *session) goes(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.goLocked(f)
}

// Deliver implements [httpserver.Session].
func (s *session) Deliver(a mcp.Arrival) {
	switch a.Kind {
	case jsonrpc.Request:
		s.request(&a)
	case jsonrpc.Notification:
		s.notice(&a)
	case jsonrpc.Response:
		s.answered(a.Message)
	}
}

// request registers a request and sends it on its way.
func (s *session) request(a *mcp.Arrival) {
	c := s.newCall(a)
	refusal, early, reason := s.register(c, a.ByExchange)
	switch {
	case refusal != "":
		_ = c.to.Answer(0, jsonrpc.AppendError(nil, c.id, mcp.CodeInvalidRequest, refusal, nil))
	case early:
		s.log.Info("a call was cancelled before it came", "method", c.method, "id", c.id, "reason", reason)
		c.Drop()
	default:
		s.route(c, a)
	}
}

func (s *session) newCall(a *mcp.Arrival) *call {
	c := &call{s: s, id: a.ID, key: a.ID.Key(), pass: a.Exchange, method: a.Method, to: a.To}
	if a.ByExchange {
		c.key = exchangeKey(a.Exchange)
	}
	if c.to == nil {
		c.to = s.home
	}
	c.tasks = a.Method == mcp.MethodCallTool && (s.era == mcp.Modern || a.Task.Ok())
	c.ctx, c.end = context.WithCancelCause(s.life)
	return c
}

// register puts a call into the tables. refusal says why it is not in them;
// early that its cancel came first.
func (s *session) register(c *call, byExchange bool) (refusal string, early bool, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		refusal = "Belay is ending this session"
	case s.calls[c.key] != nil:
		refusal = "the id " + c.id.String() + " is in flight already; each request needs an id of its own"
	case len(s.calls) >= maxCalls:
		refusal = "too many calls are in flight"
	}
	if refusal != "" {
		c.end(nil)
		return refusal, false, ""
	}
	s.calls[c.key] = c
	if c.pass != 0 {
		s.passes[c.pass] = c
	}
	s.open.Add(1)
	if !byExchange && !mcp.Handshaking(c.method) { // never cancelled, not even before it came (MCP-7)
		reason, early = s.stones.Take(c.key)
	}
	return "", early, reason
}

// Abandon implements [httpserver.Session].
func (s *session) Abandon(exchange uint64, why belay.Cancellation) {
	s.mu.Lock()
	c := s.passes[exchange]
	s.mu.Unlock()
	if c != nil && !mcp.Handshaking(c.method) {
		c.abandon(why)
	}
}

// notice takes a notification of the caller.
func (s *session) notice(a *mcp.Arrival) {
	switch {
	case a.Method == mcp.NoticeCancelled:
		s.cancelled(a)
	case s.era == mcp.Modern:
		s.log.Debug("a notification was ignored: callers of this revision send none", "method", a.Method)
	case a.Method == mcp.NoticeProgress:
		s.askProgress(a.Message)
	case a.Method == mcp.NoticeInitialized:
		s.initialized(a.Message)
	default: // roots/list_changed, and what is not known here
		for _, p := range s.joined() {
			p.on.Deliver(mcp.Arrival{Message: a.Message})
		}
	}
}

// cancelled takes a cancel of the caller (MCP-G10 to G14, G17). Ids are the same
// on both sides, so that the member gets it as it came.
func (s *session) cancelled(a *mcp.Arrival) {
	cancel, err := a.ReadCancel()
	if err != nil {
		s.log.Warn("a malformed cancel was ignored", "error", err)
		return
	}
	if s.era == mcp.Modern {
		s.cancelledBeside(a, cancel)
		return
	}
	key := cancel.Request.Key()
	s.mu.Lock()
	c := s.calls[key]
	var on httpserver.Session
	_, seen := s.seen.get(key)
	switch {
	case c == nil && !seen && !s.closing && !s.b.cfg.PassCancels:
		s.stones.Put(key, cancel.Reason)
	case c != nil && s.b.cfg.PassCancels && !c.handed:
		c.behind = bytes.Clone(a.Frame)
	case c != nil:
		on = c.on
	}
	s.mu.Unlock()
	switch {
	case c == nil:
		s.log.Debug("a cancel names no call in flight", "id", cancel.Request, "ended", seen)
	case mcp.Handshaking(c.method):
		s.log.Warn("a cancel of a handshake was ignored", "method", c.method)
	case on != nil:
		on.Deliver(mcp.Arrival{Message: a.Message})
	case s.b.cfg.PassCancels:
		s.log.Debug("a cancel is passed on when a server has the call", "id", cancel.Request)
	default:
		c.abandon(s.byCaller(cancel.Reason))
	}
}

func (s *session) byCaller(reason string) belay.Cancellation {
	return belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseUser, By: s.who.Principal, Via: "mcp", Reason: reason, At: time.Now()}
}

// cancelledBeside takes a cancel that came by an exchange of its own, where ids
// of different clients meet. It counts only where the transport says so, and if
// exactly one call in flight has the id (MCP-G13).
func (s *session) cancelledBeside(a *mcp.Arrival, cancel mcp.Cancel) {
	if !a.ByExchange {
		s.log.Debug("a cancel was ignored: callers of this revision close the stream", "id", cancel.Request)
		return
	}
	var found []*call
	s.mu.Lock()
	for _, c := range s.calls {
		if c.id.Same(cancel.Request) && !mcp.Handshaking(c.method) {
			found = append(found, c)
		}
	}
	s.mu.Unlock()
	if len(found) != 1 {
		s.log.Warn("a cancel does not name exactly one call in flight; nothing was changed", "id", cancel.Request, "calls", len(found))
		return
	}
	found[0].abandon(s.byCaller(cancel.Reason))
}

// Close implements [httpserver.Session].
func (s *session) Close(ctx context.Context, c belay.Cancellation) error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		go s.shutdown(context.WithoutCancel(ctx), c)
	})
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeWait bounds the closing of members, whoever waits for it.
const closeWait = 20 * time.Second

// shutdown does the work of Close, once. The members answer their calls
// themselves; what they leave is answered here.
func (s *session) shutdown(ctx context.Context, c belay.Cancellation) {
	defer close(s.done)
	defer close(s.ended)
	ctx, cancel := context.WithTimeoutCause(ctx, closeWait, &c)
	defer cancel()
	s.end(&c)
	if s.era == mcp.Modern {
		s.abandonAll(c)
	}
	var wg sync.WaitGroup
	for _, p := range s.joined() {
		wg.Go(func() {
			if err := p.on.Close(ctx, c); err != nil {
				s.log.Warn("a session did not end in good order", "server", p.name, "error", err)
			}
		})
	}
	wg.Wait()
	s.wg.Wait()
	for _, call := range s.left() {
		call.answer(mcp.AppendStopped(nil, call.id, belay.RunID{}, &c, false))
	}
	s.b.forget(s)
}

// abandonAll stops the calls in sessions of members that are not ours to close.
// They are answered first: to the member their caller is gone.
func (s *session) abandonAll(why belay.Cancellation) {
	for _, c := range s.left() {
		s.mu.Lock()
		on, theirs := c.on, c.theirs
		if on != nil && c.gone == nil {
			c.gone = &why // for hand, where it may just be on its way
		}
		s.mu.Unlock()
		if on == nil {
			continue // what is done for it ends by itself
		}
		c.answer(mcp.AppendStopped(nil, c.id, belay.RunID{}, &why, false))
		on.Abandon(theirs, why)
	}
}

// left lists the calls in flight.
func (s *session) left() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*call, 0, len(s.calls))
	for _, c := range s.calls {
		list = append(list, c)
	}
	return list
}

// refresh takes up members that have come.
func (s *session) refresh() {
	s.mu.Lock()
	greeted := s.greeted
	listens := slices.Collect(maps.Keys(s.listens))
	s.mu.Unlock()
	s.learnt.outdate()
	if greeted {
		s.invite()
	}
	for _, l := range listens {
		l.extend(s.names())
	}
}

// names lists the members that there are now.
func (s *session) names() []string {
	members := s.b.members()
	names := make([]string, 0, len(members))
	for _, m := range members {
		names = append(names, m.Name)
	}
	if s.era == mcp.Legacy { // one that was removed is there until its session ends
		for _, p := range s.joined() {
			if !slices.Contains(names, p.name) {
				names = append(names, p.name)
			}
		}
	}
	return names
}
