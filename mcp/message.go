package mcp

import (
	"github.com/belayhq/belay/jsonrpc"
)

// maxText bounds names and versions that are kept of a message.
const maxText = 256

// Message is one frame with its envelope and the places in it that a gateway
// reads or rewrites. Spans that are absent are zero.
type Message struct {
	Frame []byte
	jsonrpc.Envelope

	Meta    jsonrpc.Span // params._meta
	Token   jsonrpc.Span // the progress token: params._meta.progressToken, or params.progressToken of a progress notification
	Sub     jsonrpc.Span // the subscription id in params._meta
	Version jsonrpc.Span // the protocol version in params._meta
	Name    jsonrpc.Span // params.name: the tool or prompt
	Task    jsonrpc.Span // params.task: the request asks to become a task (2025-11-25)
	Ref     jsonrpc.Span // params.requestId of a cancel
	Reason  jsonrpc.Span // params.reason of a cancel
	State   jsonrpc.Span // params.requestState: of the retry after an input round
	Answers jsonrpc.Span // params.inputResponses of such a retry
}

// Read parses a frame. The message aliases it. Errors are those of
// [jsonrpc.Parse]; even then the id is set if it could be read.
func (m *Message) Read(frame []byte) error {
	*m = Message{Frame: frame}
	if err := jsonrpc.Parse(frame, &m.Envelope); err != nil {
		return err
	}
	if m.Method != "" && m.Params.Ok() {
		m.readParams()
	}
	return nil
}

func (m *Message) readParams() {
	for p := range jsonrpc.Members(m.Frame, m.Params) {
		switch {
		case p.Named(m.Frame, "_meta"):
			m.Meta = p.Value
		case p.Named(m.Frame, "name"):
			m.Name = p.Value
		case p.Named(m.Frame, "task"):
			m.Task = p.Value
		case p.Named(m.Frame, "requestId"):
			m.Ref = p.Value
		case p.Named(m.Frame, "reason"):
			m.Reason = p.Value
		case p.Named(m.Frame, "requestState"):
			m.State = p.Value
		case p.Named(m.Frame, "inputResponses"):
			m.Answers = p.Value
		case p.Named(m.Frame, metaProgressToken) && m.Method == NoticeProgress:
			m.Token = p.Value
		}
	}
	if !m.Meta.Ok() {
		return
	}
	for p := range jsonrpc.Members(m.Frame, m.Meta) {
		switch {
		case p.Named(m.Frame, metaProgressToken) && m.Method != NoticeProgress:
			m.Token = p.Value
		case p.Named(m.Frame, metaVersion):
			m.Version = p.Value
		case p.Named(m.Frame, metaSubscription):
			m.Sub = p.Value
		}
	}
}

// Era is the era that this one request or notification is written in: modern
// if its _meta names a protocol version (MCP-71).
func (m *Message) Era() Era {
	if m.Version.Ok() && m.Method != MethodInitialize {
		return Modern
	}
	return Legacy
}

// ResultSubscription is where the result of a subscription that the server
// ended names it (MCP-73); the zero Span if it does not.
func (m *Message) ResultSubscription() jsonrpc.Span {
	at, ok, _ := jsonrpc.Path(m.Frame, m.Result, "_meta", metaSubscription)
	if !ok {
		return jsonrpc.Span{}
	}
	return at
}

// ToolName is params.name as text, or "" if there is none that could be shown.
func (m *Message) ToolName() string { return m.text(m.Name, maxText) }

// NamesTool reports whether params.name is a text that is not empty.
func (m *Message) NamesTool() bool {
	const quotes = 2
	text := m.Name.Of(m.Frame)
	return len(text) > quotes && text[0] == '"'
}

// ProgressToken is the progress token as an id, whose text can be given back
// exactly (MCP-G8); the zero ID if there is none or it is of a wrong type.
func (m *Message) ProgressToken() jsonrpc.ID {
	if !m.Token.Ok() {
		return jsonrpc.ID{}
	}
	id, err := jsonrpc.ReadID(m.Frame, m.Token)
	if err != nil || id.IsNull() {
		return jsonrpc.ID{}
	}
	return id
}

func (m *Message) text(s jsonrpc.Span, limit int) string {
	if !s.Ok() {
		return ""
	}
	text, err := jsonrpc.ReadString(m.Frame, s, limit)
	if err != nil {
		return ""
	}
	return text
}
