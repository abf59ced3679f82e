package mcp

import "github.com/belayhq/belay/jsonrpc"

// MetaMember is one member of a message's _meta: a name and its value as JSON.
type MetaMember struct {
	Key   string
	Value []byte
}

// AppendMeta appends the edits that set members of the _meta of a request: one
// that is there is replaced, the others are added, and so is _meta itself. All
// that is to be added must come in one call: two insertions into one empty
// object would lack the comma. Where there is no params, or params or _meta is
// no object, nothing is added: the server refuses such a call by itself.
func AppendMeta(edits []jsonrpc.Edit, m *Message, members ...MetaMember) []jsonrpc.Edit {
	add := make([]byte, 0, 128)
	for _, p := range members {
		at, ok, err := jsonrpc.Member(m.Frame, m.Meta, p.Key)
		switch {
		case err != nil: // there twice: the server reads one, and nobody knows which
			continue
		case ok:
			edits = append(edits, jsonrpc.Edit{At: at, New: p.Value})
			continue
		}
		if len(add) > 0 {
			add = append(add, ',')
		}
		add = append(jsonrpc.AppendString(add, p.Key), ':')
		add = append(add, p.Value...)
	}
	if len(add) == 0 {
		return edits
	}
	switch jsonrpc.KindAt(m.Frame, m.Meta) {
	case jsonrpc.ObjectValue:
		if !emptyObject(m.Frame, m.Meta) {
			add = append(add, ',')
		}
		at := m.Meta.Start + 1
		return append(edits, jsonrpc.Edit{At: jsonrpc.Span{Start: at, End: at}, New: add})
	case jsonrpc.NullValue:
		return append(edits, jsonrpc.Edit{At: m.Meta, New: object(add)})
	}
	if !m.Meta.Ok() && jsonrpc.KindAt(m.Frame, m.Params) == jsonrpc.ObjectValue {
		edits = append(edits, jsonrpc.InsertMember(m.Frame, m.Params, "_meta", object(add)))
	}
	return edits
}

func object(members []byte) []byte {
	return append(append([]byte{'{'}, members...), '}')
}

func emptyObject(frame []byte, s jsonrpc.Span) bool {
	for range jsonrpc.Members(frame, s) {
		return false
	}
	return true
}
