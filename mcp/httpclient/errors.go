package httpclient

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Why a request gets no answer, a session is over, or a connection is not made.
// The errors that are given to a [Receiver] wrap one of them.
var (
	// ErrConfig: the configuration cannot be used.
	ErrConfig = errors.New("bad configuration")
	// ErrUnreachable: no connection, or it broke before the request was written.
	// The server has seen nothing of it.
	ErrUnreachable = errors.New("server cannot be reached")
	// ErrStatus: an HTTP status that is no success, without a JSON-RPC message.
	// The error is a [*StatusError].
	ErrStatus = errors.New("unexpected HTTP status")
	// ErrNotMCP: an answer that is no JSON-RPC message, such as a web page.
	ErrNotMCP = errors.New("not an MCP server's answer")
	// ErrRedirect: the server wants the request to go elsewhere.
	ErrRedirect = errors.New("redirects are not followed")
	// ErrSessionOver: the server knows the session no more (MCP-37).
	ErrSessionOver = errors.New("session is over")
	// ErrClosedEarly: the connection or stream ended before the response, and
	// cannot be resumed.
	ErrClosedEarly = errors.New("connection ended before the response")
	// ErrTooLong: the response is over the bound (MCP-G3).
	ErrTooLong = errors.New("response is too long")
	// ErrClosed: the connection was closed by [Conn.Close].
	ErrClosed = errors.New("connection is closed")
	// ErrUnknownCall: no request with that id is in flight.
	ErrUnknownCall = errors.New("no such request is in flight")
)

// quoteLen bounds what is quoted of an answer, in bytes.
const quoteLen = 200

// StatusError is an HTTP answer that carries no message. It matches [ErrStatus].
type StatusError struct {
	Status int
	// Text is the beginning of the body, escaped; "" if there was none.
	Text string
	// Authenticate is the header WWW-Authenticate, "" if absent: what a caller
	// needs to know to log in.
	Authenticate string
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("%v %d", ErrStatus, e.Status)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Unwrap makes the error match [ErrStatus].
func (e *StatusError) Unwrap() error { return ErrStatus }

// withoutSecrets is a URL for errors and logs, whether or not it is well formed:
// user, query and fragment, where people put keys, are left out.
func withoutSecrets(raw string) string {
	if i := strings.IndexAny(raw, "?#"); i >= 0 {
		raw = raw[:i]
	}
	scheme, rest, ok := strings.Cut(raw, "//")
	if !ok {
		return raw
	}
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	return scheme + "//" + authority[strings.LastIndexByte(authority, '@')+1:] + path
}

// urlError is what is wrong with a URL, without the URL.
func urlError(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// quote escapes and cuts text of a peer for errors and logs.
func quote(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	more := ""
	if len(text) > quoteLen {
		text, more = text[:quoteLen], "…"
	}
	return strconv.Quote(string(text)) + more
}

// cutError is an error of the HTTP client, which may quote a peer at length.
type cutError struct{ error }

func cut(err error) error { return cutError{err} }

func (e cutError) Error() string {
	s := e.error.Error()
	if len(s) > 2*quoteLen {
		s = s[:2*quoteLen] + "…"
	}
	return s
}

// Unwrap gives the whole error.
func (e cutError) Unwrap() error { return e.error }
