package mcp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// The names of the stop-ack extension (docs/stop-ack.md). A server declares
// ExtStopAck among its capabilities, under experimental in the legacy era and
// under extensions in the modern one; a caller asks for an ack request by
// request, by a token in _meta under the same name.
const (
	ExtStopAck      = "io.github.belayhq/stop-ack"
	NoticeStopAck   = "notifications/stop-ack" // server to client, legacy era only (MCP-55)
	MethodAwaitStop = "stop-ack/await"         // client to server, both eras
)

// Bounds of the extension.
const (
	maxStopAckToken   = 128      // bytes; ours has 26
	maxStopAckPartial = 64 << 10 // bytes of a partial result, cut at a character
	maxStopAckEnded   = 64       // bytes of the word for how work ended
)

// StopOutcome is how a handler returned, in its server's words.
type StopOutcome string

// The outcomes. Only the first three say that the handler has returned.
const (
	StopStopped   StopOutcome = "stopped"   // it broke its work off
	StopCompleted StopOutcome = "completed" // it had finished, or went on to its end: the effects stand
	StopFailed    StopOutcome = "failed"    // it ended with an error of its own
	StopRunning   StopOutcome = "running"   // it has not returned; in a notification: but this is what it hands back
	StopUnknown   StopOutcome = "unknown"   // the server does not know the token (answer to an await only)
)

// Returned reports whether the outcome says that the handler has returned.
func (o StopOutcome) Returned() bool {
	return o == StopStopped || o == StopCompleted || o == StopFailed
}

// StopAck is what a server says about the handler of a request.
type StopAck struct {
	Token   string // which request; empty in the answer to an await, which the id names
	Outcome StopOutcome
	Partial string     // what the tool had when it was stopped; "" nothing. At most 64 KiB
	Ended   string     // how the work ended, in a word of the server's: returned, interrupted, …; "" if it does not say. At most 64 bytes
	Request jsonrpc.ID // the request's id where the server gave it; for people only
}

// Words of [StopAck.Ended] that mean something here.
const (
	EndedReturned    = "returned"    // the work ended by itself
	EndedInterrupted = "interrupted" // the interpreter that ran it was stopped
)

// Evidence is what an ack proves: that the handler returned, or that what it ran
// was interrupted. It is nil where it says nothing of that kind.
func (a *StopAck) Evidence() *belay.Evidence {
	if !a.Outcome.Returned() {
		return nil
	}
	e := &belay.Evidence{
		Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler,
		Detail: "stop-ack: the server says that its handler has returned: " + string(a.Outcome),
	}
	if a.Ended == EndedInterrupted {
		e.Kind = belay.SeenInterrupted
	}
	if a.Ended != "" {
		e.Detail += ", " + a.Ended
	}
	return e
}

// ErrStopAck says that a message of the extension is malformed; it is to be
// ignored, and proves nothing.
var ErrStopAck = errors.New("malformed stop-ack")

// ReadStopAck reads a [NoticeStopAck] or the response to a [MethodAwaitStop].
// Errors wrap ErrStopAck; an error response to an await is one too. An outcome
// that is not known here is [StopUnknown]: it proves nothing.
func ReadStopAck(m *Message) (StopAck, error) {
	var a StopAck
	at, response := m.Params, m.Kind == jsonrpc.Response
	if response {
		at = m.Result
		if !at.Ok() {
			return StopAck{}, fmt.Errorf("%w: the server answered the await with an error: %.200s", ErrStopAck, m.Error.Of(m.Frame))
		}
	}
	keys := []string{"token", "outcome", "partial", "requestId", "ended"}
	var spans [5]jsonrpc.Span
	if err := jsonrpc.Lookup(m.Frame, at, keys, spans[:]); err != nil {
		return StopAck{}, fmt.Errorf("%w: %w", ErrStopAck, err)
	}
	a.Token = m.text(spans[0], maxStopAckToken)
	a.Outcome = StopOutcome(m.text(spans[1], maxStopAckToken))
	switch {
	case a.Token == "" && !response:
		return StopAck{}, fmt.Errorf("%w: token is missing, no text, or longer than %d bytes", ErrStopAck, maxStopAckToken)
	case a.Outcome == "":
		return StopAck{}, fmt.Errorf("%w: outcome is missing or no text", ErrStopAck)
	case !a.Outcome.Returned() && a.Outcome != StopRunning:
		a.Outcome = StopUnknown
	}
	if jsonrpc.KindAt(m.Frame, spans[2]) == jsonrpc.StringValue {
		text, err := jsonrpc.ReadString(m.Frame, spans[2], spans[2].Len())
		if err == nil {
			a.Partial = cutText(text, maxStopAckPartial)
		}
	}
	a.Ended = m.text(spans[4], maxStopAckEnded)
	if id, err := jsonrpc.ReadID(m.Frame, spans[3]); err == nil && !id.IsNull() {
		a.Request = id
	}
	return a, nil
}

// cutText cuts at a character.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// AppendStopAck appends the notification (legacy era).
func AppendStopAck(dst []byte, a StopAck) []byte {
	params := jsonrpc.AppendString([]byte(`{"token":`), a.Token)
	params = append(params, ',')
	params = a.append(params)
	if !a.Request.IsZero() {
		params = a.Request.AppendTo(append(params, `,"requestId":`...))
	}
	return jsonrpc.AppendNotification(dst, NoticeStopAck, append(params, '}'))
}

// AppendStopAckResult appends the answer to the await with this id.
func AppendStopAckResult(dst []byte, id jsonrpc.ID, a StopAck, era Era) []byte {
	result := a.append([]byte{'{'})
	if era == Modern {
		result = append(result, `,"resultType":"complete"`...)
	}
	return jsonrpc.AppendResponse(dst, id, append(result, '}'))
}

func (a *StopAck) append(dst []byte) []byte {
	dst = jsonrpc.AppendString(append(dst, `"outcome":`...), string(a.Outcome))
	if a.Partial != "" {
		dst = jsonrpc.AppendString(append(dst, `,"partial":`...), cutText(a.Partial, maxStopAckPartial))
	}
	if a.Ended != "" && len(a.Ended) <= maxStopAckEnded {
		dst = jsonrpc.AppendString(append(dst, `,"ended":`...), a.Ended)
	}
	return dst
}

// AppendAwaitStop appends the request that asks a server to say when the
// handler of the request with this token has returned. The server answers by
// then, or with [StopRunning] after wait (or its own, shorter bound). Over
// modern HTTP its Mcp-Method is [MethodAwaitStop]; it has no Mcp-Name.
func AppendAwaitStop(dst []byte, id jsonrpc.ID, token string, wait time.Duration, era Era) []byte {
	params := jsonrpc.AppendString([]byte(`{"token":`), token)
	params = strconv.AppendInt(append(params, `,"waitMs":`...), max(wait.Milliseconds(), 0), 10)
	if era == Modern {
		params = append(params, `,"_meta":{"`+metaVersion+`":"`+Revision26+`",`+metaSelf+`,"`+metaCapabilities+`":{"extensions":{"`+ExtStopAck+`":{}}}}`...)
	}
	return jsonrpc.AppendRequest(dst, id, MethodAwaitStop, append(params, '}'))
}

// ReadAwaitStop reads the parameters of a [MethodAwaitStop]. Errors wrap
// ErrStopAck and are to be answered with -32602.
func ReadAwaitStop(m *Message) (token string, wait time.Duration, err error) {
	var spans [2]jsonrpc.Span
	if err := jsonrpc.Lookup(m.Frame, m.Params, []string{"token", "waitMs"}, spans[:]); err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrStopAck, err)
	}
	if token = m.text(spans[0], maxStopAckToken); token == "" {
		return "", 0, fmt.Errorf("%w: token is missing, no text, or longer than %d bytes", ErrStopAck, maxStopAckToken)
	}
	if !spans[1].Ok() {
		return token, 0, nil
	}
	ms, err := strconv.ParseInt(string(spans[1].Of(m.Frame)), 10, 32)
	if err != nil || ms < 0 {
		return "", 0, fmt.Errorf("%w: waitMs must be a whole number of milliseconds from 0 to %d", ErrStopAck, 1<<31-1)
	}
	return token, time.Duration(ms) * time.Millisecond, nil
}

// NewStopAckToken mints a token: 128 random bits, so that nobody but the server
// that got it can name the request. Safe for concurrent use.
func NewStopAckToken() string { return rand.Text() }

// StopAckToken is the token that the sender of a request put into its _meta, or
// "" if it wants no ack or its token cannot be used.
func StopAckToken(m *Message) string {
	at, ok, err := jsonrpc.Path(m.Frame, m.Meta, ExtStopAck, "token")
	if !ok || err != nil {
		return ""
	}
	return m.text(at, maxStopAckToken)
}

// StopAckMeta is the _meta member that asks for an ack, for [AppendMeta].
func StopAckMeta(token string) MetaMember {
	value := jsonrpc.AppendString([]byte(`{"token":`), token)
	return MetaMember{ExtStopAck, append(value, '}')}
}

// DeclareStopAck appends the edits that add the extension to what the caller of
// m can do: to capabilities.experimental of an initialize request, and to the
// extensions among the client's capabilities in the _meta of a modern request.
// For other messages, and where it is declared already, there are none. They go
// with those of [AppendMeta].
func DeclareStopAck(edits []jsonrpc.Edit, m *Message) []jsonrpc.Edit {
	var at jsonrpc.Span
	var group string
	switch {
	case m.Method == MethodInitialize:
		at, _, _ = jsonrpc.Member(m.Frame, m.Params, "capabilities")
		group = "experimental"
	case m.Kind == jsonrpc.Request && m.Era() == Modern:
		at, _, _ = jsonrpc.Member(m.Frame, m.Meta, metaCapabilities)
		group = "extensions"
	}
	if jsonrpc.KindAt(m.Frame, at) != jsonrpc.ObjectValue {
		return edits
	}
	in, ok, err := jsonrpc.Member(m.Frame, at, group)
	switch {
	case err != nil:
		return edits
	case !ok:
		return append(edits, jsonrpc.InsertMember(m.Frame, at, group, []byte(`{"`+ExtStopAck+`":{}}`)))
	case jsonrpc.KindAt(m.Frame, in) != jsonrpc.ObjectValue:
		return edits
	}
	if _, ok, err := jsonrpc.Member(m.Frame, in, ExtStopAck); ok || err != nil {
		return edits
	}
	return append(edits, jsonrpc.InsertMember(m.Frame, in, ExtStopAck, []byte(`{}`)))
}

// StopAckDoors are the ways by which a server acknowledges.
type StopAckDoors struct {
	Notify bool // it sends [NoticeStopAck]
	Await  bool // it answers [MethodAwaitStop]
}

// StopAck says by which ways the server acknowledges stops, as it declared when
// the session was opened; the zero value if it has not the extension.
func (h *Handshake) StopAck() StopAckDoors {
	h.mu.Lock()
	legacy := h.era == Legacy
	h.mu.Unlock()
	d := StopAckDoors{Await: h.yes("extensions", ExtStopAck, "await")}
	if legacy { // SDKs of that era know the one place or the other
		d.Await = d.Await || h.yes("experimental", ExtStopAck, "await")
		d.Notify = h.yes("experimental", ExtStopAck, "notify") || h.yes("extensions", ExtStopAck, "notify")
	}
	return d
}

// yes reports whether the server's capability at path is true.
func (h *Handshake) yes(path ...string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok, err := jsonrpc.Path(h.result, jsonrpc.Span{Start: 0, End: len(h.result)}, append([]string{"capabilities"}, path...)...)
	return ok && err == nil && jsonrpc.KindAt(h.result, at) == jsonrpc.TrueValue
}
