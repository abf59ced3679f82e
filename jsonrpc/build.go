package jsonrpc

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// The functions in this file append whole messages to dst and return it. Raw
// arguments are JSON text and are written as they are. None adds a newline.

// AppendRequest appends a request. A nil params is left out.
func AppendRequest(dst []byte, id ID, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = id.AppendTo(dst)
	return appendCall(append(dst, ','), method, params)
}

// AppendNotification appends a notification. A nil params is left out.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	return appendCall(append(dst, `{"jsonrpc":"2.0",`...), method, params)
}

func appendCall(dst []byte, method string, params []byte) []byte {
	dst = append(dst, `"method":`...)
	dst = appendString(dst, method)
	if params != nil {
		dst = append(dst, `,"params":`...)
		dst = append(dst, params...)
	}
	return append(dst, '}')
}

// AppendResponse appends a success response. A nil result becomes {}, the empty
// result, because a response must have one.
func AppendResponse(dst []byte, id ID, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = id.AppendTo(dst)
	dst = append(dst, `,"result":`...)
	if result == nil {
		result = []byte("{}")
	}
	dst = append(dst, result...)
	return append(dst, '}')
}

// AppendError appends an error response; an absent id is written as null. A nil
// data is left out.
func AppendError(dst []byte, id ID, code int, message string, data []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = id.AppendTo(dst)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, message)
	if data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, data...)
	}
	return append(dst, "}}"...)
}

// AppendString appends s as a JSON string; invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte { return appendString(dst, s) }

func appendString(dst []byte, s string) []byte {
	// The error only reports that invalid UTF-8 was replaced.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
