package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

const (
	samePress = time.Second      // signals so close together are one Stop (ACP-B15)
	cutAfter  = time.Second      // from the Stop to the end of the agent's open requests
	closeWait = 2 * time.Second  // for the answer to session/close, before the agent is killed
	slowKill  = 12 * time.Second // most that a kill may take: tools that clean up slowly have ten seconds
	endMargin = 5 * time.Second  // after the last step, for its evidence
	maxStill  = 8                // signs of life that are written down
)

// stopping is what becomes of a turn that was stopped. Guarded by the bridge's lock.
type stopping struct {
	at        time.Time // the Stop, from which all times count
	pressed   time.Time // the last press in the editor
	cause     *belay.Cancellation
	byEditor  bool          // the editor asked for it, and so knows
	byRequest bool          // by a cancel of the prompt itself
	err       error         // why the agent could not be told
	cut       bool          // Belay has cut something, which explains an end of another kind
	unsure    bool          // whether it has is not known yet
	confirmed chan struct{} // closed when the agent has ended the turn
	saidAt    time.Time     // when that was
	said      *belay.Evidence
	word      string          // what the agent said, where the editor was told something else
	alive     []belay.Process // of open tool calls, seen after the Stop
	gone      *belay.Evidence // what was alive of its open tool calls was seen gone
	forced    bool            // force was used
	still     int             // signs of life
	beyond    chan struct{}   // closed when a person presses after the last step
	open      []*tool         // at the Stop
	undone    bool            // past the deadline
	all       bool            // the turn's background work is to end too
	killing   bool            // the agent is being killed because of it
}

func newStopping(c *belay.Cancellation) *stopping {
	now := time.Now()
	return &stopping{at: now, pressed: now, cause: c, confirmed: make(chan struct{}), beyond: make(chan struct{})}
}

// sessionCancel takes the editor's Stop of a session's turns (ACP-B14, B15).
func (b *Bridge) sessionCancel(e *jsonrpc.Envelope, line []byte) {
	id, ok := acp.SessionOf(e.Params.Of(line))
	s := b.sessions[id]
	if ok && s != nil && len(s.turns)+len(s.queue) == 0 {
		if last := s.last; last != nil && (last.justPressed() || b.unfinished(last)) {
			b.press(s, []*turn{last}, nil, "the editor sent session/cancel")
			return
		}
	}
	if !ok || s == nil || len(s.turns)+len(s.queue) == 0 {
		if err := b.agent.relay(line); err != nil {
			b.dropLocked("editor", "a session/cancel for which there is no room", "error", err)
		}
		return
	}
	b.press(s, slices.Concat(s.turns, s.queue), line, "the editor sent session/cancel")
}

// justPressed reports whether a signal now is the same Stop as the last.
func (t *turn) justPressed() bool {
	return t.stop != nil && time.Since(t.stop.pressed) < samePress
}

// unfinished reports whether something of a stopped turn, which the agent has ended,
// is left for a second Stop.
func (b *Bridge) unfinished(t *turn) bool {
	_, stopping := b.stopping[t]
	return stopping || slices.Contains(b.kept, t)
}

// cancelPrompt takes the editor's cancel of a prompt's request (ACP-B28).
func (b *Bridge) cancelPrompt(r *request) {
	t := r.t
	if b.version == acp.Version2 && t.sent {
		b.cancelRequest(r) // before insertion the only way, after it ignored
		return
	}
	if t.stop != nil {
		t.stop.byRequest = true
	}
	r.cancel = true
	b.press(t.s, []*turn{t}, nil, "the editor cancelled the prompt")
}

// press is the editor's Stop of some turns of a session: the first, the same once
// more, or the next step. Anything else that is open in the session goes on.
func (b *Bridge) press(s *session, turns []*turn, line []byte, reason string) {
	now := time.Now()
	var first, again []belay.RunID
	for _, t := range turns {
		switch {
		case t.justPressed(): // the same Stop in another form
		case t.stop != nil:
			t.stop.pressed = now
			again = append(again, t.run.ID())
		default:
			first = append(first, t.run.ID())
		}
	}
	if len(first)+len(again) == 0 {
		return
	}
	act := belay.NewStopID()
	b.editorStop = act
	s.stopLine = line
	c := belay.Cancellation{Stop: act, Cause: belay.CauseUser, By: b.o.Owner, Via: "acp", Reason: reason}
	b.later(func() {
		// Only a second press escalates. With the first, calls below may be stopping
		// already, told by the agent itself: that is the same Stop by another way.
		for _, req := range []belay.CancelRequest{
			{Filter: belay.Filter{IDs: first}, Cancellation: c},
			{Filter: belay.Filter{IDs: again}, Cancellation: c, Escalate: true},
		} {
			if len(req.Filter.IDs) == 0 {
				continue
			}
			if _, err := b.o.Tree.Cancel(context.Background(), req); err != nil {
				b.log.Error("a Stop was refused", "error", err)
			}
		}
		b.mu.Lock()
		s.stopLine = nil
		b.mu.Unlock()
	})
}

// cancelLater cancels a turn on its own, without the lock.
func (b *Bridge) cancelLater(t *turn, reason string) {
	act := belay.NewStopID()
	b.editorStop = act
	b.later(func() {
		t.run.Cancel(belay.Cancellation{Stop: act, Cause: belay.CauseUser, By: b.o.Owner, Via: "acp", Reason: reason})
	})
}

// onCancel is where every Stop of a turn arrives, from whatever door (ACP-B14).
func (t *turn) onCancel(_ *belay.Run, c *belay.Cancellation) {
	t.b.lock()
	defer t.b.unlock()
	t.b.stopTurn(t, c)
}

// stopTurn begins the Stop of a turn: the agent is told, and then its open questions
// are answered. The rest follows by the clock.
func (b *Bridge) stopTurn(t *turn, c *belay.Cancellation) {
	if t.stop != nil {
		return // Serve ends, and has seen to it
	}
	st := newStopping(c)
	st.byEditor = c.Stop == b.editorStop && !c.Stop.IsZero()
	st.byRequest = t.prompt != nil && t.prompt.cancel
	st.unsure = t.s.front != nil
	t.stop = st
	if !t.sent {
		b.neverStarted(t)
		return
	}
	if t.done { // it has just ended by itself
		said := belay.Evidence{Kind: belay.SeenResult, Detail: "the turn ended in the moment of the Stop"}
		if t.last != nil {
			said = *t.last
		}
		t.run.Observe(said)
		return
	}
	b.stopping[t] = struct{}{}
	for _, x := range t.tools {
		if x.open {
			x.openThen = true
			st.open = append(st.open, x)
		}
	}
	b.tellAgent(t)
	if b.set.Background == End && b.version == acp.Version2 && t.s.work.runs() {
		st.all = true
		b.stopBackground(t)
	}
	for _, r := range slices.Clone(t.children) {
		if acp.Dialog(r.method) && b.earlyAnswer(r) {
			b.dismiss(r, !st.byEditor)
		}
	}
	b.notifyStop(t)
	b.spawnLocked(func() { b.clock(t) })
}

// earlyAnswer reports whether a question may be answered before the agent withdraws
// it. In v2 it may only be if it is known to belong to the work that was stopped.
func (b *Bridge) earlyAnswer(r *request) bool {
	if b.version != acp.Version2 {
		return true
	}
	return r.t.tools[r.tool] != nil && !r.t.s.work.lists(r.tool)
}

// neverStarted ends a turn that the agent has not seen.
func (b *Bridge) neverStarted(t *turn) {
	r := t.prompt
	if r != nil {
		if r.parcel != nil {
			b.agent.drop(r.parcel)
			b.agent.forget(r)
			r.parcel = nil
		}
		if b.version == acp.Version1 && !r.early {
			r.answer(endResult(t, ""))
		} else {
			r.fail(acp.CodeCancelled, acp.CancelledText, nil)
		}
	}
	t.held, t.settled = nil, true
	t.run.Settle(belay.Cancelled)
	t.run.Observe(belay.Evidence{Kind: belay.SeenNotStarted, Scope: belay.ScopeHandler, Detail: "the prompt had not been passed to the agent"})
	b.turnDone(t)
	b.later(t.release)
}

// tellAgent sends the one session/cancel of this turn, or, when other turns of the
// session are to go on, a cancel of its prompt.
func (b *Bridge) tellAgent(t *turn) {
	s, st := t.s, t.stop
	if s.toldStop == st.cause.Stop {
		return // with another turn of this Stop
	}
	others := slices.ContainsFunc(s.turns, func(u *turn) bool {
		return u != t && u.sent && !u.settled && u.run.Cancellation() == nil
	})
	if others && b.version != acp.Version2 && t.prompt != nil {
		if !t.prompt.tell() {
			st.err = fmt.Errorf("%w: other turns of the session go on, and the agent takes no cancel of a single request", belay.ErrUnreachable)
		}
		return
	}
	s.toldStop = st.cause.Stop
	var err error
	if line := s.stopLine; line != nil && st.byEditor {
		s.stopLine = nil
		err = b.agent.say(func(dst []byte) []byte { return append(dst, line...) })
	} else {
		err = b.agent.say(func(dst []byte) []byte { return acp.AppendSessionCancel(dst, s.id) })
	}
	if err != nil {
		st.err = fmt.Errorf("%w: session/cancel: %w", belay.ErrUnreachable, err)
	}
}

// noteCut notes that Belay has ended something of a stopped turn, after which the
// agent may report another end than cancelled.
func (t *turn) noteCut() {
	if t.stop != nil {
		t.stop.cut = true
	}
}

// dropped notes an update that came after the editor had the turn's end.
func (t *turn) dropped() {
	if t.swallow++; t.swallow == 1 {
		t.stillActive("updates of the turn after its end was told; they are dropped")
	}
}

func (t *turn) droppedSoFar() string {
	if t.swallow == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of its updates were dropped before", t.swallow)
}

// stillActive notes a sign of life after the Stop (ACP-B25).
func (t *turn) stillActive(what string) {
	if st := t.stop; st != nil {
		if st.still++; st.still > maxStill {
			return
		}
	}
	t.run.Observe(belay.Evidence{Kind: belay.SeenStillActive, Detail: what})
}

// clock takes a stopped turn through its times until its receipt is final.
func (b *Bridge) clock(t *turn) {
	st := t.stop
	ctx, end := context.WithCancelCause(context.Background())
	defer end(errClock)
	final := make(chan struct{})
	b.spawn(func() {
		defer close(final)
		b.watchRun(ctx, t)
	})
	b.spawn(func() { b.firstLook(ctx, t) })
	timer := func(d time.Duration) *time.Timer { return time.NewTimer(time.Until(st.at.Add(d))) }
	cut, settle, deadline := timer(cutAfter), timer(b.set.Settle), timer(b.set.AgentDeadline)
	var look <-chan time.Time
	for _, x := range []*time.Timer{cut, settle, deadline} {
		defer x.Stop()
	}
	confirmed, beyond := st.confirmed, st.beyond
	for {
		select {
		case <-cut.C:
			b.with(func() { b.cutChildren(t) })
		case <-settle.C:
			b.with(func() { b.settleTurn(t) })
		case <-deadline.C:
			b.pastDeadline(t)
		case <-beyond:
			beyond = nil
			b.pastDeadline(t)
		case <-confirmed:
			confirmed = nil
			settle.Stop()
			deadline.Stop()
			look = time.After(b.set.Linger)
		case <-look:
			look = nil
			b.lookAgain(ctx, t)
		case <-final:
			if t.run.Receipt().Final { // else the watch has ended with Serve
				b.stopOver(t)
			}
			return
		case <-b.ended:
			return // the end of Serve sees to the rest
		}
	}
}

var errClock = errors.New("the receipt of the turn is final")

// with calls f with the lock.
func (b *Bridge) with(f func()) {
	b.lock()
	defer b.unlock()
	f()
}

// watchRun returns when the turn's receipt is final. A press after the kill is the
// agent's deadline (ACP-B15).
func (b *Bridge) watchRun(ctx context.Context, t *turn) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(errClock)
	b.spawn(func() {
		select {
		case <-b.ended:
			end(errClock)
		case <-ctx.Done():
		}
	})
	events := b.o.Tree.Watch(ctx, belay.Filter{IDs: []belay.RunID{t.run.ID()}})
	for e, err := range events {
		r := t.run.Receipt()
		if err != nil || r == nil || r.Final {
			return
		}
		if e.Type == belay.EventStep && steps(r).beyond() {
			b.with(func() {
				select {
				case <-t.stop.beyond:
				default:
					close(t.stop.beyond)
				}
			})
		}
	}
}

// steps is the timeline of a receipt.
type timeline struct{ terminated, killed, pressed, after bool }

func steps(r *belay.Receipt) timeline {
	var l timeline
	for _, s := range r.Steps {
		switch s.Step {
		case belay.StepTerminate:
			l.terminated = true
		case belay.StepKill:
			l.killed = true
		case belay.StepEscalated:
			l.pressed = true
			l.after = l.after || l.killed
		default:
		}
	}
	return l
}

// beyond reports whether a person has pressed after the last step.
func (l timeline) beyond() bool { return l.after }

// stoppedAnswer takes the answer to a prompt of v1 that comes after the Stop
// (ACP-B21).
func (b *Bridge) stoppedAnswer(t *turn, e *jsonrpc.Envelope, line []byte) {
	st, r := t.stop, t.prompt
	said, reason := b.saidBy(e, line)
	said.Detail += t.droppedSoFar()
	t.run.Observe(said) // first, so that what is composed below knows
	if t.settled {
		st.word = said.Detail
		t.run.Finish(belay.Cancelled) // counts it as late
		b.agentDone(t, said)
		return
	}
	t.settled = true
	o := belay.Cancelled
	switch {
	case !b.known():
		o = outcomeOf(e, line)
		_ = r.pass(e, line)
	case reason == acp.StopCancelled:
		_ = r.pass(e, line)
	case e.IsError() && st.byRequest && errorCode(e, line) == acp.CodeCancelled:
		_ = r.pass(e, line)
	case reason != "" && time.Since(st.at) < soon && !st.cut && !st.unsure:
		o = belay.Completed
		_ = r.pass(e, line)
	case reason != "":
		at, _, _ := jsonrpc.Member(line, e.Result, "stopReason")
		st.word = said.Detail
		_ = r.pass(e, line, jsonrpc.Edit{At: at, New: []byte(`"cancelled"`)})
	default:
		st.word = said.Detail
		r.answer(endResult(t, said.Detail))
	}
	t.run.Settle(o)
	b.agentDone(t, said)
}

// saidBy is what the agent's answer to a stopped prompt is evidence of. It never
// ends the ladder: what an agent says of its end is no proof of it (A9).
func (b *Bridge) saidBy(e *jsonrpc.Envelope, line []byte) (belay.Evidence, acp.StopReason) {
	if e.IsError() {
		return belay.Evidence{Kind: belay.SeenErrorReply, Open: true, Detail: fmt.Sprintf("the agent answered error %d", errorCode(e, line))}, ""
	}
	reason, ok := acp.StopReasonOf(e.Result.Of(line))
	switch {
	case !ok:
		return belay.Evidence{Kind: belay.SeenResult, Open: true, Detail: "the agent answered without a stop reason"}, ""
	case reason == acp.StopCancelled:
		return belay.Evidence{Kind: belay.SeenTaskCancelled, Open: true, Detail: "the agent says: cancelled"}, reason
	}
	return belay.Evidence{Kind: belay.SeenResult, Open: true, Detail: "the agent says: " + string(reason)}, reason
}

// agentDone notes that the agent has ended a stopped turn. Its processes are looked
// at a moment later.
func (b *Bridge) agentDone(t *turn, said belay.Evidence) {
	st := t.stop
	said.Open = true
	st.said, st.saidAt = &said, time.Now()
	select {
	case <-st.confirmed:
	default:
		close(st.confirmed)
	}
	for _, r := range slices.Clone(t.children) {
		b.dismissOrCut(r)
	}
	b.turnDone(t)
}

// dismissOrCut ends a request of a turn that is over. In v2 a question may be of work
// that goes on: it stays with the editor.
func (b *Bridge) dismissOrCut(r *request) {
	if acp.Dialog(r.method) && b.earlyAnswer(r) {
		b.dismiss(r, true)
		return
	}
	if r.run != nil {
		r.run.Observe(belay.Evidence{Kind: belay.SeenTaskCancelled, Detail: "its turn has ended"})
	}
	r.t.lets(r)
}

// settleTurn gives the editor the end of a turn that the agent does not end
// (ACP-B22).
func (b *Bridge) settleTurn(t *turn) {
	if t.settled || t.done {
		return
	}
	t.settled = true
	t.run.Settle(belay.Cancelled)
	switch b.version {
	case acp.Version1:
		t.prompt.answer(endResult(t, t.stop.word))
	case acp.Version2:
		b.settleWork(t)
	default:
		t.prompt.fail(acp.CodeCancelled, acp.CancelledText, nil)
	}
}

// pastDeadline is for an agent that has still not ended the turn.
func (b *Bridge) pastDeadline(t *turn) {
	b.lock()
	defer b.unlock()
	if t.done || t.stop.undone {
		return
	}
	t.stop.undone = true
	b.settleTurn(t)
	if b.set.Enforce != Strict {
		t.abandoned = true
		t.run.GiveUp("the agent does not end the turn; enforce is " + string(b.set.Enforce) + ", so it is left alone")
		b.dispatchHeld(t.s)
		return
	}
	b.dying = append(b.dying, t)
	b.killIfDue()
}

// killIfDue ends the agent if a turn is past its deadline and no other session needs
// it (ACP-B24).
func (b *Bridge) killIfDue() {
	b.dying = slices.DeleteFunc(b.dying, func(t *turn) bool { return t.done })
	if len(b.dying) == 0 || b.reason != "" {
		return
	}
	var busy []belay.RunID
	for _, s := range b.everySession() {
		for _, u := range s.turns {
			if u.sent && !u.settled && u.run.Cancellation() == nil {
				busy = append(busy, u.run.ID())
			}
		}
	}
	for _, t := range b.dying {
		if len(busy) > 0 {
			if t.run.GiveUp(fmt.Sprintf("the agent does not end the turn; it is killed when %s, which it also runs, has ended", busy[0])) {
				b.log.Warn("an agent that does not stop is needed by another turn", "turn", t.run.ID(), "needed_by", busy[0])
			}
			continue
		}
		if t.stop.killing {
			continue
		}
		t.stop.killing = true
		if !b.closes {
			b.finishLocked(AgentKilled)
			return
		}
		params := []byte(`{"sessionId":` + quote(t.s.id) + `}`)
		b.ask(b.agent, acp.MethodCloseSession, params, func(*jsonrpc.Envelope, []byte) {})
		b.afterLocked(closeWait, func() {
			if !t.done {
				b.finishLocked(AgentKilled)
			}
		})
	}
}

// stopOver lets go of a turn whose receipt is final.
func (b *Bridge) stopOver(t *turn) {
	rec := t.run.Receipt()
	b.foldCalls(t)
	b.lock()
	defer b.unlock()
	delete(b.stopping, t)
	alone := 0
	for _, x := range t.stop.open {
		if x.run != nil {
			alone++
		}
	}
	for _, x := range t.tools {
		x.stopOver(rec, t.stop.gone, alone == 1)
	}
	if len(rec.Survivors) > 0 {
		b.notice(t.s, "warning", "Processes of the stopped turn are alive", survivorText(rec.Survivors, rec.Run))
	}
	if rec.Held == "" {
		b.later(t.release)
		return
	}
	b.kept = append(b.kept, t)
	if len(b.kept) > maxKept {
		old := b.kept[0]
		b.kept = b.kept[1:]
		b.later(old.release)
	}
}

// maxKept is for how many turns a second Stop can still reach processes after the
// first has been given up.
const maxKept = 32

// stopOver gives a tool call its receipt when that of its turn is final.
func (x *tool) stopOver(rec *belay.Receipt, gone *belay.Evidence, only bool) {
	x.open = false
	if x.run == nil || x.run.Cancellation() == nil {
		if x.run != nil {
			x.run.Finish(belay.Cancelled)
		}
		return
	}
	switch {
	case gone != nil && only && x.openThen:
		x.run.Observe(belay.Evidence{Kind: belay.SeenProcessGone, Scope: gone.Scope, Detail: "its processes were seen gone"})
	case x.word != nil:
		e := *x.word
		e.Open = false
		x.run.Observe(e)
	case rec.Verdict == belay.Confirmed || rec.Verdict == belay.Acknowledged:
		x.run.Observe(belay.Evidence{Kind: belay.SeenTaskCancelled, Detail: "the agent has ended its turn, and said nothing more of it"})
	default:
		x.run.GiveUp("")
	}
}

// foldCalls adds to the tool calls of a stopped turn what the receipts of their
// fronted MCP calls prove.
func (b *Bridge) foldCalls(t *turn) {
	b.mu.Lock()
	fronted := t.s.front != nil
	b.mu.Unlock()
	if b.o.Front == nil || !fronted {
		return
	}
	for _, c := range b.o.Front.Calls(t.run) {
		if c.Receipt == nil || c.Receipt.Verdict != belay.Confirmed {
			continue
		}
		b.with(func() {
			x := t.tools[c.ToolCall]
			if x == nil || x.run == nil || x.run.Cancellation() == nil {
				return
			}
			x.run.Observe(belay.Evidence{
				Kind: belay.SeenHandlerReturned, Scope: c.Receipt.Scope,
				Detail: "its call of " + c.Name + " at " + c.Server + " was stopped: " + string(c.Receipt.Verdict),
			})
		})
	}
}

func survivorText(list []belay.Process, run belay.RunID) string {
	var names []string
	for _, p := range list[:min(len(list), 5)] {
		names = append(names, fmt.Sprintf("%s (pid %d)", p.Command, p.PID))
	}
	if more := len(list) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ") + ". To stop them: belay cancel " + run.String()
}

// stoppingLocked reports whether any turn is being stopped.
func (b *Bridge) stoppingLocked() bool {
	return len(b.stopping) > 0
}
