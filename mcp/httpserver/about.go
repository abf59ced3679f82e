package httpserver

import (
	"net/http"
	"strings"

	"github.com/belayhq/belay/mcp"
)

// Headers in which a caller says what it calls a request, in the spelling of
// net/http's maps.
const (
	headerRequestID   = "X-Request-Id"
	headerTraceparent = "Traceparent"
	headerTracestate  = "Tracestate"
	headerParent      = "Belay-Parent"
)

// Bounds of those headers, in bytes. One that is longer is taken as not there:
// a part of a name is the name of something else.
const (
	maxRequestID  = 128
	maxTrace      = 256
	maxTracestate = 512 // as far as everybody has to pass it on
	maxParent     = 128
)

// labelRequestID is the label under which X-Request-Id is found again.
const labelRequestID = "request_id"

// about is what the headers of an exchange say of its requests beside the
// protocol. Without any of them nothing is allocated.
func about(r *http.Request) (a mcp.Arrival) {
	if id := printable(header(r, headerRequestID), maxRequestID); id != "" {
		a.Labels = map[string]string{labelRequestID: id}
	}
	a.Parent = printable(header(r, headerParent), maxParent)
	if values := r.Header[headerTraceparent]; len(values) == 1 { // of several nobody knows which is true
		a.Traceparent = printable(values[0], maxTrace)
	}
	if a.Traceparent == "" {
		return a
	}
	switch values := r.Header[headerTracestate]; len(values) {
	case 0:
	case 1:
		a.Tracestate = printable(values[0], maxTracestate)
	default:
		a.Tracestate = printable(strings.Join(values, ","), maxTracestate)
	}
	return a
}

// printable is the text without blanks around it, or "" if it is too long or is
// not of printable ASCII alone: it ends up in logs, on terminals and in
// other people's headers.
func printable(text string, most int) string {
	text = strings.Trim(text, " \t")
	if len(text) > most {
		return ""
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return ""
		}
	}
	return text
}
