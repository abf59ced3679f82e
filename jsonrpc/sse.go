package jsonrpc

import (
	"bytes"
	"strconv"
	"time"
)

// EventMessage is the name of an event that names none; MCP puts its messages
// into such events.
const EventMessage = "message"

// Bounds of what an event says beside its data.
const (
	// MaxEventID bounds the id of an event in bytes. A longer one is taken as no
	// id at all: the stream cannot be resumed there.
	MaxEventID = 1024
	// MaxEventName bounds the name of an event in bytes; of a longer one only
	// the beginning is read.
	MaxEventName = 128
)

// Event is one server-sent event.
type Event struct {
	// ID is the event's own id; "" if it has none. [EventReader.LastID] is the id
	// with which a stream is resumed.
	ID string
	// Name is the event's name, [EventMessage] if it has none.
	Name string
	// Data is the lines of data, joined by newlines. It is empty in an event that
	// only gives an id or a retry. It aliases the reader's buffer and is valid
	// until the next call.
	Data []byte
	// Retry is how long a client shall wait before it connects again; 0 if the
	// event does not say.
	Retry time.Duration
}

// AppendEvent appends frame as one server-sent event to dst. An id or event that
// is empty is left out, and so is everything in them from a line break on, which
// would start another field. A frame with line breaks, which in JSON can only
// be white space, becomes several lines of data; their reader joins them with a
// newline, so that a carriage return becomes a newline. An empty frame is an
// event without data, for an id that opens a stream.
func AppendEvent(dst []byte, id, event string, frame []byte) []byte {
	dst = appendField(dst, "id: ", id)
	dst = appendField(dst, "event: ", event)
	for {
		dst = append(dst, "data: "...)
		i := lineEnd(frame)
		if i < 0 {
			dst = append(dst, frame...)
			return append(dst, "\n\n"...)
		}
		dst = append(dst, frame[:i]...)
		dst = append(dst, '\n')
		if frame[i] == '\r' && i+1 < len(frame) && frame[i+1] == '\n' {
			i++
		}
		frame = frame[i+1:]
	}
}

// AppendRetry appends a field that says how long a client shall wait before it
// connects again. It belongs to the event that is appended next.
func AppendRetry(dst []byte, wait time.Duration) []byte {
	dst = append(dst, "retry: "...)
	dst = strconv.AppendInt(dst, max(0, wait.Milliseconds()), 10)
	return append(dst, '\n')
}

// AppendComment appends a comment line, which receivers skip: it keeps a stream
// alive and shows whether its reader is still there (MCP-G5).
func AppendComment(dst []byte, text string) []byte {
	dst = append(dst, ':')
	if text != "" {
		dst = append(dst, ' ')
	}
	if i := lineEnd([]byte(text)); i >= 0 {
		text = text[:i]
	}
	dst = append(dst, text...)
	return append(dst, "\n\n"...)
}

func appendField(dst []byte, name, value string) []byte {
	if i := lineEnd([]byte(value)); i >= 0 {
		value = value[:i]
	}
	if value == "" {
		return dst
	}
	dst = append(dst, name...)
	dst = append(dst, value...)
	return append(dst, '\n')
}

// lineEnd is the place of the first carriage return or newline, -1 if there is
// none.
func lineEnd(b []byte) int {
	i := bytes.IndexByte(b, '\n')
	head := b
	if i >= 0 {
		head = b[:i]
	}
	if j := bytes.IndexByte(head, '\r'); j >= 0 {
		return j
	}
	return i
}
