package mcp

import (
	"slices"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// The members of _meta by which callers and Belay name runs to each other.
const (
	MetaParent = "io.github.belayhq/parent" // of a request: the run below which it is to hang
	MetaRun    = "io.github.belayhq/run"    // of a result: the run that the request was; of a request to a server inside Belay: the same
)

// The members of _meta that carry W3C trace context.
const (
	MetaTraceparent = "traceparent"
	MetaTracestate  = "tracestate"
)

// toolUseKeys are the members of _meta in which callers say by which id the
// model asked for the tool. It is their own word, good for finding a run, never
// for deciding anything. As seen in 2026:
//
//	claudecode/toolUseId   Claude Code and its SDK, "toolu_…"
//	callId                 Codex, as servers read it
//
// Other callers (VS Code, opencode) name only the conversation there.
var toolUseKeys = []string{"claudecode/toolUseId", "callId"}

// Names are the places in a request's _meta where its caller names things.
// Spans that are absent are zero; so are those of a member that is there twice,
// since nobody knows which is meant.
type Names struct {
	Parent      jsonrpc.Span // of any kind but null, which names nothing
	Parents     int          // how often there is a parent: more than one cannot be followed
	Traceparent jsonrpc.Span
	Tracestate  jsonrpc.Span
	ToolUse     jsonrpc.Span // the first of the known members that is a string
}

// ReadNames finds the names in a request. It reads _meta once and allocates
// nothing.
func (m *Message) ReadNames() (n Names) {
	if !m.Meta.Ok() {
		return n
	}
	var traces, states int
	use := len(toolUseKeys)
	for p := range jsonrpc.Members(m.Frame, m.Meta) {
		switch {
		case p.Named(m.Frame, MetaParent):
			if jsonrpc.KindAt(m.Frame, p.Value) != jsonrpc.NullValue {
				n.Parent = p.Value
				n.Parents++
			}
		case p.Named(m.Frame, MetaTraceparent):
			n.Traceparent = p.Value
			traces++
		case p.Named(m.Frame, MetaTracestate):
			n.Tracestate = p.Value
			states++
		default:
			if i := toolUseAt(m.Frame, p); i < use {
				n.ToolUse, use = p.Value, i
			}
		}
	}
	if traces > 1 {
		n.Traceparent = jsonrpc.Span{}
	}
	if states > 1 {
		n.Tracestate = jsonrpc.Span{}
	}
	return n
}

// toolUseAt is the place of a member in the table; its length for any other.
func toolUseAt(frame []byte, p jsonrpc.MemberSpan) int {
	if jsonrpc.KindAt(frame, p.Value) != jsonrpc.StringValue {
		return len(toolUseKeys)
	}
	for i, key := range toolUseKeys {
		if p.Named(frame, key) {
			return i
		}
	}
	return len(toolUseKeys)
}

// Text is the string at s with at most 256 bytes, or "".
func (m *Message) Text(s jsonrpc.Span) string { return m.text(s, maxText) }

// HideParent appends the edits that take the name of the parent out of a
// request on its way to the server: it becomes null. The name counts in this
// Belay only; another one behind it would look for the run in its own tree, and
// refuse the call. Other members of _meta that are ours pass: nobody minds them.
func HideParent(edits []jsonrpc.Edit, m *Message) []jsonrpc.Edit {
	for p := range jsonrpc.Members(m.Frame, m.Meta) {
		if p.Named(m.Frame, MetaParent) {
			edits = append(edits, jsonrpc.Edit{At: p.Value, New: []byte("null")})
		}
	}
	return edits
}

// AppendRunName appends the edit that puts the id of a run into the _meta of a
// result, in place of what another Belay may have put there. Every other byte
// stays. It changes nothing where there is no place for it: in an error, a result
// that is no object, and a _meta that is no object or there twice.
func AppendRunName(edits []jsonrpc.Edit, m *Message, run belay.RunID) []jsonrpc.Edit {
	if jsonrpc.KindAt(m.Frame, m.Result) != jsonrpc.ObjectValue {
		return edits
	}
	name := jsonrpc.AppendString(make([]byte, 0, 40), run.String())
	meta, ok, err := jsonrpc.Member(m.Frame, m.Result, "_meta")
	switch {
	case err != nil:
		return edits
	case !ok:
		value := slices.Concat([]byte(`{"`+MetaRun+`":`), name, []byte{'}'})
		return append(edits, jsonrpc.InsertMember(m.Frame, m.Result, "_meta", value))
	case jsonrpc.KindAt(m.Frame, meta) != jsonrpc.ObjectValue:
		return edits
	}
	at, ok, err := jsonrpc.Member(m.Frame, meta, MetaRun)
	switch {
	case err != nil:
		return edits
	case ok:
		return append(edits, jsonrpc.Edit{At: at, New: name})
	}
	return append(edits, jsonrpc.InsertMember(m.Frame, meta, MetaRun, name))
}

// NameRun is AppendRunName for a whole response.
func NameRun(frame []byte, run belay.RunID) []byte {
	var m Message
	if m.Read(frame) != nil {
		return frame
	}
	if edits := AppendRunName(nil, &m, run); len(edits) > 0 {
		return jsonrpc.AppendSplice(nil, frame, edits...)
	}
	return frame
}
