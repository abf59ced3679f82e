package httpserver

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/belayhq/belay/jsonrpc"
)

// eventID names one event: the stream's number and the event's place in it.
// Streams are looked up only inside the session that the request names, so
// nothing has to be unguessable here (MCP-33).
type eventID struct{ stream, seq uint64 }

// append writes the id in the one form that [parseEventID] reads.
func (id eventID) append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, id.stream, 10)
	dst = append(dst, '-')
	return strconv.AppendUint(dst, id.seq, 10)
}

// parseEventID reads what a client sends back as Last-Event-ID.
func parseEventID(text string) (eventID, bool) {
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		return eventID{}, false
	}
	stream, ok1 := plainUint(a)
	seq, ok2 := plainUint(b)
	return eventID{stream, seq}, ok1 && ok2
}

// plainUint reads a number exactly as it is written by strconv: neither sign
// nor leading zeros, so that one event has one name.
func plainUint(text string) (uint64, bool) {
	if text == "" || text[0] == '+' || (text[0] == '0' && len(text) > 1) {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// appendEvent appends one message as an event. A line break inside a frame,
// which in JSON can only be white space, becomes a space: one data line per
// message is what the simplest readers understand.
func appendEvent(dst []byte, id eventID, named bool, frame []byte, edits []jsonrpc.Edit) []byte {
	dst = append(dst, "event: message\n"...)
	if named {
		dst = append(dst, "id: "...)
		dst = append(id.append(dst), '\n')
	}
	dst = append(dst, "data: "...)
	start := len(dst)
	dst = jsonrpc.AppendSplice(dst, frame, edits...)
	oneLine(dst[start:])
	return append(dst, "\n\n"...)
}

func oneLine(b []byte) {
	for _, c := range [...]byte{'\n', '\r'} {
		for {
			i := bytes.IndexByte(b, c)
			if i < 0 {
				break
			}
			b[i] = ' '
		}
	}
}

// retryAfter is the time, in milliseconds, after which a client should come
// back to a stream that broke.
const retryAfter = "1000"

// appendPriming appends the event without data that gives a client an id to
// resume from before anything was said. Clients before 2025-11-25 would try to
// read its data as a message (MCP-34).
func appendPriming(dst []byte, stream uint64) []byte {
	dst = append(dst, "id: "...)
	dst = eventID{stream, 0}.append(dst)
	return append(dst, "\nretry: "+retryAfter+"\ndata: \n\n"...)
}

// comment is what goes out on a quiet stream: nothing to a client, but a write
// that fails when there is none any more (MCP-G5).
const comment = ": still here\n\n"
