package mcp

import (
	"encoding/hex"

	"github.com/belayhq/belay"
)

// Trace is a place in a W3C trace: what a traceparent says.
type Trace struct {
	ID    string // 32 lower-case hex digits
	Span  string // 16, of the span above; "" where there is none
	Flags string // 2
}

// Lengths of a traceparent and its parts, in characters.
const (
	traceIDLen     = 32
	spanIDLen      = 16
	traceparentLen = 2 + 1 + traceIDLen + 1 + spanIDLen + 1 + 2
)

// maxTracestate is how much of a tracestate is passed on, as W3C asks for at
// least.
const maxTracestate = 512

// ParseTraceparent reads a traceparent strictly; false for anything that is
// none. Of a version that is not known yet the part is read that every version
// begins with.
func ParseTraceparent(s string) (t Trace, ok bool) {
	if len(s) < traceparentLen || s[2] != '-' || s[35] != '-' || s[52] != '-' || !lowerHex(s[:2]) || s[:2] == "ff" {
		return t, false
	}
	if len(s) > traceparentLen && (s[:2] == "00" || s[traceparentLen] != '-') {
		return t, false
	}
	t = Trace{ID: s[3:35], Span: s[36:52], Flags: s[53:traceparentLen]}
	return t, ValidTraceID(t.ID) && lowerHex(t.Span) && !zeros(t.Span) && lowerHex(t.Flags)
}

// ValidTraceID reports whether s is the id of a trace as W3C writes it.
func ValidTraceID(s string) bool { return len(s) == traceIDLen && lowerHex(s) && !zeros(s) }

// ValidTracestate reports whether s can be passed on as a tracestate: printable
// ASCII, not empty and not too long. What it says is its vendors' business.
func ValidTracestate(s string) bool {
	return s != "" && len(s) <= maxTracestate && plainASCII(s)
}

// TraceID is the id of the trace that begins with a run.
func TraceID(run belay.RunID) string { return hex.EncodeToString(run[:]) }

// SpanID is the span that a run is: the last 8 bytes of its id, which are random.
func SpanID(run belay.RunID) string { return hex.EncodeToString(run[8:]) }

// Traceparent is the trace as the server of a run gets it, with the run as the
// span above.
func (t Trace) Traceparent(run belay.RunID) string {
	return "00-" + t.ID + "-" + SpanID(run) + "-" + t.Flags
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func zeros(s string) bool {
	for i := range len(s) {
		if s[i] != '0' {
			return false
		}
	}
	return true
}

func plainASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
