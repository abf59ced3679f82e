package bridge

import (
	"errors"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// fromAgent takes one line of the agent, or what is left of one that was too long.
func (b *Bridge) fromAgent(line []byte, long *jsonrpc.TooLongError) {
	b.lock()
	defer b.unlock()
	var e jsonrpc.Envelope
	if long != nil {
		id, kind, _ := long.Salvage()
		b.badLine(id, kind, long)
		return
	}
	if jsonrpc.IsNoise(line) { // what agents and their package managers print by mistake
		b.dropLocked("agent", "it is no message", "line", belay.CleanReason(string(line[:min(len(line), maxShown)])))
		return
	}
	if err := jsonrpc.Parse(line, &e); err != nil {
		b.badLine(e.ID, e.Kind, err)
		return
	}
	switch e.Kind {
	case jsonrpc.Request:
		b.agentAsks(&e, line)
	case jsonrpc.Notification:
		b.agentSays(&e, line)
	case jsonrpc.Response:
		b.agentAnswers(&e, line)
	case jsonrpc.Unknown:
		b.badLine(e.ID, e.Kind, jsonrpc.ErrShape)
	}
}

// maxShown is how much of a line that is no message is logged.
const maxShown = 200

// badLine drops what is no message (ACP-B5), and fails the call that it was to
// answer.
func (b *Bridge) badLine(id jsonrpc.ID, kind jsonrpc.Kind, err error) {
	b.dropLocked("agent", "it is no message", "error", err)
	switch {
	case id.IsZero():
	case kind == jsonrpc.Response, kind == jsonrpc.Unknown: // neither result nor error: by its id alone an answer
		if r := b.agent.take(id); r != nil {
			b.answerLost(r, err)
		}
	case kind == jsonrpc.Request && errors.Is(err, jsonrpc.ErrTooLong):
		_ = b.agent.say(func(dst []byte) []byte {
			return jsonrpc.AppendError(dst, id, acp.CodeInvalidRequest, err.Error(), nil)
		})
	}
}

// answerLost fails the editor's request whose answer cannot be read.
func (b *Bridge) answerLost(r *request, err error) {
	switch {
	case r.reply != nil:
		r.reply(nil, nil)
	case r.t != nil:
		b.promptFailed(r, acp.CodeInternal, "the agent's answer could not be read: "+err.Error())
	default:
		b.requestOver(r)
		r.fail(acp.CodeInternal, "the agent's answer could not be read: "+err.Error(), nil)
	}
}

// agentSays passes a notification of the agent.
func (b *Bridge) agentSays(e *jsonrpc.Envelope, line []byte) {
	switch e.Method {
	case acp.NoticeSessionUpdate:
		b.update(e, line)
	case acp.NoticeCancelRequest, acp.NoticeCancelRequestSeed:
		b.cancelled(b.agent, e, line)
	default:
		b.toEditor(e, line)
	}
}

// toEditor passes what the agent says, as it is but for the edits.
func (b *Bridge) toEditor(e *jsonrpc.Envelope, line []byte, edits ...jsonrpc.Edit) {
	if err := b.editor.relay(line, edits...); err != nil {
		b.dropLocked("agent", "a notification for which there is no room", "method", e.Method, "error", err)
	}
}

// agentAnswers passes the agent's answer to a request of the editor.
func (b *Bridge) agentAnswers(e *jsonrpc.Envelope, line []byte) {
	r := b.agent.take(e.ID)
	switch {
	case r == nil:
		b.dropLocked("agent", "an answer to nobody's request", "id", e.ID.String())
	case r.reply != nil:
		r.reply(e, line)
	case r.t != nil:
		b.promptAnswered(r, e, line)
	case r.settled:
		b.lateAnswer(r, e, line)
	default:
		b.pass(r, e, line)
	}
}

// pass passes an answer to a request that is no prompt.
func (b *Bridge) pass(r *request, e *jsonrpc.Envelope, line []byte) {
	var edits []jsonrpc.Edit
	switch {
	case r.method == acp.MethodInitialize:
		edits = b.agentGreets(e, line)
	case r.s != nil:
		b.sessionAnswered(r, e, line)
	}
	if err := r.pass(e, line, edits...); err != nil {
		b.log.Warn("the agent's answer could not be passed on", "error", err)
	}
}

// lateAnswer takes an answer whose asker has one already. A session that nobody
// wants any more is closed again (ACP-B29).
func (b *Bridge) lateAnswer(r *request, e *jsonrpc.Envelope, line []byte) {
	b.log.Debug("a late answer of the agent was dropped", "method", r.method)
	if r.s == nil {
		return
	}
	b.sessionAnswered(r, e, line)
	s := r.s
	if !r.undo || e.IsError() || s.id == "" || len(s.turns) > 0 {
		return
	}
	b.dropSession(s, belay.Cancelled)
	if !b.closes {
		b.log.Warn("a session that was cancelled too late stays open: the agent cannot close one", "session", s.id)
		return
	}
	b.ask(b.agent, acp.MethodCloseSession, []byte(`{"sessionId":`+quote(s.id)+`}`), func(*jsonrpc.Envelope, []byte) {})
}

// agentGreets notes what the agent says of itself, and which version holds. It
// returns what the editor is told beyond that (ACP-B31): the editor that asked for
// cancels of single requests gets them, by Belay if not by the agent.
func (b *Bridge) agentGreets(e *jsonrpc.Envelope, line []byte) []jsonrpc.Edit {
	if e.IsError() {
		return nil
	}
	result := e.Result.Of(line)
	h := acp.ReadHello(result)
	b.version, b.closes = h.Version, h.Close
	if front, ok := b.o.Front.(Adder); ok {
		web := h.Version == acp.Version2 || h.Has("mcpCapabilities", "http")
		b.later(func() { front.Takes(web) })
	}
	if form, ok := b.set.Dialect[h.Name]; ok {
		b.agent.forms.Use(form)
	}
	b.agent.forms.Greet(h.Version, h.Cancel)
	b.editor.forms.Greet(h.Version, b.hello.Cancel)
	if b.hello.Cancel != acp.FlagTrue || h.Cancel == acp.FlagTrue || h.Version != acp.Version1 && h.Version != acp.Version2 {
		return nil
	}
	return declare(line, e.Result, h.Version)
}

// declare are the edits by which the agent's capabilities say that cancels of
// single requests are handled.
func declare(line []byte, result jsonrpc.Span, version int) []jsonrpc.Edit {
	name := "agentCapabilities"
	if version == acp.Version2 {
		name = "capabilities"
	}
	caps, ok, err := jsonrpc.Member(line, result, name)
	switch {
	case err != nil || jsonrpc.KindAt(line, result) != jsonrpc.ObjectValue:
		return nil
	case !ok:
		return []jsonrpc.Edit{jsonrpc.InsertMember(line, result, name, []byte(`{"cancellation":{"request":true}}`))}
	case jsonrpc.KindAt(line, caps) != jsonrpc.ObjectValue:
		return nil
	}
	own, ok, err := jsonrpc.Member(line, caps, "cancellation")
	switch {
	case err != nil:
		return nil
	case !ok:
		return []jsonrpc.Edit{jsonrpc.InsertMember(line, caps, "cancellation", []byte(`{"request":true}`))}
	case jsonrpc.KindAt(line, own) != jsonrpc.ObjectValue:
		return []jsonrpc.Edit{{At: own, New: []byte(`{"request":true}`)}}
	}
	flag, ok, err := jsonrpc.Member(line, own, "request")
	switch {
	case err != nil:
		return nil
	case !ok:
		return []jsonrpc.Edit{jsonrpc.InsertMember(line, own, "request", []byte("true"))}
	}
	return []jsonrpc.Edit{{At: flag, New: []byte("true")}}
}

// agentAsks passes a request of the agent, as a run below what it belongs to. What
// belongs to a turn that is being stopped does not reach the editor (ACP-B16).
func (b *Bridge) agentAsks(e *jsonrpc.Envelope, line []byte) {
	r := &request{from: b.agent, id: e.ID, method: e.Method}
	if acp.CancelForm(e.Method) != acp.FormUnknown {
		b.refuse(r, acp.CodeMethodNotFound, "a cancel is a notification and has no id: nothing was cancelled")
		return
	}
	if len(b.agent.asked) >= maxOpen || b.editor.full() {
		b.refuse(r, acp.CodeInternal, "the editor owes too many answers: no more requests are passed to it")
		return
	}
	key := e.ID.Key()
	b.agent.asked[key] = r
	if _, early := b.agent.early.Take(key); early || b.reason != "" {
		b.giveCancelled(r)
		return
	}
	if !b.admitChild(r, e, line) {
		return
	}
	if !b.forward(b.editor, r, e, line) {
		b.childOver(r, belay.Failed)
	}
}
