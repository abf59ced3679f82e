package bridge

import (
	"bytes"
	"fmt"
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
	terminals map[string]bool // those that can be cancelled alone
	tools     map[string]bool // the same, of tool calls
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
	over := jsonrpc.KindAt(line, at[atExit]) == jsonrpc.ObjectValue
	advertised(&w.terminals, string(text(line, at[atTerminal])), line, at[atCaps], over)
}

// tool notes whether a tool call can be.
func (w *background) tool(line []byte, at []jsonrpc.Span) {
	advertised(&w.tools, string(text(line, at[atTool])), line, at[atCaps], final(string(text(line, at[atStatus]))))
}

// advertised keeps the set of what says that it can be cancelled, at this moment
// (ACP-69): left out means as before, null means no longer.
func advertised(set *map[string]bool, id string, line []byte, caps jsonrpc.Span, over bool) {
	if id == "" || !caps.Ok() && !over {
		return
	}
	m, _, _ := jsonrpc.Member(line, caps, "cancel")
	if over || jsonrpc.KindAt(line, m) != jsonrpc.ObjectValue {
		delete(*set, id)
		return
	}
	if *set == nil {
		*set = map[string]bool{}
	}
	if len(*set) < maxItems {
		(*set)[id] = true
	}
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
		t = b.ownWork(s, nil)
	}
	if t != nil {
		t.running = true
	}
	if t == nil && s.holds() {
		s.current().dropped()
		return // of work whose end the editor has
	}
	b.toEditor(e, line)
}

// ownWork makes a turn of work that begins without being passed a prompt: of its own,
// or by one that the agent has had for some time.
func (b *Bridge) ownWork(s *session, prompt *request) *turn {
	if s.run.Cancellation() != nil && !s.closing {
		if err := b.registerSession(s, s.run.Name()); err != nil {
			return nil
		}
	}
	t, err := b.newTurn(s, prompt)
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
	if t.stop == nil { // a Stop that is on its way here finds that it has ended by itself
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
	st := t.stop
	reason := string(text(line, at[atReason]))
	said := belay.Evidence{Kind: belay.SeenTaskCancelled, Open: true, Detail: "the agent says: idle, " + reason}
	if reason != string(acp.StopCancelled) {
		said.Kind = belay.SeenResult
	}
	said.Detail += t.droppedSoFar()
	t.run.Observe(said)
	if t.settled {
		st.word = said.Detail
		t.run.Finish(belay.Cancelled) // counts it as late
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
	next := b.ownWork(t.s, waiting[0])
	if next == nil {
		return
	}
	next.more = waiting[1:]
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
	refused := belay.Evidence{Kind: belay.SeenTaskCancelled, Detail: "the agent has not taken the prompt"}
	switch {
	case t.stop != nil:
		if !t.settled {
			t.settled = true
			t.run.Settle(belay.Cancelled)
		}
		refused.Open = true
		t.run.Observe(refused)
		b.agentDone(t, refused)
	case r.cancel:
		t.settled, t.last = true, &refused
		b.turnDone(t)
		b.cancelLater(t, "the editor cancelled the prompt before it was taken")
		b.later(t.release)
	default:
		b.endTurn(t, belay.Failed)
	}
}

// stopBackground ends what runs beside the foreground work, item by item, where the
// agent says that it can (ACP-B30). What it cannot is the ladder's.
func (b *Bridge) stopBackground(t *turn) {
	s := t.s
	for _, one := range s.work.items {
		params := fmt.Sprintf(`{"sessionId":%s,"%s":%s}`, quote(s.id), map[string]string{"terminal": "terminalId", "tool_call": "toolCallId"}[one.kind], quote(one.id))
		switch {
		case one.kind == "terminal" && s.work.terminals[one.id]:
			b.ask(b.agent, acp.MethodCancelTerminal, []byte(params), func(*jsonrpc.Envelope, []byte) {})
		case one.kind == "tool_call" && s.work.tools[one.id]:
			b.ask(b.agent, acp.MethodCancelToolCall, []byte(params), func(*jsonrpc.Envelope, []byte) {})
		}
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
		_ = b.editor.say(func(dst []byte) []byte { return idleUpdate(dst, t) })
	}
}
