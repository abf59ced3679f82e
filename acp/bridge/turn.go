package bridge

import (
	"bytes"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

const (
	maxHeld = 64                     // prompts of one session that wait for the end of a turn
	soon    = 100 * time.Millisecond // an end so short after the Stop may be the turn's own (ACP-B21)
)

// turn is the work that one prompt starts (v2: the foreground work from running to
// idle). Guarded by the bridge's lock.
type turn struct {
	b      *Bridge
	s      *session
	run    *belay.Run
	prompt *request   // nil: v2 work that no prompt has started
	more   []*request // v2: prompts into work that was under way already
	brood  Brood      // nil: nothing is known of its processes

	held     []byte           // the prompt, while it is held back
	envelope jsonrpc.Envelope // of held

	sent      bool // the agent has it
	running   bool // v2: the agent said so
	inserted  bool // v2: the prompt is in
	settled   bool // the editor has its end
	done      bool // the agent has ended it, or never will
	abandoned bool // nobody waits for the agent's end any more

	tools    map[string]*tool
	children []*request      // what the agent has asked of the editor for it, and has no answer yet
	subs     bool            // it has child sessions
	last     *belay.Evidence // what the agent said of its end, where that came before the Stop did
	stop     *stopping       // nil until it is stopped
	swallow  int             // updates that came after the editor had the end
}

// prompt makes a turn of a prompt and passes it on.
func (b *Bridge) prompt(r *request, id string, e *jsonrpc.Envelope, line []byte, early bool) {
	s, err := b.sessionFor(id)
	if err != nil {
		r.fail(belay.JSONRPCCode(err), err.Error(), nil)
		return
	}
	r.s, r.early = s, early
	if t := s.foreground(); b.version == acp.Version2 && t != nil && t.stop == nil && !early {
		r.t = t
		t.more = append(t.more, r)
		b.forward(b.agent, r, e, line)
		return
	}
	if len(s.queue) >= maxHeld {
		r.fail(acp.CodeInternal, "too many prompts wait for the agent to end a turn that was stopped", nil)
		return
	}
	t, err := b.newTurn(s, r)
	if err != nil {
		r.fail(belay.JSONRPCCode(err), err.Error(), nil)
		return
	}
	r.t = t
	if s.holds() || early {
		t.held, t.envelope = bytes.Clone(line), *e
		s.queue = append(s.queue, t)
		if early {
			b.cancelLater(t, "the request was cancelled before it came")
		}
		return
	}
	b.dispatch(t, e, line)
}

// newTurn registers a turn.
func (b *Bridge) newTurn(s *session, r *request) (*turn, error) {
	t := &turn{b: b, s: s, prompt: r, tools: map[string]*tool{}}
	spec := belay.Spec{
		Kind: belay.KindTurn, Name: "prompt", Server: b.o.Name, Owner: b.o.Owner, Address: s.id,
		Parent: s.run, Queued: true, Deferred: true,
		Stopper: newTurnStopper(t), OnCancel: t.onCancel,
		Ladder: belay.Ladder{
			Grace: max(min(b.set.Linger, b.set.Grace), time.Millisecond), KillAfter: b.set.KillAfter,
			ConfirmAfter: b.set.AgentDeadline + closeWait + endMargin,
		},
	}
	if r == nil {
		spec.Name = "agent's own work"
	}
	if b.set.TurnDeadline > 0 {
		spec.Deadline = time.Now().Add(b.set.TurnDeadline)
	}
	run, err := b.o.Tree.Register(spec)
	if err != nil {
		return nil, err
	}
	t.run = run
	return t, nil
}

// dispatch sends the turn's prompt, after the snapshot of the agent's processes and
// after its servers know below which run their calls hang (ACP-B10). Both take some
// time, in which the prompt keeps its place and a Stop takes it back.
func (b *Bridge) dispatch(t *turn, e *jsonrpc.Envelope, line []byte) {
	r := t.prompt
	t.s.turns = append(t.s.turns, t)
	if b.o.Offspring == nil && t.s.front == nil {
		if !t.run.Start() {
			t.held = bytes.Clone(line) // the Stop that came is on its way here
			return
		}
		t.sent = b.forward(b.agent, r, e, line)
		if !t.sent {
			b.endTurn(t, belay.Failed)
		}
		return
	}
	b.agent.expect(r)
	p, err := b.agent.reserve(line, jsonrpc.Edit{At: e.IDAt, New: r.hid.AppendTo(nil)})
	if err != nil {
		b.agent.forget(r)
		r.fail(acp.CodeInternal, "could not be passed on: "+err.Error(), nil)
		b.endTurn(t, belay.Failed)
		return
	}
	r.parcel = p
	front := t.s.front
	b.spawnLocked(func() {
		var brood Brood
		if b.o.Offspring != nil {
			brood = b.o.Offspring.Turn(t.run)
		}
		if front != nil {
			b.o.Front.Place(front, t.run)
		}
		b.lock()
		defer b.unlock()
		t.brood = brood
		if r.parcel == nil || !t.run.Start() {
			if t.done {
				b.later(t.release)
				b.place(t.s)
			}
			return
		}
		r.parcel = nil
		t.sent = true
		p.lost = func(err error) { b.lost(r, err) }
		b.agent.release(p)
	})
}

// promptAnswered takes the agent's answer to a prompt.
func (b *Bridge) promptAnswered(r *request, e *jsonrpc.Envelope, line []byte) {
	t := r.t
	if b.version == acp.Version2 {
		b.inserted(r, e, line)
		return
	}
	if t.stop != nil {
		b.stoppedAnswer(t, e, line)
		return
	}
	o := outcomeOf(e, line)
	if err := r.pass(e, line); err != nil {
		b.log.Warn("the end of a turn could not be passed on", "error", err)
	}
	b.endTurn(t, o)
}

// outcomeOf is how a turn ended by itself.
func outcomeOf(e *jsonrpc.Envelope, line []byte) belay.Outcome {
	if e.IsError() {
		if errorCode(e, line) == acp.CodeCancelled {
			return belay.Cancelled
		}
		return belay.Failed
	}
	if reason, _ := acp.StopReasonOf(e.Result.Of(line)); reason == acp.StopCancelled {
		return belay.Cancelled
	}
	return belay.Completed
}

// promptFailed ends a turn to whose prompt there is no answer that can be passed.
func (b *Bridge) promptFailed(r *request, code int, message string) {
	t := r.t
	switch {
	case r != t.prompt, b.version == acp.Version2 && (t.running || t.inserted):
		r.fail(code, message, nil) // the work goes on without it
	case t.stop != nil:
		t.stop.word = message
		said := belay.Evidence{Kind: belay.SeenErrorReply, Open: true, Detail: message}
		t.run.Observe(said)
		b.settleTurn(t)
		b.agentDone(t, said)
	default:
		r.fail(code, message, nil)
		b.endTurn(t, belay.Failed)
	}
}

// endTurn ends a turn that nobody has stopped.
func (b *Bridge) endTurn(t *turn, o belay.Outcome) {
	t.settled = true
	t.run.Finish(o)
	for _, x := range t.tools {
		x.end(o)
	}
	for _, r := range slices.Clone(t.children) {
		b.childOver(r, o)
	}
	b.turnDone(t)
	b.later(t.release)
}

// turnDone notes that the agent is done with the turn: the next one may begin.
func (b *Bridge) turnDone(t *turn) {
	if t.done {
		return
	}
	t.done = true
	if brood, ok := t.brood.(Answerer); ok {
		b.later(brood.Answered)
	}
	s := t.s
	s.last = t
	s.turns = slices.DeleteFunc(s.turns, func(u *turn) bool { return u == t })
	s.queue = slices.DeleteFunc(s.queue, func(u *turn) bool { return u == t })
	if t.subs {
		for _, child := range b.everySession() {
			if child.above == t {
				b.dropSession(child, belay.Completed)
			}
		}
	}
	if len(s.turns)+len(s.queue) == 0 {
		delete(b.orphans, s)
	}
	b.place(s)
	b.dispatchHeld(s)
	b.killIfDue()
}

// dispatchHeld sends the prompts that had to wait for the end of another turn.
func (b *Bridge) dispatchHeld(s *session) {
	if b.reason != "" || s.holds() {
		return
	}
	queue := s.queue
	s.queue = nil
	for _, t := range queue {
		if t.run.Cancellation() != nil {
			s.queue = append(s.queue, t) // its Stop is on its way here
			continue
		}
		line, e := t.held, t.envelope
		t.held = nil
		b.dispatch(t, &e, line)
	}
}

// release lets go of the turn's processes. Called without the lock.
func (t *turn) release() {
	t.b.mu.Lock()
	brood := t.brood
	t.brood = nil
	t.b.mu.Unlock()
	if brood != nil {
		brood.End()
	}
}

// errorCode is the code of an error answer, 0 if it has none.
func errorCode(e *jsonrpc.Envelope, line []byte) int {
	at, ok, _ := jsonrpc.Member(line, e.Error, "code")
	if !ok {
		return 0
	}
	return number(at.Of(line))
}
