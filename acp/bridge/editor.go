package bridge

import (
	"fmt"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// fromEditor takes one line of the editor, or what is left of one that was too
// long. It never waits: a Stop may be right behind.
func (b *Bridge) fromEditor(line []byte, long *jsonrpc.TooLongError) {
	b.lock()
	defer b.unlock()
	if long != nil {
		id, kind, ok := long.Salvage()
		b.refuseLine(id, kind, ok, long)
		return
	}
	var e jsonrpc.Envelope
	if err := jsonrpc.Parse(line, &e); err != nil {
		b.refuseLine(e.ID, e.Kind, !e.ID.IsZero(), err)
		return
	}
	switch e.Kind {
	case jsonrpc.Request:
		b.editorAsks(&e, line)
	case jsonrpc.Notification:
		b.editorSays(&e, line)
	case jsonrpc.Response:
		b.editorAnswers(&e, line)
	case jsonrpc.Unknown:
		b.refuseLine(e.ID, e.Kind, false, jsonrpc.ErrShape)
	}
}

// refuseLine answers what is no message (ACP-B5). A request whose id can be read
// gets the answer itself, so that its call fails and not the connection; a bad
// answer fails the agent's call.
func (b *Bridge) refuseLine(id jsonrpc.ID, kind jsonrpc.Kind, named bool, err error) {
	if named && (kind == jsonrpc.Response || kind == jsonrpc.Unknown) {
		if r := b.editor.take(id); r != nil {
			b.badAnswer(r, err)
			return
		}
		if kind == jsonrpc.Response {
			b.dropLocked("editor", "an answer that is none, to nobody's request", "error", err)
			return
		}
	}
	b.dropLocked("editor", "it is no message", "error", err)
	if kind == jsonrpc.Notification {
		return
	}
	if !named {
		id = jsonrpc.NullID()
	}
	_ = b.editor.say(func(dst []byte) []byte {
		return jsonrpc.AppendError(dst, id, jsonrpc.Code(err), err.Error(), nil)
	})
}

// badAnswer fails the request to which the other side's answer cannot be passed.
func (b *Bridge) badAnswer(r *request, err error) {
	if r.reply != nil {
		r.reply(nil, nil)
		return
	}
	b.childOver(r, belay.Failed)
	r.fail(acp.CodeInternal, "the answer was no JSON-RPC response: "+err.Error(), nil)
}

// editorAsks passes a request of the editor, and knows the few that matter here.
func (b *Bridge) editorAsks(e *jsonrpc.Envelope, line []byte) {
	r := &request{from: b.editor, id: e.ID, method: e.Method}
	switch {
	case b.reason != "":
		b.refuse(r, acp.CodeInternal, ended(b.reason))
		return
	case acp.CancelForm(e.Method) != acp.FormUnknown:
		b.refuse(r, acp.CodeMethodNotFound, "a cancel is a notification and has no id: nothing was cancelled")
		return
	case b.version >= acp.Version2 && e.ID.IsNull():
		b.refuse(r, acp.CodeInvalidRequest, "an id must be a string or a number")
		return
	}
	key := e.ID.Key()
	if old := b.editor.asked[key]; old != nil {
		b.log.Warn("the editor uses an id again that is open: a cancel will hit the later request", "id", e.ID.String(), "method", old.method, "later", e.Method)
	}
	if len(b.editor.asked) >= maxOpen || b.agent.full() {
		b.refuse(r, acp.CodeInternal, fmt.Sprintf("the agent owes %d answers: no more requests are passed to it", maxOpen))
		return
	}
	b.editor.asked[key] = r
	_, early := b.editor.early.Take(key)
	params := e.Params.Of(line)
	switch e.Method {
	case acp.MethodInitialize:
		b.editorGreets(params)
	case acp.MethodPrompt:
		if id, ok := acp.SessionOf(params); ok {
			b.prompt(r, id, e, line, early)
			return
		}
	case acp.MethodNewSession, acp.MethodLoadSession, acp.MethodResumeSession, acp.MethodForkSession:
		if !early {
			b.openSession(r, e, line)
			return
		}
	case acp.MethodCloseSession, acp.MethodDeleteSession:
		if id, ok := acp.SessionOf(params); ok && !early {
			b.closeSession(r, id, e, line)
			return
		}
	case acp.MethodCancelToolCall:
		if b.version == acp.Version2 && !early && b.cancelToolCall(r, params) {
			return
		}
	}
	if early && !acp.Handshaking(e.Method) {
		r.fail(acp.CodeCancelled, acp.CancelledText, nil)
		return
	}
	b.forward(b.agent, r, e, line)
}

// refuse answers a request that is not passed on and was not noted.
func (b *Bridge) refuse(r *request, code int, message string) {
	_ = r.from.say(func(dst []byte) []byte { return jsonrpc.AppendError(dst, r.id, code, message, nil) })
}

// forward passes a request with an id of ours.
func (b *Bridge) forward(to *hop, r *request, e *jsonrpc.Envelope, frame []byte, edits ...jsonrpc.Edit) bool {
	to.expect(r)
	err := to.relay(frame, append(edits, jsonrpc.Edit{At: e.IDAt, New: r.hid.AppendTo(nil)})...)
	if err != nil {
		to.forget(r)
		r.fail(acp.CodeInternal, "could not be passed on: "+err.Error(), nil)
		return false
	}
	if n := len(to.wait); n > 0 {
		to.wait[n-1].lost = func(err error) { b.lost(r, err) }
	}
	return true
}

// lost fails a request that waited for its turn, and then could not leave.
func (b *Bridge) lost(r *request, err error) {
	r.to.forget(r)
	if r.t != nil && r.t.prompt == r {
		b.promptFailed(r, acp.CodeInternal, "could not be passed on: "+err.Error())
		return
	}
	b.requestOver(r)
	r.fail(acp.CodeInternal, "could not be passed on: "+err.Error(), nil)
}

// editorSays passes a notification of the editor; Stops are taken here.
func (b *Bridge) editorSays(e *jsonrpc.Envelope, line []byte) {
	if b.reason != "" {
		return
	}
	switch e.Method {
	case acp.NoticeSessionCancel:
		b.sessionCancel(e, line)
	case acp.NoticeCancelRequest, acp.NoticeCancelRequestSeed:
		b.cancelled(b.editor, e, line)
	default:
		if err := b.agent.relay(line); err != nil {
			b.dropLocked("editor", "a notification for which there is no room", "method", e.Method, "error", err)
		}
	}
}

// editorAnswers passes the editor's answer to a request of the agent.
func (b *Bridge) editorAnswers(e *jsonrpc.Envelope, line []byte) {
	r := b.editor.take(e.ID)
	switch {
	case r == nil:
		b.dropLocked("editor", "an answer to nobody's request", "id", e.ID.String())
	case r.reply != nil:
		r.reply(e, line)
	case r.settled:
		b.childLate(r, e)
	default:
		b.childAnswered(r, e, line)
		if err := r.pass(e, line); err != nil {
			b.log.Warn("the editor's answer could not be passed on", "error", err)
		}
	}
}

// cancelled takes a cancel of a single request, from either side (ACP-B28, B29). It
// is never passed on: ids belong to one connection.
func (b *Bridge) cancelled(from *hop, e *jsonrpc.Envelope, line []byte) {
	c, err := acp.ParseCancel(e.Method, e.Params.Of(line))
	from.forms.Heard(c.Form)
	if err != nil {
		b.dropLocked(from.name, err.Error())
		return
	}
	key := c.Request.Key()
	r := from.asked[key]
	switch {
	case r == nil:
		if _, known := from.seen.Take(key); known {
			from.seen.Put(key, struct{}{}) // its call is over: nothing is to be done
			return
		}
		if b.agent.forms.Greeted() {
			b.log.Info("a cancel of an unknown request", "from", from.name, "id", c.Request.String())
			from.early.Put(key, c)
		}
	case acp.Handshaking(r.method), !b.agent.forms.Greeted():
		// ACP-9, ACP-10: nothing can be cancelled yet.
	case from == b.editor && r.t != nil:
		b.cancelPrompt(r)
	default:
		b.cancelRequest(r)
	}
}

// cancelRequest passes on that the asker wants no answer, in the form of the other
// side, and sees to it that there is one all the same.
func (b *Bridge) cancelRequest(r *request) {
	if r.cancel {
		return
	}
	r.cancel = true
	if r.parcel != nil { // it has not left, and never will
		r.to.drop(r.parcel)
		r.to.forget(r)
		r.parcel = nil
		b.requestOver(r)
		b.giveCancelled(r)
		return
	}
	r.tell()
	if r.timer == nil {
		r.timer = b.afterLocked(b.set.Settle, func() { b.giveCancelled(r) })
	}
}

// giveCancelled answers for the other side that the request was cancelled.
func (b *Bridge) giveCancelled(r *request) {
	if r.settled {
		return
	}
	r.undo = r.s != nil && opens(r.method)
	b.childOver(r, belay.Cancelled)
	if result := acp.Dismissed(r.method); result != nil && r.from == b.agent {
		r.answer(result)
		return
	}
	r.fail(acp.CodeCancelled, acp.CancelledText, nil)
}

// editorGreets notes what the editor says of itself.
func (b *Bridge) editorGreets(params []byte) {
	h := acp.ReadHello(params)
	h.Caps = append([]byte(nil), h.Caps...)
	b.hello = h
	b.notices = h.Has("session", "notices")
	if form, ok := b.set.Dialect[h.Name]; ok {
		b.editor.forms.Use(form)
	}
}
