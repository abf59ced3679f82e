package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds one line of an event stream: an event may hold a receipt with a
// partial result and hundreds of processes.
const maxLine = 8 << 20

// sseEvent is one server-sent event.
type sseEvent struct {
	id   string // the last one that the stream gave
	kind string
	data []byte
}

var errLine = errors.New("the event stream holds a line without an end")

// sseReader takes an event stream apart: fields that are not known and comments
// are passed over, as the format wants it.
type sseReader struct {
	in   *bufio.Scanner
	last string // the id of the event before
}

func newSSEReader(r io.Reader) *sseReader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 16<<10), maxLine)
	s.Split(sseLines)
	return &sseReader{in: s}
}

// next is the next event; its data may be empty. io.EOF is the stream's end.
func (s *sseReader) next() (sseEvent, error) {
	e := sseEvent{id: s.last}
	for some := false; s.in.Scan(); {
		line := s.in.Bytes()
		if len(line) == 0 {
			if !some {
				continue
			}
			s.last = e.id
			return e, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.id, some = string(value), true
			}
		case "event":
			e.kind, some = string(value), true
		case "data":
			if len(e.data)+len(value) > maxLine {
				return e, errLine
			}
			if e.data != nil {
				e.data = append(e.data, '\n')
			}
			e.data, some = append(e.data, value...), true
		}
	}
	switch err := s.in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return e, errLine
	case err != nil:
		return e, err
	}
	return e, io.EOF // an event that is cut off is not one
}

// sseLines splits at LF and CRLF; a CR alone ends no line of a Belay server.
func sseLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, bytes.TrimSuffix(data[:i], []byte("\r")), nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// String is for failing tests.
func (e sseEvent) String() string { return fmt.Sprintf("%s %s %.200s", e.id, e.kind, e.data) }
