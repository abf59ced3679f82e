package acp

import (
	"errors"
	"fmt"

	"github.com/belayhq/belay/jsonrpc"
)

// ErrMalformedCancel says that a cancel names no request. It is ignored and
// counted, and never answered (ACP-41).
var ErrMalformedCancel = errors.New("the cancel names no request")

// Cancel is what a notification that cancels one request says.
type Cancel struct {
	// Form is how it was written, which is the way to write to that peer: see
	// [Forms.Heard].
	Form Form
	// Request is the id that the sender gave to the request. It can be null: v1
	// admits that as an id, v2 does not.
	Request jsonrpc.ID
}

// CancelForm is the form whose notification method is, or [FormUnknown].
func CancelForm(method string) Form {
	switch method {
	case NoticeCancelRequest:
		return FormStable
	case NoticeCancelRequestSeed:
		return FormSeed
	}
	return FormUnknown
}

// ParseCancel reads a notification that cancels one request, in either form and
// with the id under either name (ACP-45). params is the JSON text of its params,
// nil if there is none. Unknown members are ignored. Whatever is wrong gives an
// error that matches [ErrMalformedCancel]; Form is set even then, for method alone
// decides about it. An id of its own makes the message a request, which is for
// the caller to refuse.
func ParseCancel(method string, params []byte) (Cancel, error) {
	c := Cancel{Form: CancelForm(method)}
	if c.Form == FormUnknown {
		return c, fmt.Errorf("%w: %.64q is another method", ErrMalformedCancel, method)
	}
	at := whole(params)
	if k := jsonrpc.KindAt(params, at); k != jsonrpc.ObjectValue {
		return c, fmt.Errorf("%w: params must be an object, found %v", ErrMalformedCancel, k)
	}
	var found [2]jsonrpc.Span
	names := [...]string{"requestId", "id"}
	if err := jsonrpc.Lookup(params, at, names[:], found[:]); err != nil {
		return c, fmt.Errorf("%w: %w", ErrMalformedCancel, err)
	}
	var ids []jsonrpc.ID
	for i, s := range found {
		if !s.Ok() {
			continue
		}
		id, err := jsonrpc.ReadID(params, s)
		if err != nil {
			return c, fmt.Errorf("%w: params.%s: %w", ErrMalformedCancel, names[i], err)
		}
		ids = append(ids, id)
	}
	switch {
	case len(ids) == 0:
		return c, fmt.Errorf("%w: params has neither requestId nor id", ErrMalformedCancel)
	case len(ids) == 2 && !ids[0].Same(ids[1]):
		return c, fmt.Errorf("%w: requestId %s and id %s are two requests", ErrMalformedCancel, ids[0], ids[1])
	}
	c.Request = ids[0]
	return c, nil
}

// AppendCancel appends the notification that cancels request id in form f. It
// appends nothing for a form that sends nothing (ACP-46: one cancel is one
// notification in one form).
func AppendCancel(dst []byte, f Form, id jsonrpc.ID) []byte {
	switch f {
	case FormStable:
		dst = append(dst, `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":`...)
	case FormSeed:
		dst = append(dst, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":`...)
	case FormUnknown, FormNone:
		return dst
	}
	return append(id.AppendTo(dst), "}}"...)
}

// AppendSessionCancel appends the notification that stops a session's turns
// (ACP-50).
func AppendSessionCancel(dst []byte, session string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":`...)
	return append(jsonrpc.AppendString(dst, session), "}}"...)
}

// AppendDismissed appends the answer to request id, a [Dialog], which says that
// the user gave none: outcome cancelled for a permission (ACP-53), action cancel
// for an elicitation (A5). It appends nothing for other methods.
func AppendDismissed(dst []byte, id jsonrpc.ID, method string) []byte {
	result := Dismissed(method)
	if result == nil {
		return dst
	}
	return jsonrpc.AppendResponse(dst, id, result)
}

// Dismissed is the result in [AppendDismissed], nil for other methods.
func Dismissed(method string) []byte {
	switch method {
	case MethodRequestPermission:
		return []byte(`{"outcome":{"outcome":"cancelled"}}`)
	case MethodCreateElicitation:
		return []byte(`{"action":"cancel"}`)
	}
	return nil
}

// whole is the place of a JSON value that stands alone.
func whole(value []byte) jsonrpc.Span {
	start := 0
	for start < len(value) && (value[start] == ' ' || value[start] == '\t' || value[start] == '\n' || value[start] == '\r') {
		start++
	}
	return jsonrpc.Span{Start: start, End: len(value)}
}
