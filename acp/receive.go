package acp

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/belayhq/belay/jsonrpc"
)

// receive takes one message from the reader. It never waits for a handler.
func (c *Conn) receive(frame []byte) {
	var e jsonrpc.Envelope
	if err := jsonrpc.Parse(frame, &e); err != nil {
		c.bad(e.Kind, e.ID, err)
		return
	}
	switch e.Kind {
	case jsonrpc.Request:
		c.request(frame, &e)
	case jsonrpc.Notification:
		c.notification(e.Method, e.Params.Of(frame))
	case jsonrpc.Response:
		c.response(frame, &e)
	case jsonrpc.Unknown: // Parse has refused it
	}
}

// bad is for what is no message. It costs the call that it belonged to, and
// nothing else.
func (c *Conn) bad(kind jsonrpc.Kind, id jsonrpc.ID, err error) {
	c.counts.badMessages.Add(1)
	c.o.Log.Warn("the peer sent what is no message", "error", err)
	if kind == jsonrpc.Response || kind == jsonrpc.Unknown && c.issued(id) { // an id of ours, and nothing else: an answer that says nothing
		if cl, ok := c.calls.Take(id); ok {
			cl.answered <- answer{err: fmt.Errorf("%s: %w: %w", cl.method, ErrMalformed, err)}
		}
		return
	}
	if c.o.Role == RoleClient && (kind != jsonrpc.Request || id.IsZero()) {
		return // an agent that prints to its stdout would take the answer for a message of ours
	}
	code := jsonrpc.Code(err)
	if code == 0 {
		code = CodeInvalidRequest
	}
	c.refuse(id, &Error{Code: code, Message: err.Error()})
}

// oversized is for a message that is over the bound.
func (c *Conn) oversized(err *jsonrpc.TooLongError) {
	id, kind, _ := err.Salvage()
	c.bad(kind, id, err)
}

func (c *Conn) notification(method string, params []byte) {
	if CancelForm(method) != FormUnknown {
		c.cancelReceived(method, params)
		return
	}
	if method == NoticeSessionCancel && c.o.Role == RoleAgent {
		// Without a session there is nothing that it could mean, and never an error (A7).
		if session, ok := SessionOf(params); ok {
			c.stopSession(session)
		}
	}
	if err := c.notes.add(method, params); err != nil {
		c.fail(err)
	}
}

// stopSession ends the turns that a session has at this moment. A later one is
// not touched (A7, A12).
func (c *Conn) stopSession(session string) {
	if session == "" {
		return
	}
	why := c.byPeer()
	for _, r := range c.matching(session, func(method string) bool { return method == MethodPrompt }) {
		r.Cancel(why)
	}
}

// cancelReceived is for the cancel of a single request, in either form.
func (c *Conn) cancelReceived(method string, params []byte) {
	if c.o.Deaf || !c.forms.Greeted() { // ACP-9, ACP-10, ACP-29
		c.counts.stray.Add(1)
		return
	}
	cancel, err := ParseCancel(method, params)
	if err != nil {
		c.counts.malformed.Add(1)
		c.o.Log.Warn("a cancel is ignored", "error", err)
		return
	}
	c.forms.Heard(cancel.Form)
	key := cancel.Request.Key()
	c.mu.Lock()
	r, seen := c.open[key], c.seen.knows(key)
	c.mu.Unlock()
	switch {
	case r != nil:
		c.counts.cancels.Add(1)
		r.Cancel(c.byPeer())
	case seen, cancel.Request.IsNull(), c.issued(cancel.Request):
		c.counts.stray.Add(1)
		c.o.Log.Debug("a cancel names no request that is open", "id", cancel.Request.String())
	default:
		c.counts.early.Add(1)
		c.early.Put(key, struct{}{})
	}
}

// issued reports whether id is one that this end has given to a request of its own.
func (c *Conn) issued(id jsonrpc.ID) bool {
	text, ok := id.Text()
	if !ok {
		return false
	}
	digits, ok := strings.CutPrefix(text, c.ids.Prefix)
	if !ok {
		return false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return err == nil && n > 0 && n <= c.minted.Load()
}

// response takes an answer from the reader.
func (c *Conn) response(frame []byte, e *jsonrpc.Envelope) {
	cl, ok := c.calls.Take(e.ID)
	if !ok {
		c.strayAnswer(e.ID)
		return
	}
	a := answer{read: c.notes.read.Load()}
	if e.IsError() {
		a.err = readError(frame, e.Error)
	} else {
		a.result = append(json.RawMessage(nil), e.Result.Of(frame)...)
		if cl.method == MethodInitialize && c.o.Role == RoleClient {
			agent := ReadHello(a.result)
			c.greet(agent.Version, agent)
		}
	}
	cl.answered <- a
}

// strayAnswer drops an answer to nothing, or to what was given up (ACP-L10).
func (c *Conn) strayAnswer(id jsonrpc.ID) {
	if _, ok := c.muted.Take(id.Key()); ok {
		c.counts.lateAnswers.Add(1)
		return
	}
	c.counts.strayAnswers.Add(1)
	c.o.Log.Debug("an answer to no call", "id", id.String())
}
