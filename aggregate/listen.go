package aggregate

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Times and bounds of subscriptions.
const (
	ackWait     = 3 * time.Second // for all members to acknowledge
	listenAgain = time.Second     // before a member that ended one is asked again; doubled
	listenMost  = 30 * time.Second
	maxHeld     = 256 // messages before the acknowledgement
	maxWanted   = 1000
)

// listening is a subscriptions/listen of a modern caller: one in each member
// that has anything of it, under the caller's own id, so that what members send
// carries the right subscription id as it is (MCP-73).
type listening struct {
	c    *call
	bare []byte        // the request without resources, for members that come later; nil: it wants nothing else
	over chan struct{} // closed when no member has any of it

	mu    sync.Mutex // guards the fields below; before session.mu
	parts []*listenPart
	acked bool     // the caller got the acknowledgement
	held  [][]byte // what came before
	ended bool     // over is closed
}

// listenPart is the part of one member.
type listenPart struct {
	l       *listening
	name    string
	frame   []byte
	first   chan struct{} // closed when the member has acknowledged, or ended it, for the first time
	once    sync.Once
	agreed  []byte // what it acknowledged; guarded by l.mu
	renewed bool   // it was asked again, or came later; guarded by l.mu
	over    bool   // it is not asked any more; guarded by l.mu
}

// listen serves a subscription until its caller goes away or no member has any
// of it.
func (s *session) listen(c *call, frame []byte) {
	if s.era == mcp.Legacy {
		c.failf(mcp.CodeMethodNotFound, "there are no such subscriptions in this revision")
		return
	}
	l := &listening{c: c, over: make(chan struct{})}
	parts, err := s.divide(l, frame)
	if err != nil {
		c.failf(mcp.CodeInvalidParams, "%v", err)
		return
	}
	s.mu.Lock()
	s.listens[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listens, l)
		s.mu.Unlock()
	}()
	l.add(parts...)
	l.await(parts)
	l.acknowledge()
	l.close(nil) // if no member is left
	select {
	case <-l.over:
	case <-c.ctx.Done():
		c.stopped()
		return
	}
	result := append([]byte(`{"resultType":"complete","_meta":`), l.meta()...)
	c.answer(jsonrpc.AppendResponse(nil, c.id, append(result, '}')))
}

var errSubscriptions = errors.New("params.notifications must be an object, and its resourceSubscriptions an array of at most 1000 URIs")

// divide finds out what to ask of whom: kinds of changes of all, resources of
// those that have them.
func (s *session) divide(l *listening, frame []byte) ([]*listenPart, error) {
	m := &mcp.Message{}
	if err := m.Read(frame); err != nil {
		return nil, err
	}
	want, _, err := jsonrpc.Member(frame, m.Params, "notifications")
	if err != nil || jsonrpc.KindAt(frame, want) != jsonrpc.ObjectValue {
		return nil, errSubscriptions
	}
	at, ok, err := jsonrpc.Member(frame, want, "resourceSubscriptions")
	if err != nil || ok && jsonrpc.KindAt(frame, at) != jsonrpc.ArrayValue && jsonrpc.KindAt(frame, at) != jsonrpc.NullValue {
		return nil, errSubscriptions
	}
	shares := map[string][]byte{} // of members, the elements of their arrays
	count := 0
	for e := range jsonrpc.Elements(frame, at) {
		uri := textAt(frame, e, maxName)
		if count++; uri == "" || count > maxWanted {
			return nil, errSubscriptions
		}
		server := s.listed(uri)
		if server == "" {
			server = s.find(l.c, uri)
		}
		if server == "" {
			s.log.Info("a subscription was left out: no server has the resource", "uri", uri)
			continue
		}
		if len(shares[server]) > 0 {
			shares[server] = append(shares[server], ',')
		}
		shares[server] = append(shares[server], e.Of(frame)...)
	}
	for member := range jsonrpc.Members(frame, want) {
		if jsonrpc.KindAt(frame, member.Value) == jsonrpc.TrueValue {
			l.bare = frame
		}
	}
	share := func(name string) []byte {
		if count == 0 {
			return frame
		}
		return jsonrpc.AppendSplice(nil, frame, jsonrpc.Edit{At: at, New: append(append([]byte{'['}, shares[name]...), ']')})
	}
	if l.bare != nil {
		l.bare = share("")
	}
	var parts []*listenPart
	for _, name := range s.names() {
		if l.bare != nil || shares[name] != nil {
			parts = append(parts, &listenPart{l: l, name: name, frame: share(name), first: make(chan struct{})})
		}
	}
	return parts, nil
}

// add begins parts of the subscription; a member that has one is passed over.
func (l *listening) add(parts ...*listenPart) {
	s := l.c.s
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range parts {
		has := slices.ContainsFunc(l.parts, func(o *listenPart) bool { return o.name == p.name })
		if l.ended || has || !s.goes(func() { s.serveListen(p); l.close(p) }) {
			p.spoke()
			continue
		}
		l.parts = append(l.parts, p)
	}
}

// close notes that a part is over, and ends the subscription if it was the last
// and the caller has been told what it subscribed to.
func (l *listening) close(p *listenPart) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p != nil {
		p.over = true
	}
	if !l.acked || l.ended {
		return
	}
	l.parts = slices.DeleteFunc(l.parts, func(o *listenPart) bool { return o.over })
	if len(l.parts) == 0 {
		l.ended = true
		close(l.over)
	}
}

// extend subscribes at members that have come since.
func (l *listening) extend(names []string) {
	if l.bare == nil {
		return
	}
	for _, name := range names {
		l.add(&listenPart{l: l, name: name, frame: l.bare, first: make(chan struct{}), renewed: true})
	}
}

// await waits for the first word of every member, for a while.
func (l *listening) await(parts []*listenPart) {
	timer := time.NewTimer(ackWait)
	defer timer.Stop()
	for _, p := range parts {
		select {
		case <-p.first:
		case <-timer.C:
			l.c.s.log.Warn("a subscription was acknowledged before every server had done so", "server", p.name)
			return
		case <-l.c.ctx.Done():
			return
		}
	}
}

// meta is the _meta of everything that belongs to the subscription.
func (l *listening) meta() []byte {
	return append(l.c.id.AppendTo([]byte(`{"io.modelcontextprotocol/subscriptionId":`)), '}')
}

// acknowledge sends the one acknowledgement: what any member agreed to.
func (l *listening) acknowledge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	params := append([]byte(`{"_meta":`), l.meta()...)
	params = append(params, `,"notifications":`...)
	params = append(l.agreedLocked(params), '}')
	l.acked = true
	_ = l.c.to.Send(jsonrpc.AppendNotification(nil, noticeAcknowledged, params))
	for _, frame := range l.held {
		_ = l.c.to.Send(frame)
	}
	l.held = nil
}

func (l *listening) agreedLocked(dst []byte) []byte {
	var resources []byte
	var keys []string
	dst = append(dst, '{')
	for _, p := range l.parts {
		whole := jsonrpc.Span{End: len(p.agreed)}
		for m := range jsonrpc.Members(p.agreed, whole) {
			if m.Named(p.agreed, "resourceSubscriptions") {
				for e := range jsonrpc.Elements(p.agreed, m.Value) {
					if resources != nil {
						resources = append(resources, ',')
					}
					resources = append(resources, e.Of(p.agreed)...)
				}
				continue
			}
			key := string(m.Key.Of(p.agreed))
			if jsonrpc.KindAt(p.agreed, m.Value) == jsonrpc.TrueValue && !slices.Contains(keys, key) && len(keys) < 64 {
				if keys = append(keys, key); len(keys) > 1 {
					dst = append(dst, ',')
				}
				dst = append(append(dst, key...), ":true"...)
			}
		}
	}
	if resources != nil {
		if len(keys) > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, `"resourceSubscriptions":[`...), resources...), ']')
	}
	return append(dst, '}')
}

// serveListen keeps the subscription of one member up: one that ended although
// it had something is begun anew, because its server was replaced.
func (s *session) serveListen(p *listenPart) {
	defer p.spoke()
	ctx := p.l.c.ctx
	for wait := listenAgain; ; wait = min(2*wait, listenMost) {
		began := time.Now()
		err := s.listenOnce(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.leftOut(p.name, mcp.MethodListen, err)
		}
		p.l.mu.Lock()
		has := len(p.agreed) > len("{}")
		p.renewed = true
		p.l.mu.Unlock()
		if !has || errors.Is(err, errUnknown) {
			return
		}
		if time.Since(began) > listenMost {
			wait = listenAgain
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// listenOnce subscribes at a member and waits for the end of it.
func (s *session) listenOnce(ctx context.Context, p *listenPart) error {
	on, err := s.reach(ctx, p.name)
	if err != nil {
		return err
	}
	m := &mcp.Message{}
	if err := m.Read(p.frame); err != nil {
		return err
	}
	o := &listenOutlet{p: p, over: make(chan error, 1)}
	exchange := nextExchange()
	on.Deliver(mcp.Arrival{Message: m, To: o, Exchange: exchange, ByExchange: true})
	select {
	case err = <-o.over:
		return err
	case <-on.Ended():
		return errAway
	case <-ctx.Done():
		on.Abandon(exchange, *cancellation(ctx))
		return nil
	}
}

// spoke notes that the member has said its first word.
func (p *listenPart) spoke() { p.once.Do(func() { close(p.first) }) }

// listenOutlet is the outlet of one subscription at one member.
type listenOutlet struct {
	p    *listenPart
	over chan error // capacity 1
}

var _ mcp.Outlet = (*listenOutlet)(nil)

// Send implements [mcp.Outlet].
func (o *listenOutlet) Send(frame []byte, edits ...jsonrpc.Edit) error {
	p := o.p
	l := p.l
	m := &mcp.Message{}
	if err := m.Read(frame); err != nil {
		return err
	}
	switch m.Method {
	case noticeAcknowledged:
		p.acknowledged(m)
		return nil
	case mcp.NoticeCancelled:
		return nil // its end, which Drop or Answer follow (A2)
	case noticeResources:
		l.c.s.learnt.outdate()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked {
		return l.c.to.Send(frame, edits...)
	}
	if len(l.held) >= maxHeld {
		return jsonrpc.ErrQueueFull
	}
	l.held = append(l.held, jsonrpc.AppendSplice(nil, frame, edits...))
	return nil
}

// acknowledged takes a member's acknowledgement. One that was asked again may
// have changed meanwhile.
func (p *listenPart) acknowledged(m *mcp.Message) {
	at, ok, _ := jsonrpc.Member(m.Frame, m.Params, "notifications")
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	p.agreed = nil
	if ok && jsonrpc.KindAt(m.Frame, at) == jsonrpc.ObjectValue {
		p.agreed = bytes.Clone(at.Of(m.Frame))
	}
	p.spoke()
	if !p.renewed || !l.acked {
		return
	}
	whole := jsonrpc.Span{End: len(p.agreed)}
	for _, n := range []struct{ key, notice string }{
		{"toolsListChanged", mcp.NoticeTools}, {"promptsListChanged", noticePrompts}, {"resourcesListChanged", noticeResources},
	} {
		if at, ok, _ := jsonrpc.Member(p.agreed, whole, n.key); ok && jsonrpc.KindAt(p.agreed, at) == jsonrpc.TrueValue {
			params := append(append([]byte(`{"_meta":`), l.meta()...), '}')
			_ = l.c.to.Send(jsonrpc.AppendNotification(nil, n.notice, params))
		}
	}
}

// Answer implements [mcp.Outlet].
func (o *listenOutlet) Answer(_ int, frame []byte, _ ...jsonrpc.Edit) error {
	_, err := readResult(bytes.Clone(frame), true)
	o.end(err)
	return nil
}

// Drop implements [mcp.Outlet].
func (o *listenOutlet) Drop() { o.end(errDropped) }

func (o *listenOutlet) end(err error) {
	select {
	case o.over <- err:
	default:
	}
}
