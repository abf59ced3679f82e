package mcp

import (
	"errors"
	"fmt"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// ErrMalformedCancel says that a cancel names no request; it is to be ignored
// and counted (MCP-22, A13).
var ErrMalformedCancel = errors.New("the cancel names no request")

// Cancel is what a cancel notification says.
type Cancel struct {
	Request jsonrpc.ID // exact type and text; null and absent are errors
	Reason  string     // bounded and cleaned; "" if it was absent or no text (A13)
	At      jsonrpc.Span
}

// ReadCancel reads a [NoticeCancelled]. A reason of a wrong type is dropped and
// the cancel honoured; a requestId that is missing, null or no id makes it
// malformed (A13). A requestId that is there twice is malformed too: two
// readers would stop two different calls.
func (m *Message) ReadCancel() (Cancel, error) {
	at, ok, err := jsonrpc.Member(m.Frame, m.Params, "requestId")
	if err != nil {
		return Cancel{}, fmt.Errorf("%w: %w", ErrMalformedCancel, err)
	}
	if !ok {
		return Cancel{}, fmt.Errorf("%w: params.requestId is missing", ErrMalformedCancel)
	}
	id, err := jsonrpc.ReadID(m.Frame, at)
	if err != nil {
		return Cancel{}, fmt.Errorf("%w: params.requestId: %w", ErrMalformedCancel, err)
	}
	if id.IsNull() {
		return Cancel{}, fmt.Errorf("%w: params.requestId is null", ErrMalformedCancel)
	}
	return Cancel{Request: id, Reason: m.reason(), At: at}, nil
}

func (m *Message) reason() string {
	if jsonrpc.KindAt(m.Frame, m.Reason) != jsonrpc.StringValue {
		return ""
	}
	raw := m.Reason.Of(m.Frame)
	text, err := jsonrpc.ReadString(m.Frame, m.Reason, len(raw)) // decoded text is never longer than its JSON
	if err != nil {
		return ""
	}
	return belay.CleanReason(text)
}

// AppendCancelled appends the notification that asks a peer to stop request id
// (MCP-3). On a modern connection it carries _meta (A12).
func AppendCancelled(dst []byte, id jsonrpc.ID, reason string, era Era) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`...)
	dst = id.AppendTo(dst)
	if reason = belay.CleanReason(reason); reason != "" {
		dst = append(dst, `,"reason":`...)
		dst = jsonrpc.AppendString(dst, reason)
	}
	if era == Modern {
		dst = append(dst, `,"_meta":{"`+metaVersion+`":"`+Revision26+`","`+metaCapabilities+`":{}}`...)
	}
	return append(dst, `}}`...)
}
