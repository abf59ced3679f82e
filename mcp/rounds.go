package mcp

import (
	"crypto/sha256"

	"github.com/belayhq/belay/jsonrpc"
)

// RoundKey names one input round of a modern request (MCP-65) without keeping
// what the server put into it: a digest of the method, the name and the
// requestState, which the retry brings back unchanged.
type RoundKey [sha256.Size]byte

// InputRequired reports whether a response ends a leg of a request by asking
// for input.
func (m *Message) InputRequired() bool {
	return m.Kind == jsonrpc.Response && m.resultType() == `"input_required"`
}

// AskedRound is the key under which the retry of a request of this method and
// name will come after a response that asks for input; false if the response
// has no requestState, so that no retry can be told from a new request.
func (m *Message) AskedRound(method, name string) (RoundKey, bool) {
	at, ok, err := jsonrpc.Member(m.Frame, m.Result, "requestState")
	return m.round(method, name, at, ok && err == nil)
}

// Retry reports whether a request is the retry of one that was answered by a
// question. linked is false if it brings no requestState.
func (m *Message) Retry() (key RoundKey, linked, is bool) {
	key, linked = m.round(m.Method, m.ToolName(), m.State, m.State.Ok())
	return key, linked, linked || m.Answers.Ok()
}

func (m *Message) round(method, name string, state jsonrpc.Span, ok bool) (key RoundKey, linked bool) {
	if !ok || jsonrpc.KindAt(m.Frame, state) != jsonrpc.StringValue {
		return key, false
	}
	text, err := jsonrpc.ReadString(m.Frame, state, state.Len()) // decoded text is never longer than its JSON
	if err != nil {
		return key, false
	}
	h := sha256.New()
	for _, part := range []string{method, name, text} {
		h.Write([]byte(part))
		h.Write([]byte{0xff}) // no UTF-8: the parts cannot run into one another
	}
	h.Sum(key[:0])
	return key, true
}
