package rapdoor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
	"github.com/belayhq/belay/rap"
)

// linkKey names the session of a principal with a server.
type linkKey struct{ server, caller string }

// link is one session with an MCP server, of which Belay is the client.
type link struct {
	d    *Door
	key  linkKey
	from httpserver.Backend // the definition that it is a session of
	open chan struct{}      // closed when on or err is set
	on   httpserver.Session
	err  error
	era  mcp.Era // fixed once open

	ids      jsonrpc.Minter
	outdated atomic.Bool // the server said that its tools have changed

	mu     sync.Mutex // guards the fields below
	users  int        // of use, until release
	idle   time.Time  // since when there is none
	known  []tool     // as the server listed them last
	listed bool
	asks   map[string]*ask // requests of the server that it waits for, by their ids
	asked  []*ask          // of these, the ones that nobody has looked at
	wake   chan struct{}   // has room for one: asked is not empty
}

// Bounds and times of links.
const (
	maxLinks  = 1000
	openWait  = 60 * time.Second // for a server to start and to answer
	idleFor   = 10 * time.Minute
	idleTick  = time.Minute
	closeWait = 10 * time.Second
	maxAsked  = 64
)

var (
	errUnknown = fmt.Errorf("%w: the server is not offered any more", belay.ErrNotFound)
	errGone    = errors.New("the server has ended; try again")
	errRefused = errors.New("the server did not answer the request")
)

// use returns the principal's link with a server, opened if there is none, and
// counts a user; release ends that.
func (d *Door) use(ctx context.Context, server, caller string) (*link, error) {
	from, ok := d.o.Servers(server)
	if !ok {
		return nil, errUnknown
	}
	key := linkKey{server, caller}
	d.mu.Lock()
	l := d.links[key]
	if l != nil && (l.from != from || l.over()) {
		l = nil // it ends by itself when its last user is gone
	}
	if l == nil {
		if d.closed {
			d.mu.Unlock()
			return nil, errClosed
		}
		if len(d.links) >= maxLinks {
			d.mu.Unlock()
			return nil, fmt.Errorf("%w sessions are open here; try again later", belay.ErrTooMany)
		}
		l = &link{d: d, key: key, from: from, open: make(chan struct{}), asks: map[string]*ask{}, wake: make(chan struct{}, 1)}
		d.links[key] = l
		d.wg.Go(l.keep)
	}
	l.mu.Lock()
	l.users++
	l.mu.Unlock()
	d.mu.Unlock()
	select {
	case <-l.open:
	case <-ctx.Done():
		l.release()
		return nil, context.Cause(ctx)
	}
	if l.err != nil {
		l.release()
		return nil, l.err
	}
	return l, nil
}

func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
	l.idle = time.Now()
}

// over reports whether the link is of no use any more.
func (l *link) over() bool {
	select {
	case <-l.open:
	default:
		return false
	}
	if l.err != nil {
		return true
	}
	select {
	case <-l.on.Ended():
		return true
	default:
		return false
	}
}

// keep opens the session, stays with it, and ends it.
func (l *link) keep() {
	defer l.d.forget(l)
	defer l.endAsks()
	ctx, cut := context.WithTimeoutCause(l.d.life, openWait, fmt.Errorf("the server did not answer within %v", openWait))
	l.err = l.begin(ctx)
	cut()
	close(l.open)
	if l.err != nil {
		if l.on != nil && l.era == mcp.Legacy {
			l.dismiss(belay.CauseShutdown, "the server cannot be used")
		}
		l.d.log.Warn("a server cannot be offered", "server", l.key.server, "caller", l.key.caller, "error", l.err)
		return
	}
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	for {
		select {
		case <-l.on.Ended():
			return
		case <-l.wake:
			l.answerAsked()
			continue
		case <-tick.C:
			if !l.unused() {
				continue
			}
		case <-l.d.life.Done():
		}
		break
	}
	if l.era == mcp.Legacy { // a modern one is shared with others, and not ours to end
		l.dismiss(belay.CauseShutdown, "nobody calls it any more")
	}
}

// unused takes a link out of use that has been idle, and reports whether it did.
func (l *link) unused() bool {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	replaced := l.d.links[l.key] != l
	if l.users > 0 || !replaced && time.Since(l.idle) < idleFor {
		return false
	}
	if !replaced {
		delete(l.d.links, l.key)
	}
	return true
}

func (d *Door) forget(l *link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.links[l.key] == l {
		delete(d.links, l.key)
	}
}

// begin opens the session: as a caller of the legacy eras first, which most servers
// speak.
func (l *link) begin(ctx context.Context) error {
	who := httpserver.Caller{Principal: l.key.caller, Agent: "rap", Revision: legacyRevision}
	var err error
	l.on, err = l.from.Open(ctx, who, home{l})
	if err == nil {
		err = l.greet(ctx)
	}
	if !errors.Is(err, httpserver.ErrEra) {
		return err
	}
	if l.on != nil {
		l.dismiss(belay.CauseShutdown, "the server speaks another era")
	}
	who.Revision = mcp.Revision26
	l.era = mcp.Modern
	l.on, err = l.from.Shared(ctx, who)
	return err
}

const legacyRevision = "2025-11-25"

// greet makes the handshake of the legacy eras.
func (l *link) greet(ctx context.Context) error {
	params := `{"protocolVersion":"` + legacyRevision + `","capabilities":` + elicitation + `,"clientInfo":{"name":"belay-rap","version":` +
		string(jsonrpc.AppendString(nil, orDevel(l.d.o.Version))) + `}}`
	if _, err := l.ask(ctx, mcp.MethodInitialize, []byte(params), &waiter{}, ""); err != nil {
		return err
	}
	ready := &mcp.Message{}
	if err := ready.Read(jsonrpc.AppendNotification(nil, mcp.NoticeInitialized, nil)); err != nil {
		return err
	}
	l.on.Deliver(mcp.Arrival{Message: ready})
	return nil
}

func orDevel(version string) string {
	if version == "" {
		return "devel"
	}
	return version
}

func (l *link) dismiss(cause belay.Cause, reason string) {
	c := belay.Cancellation{Stop: belay.NewStopID(), Cause: cause, Via: "rap", Reason: reason, At: time.Now()}
	ctx, end := context.WithTimeoutCause(context.WithoutCancel(l.d.life), closeWait, &c)
	defer end()
	if err := l.on.Close(ctx, c); err != nil {
		l.d.log.Warn("a session did not end in good order", "server", l.key.server, "error", err)
	}
}

// exchanges are numbered for the whole process, apart from those of transports,
// which count from 1, and of aggregates, which have the highest bit.
var exchanges atomic.Uint64

func nextExchange() uint64 { return 1<<62 | exchanges.Add(1) }

// ask sends a request and waits for its answer. below is the run below which its
// own is to hang; w gets what the server says and asks meanwhile. When ctx ends
// first, the request is abandoned, which stops it.
func (l *link) ask(ctx context.Context, method string, params []byte, w *waiter, below string) (*mcp.Message, error) {
	m := &mcp.Message{}
	if err := m.Read(jsonrpc.AppendRequest(nil, l.ids.Next(), method, params)); err != nil {
		return nil, err
	}
	w.l, w.got = l, make(chan []byte, 1)
	exchange := nextExchange()
	l.on.Deliver(mcp.Arrival{Message: m, To: w, Exchange: exchange, ByExchange: true, Parent: below})
	select {
	case frame, ok := <-w.got:
		return readAnswer(frame, ok)
	case <-ctx.Done():
		c := belay.CancellationOf(ctx)
		if c == nil {
			c = &belay.Cancellation{Cause: belay.CauseDisconnect, Via: "rap", Reason: context.Cause(ctx).Error()}
		}
		l.on.Abandon(exchange, *c)
		return nil, context.Cause(ctx)
	case <-l.on.Ended():
	}
	select { // it was answered before the end, or never will be
	case frame, ok := <-w.got:
		return readAnswer(frame, ok)
	default:
		return nil, errGone
	}
}

// refusal is an error response of a server.
type refusal struct {
	code int
	text string
}

func (e *refusal) Error() string { return e.text }

func readAnswer(frame []byte, ok bool) (*mcp.Message, error) {
	if !ok {
		return nil, errRefused
	}
	m := &mcp.Message{}
	if err := m.Read(frame); err != nil {
		return nil, fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	if !m.IsError() {
		return m, nil
	}
	code, _ := m.ErrorCode()
	supported, _, _ := jsonrpc.Path(m.Frame, m.Error, "data", "supported")
	for e := range jsonrpc.Elements(m.Frame, supported) { // the gateway names the versions, whatever the server said
		if v, err := jsonrpc.ReadString(m.Frame, e, 64); err == nil && v == mcp.Revision26 {
			return nil, &httpserver.EraError{Supported: []string{v}}
		}
	}
	at, _, _ := jsonrpc.Member(m.Frame, m.Error, "message")
	text, err := jsonrpc.ReadString(m.Frame, at, 4<<10)
	if err != nil || text == "" {
		text = fmt.Sprintf("the server answered with error %d", code)
	}
	return nil, &refusal{code, text}
}

// waiter is the outlet of one request.
type waiter struct {
	job      *rap.Job           // whose call it is; nil: nobody's
	heard    func(frame []byte) // gets what the server says; nil: nobody does
	elicited atomic.Bool        // a person was asked something for it

	l    *link
	once sync.Once
	got  chan []byte // takes one; closed without one when there is no answer
}

// Send implements [mcp.Outlet]. The sender holds locks: what is asked here is
// answered later.
func (w *waiter) Send(frame []byte, edits ...jsonrpc.Edit) error {
	if w.heard != nil {
		w.heard(jsonrpc.AppendSplice(nil, frame, edits...))
	}
	return w.l.take(w, frame, edits...)
}

// Answer implements [mcp.Outlet].
func (w *waiter) Answer(_ int, frame []byte, edits ...jsonrpc.Edit) error {
	w.once.Do(func() { w.got <- jsonrpc.AppendSplice(nil, frame, edits...) })
	return nil
}

// Drop implements [mcp.Outlet].
func (w *waiter) Drop() { w.once.Do(func() { close(w.got) }) }

// home is the outlet of what belongs to no request.
type home struct{ l *link }

// Send implements [mcp.Outlet].
func (h home) Send(frame []byte, edits ...jsonrpc.Edit) error { return h.l.take(nil, frame, edits...) }

// Answer implements [mcp.Outlet].
func (h home) Answer(int, []byte, ...jsonrpc.Edit) error { return nil }

// Drop implements [mcp.Outlet].
func (h home) Drop() {}

// take takes what the server says: to the request of w, or to nobody in particular.
func (l *link) take(w *waiter, frame []byte, edits ...jsonrpc.Edit) error {
	m := &mcp.Message{}
	if m.Read(jsonrpc.AppendSplice(nil, frame, edits...)) != nil {
		return nil
	}
	if m.Kind == jsonrpc.Notification && m.Method == mcp.NoticeTools {
		l.outdated.Store(true)
		return nil
	}
	if m.Kind != jsonrpc.Request && m.Method != mcp.NoticeCancelled {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Kind == jsonrpc.Request {
		return l.queueLocked(m, w)
	}
	l.withdrawLocked(m)
	return nil
}
