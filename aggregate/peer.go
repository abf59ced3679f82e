package aggregate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// peer is a member in a legacy caller's session. Guarded by session.mu, except
// what is said to be fixed.
type peer struct {
	name  string             // fixed
	from  httpserver.Backend // fixed
	on    httpserver.Session // fixed once in
	ready chan struct{}      // closed when it has joined, or has failed to
	err   error              // why it is not in
	in    bool               // it has joined, and has not ended
	began time.Time          // when it joined
	again time.Time          // when it may be let in anew; zero while it is joining or in
	says  greeting           // fixed once in
}

// Times of joining.
const (
	joinWait  = 60 * time.Second // for a member to open its session and to answer initialize
	joinAgain = 10 * time.Second // before a member that failed is tried again
	eraAgain  = 5 * time.Minute  // before one of another era is
)

var (
	errUnknown = errors.New("there is no such server")
	errAway    = errors.New("the server is not there")
)

// reach returns the member's session for this caller. For a modern one that is
// the member's shared one of this principal, which has to be asked for each
// time. For a legacy one the member is let into the session first if it is not
// in it yet.
func (s *session) reach(ctx context.Context, name string) (httpserver.Session, error) {
	if s.era == mcp.Modern {
		members := s.b.members()
		i := slices.IndexFunc(members, func(m Member) bool { return m.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: %s", errUnknown, name)
		}
		who := s.who
		who.Revision = mcp.Revision26
		return members[i].Backend.Shared(ctx, who)
	}
	p := s.peer(name)
	if p == nil {
		return nil, fmt.Errorf("%w: %s", errUnknown, name)
	}
	select {
	case <-p.ready:
		s.mu.Lock()
		defer s.mu.Unlock()
		if !p.in {
			return nil, p.err
		}
		return p.on, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// near is reach without waiting: nil if it would have to.
func (s *session) near(name string) httpserver.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[name]; p != nil && p.in {
		return p.on
	}
	return nil
}

// joined lists the members in the session, in their order.
func (s *session) joined() []*peer {
	members := s.b.members()
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*peer, 0, len(s.peers))
	for _, m := range members {
		if p := s.peers[m.Name]; p != nil && p.in {
			list = append(list, p)
		}
	}
	for _, p := range s.peers { // removed from the configuration, and not over yet
		if p.in && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// peer returns a member's place in the session and sees to it that it is being
// let in, unless that failed a moment ago; nil if there is no such member.
func (s *session) peer(name string) *peer { return s.peerOf(s.b.members(), name) }

func (s *session) peerOf(members []Member, name string) *peer {
	i := slices.IndexFunc(members, func(m Member) bool { return m.Name == name })
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[name]
	switch {
	case p != nil && p.again.IsZero(): // it is in, or on its way
		return p
	case i < 0:
		delete(s.peers, name) // it was removed, and has ended
		return nil
	case p != nil && p.from == members[i].Backend && time.Now().Before(p.again):
		return p
	case s.hello == nil:
		return &peer{name: name, ready: closedChan, err: errAway}
	}
	p = &peer{name: name, from: members[i].Backend, ready: make(chan struct{})}
	if !s.goLocked(func() { s.join(p) }) {
		p.ready, p.err = closedChan, errClosing
		return p
	}
	s.peers[name] = p
	return p
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// invite lets in every member that is not in the session, and returns all.
func (s *session) invite() []*peer {
	members := s.b.members()
	list := make([]*peer, 0, len(members))
	for _, m := range members {
		if p := s.peerOf(members, m.Name); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// join opens a session of the caller in a member, with the handshake that the
// caller made, and stays with it until it is over.
func (s *session) join(p *peer) {
	ctx, end := context.WithTimeoutCause(s.life, joinWait, fmt.Errorf("%w: it did not answer initialize within %v", errAway, joinWait))
	defer end()
	on, err := p.from.Open(ctx, s.who, &doorstep{s, p})
	if err == nil {
		p.says, err = s.greet(ctx, on)
	}
	if err != nil {
		s.leftOut(p.name, mcp.MethodInitialize, err)
		wait := joinAgain
		if errors.Is(err, httpserver.ErrEra) {
			wait = eraAgain
		}
		s.mu.Lock()
		p.err, p.again = err, time.Now().Add(wait)
		s.mu.Unlock()
		close(p.ready)
		if on != nil {
			s.dismiss(p.name, on, belay.CauseShutdown, "the server is left out")
		}
		return
	}
	s.mu.Lock()
	p.on = on
	p.in, p.began = !s.closing, time.Now() // Close has looked already
	in, ready, level, late := p.in, s.ready, s.level, s.greeted
	if !in {
		p.err = errClosing
	}
	s.mu.Unlock()
	if !in {
		close(p.ready)
		s.dismiss(p.name, on, belay.CauseShutdown, errClosing.Error())
		return
	}
	// From here on notices of the caller reach it; what came before is told now.
	if ready != nil {
		deliver(on, ready)
	}
	if level != nil && p.says.has("logging") {
		_, _ = s.askOn(ctx, p.name, on, level, nil)
	}
	close(p.ready)
	if late {
		s.log.Info("a server has joined a session", "server", p.name)
		s.changed(&p.says)
	}
	s.stay(p)
}

// dismiss closes a member's session that is of no use any more.
func (s *session) dismiss(name string, on httpserver.Session, cause belay.Cause, reason string) {
	c := belay.Cancellation{Stop: belay.NewStopID(), Cause: cause, Via: "belay", Reason: reason, At: time.Now()}
	ctx, end := context.WithTimeoutCause(context.WithoutCancel(s.life), closeWait, &c)
	defer end()
	if err := on.Close(ctx, c); err != nil {
		s.log.Warn("a session did not end in good order", "server", name, "error", err)
	}
}

// greet sends the caller's initialize to a member.
func (s *session) greet(ctx context.Context, on httpserver.Session) (greeting, error) {
	s.mu.Lock()
	hello := s.hello
	s.mu.Unlock()
	answer, err := s.askOn(ctx, "", on, hello, nil)
	if err != nil {
		return greeting{}, err
	}
	return readGreeting(answer, mcp.Legacy)
}

// stay waits until the member's session is over, and takes it out.
func (s *session) stay(p *peer) {
	select {
	case <-p.on.Ended():
	case <-s.life.Done():
		return // Close ends it
	}
	s.mu.Lock()
	p.in, p.err, p.again = false, errAway, time.Now()
	if p.again.Sub(p.began) < joinAgain { // else it was of use, and may come back at once
		p.again = p.again.Add(joinAgain)
	}
	greeted := s.greeted
	s.mu.Unlock()
	if err := p.on.Err(); err != nil {
		s.log.Warn("a server has ended its session", "server", p.name, "error", err)
	} else { // its definition was changed, or somebody stopped it
		s.log.Info("a server has left a session", "server", p.name)
	}
	s.dismiss(p.name, p.on, belay.CausePeer, "the server ended the session")
	s.dropAsks("the server has ended", func(a *ask) bool { return a.on == p.on })
	for _, c := range s.left() { // it has answered them all; if not, nobody else will
		s.mu.Lock()
		mine := c.on == p.on
		s.mu.Unlock()
		if mine {
			c.failf(mcp.CodeInternal, "server %q has ended", p.name)
		}
	}
	if greeted {
		s.changed(&p.says)
	}
	if s.replaced(p) {
		s.peer(p.name) // its new definition, or nothing
	}
}

// replaced reports whether the member has another definition by now, or none.
func (s *session) replaced(p *peer) bool {
	return !slices.ContainsFunc(s.b.members(), func(m Member) bool { return m.Name == p.name && m.Backend == p.from })
}

// changed tells the caller that what a member had, or has, came or went.
func (s *session) changed(g *greeting) {
	s.mu.Lock()
	ready := s.ready != nil
	s.mu.Unlock()
	s.learnt.outdate()
	if !ready {
		return
	}
	for _, n := range []struct{ capability, notice string }{
		{"tools", mcp.NoticeTools}, {"prompts", noticePrompts}, {"resources", noticeResources},
	} {
		if g.has(n.capability) {
			_ = s.home.Send(jsonrpc.AppendNotification(nil, n.notice, nil))
		}
	}
}

// deliver gives a member a message that is kept here.
func deliver(on httpserver.Session, frame []byte) {
	m := &mcp.Message{}
	if m.Read(frame) == nil { // it was read before, or made here
		on.Deliver(mcp.Arrival{Message: m})
	}
}
