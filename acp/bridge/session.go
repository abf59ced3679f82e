package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// maxSessions bounds the sessions of one connection.
const maxSessions = 10_000

// session is one conversation. Guarded by the bridge's lock.
type session struct {
	id    string     // "" until the agent has said it
	run   *belay.Run // replaced when it was stopped and the session goes on
	front *belay.Run // below which its MCP servers were put behind Belay; nil: they were not
	above *turn      // of a child session: whose work it is (ACP-B9)

	turns     []*turn // that the agent is not done with, the oldest first
	queue     []*turn // whose prompts are held back (ACP-B23)
	last      *turn   // the newest of those that it is done with
	loading   int     // requests that replay its history
	terminals map[string]*terminal
	passed    []Passed
	work      background

	stopLine []byte       // the editor's own session/cancel, on its way
	toldStop belay.StopID // the last Stop that the agent was told of

	closing  bool          // the editor has closed or deleted it
	answered chan struct{} // closed when that was answered
}

// opens reports whether a request gives the editor a session.
func opens(method string) bool {
	switch method {
	case acp.MethodNewSession, acp.MethodLoadSession, acp.MethodResumeSession, acp.MethodForkSession:
		return true
	}
	return false
}

// replays reports whether a request names the session that it gives.
func replays(method string) bool {
	return method == acp.MethodLoadSession || method == acp.MethodResumeSession
}

// openSession passes a request that gives a session, as a run, and with the MCP
// servers that it names behind Belay (ACP-B11).
func (b *Bridge) openSession(r *request, e *jsonrpc.Envelope, line []byte) {
	id := ""
	if replays(r.method) {
		id, _ = acp.SessionOf(e.Params.Of(line))
	}
	s := b.sessions[id]
	if s == nil {
		var err error
		if s, err = b.newSession(id, sessionName(line, e.Params), nil); err != nil {
			r.fail(belay.JSONRPCCode(err), err.Error(), nil)
			return
		}
	}
	r.s = s
	if replays(r.method) {
		s.loading++
	}
	servers, ok, err := jsonrpc.Member(line, e.Params, "mcpServers")
	add := !ok && b.adds() && jsonrpc.KindAt(line, e.Params) == jsonrpc.ObjectValue
	if b.o.Front == nil || !ok && !add || err != nil || !b.known() || ok && jsonrpc.KindAt(line, servers) != jsonrpc.ArrayValue {
		b.forward(b.agent, r, e, line)
		return
	}
	b.agent.expect(r)
	idEdit := jsonrpc.Edit{At: e.IDAt, New: r.hid.AppendTo(nil)}
	p, err := b.agent.reserve(line, idEdit)
	if err != nil {
		b.agent.forget(r)
		b.requestOver(r)
		r.fail(acp.CodeInternal, "could not be passed on: "+err.Error(), nil)
		return
	}
	r.parcel = p
	line = bytes.Clone(line)
	run, params := s.run, e.Params
	b.spawnLocked(func() {
		ctx, end := context.WithTimeoutCause(run.Context(), rewriteWait, errRewrite)
		named := []byte("[]")
		if !add {
			named = servers.Of(line)
		}
		list, passed, err := b.o.Front.Rewrite(ctx, run, named)
		end()
		b.lock()
		defer b.unlock()
		if r.parcel == nil {
			b.later(func() { b.o.Front.Close(run) })
			return
		}
		r.parcel = nil
		if err != nil {
			b.log.Error("the MCP servers of a session could not be put behind Belay: they pass as they are, and a Stop will not reach them", "error", err)
		} else {
			s.front = run
			edit := jsonrpc.Edit{At: servers, New: list}
			if add {
				edit = jsonrpc.InsertMember(line, params, "mcpServers", list)
			}
			b.agent.replace(p, jsonrpc.AppendSplice(nil, line, idEdit, edit))
		}
		s.passed = passed
		for _, one := range passed {
			b.log.Warn("an MCP server is not behind Belay: a Stop will not reach it", "server", one.Name, "why", one.Why)
		}
		p.lost = func(err error) { b.lost(r, err) }
		b.agent.release(p)
	})
}

// rewriteWait bounds how long the servers of a session may take.
const rewriteWait = 20 * time.Second

var errRewrite = errors.New("putting the MCP servers behind Belay took too long")

// adds reports whether sessions get servers that the editor does not name.
func (b *Bridge) adds() bool {
	front, ok := b.o.Front.(Adder)
	return ok && front.Adds()
}

// known reports whether the protocol's version is one whose messages are
// understood in full (ACP-B6).
func (b *Bridge) known() bool { return b.version == acp.Version1 || b.version == acp.Version2 }

// sessionName is what people see: the folder that the session works in.
func sessionName(frame []byte, params jsonrpc.Span) string {
	at, ok, err := jsonrpc.Member(frame, params, "cwd")
	if !ok || err != nil {
		return "session"
	}
	cwd, err := jsonrpc.ReadString(frame, at, 4096)
	name := path.Base(strings.ReplaceAll(cwd, `\`, "/"))
	if err != nil || name == "." || name == "/" {
		return "session"
	}
	return name
}

// newSession registers a session. One without an id gets it by name.
func (b *Bridge) newSession(id, name string, above *turn) (*session, error) {
	if len(b.sessions)+len(b.unnamed) >= maxSessions {
		return nil, fmt.Errorf("%w: %d sessions are open on this connection", belay.ErrTooMany, maxSessions)
	}
	s := &session{id: id, above: above, terminals: map[string]*terminal{}, answered: make(chan struct{})}
	if err := b.registerSession(s, name); err != nil {
		return nil, err
	}
	if id == "" {
		b.unnamed[s] = struct{}{}
	} else {
		b.sessions[id] = s
	}
	return s, nil
}

// registerSession makes the run of a session, or a new one when the last was
// stopped: the conversation outlives that.
func (b *Bridge) registerSession(s *session, name string) error {
	stopper := &sessionStopper{b: b, s: s}
	spec := belay.Spec{
		Kind: belay.KindSession, Name: name, Server: b.o.Name, Owner: b.o.Owner, Address: s.id,
		Parent: b.o.Parent, ParentID: b.o.ParentID, Stopper: stopper,
		Ladder: belay.Ladder{Grace: max(b.set.Linger, time.Millisecond), KillAfter: b.set.KillAfter, ConfirmAfter: b.set.AgentDeadline + endMargin},
	}
	if s.above != nil {
		spec.Parent = s.above.run
	}
	run, err := b.o.Tree.Register(spec)
	if errors.Is(err, belay.ErrCancelled) || errors.Is(err, belay.ErrEnded) {
		// What is above was stopped; the editor goes on all the same, and what it starts
		// now must be found and stopped.
		if spec.Parent != nil {
			spec.ParentID, spec.Parent = spec.Parent.ID(), nil
		}
		run, err = b.o.Tree.Register(spec)
	}
	if err != nil {
		return err
	}
	s.run, stopper.run = run, run
	if len(b.runs) >= max(b.pruneAt, 64) {
		b.runs = slices.DeleteFunc(b.runs, func(r *belay.Run) bool { i := r.Info(); return i.Over() })
		b.pruneAt = 2 * len(b.runs)
	}
	b.runs = append(b.runs, run)
	return nil
}

// sessionFor is the session with this id, as a run that can have new work.
func (b *Bridge) sessionFor(id string) (*session, error) {
	s := b.sessions[id]
	if s == nil {
		return b.newSession(id, id, nil)
	}
	if s.run.Cancellation() != nil && !s.closing {
		return s, b.registerSession(s, s.run.Name())
	}
	return s, nil
}

// sessionAnswered takes the agent's answer to a request that gives or ends a
// session.
func (b *Bridge) sessionAnswered(r *request, e *jsonrpc.Envelope, line []byte) {
	s := r.s
	if !opens(r.method) {
		b.sessionEnded(s, e.IsError())
		return
	}
	if replays(r.method) {
		s.loading--
		if _, live := b.sessions[s.id]; live && e.IsError() && len(s.turns) == 0 && s.loading == 0 {
			b.dropSession(s, belay.Failed)
		}
		return
	}
	id, ok := acp.SessionOf(e.Result.Of(line))
	if e.IsError() || !ok {
		b.dropSession(s, belay.Failed)
		return
	}
	delete(b.unnamed, s)
	s.id = id
	if old := b.sessions[id]; old != nil && old != s {
		b.log.Warn("the agent gives a session the id of another one", "session", id)
		b.dropSession(old, belay.Lost)
	}
	b.sessions[id] = s
}

// requestOver lets go of what a request would have brought, had it succeeded.
func (b *Bridge) requestOver(r *request) {
	switch {
	case r.s == nil:
	case r.method == acp.MethodNewSession, r.method == acp.MethodForkSession:
		b.dropSession(r.s, belay.Failed)
	case replays(r.method):
		r.s.loading--
	case !opens(r.method):
		b.sessionEnded(r.s, true)
	}
}

// dropSession forgets a session in which nothing runs.
func (b *Bridge) dropSession(s *session, o belay.Outcome) {
	b.unlist(s)
	s.run.Finish(o)
	if front := s.front; front != nil {
		s.front = nil
		b.later(func() { b.o.Front.Close(front) })
	}
}

// unlist takes a session out of the table: its id means it no more. Turns that it has
// in flight are still seen to.
func (b *Bridge) unlist(s *session) {
	delete(b.unnamed, s)
	if b.sessions[s.id] == s {
		delete(b.sessions, s.id)
	}
	if len(s.turns)+len(s.queue) > 0 {
		b.orphans[s] = struct{}{}
	}
}

// closeSession is a Stop of the session, and then passes (ACP-B32).
func (b *Bridge) closeSession(r *request, id string, e *jsonrpc.Envelope, line []byte) {
	s := b.sessions[id]
	if s == nil {
		b.forward(b.agent, r, e, line)
		return
	}
	r.s = s
	s.closing = true
	act := belay.NewStopID()
	b.editorStop = act
	run := s.run
	b.later(func() {
		run.Cancel(belay.Cancellation{Stop: act, Cause: belay.CauseUser, By: b.o.Owner, Via: "acp", Reason: "the editor sent " + r.method})
		b.lock()
		defer b.unlock()
		if !b.forward(b.agent, r, e, line) {
			b.sessionEnded(s, true)
		}
	})
}

// sessionEnded notes the answer to session/close or session/delete.
func (b *Bridge) sessionEnded(s *session, failed bool) {
	if !s.closing {
		return
	}
	if failed {
		b.log.Warn("the agent could not close a session", "session", s.id)
	}
	select {
	case <-s.answered:
		return
	default:
		close(s.answered)
	}
	b.unlist(s)
	if front := s.front; front != nil {
		s.front = nil
		b.later(func() { b.o.Front.Close(front) })
	}
}

// current is the turn to which what the agent says about the session belongs: the
// newest that the editor still waits for, else the newest.
func (s *session) current() *turn {
	for s != nil {
		var found *turn
		for _, t := range slices.Backward(s.turns) {
			if t.sent && !t.settled {
				return t
			}
			if t.sent && found == nil {
				found = t
			}
		}
		if found != nil || s.above == nil {
			return found
		}
		s = s.above.s
	}
	return nil
}

// holds reports whether prompts have to wait, because the agent still owes the end
// of a turn whose end the editor has (ACP-B23).
func (s *session) holds() bool {
	return slices.ContainsFunc(s.turns, func(t *turn) bool { return t.settled && !t.done && !t.abandoned })
}

// place tells the front below which run calls of the session's servers hang.
func (b *Bridge) place(s *session) {
	if s.front == nil {
		return
	}
	var run *belay.Run
	if t := s.current(); t != nil {
		run = t.run
	}
	front := s.front
	b.later(func() { b.o.Front.Place(front, run) })
}

// sessionStopper stops a session. Its turns have stoppers of their own; what is left
// is what earlier turns have started, when the editor closes the session.
type sessionStopper struct {
	b   *Bridge
	s   *session
	run *belay.Run

	brood Brood
}

var (
	_ belay.Gate       = (*sessionStopper)(nil)
	_ belay.Terminator = (*sessionStopper)(nil)
	_ belay.Killer     = (*sessionStopper)(nil)
	_ belay.Planner    = (*sessionStopper)(nil)
)

// Tell: its turns are told; there is nothing to say about a session itself.
func (p *sessionStopper) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	return nil, nil
}

// Plan says what a Stop would do.
func (p *sessionStopper) Plan(context.Context) belay.Plan {
	return belay.Plan{Tell: "the agent, for each turn of the session", Force: "as for its turns; nothing of earlier turns"}
}

// MayForce waits until the turns of the session are over. Nothing more is done
// unless the editor has closed it.
func (p *sessionStopper) MayForce(ctx context.Context, pressure belay.Pressure) error {
	p.b.mu.Lock()
	turns := slices.Clone(p.s.turns)
	closing, answered := p.s.closing, p.s.answered
	p.b.mu.Unlock()
	for _, t := range turns {
		if t.run.Cancellation() == nil {
			continue
		}
		if _, err := t.run.Wait(ctx); err != nil {
			return err
		}
	}
	if closing && !pressure.Again {
		timer := time.NewTimer(p.b.set.Grace)
		defer timer.Stop()
		select {
		case <-answered:
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	said := belay.Evidence{Kind: belay.SeenTaskCancelled, Detail: "its turns are over"}
	if !closing || p.b.o.Offspring == nil || p.b.set.Enforce == Never {
		p.run.Observe(said)
		return &belay.Restraint{Why: said.Detail, Futile: true}
	}
	brood := p.b.o.Offspring.Session(p.run)
	p.b.spawn(func() {
		p.b.waitOver(p.run)
		brood.End()
	})
	p.brood = brood
	if open, others := brood.Living(); len(open)+len(others) == 0 {
		p.run.Observe(said)
		return &belay.Restraint{Why: said.Detail, Futile: true}
	}
	return nil
}

// waitOver waits until the run is over, or Serve ends.
func (b *Bridge) waitOver(run *belay.Run) {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(errClock)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = run.Wait(ctx)
	}()
	select {
	case <-over:
	case <-b.ended:
		end(errClock)
		<-over
	}
}

// Terminate ends every process that is attributed to the session.
func (p *sessionStopper) Terminate(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	return p.brood.Terminate(ctx, true)
}

// Kill does, too.
func (p *sessionStopper) Kill(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	return p.brood.Kill(ctx, true)
}
