package jsonrpc

import (
	"bytes"
	"io"
	"time"
)

// eventBuf is what an idle EventReader holds: there is one for each request in
// flight, and most wait for a single short answer.
const eventBuf = 1 << 10

// maxRetry bounds what a server may ask for with a retry field.
const maxRetry = 24 * time.Hour

// EventReader cuts a stream into server-sent events of bounded length. Lines may
// end in a carriage return, a newline, or both; a byte order mark and comments
// are skipped. It holds 1 KiB, more only while an event needs it, and never more
// than the bound and some read-ahead. It is for one goroutine and starts none.
type EventReader struct {
	src io.Reader
	max int

	small []byte // the buffer of an idle reader, kept for good
	buf   []byte // small, or a larger one; len(buf) is its whole size
	err   error  // from src, to be reported when the buffer is used up

	// buf[data:dataEnd] is the data of the event so far, buf[line:end] is read but
	// not yet understood, buf[line:seen] holds no end of line. What lies between
	// dataEnd and line has been used up.
	data, dataEnd, line, seen, end int

	event   Event
	any     bool // the event has said something: it is to be returned
	hasData bool // it has a line of data
	begun   bool // the first line is past, with which a byte order mark may come
	skipLF  bool // the last line ended in a carriage return: a newline belongs to it
	last    string
}

// NewEventReader returns a reader of the events in src. Of its options, Max
// bounds the data of one event and the length of each line.
func NewEventReader(src io.Reader, opts ReaderOptions) *EventReader {
	if opts.Max <= 0 {
		opts.Max = DefaultMaxLine
	}
	small := make([]byte, eventBuf)
	return &EventReader{src: src, max: opts.Max, small: small, buf: small}
}

// Reset makes the reader read another stream from its beginning. last is the id
// behind which that stream was asked to go on; "" for a new one.
func (r *EventReader) Reset(src io.Reader, last string) {
	r.Release()
	*r = EventReader{src: src, max: r.max, small: r.small, buf: r.small, last: last}
}

// Release gives back memory that was borrowed for large events. Data that Next
// returned is invalid then; the reader must not be used again but by Reset.
func (r *EventReader) Release() {
	putBuf(r.buf) // passes over the small one
	r.buf, r.src, r.err = r.small, nil, io.EOF
	r.data, r.dataEnd, r.line, r.seen, r.end = 0, 0, 0, 0, 0
}

// LastID is the id that the stream gave last, with which it can be resumed
// (MCP-33); "" if it gave none, or took it back with an empty one.
func (r *EventReader) LastID() string { return r.last }

// Next returns the next event that has data, an id or a retry. An event that
// the end of the stream cuts short counts if its last line is whole: some
// servers leave out the blank line.
//
// After a [TooLongError] Next can be called again and continues with the next
// event. Every other error is final: io.EOF at the end of the stream, a
// [PartialError] when it ended within a line, or the underlying reader's error.
func (r *EventReader) Next() (Event, error) {
	r.forget()
	for {
		i := r.findLine()
		if i < 0 {
			switch {
			case r.over(r.end - r.line):
				return Event{}, r.discard(nil)
			case r.err == nil:
				r.fill()
				continue
			case r.line < r.end:
				return Event{}, r.partial()
			case r.any && r.atEnd():
				return r.done(), nil
			}
			return Event{}, r.err
		}
		long := r.over(i - r.line) // with its mark, as it counts while its end has not come
		line := r.opened(r.buf[r.line:i])
		r.eat(i)
		if len(line) == 0 {
			if r.any {
				return r.done(), nil
			}
			r.forget() // an event with a name alone
			continue
		}
		if long {
			return Event{}, r.discard(line)
		}
		if refused := r.field(line); refused != nil {
			return Event{}, r.discard(refused)
		}
	}
}

// over reports whether a line of n bytes makes the event too long, whichever
// field it is.
func (r *EventReader) over(n int) bool { return r.dataEnd-r.data+n > r.max+len("data: ") }

// forget drops the event that was returned before or that said nothing.
func (r *EventReader) forget() {
	r.event = Event{Name: EventMessage}
	r.any, r.hasData, r.data, r.dataEnd = false, false, 0, 0
}

func (r *EventReader) done() Event {
	r.event.Data = r.buf[r.data:r.dataEnd:r.dataEnd]
	return r.event
}

// findLine finds the end of the line that starts at r.line, -1 if it has not
// been read yet.
func (r *EventReader) findLine() int {
	if r.skipLF && r.line < r.end {
		r.skipLF = false
		if r.buf[r.line] == '\n' {
			r.line++
		}
	}
	r.seen = max(r.seen, r.line)
	i := lineEnd(r.buf[r.seen:r.end])
	if i < 0 {
		r.seen = r.end
		return -1
	}
	return r.seen + i
}

// eat goes behind the line that ends at i.
func (r *EventReader) eat(i int) {
	r.skipLF = r.buf[i] == '\r'
	r.line = i + 1
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// opened is the line without the mark that the first one of a stream, and no
// other, may begin with.
func (r *EventReader) opened(line []byte) []byte {
	if r.begun {
		return line
	}
	r.begun = true
	return bytes.TrimPrefix(line, byteOrderMark)
}

// field understands one line. It returns the line when the event gets too long
// by it.
func (r *EventReader) field(line []byte) (refused []byte) {
	name, value := cutField(line)
	switch string(name) {
	case "data":
		if !r.addData(value) {
			return line
		}
	case "event":
		r.name(value)
	case "id":
		r.id(value)
	case "retry":
		r.retry(value)
	}
	return nil // also for a comment, or a field that nobody knows
}

func cutField(line []byte) (name, value []byte) {
	i := bytes.IndexByte(line[:min(len(line), len("retry:"))], ':')
	if i < 0 {
		return line, nil
	}
	name, value = line[:i], line[i+1:]
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return name, value
}

// addData leaves the first line of data where it is, and moves each further one
// behind those that are there; it is shorter there by the field's name.
func (r *EventReader) addData(value []byte) bool {
	n := r.dataEnd - r.data + len(value)
	if r.hasData {
		n++
	}
	switch {
	case n > r.max:
		return false
	case r.hasData:
		r.buf[r.dataEnd] = '\n'
		r.dataEnd += 1 + copy(r.buf[r.dataEnd+1:], value)
	default:
		// The value ends where its line ended, one byte before what comes next.
		r.dataEnd = r.line - 1
		r.data = r.dataEnd - len(value)
	}
	r.any, r.hasData = true, true
	return true
}

func (r *EventReader) name(value []byte) {
	switch {
	case len(value) == 0 || string(value) == EventMessage:
		r.event.Name = EventMessage
	default:
		r.event.Name = string(value[:min(len(value), MaxEventName)])
	}
}

// id takes an id unless it could not be sent back in a header.
func (r *EventReader) id(value []byte) {
	for _, c := range value {
		if c < ' ' || c == 0x7f {
			return
		}
	}
	if len(value) > MaxEventID {
		value = nil
	}
	r.last = string(value)
	r.event.ID = r.last
	r.any = true
}

func (r *EventReader) retry(value []byte) {
	const most = int64(maxRetry / time.Millisecond)
	var ms int64
	for _, c := range value {
		if c < '0' || c > '9' {
			return
		}
		ms = min(ms*10+int64(c-'0'), most)
	}
	if len(value) > 0 {
		r.event.Retry, r.any = time.Duration(ms)*time.Millisecond, true
	}
}

// fill reads once, after it has made room.
func (r *EventReader) fill() {
	if !r.hasData && r.line == r.end {
		r.line, r.seen, r.end = 0, 0, 0
		if len(r.buf) > len(r.small) {
			// We may wait here for hours: wait with a small buffer.
			putBuf(r.buf)
			r.buf = r.small
		}
	}
	if r.end == len(r.buf) {
		r.makeRoom()
	}
	n, err := readSome(r.src, r.buf[r.end:])
	r.end += n
	if err != nil {
		r.err = err
	}
}

// makeRoom moves the data to the front and the unfinished line behind it, into
// a larger buffer when they fill half of this one.
func (r *EventReader) makeRoom() {
	old, data, rest := r.buf, r.dataEnd-r.data, r.end-r.line
	if n := data + rest; n > len(r.buf)/2 {
		b := getBuf(max(n+1, min(2*n+1, r.max+eventBuf)))
		r.buf = b[:cap(b)]
	}
	copy(r.buf, old[r.data:r.dataEnd])
	copy(r.buf[data:], old[r.line:r.end])
	r.seen += data - r.line
	r.data, r.dataEnd, r.line, r.end = 0, data, data, data+rest
	if &old[0] != &r.buf[0] {
		putBuf(old) // passes over the small one
	}
}

// atEnd reports whether the stream has ended in good order. An error that wraps
// io.EOF is a failure, by the contract of [io.Reader].
func (r *EventReader) atEnd() bool { return r.err == io.EOF } //nolint:errorlint // see above

// partial reports a stream that ended within a line.
func (r *EventReader) partial() error {
	_, value := cutField(r.buf[r.line:r.end])
	return r.cutShort(int64(r.dataEnd-r.data+len(value)), r.prefix(value))
}

func (r *EventReader) cutShort(size int64, prefix []byte) error {
	err := r.err
	if r.atEnd() {
		err = io.ErrUnexpectedEOF
	}
	return &PartialError{Size: size, Prefix: prefix, Err: err}
}

// prefix is a copy of the beginning of the event's data, which more follows.
func (r *EventReader) prefix(more []byte) []byte {
	p := bytes.Clone(r.buf[r.data:min(r.dataEnd, r.data+PrefixLen)])
	return append(p, more[:min(len(more), PrefixLen-len(p))]...)
}

// discard throws the rest of an overlong event away and reports it. refused is
// the whole line that was too much; nil: the line has not ended yet. What is kept is the beginning of the data and a window over its end.
func (r *EventReader) discard(refused []byte) error {
	inLine := refused == nil // what is read next belongs to a line that began before
	if inLine {
		refused = r.opened(r.buf[r.line:r.end])
		r.line, r.seen = r.end, r.end
	}
	name, refused := cutField(refused)
	inData := string(name) == "data"
	if !inData {
		refused = nil
	}
	e := &TooLongError{Max: r.max, Size: int64(r.dataEnd - r.data + len(refused)), Prefix: r.prefix(refused)}
	window := slide(slide(nil, r.buf[r.data:r.dataEnd]), refused)
	r.forget()
	for {
		i := r.findLine()
		if i < 0 && r.err == nil && !inLine && r.end-r.line < len("data: ") {
			r.fill() // too little to know which field it is
			continue
		}
		chunk := r.buf[r.line:r.end]
		if i >= 0 {
			chunk = r.buf[r.line:i]
		}
		if i >= 0 && len(chunk) == 0 && !inLine {
			r.eat(i)
			e.Tail = window
			return e
		}
		if !inLine {
			var name []byte
			name, chunk = cutField(chunk)
			inData = string(name) == "data"
		}
		if inData {
			e.Size += int64(len(chunk))
			window = slide(window, chunk)
		}
		switch {
		case i >= 0:
			r.eat(i)
			inLine = false
		case r.atEnd() && r.line == r.end && !inLine:
			e.Tail = window
			return e
		case r.err != nil:
			return r.cutShort(e.Size, e.Prefix)
		default:
			inLine = inLine || r.line < r.end
			r.line, r.seen = r.end, r.end
			r.fill()
		}
	}
}
