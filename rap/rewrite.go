package rap

import (
	"bytes"
	"fmt"

	"github.com/belayhq/belay/jsonrpc"
)

// Replacement gives one member of a message another string value.
type Replacement struct{ Key, Text string }

// Rewrite appends the object in body with the strings of some of its members
// replaced; members that are not there, or null, stay so. Every other byte stays
// as it is, also what this package knows nothing of (RAP-91). body must be a
// message that a Parse function has accepted; dst must not overlap it.
func Rewrite(dst, body []byte, with ...Replacement) ([]byte, error) {
	start := len(body) - len(bytes.TrimLeft(body, " \t\r\n"))
	s := jsonrpc.Span{Start: start, End: len(body)}
	keys, spans := make([]string, len(with)), make([]jsonrpc.Span, len(with))
	for i, r := range with {
		keys[i] = r.Key
	}
	if jsonrpc.KindAt(body, s) != jsonrpc.ObjectValue {
		return dst, fmt.Errorf("%w: it must be an object", ErrMalformed)
	}
	if err := jsonrpc.Lookup(body, s, keys, spans); err != nil {
		return dst, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	var edits []jsonrpc.Edit
	for i, at := range spans {
		if jsonrpc.KindAt(body, at) == jsonrpc.StringValue {
			edits = append(edits, jsonrpc.Edit{At: at, New: jsonrpc.AppendString(nil, with[i].Text)})
		}
	}
	return jsonrpc.AppendSplice(dst, body, edits...), nil
}
