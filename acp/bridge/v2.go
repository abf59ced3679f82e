package bridge

import (
	"bytes"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// background is what runs beside the foreground work of a v2 session (ACP-64).
type background struct {
	list      []byte // as the agent reported it last; nil: it did not
	items     []item
	terminals map[string]bool // that advertise a cancel of their own
}

type item struct{ kind, id string }

const maxItems = 1000

// note takes over the list of a state_update. Absent, null and malformed mean that
// nothing is reported.
func (w *background) note(line []byte, at jsonrpc.Span) {
	w.list, w.items = nil, nil
	if jsonrpc.KindAt(line, at) != jsonrpc.ArrayValue {
		return
	}
	for el := range jsonrpc.Elements(line, at) {
		if jsonrpc.KindAt(line, el) != jsonrpc.ObjectValue || len(w.items) >= maxItems {
			continue
		}
		var in [3]jsonrpc.Span
		if jsonrpc.Lookup(line, el, []string{"type", "terminalId", "toolCallId"}, in[:]) != nil {
			continue
		}
		one := item{kind: string(text(line, in[0])), id: string(text(line, in[1]))}
		if one.kind == "tool_call" {
			one.id = string(text(line, in[2]))
		}
		w.items = append(w.items, one) // an unknown one is still work
	}
	w.list = bytes.Clone(at.Of(line))
}

// runs reports whether the agent says that background work is running.
func (w *background) runs() bool { return len(w.items) > 0 }

// lists reports whether a tool call is background work.
func (w *background) lists(tool string) bool {
	return slices.Contains(w.items, item{"tool_call", tool})
}

// terminal notes whether a terminal of the agent can be cancelled alone.
func (w *background) terminal(line []byte, at []jsonrpc.Span) {
	id := text(line, at[atTerminal])
	if len(id) == 0 {
		return
	}
	if at[atExit].Ok() && jsonrpc.KindAt(line, at[atExit]) == jsonrpc.ObjectValue {
		delete(w.terminals, string(id))
		return
	}
	if !at[atCaps].Ok() {
		return
	}
	m, ok, _ := jsonrpc.Member(line, at[atCaps], "cancel")
	if ok && jsonrpc.KindAt(line, m) == jsonrpc.ObjectValue {
		if w.terminals == nil {
			w.terminals = map[string]bool{}
		}
		if len(w.terminals) < maxItems {
			w.terminals[string(id)] = true
		}
		return
	}
	delete(w.terminals, string(id))
}

// foreground is the v2 work that is under way or about to be, nil if none.
func (s *session) foreground() *turn {
	for _, t := range slices.Backward(s.turns) {
		if !t.settled {
			return t
		}
	}
	return nil
}

// state takes a state_update (ACP-B9, B30).
func (b *Bridge) state(s *session, e *jsonrpc.Envelope, line []byte, at []jsonrpc.Span) {
	s.work.note(line, at[atBackground])
	if string(text(line, at[atState])) == "idle" {
		b.idle(s, e, line, at)
		return
	}
	t := s.foreground()
	if t == nil && s.loading == 0 && !s.holds() {
		t = b.ownWork(s)
	}
	if t != nil {
		t.running = true
	}
	if t == nil && s.holds() {
		s.current().swallow++
		return // of work whose end the editor has
	}
	b.toEditor(e, line)
}

// ownWork makes a turn of work that no prompt has started.
func (b *Bridge) ownWork(s *session) *turn {
	if s.run.Cancellation() != nil && !s.closing {
		if err := b.registerSession(s, s.run.Name()); err != nil {
			return nil
		}
	}
	t, err := b.newTurn(s, nil)
	if err != nil || !t.run.Start() {
		b.log.Warn("work of the agent is not tracked", "error", err)
		return nil
	}
	t.sent = true
	s.turns = append(s.turns, t)
	b.place(s)
	if b.o.Offspring != nil {
		b.spawnLocked(func() {
			brood := b.o.Offspring.Turn(t.run)
			b.mu.Lock()
			t.brood = brood
			done := t.done && t.stop == nil
			b.mu.Unlock()
			if done {
				t.release()
			}
		})
	}
	return t
}

// idle takes the end of the foreground work.
func (b *Bridge) idle(s *session, e *jsonrpc.Envelope, line []byte, at []jsonrpc.Span) {
	i := slices.IndexFunc(s.turns, func(t *turn) bool { return t.running || t.inserted })
	if i < 0 {
		b.toEditor(e, line) // a snapshot: nothing was active
		return
	}
	t := s.turns[i]
	if t.stop == nil && t.run.Cancellation() == nil {
		b.toEditor(e, line)
		b.carryOver(t)
		o := belay.Completed
		switch string(text(line, at[atReason])) {
		case string(acp.StopCancelled):
			o = belay.Cancelled
		case string(acp.StopError):
			o = belay.Failed
		}
		b.endTurn(t, o)
		return
	}
	b.stoppedIdle(t, e, line, at)
}

// stoppedIdle takes the end of foreground work that was stopped (ACP-B21, B30).
func (b *Bridge) stoppedIdle(t *turn, e *jsonrpc.Envelope, line []byte, at []jsonrpc.Span) {
	if t.stop == nil { // its Stop is on its way here
		t.stop = &stopping{at: time.Now(), cause: t.run.Cancellation(), confirmed: make(chan struct{}), beyond: make(chan struct{})}
		b.spawnLocked(func() { b.clock(t) })
	}
	st := t.stop
	reason := string(text(line, at[atReason]))
	said := belay.Evidence{Kind: belay.SeenTaskCancelled, Open: true, Detail: "the agent says: idle, " + reason}
	if reason != string(acp.StopCancelled) {
		said.Kind = belay.SeenResult
	}
	if t.settled {
		st.word = said.Detail
		t.run.Finish(belay.Cancelled) // counts it as late
		t.swallow++
		b.agentDone(t, said)
		return
	}
	t.settled = true
	o := belay.Cancelled
	switch {
	case reason == string(acp.StopCancelled):
		b.toEditor(e, line)
	case reason != "" && reason != string(acp.StopError) && time.Since(st.at) < soon && !st.cut && !st.unsure:
		o = belay.Completed
		b.toEditor(e, line)
	default:
		st.word = said.Detail
		b.toEditor(e, line, cancelledEdits(e, line, at)...)
	}
	t.run.Settle(o)
	b.agentDone(t, said)
}

// cancelledEdits make an idle update say that the work was cancelled.
func cancelledEdits(e *jsonrpc.Envelope, line []byte, at []jsonrpc.Span) []jsonrpc.Edit {
	if at[atReason].Ok() {
		return []jsonrpc.Edit{{At: at[atReason], New: []byte(`"cancelled"`)}}
	}
	update, _, _ := jsonrpc.Member(line, e.Params, "update")
	return []jsonrpc.Edit{jsonrpc.InsertMember(line, update, "stopReason", []byte(`"cancelled"`))}
}

// carryOver makes the prompts that were not inserted into t's work a turn of their
// own, which begins when the agent says so.
func (b *Bridge) carryOver(t *turn) {
	var waiting []*request
	for _, r := range t.more {
		if !r.answered && !r.settled {
			waiting = append(waiting, r)
		}
	}
	t.more = nil
	if len(waiting) == 0 {
		return
	}
	next := b.ownWork(t.s)
	if next == nil {
		return
	}
	next.prompt, next.more = waiting[0], waiting[1:]
	for _, r := range waiting {
		r.t = next
	}
}

// inserted takes the answer to a v2 prompt, which says only whether it is in.
func (b *Bridge) inserted(r *request, e *jsonrpc.Envelope, line []byte) {
	t := r.t
	if r.settled { // Belay has answered it
		if !e.IsError() {
			b.log.Debug("a prompt was inserted after its end was told", "session", t.s.id)
		}
		b.promptRefused(t, r, e)
		return
	}
	if !e.IsError() {
		t.inserted = true
		_ = r.pass(e, line)
		return
	}
	_ = r.pass(e, line)
	b.promptRefused(t, r, e)
}

// promptRefused ends a turn whose prompt was not inserted, if there is nothing else
// to it.
func (b *Bridge) promptRefused(t *turn, r *request, e *jsonrpc.Envelope) {
	if t.done || t.running || t.inserted || !e.IsError() {
		return
	}
	for _, other := range append([]*request{t.prompt}, t.more...) {
		if other != nil && other != r && !other.answered && !other.settled {
			return
		}
	}
	switch {
	case t.stop != nil:
		if !t.settled {
			t.settled = true
			t.run.Settle(belay.Cancelled)
		}
		b.agentDone(t, belay.Evidence{Kind: belay.SeenTaskCancelled, Detail: "the agent has not taken the prompt"})
	case r.cancel:
		t.settled = true
		b.cancelLater(t, "the editor cancelled the prompt before it was taken")
		b.later(func() {
			b.with(func() {
				if t.stop != nil {
					b.agentDone(t, belay.Evidence{Kind: belay.SeenTaskCancelled, Detail: "the agent has not taken the prompt"})
				}
			})
		})
	default:
		b.endTurn(t, belay.Failed)
	}
}

// settleWork gives the editor the end of v2 work that the agent does not end.
func (b *Bridge) settleWork(t *turn) {
	for _, r := range append([]*request{t.prompt}, t.more...) {
		if r != nil && !r.settled {
			r.fail(acp.CodeCancelled, acp.CancelledText, nil)
		}
	}
	if t.running || t.inserted {
		_ = b.editor.say(func(dst []byte) []byte { return idleUpdate(dst, t.s, t.run) })
	}
}
