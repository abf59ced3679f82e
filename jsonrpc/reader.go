package jsonrpc

import (
	"bytes"
	"fmt"
	"io"
)

const (
	// DefaultMaxLine bounds a line when ReaderOptions.Max is 0 (MCP-G3).
	DefaultMaxLine = 16 << 20
	// PrefixLen is how much of the beginning of a refused line an error keeps.
	PrefixLen = 64 << 10
	// TailLen is how much of the end of a refused line an error keeps. Only the
	// few short members that may follow a payload have to fit.
	TailLen = 4 << 10
)

// ReaderOptions are the settings of a [Reader]; zero values mean defaults.
type ReaderOptions struct {
	// Max is the longest line in bytes, without its end; 0 means DefaultMaxLine.
	Max int
}

// Reader cuts a stream into lines (MCP-24). It holds 8 KiB, more only while a
// line needs it, and never more than the bound and some read-ahead. It copies
// nothing but what has to move when its buffer grows. It is for one goroutine
// and starts none.
type Reader struct {
	src io.Reader
	max int

	small      []byte // the buffer of an idle reader, kept for good
	buf        []byte // small, or a larger one; len(buf) is its whole size
	start, end int    // buf[start:end] is read but not yet returned
	seen       int    // buf[start:seen] holds no newline
	hint       int    // length of the last line that did not fit into a small buffer
	calm       int    // lines since one needed more than tinyBuf
	err        error  // from src, to be reported when the buffer is used up
}

// NewReader returns a Reader of the lines in src. An *os.File is taken as it is
// from here on: its method Fd, which puts it into blocking mode, must not be
// called any more, and a read deadline must be set after this.
func NewReader(src io.Reader, opts ReaderOptions) *Reader {
	if opts.Max <= 0 {
		opts.Max = DefaultMaxLine
	}
	small := make([]byte, tinyBuf)
	return &Reader{src: readDirect(src), max: opts.Max, small: small, buf: small}
}

// TooLongError says that a line was over the bound. The line is gone, the reader
// can go on. It matches [ErrTooLong].
type TooLongError struct {
	Size   int64  // length of the line in bytes
	Max    int    // the bound
	Prefix []byte // its first bytes, at most PrefixLen; a copy
	Tail   []byte // its last bytes, at most TailLen; a copy
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("line of %d bytes is too long, at most %d are allowed", e.Size, e.Max)
}

// Is makes the error match [ErrTooLong].
func (e *TooLongError) Is(target error) bool { return target == ErrTooLong }

// Salvage is [Salvage] of what is left of the line.
func (e *TooLongError) Salvage() (id ID, kind Kind, ok bool) { return Salvage(e.Prefix, e.Tail) }

// PartialError says that the stream ended or failed within a line. It unwraps to
// io.ErrUnexpectedEOF or to the error of the underlying reader.
type PartialError struct {
	Size   int64  // bytes of the unfinished line
	Prefix []byte // its first bytes, at most PrefixLen; a copy. All of it if len(Prefix) == Size
	Err    error
}

func (e *PartialError) Error() string {
	return fmt.Sprintf("stream ended within a line, after %d bytes of it: %v", e.Size, e.Err)
}

func (e *PartialError) Unwrap() error { return e.Err }

// Next returns the next line that is not blank, without its newline and a
// carriage return before that. The line aliases the reader's buffer and is valid
// until the next call.
//
// After a [TooLongError] Next can be called again and continues with the next line.
// Every other error is final: io.EOF at the end of the stream, a
// [PartialError] when it ended within a line, or the underlying reader's error.
func (r *Reader) Next() ([]byte, error) {
	r.seen = max(r.seen, r.start)
	for {
		if i := bytes.IndexByte(r.buf[r.seen:r.end], '\n'); i >= 0 {
			line := trimCR(r.buf[r.start : r.seen+i])
			r.start = r.seen + i + 1
			r.seen = r.start
			switch {
			case len(line) > r.max:
				return nil, r.tooLong(line)
			case skipSpace(line, 0) == len(line):
				continue
			}
			r.note(len(line))
			return line, nil
		}
		r.seen = r.end
		// One byte more than the bound, for a carriage return.
		if r.end-r.start > r.max+1 {
			return nil, r.discard()
		}
		if r.err != nil {
			return nil, r.fail()
		}
		r.fill()
	}
}

// readyWithin is how far Ready looks.
const readyWithin = tinyBuf

// Ready reports whether a line that is not long waits in the buffer, so that
// Next need not read. Whoever passes lines on may keep what they became together
// until it says no, see [Writer.Hold]; a long line would take its time.
func (r *Reader) Ready() bool {
	return bytes.IndexByte(r.buf[r.start:min(r.end, r.start+readyWithin)], '\n') >= 0
}

func trimCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// note learns from the length of a line that is being returned.
func (r *Reader) note(n int) {
	switch {
	case n > smallBuf:
		r.hint, r.calm = n, 0
	case n > tinyBuf:
		r.calm = 0
	default:
		r.calm++
	}
}

func (r *Reader) tooLong(line []byte) error {
	return &TooLongError{
		Size:   int64(len(line)),
		Max:    r.max,
		Prefix: bytes.Clone(line[:min(len(line), PrefixLen)]),
		Tail:   bytes.Clone(line[max(0, len(line)-TailLen):]),
	}
}

// fail reports the end of the stream.
func (r *Reader) fail() error {
	rest := r.buf[r.start:r.end]
	if skipSpace(rest, 0) == len(rest) {
		return r.err
	}
	return r.partial(int64(len(rest)), bytes.Clone(rest[:min(len(rest), PrefixLen)]))
}

func (r *Reader) partial(size int64, prefix []byte) error {
	err := r.err
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &PartialError{Size: size, Prefix: prefix, Err: err}
}

// calmLines is the number of short lines after which the 64 KiB buffer is given
// back. Larger ones go as soon as they are empty.
const calmLines = 64

// fill reads once, after it has made room.
func (r *Reader) fill() {
	if r.start == r.end {
		r.start, r.seen, r.end = 0, 0, 0
		if len(r.buf) > smallBuf || len(r.buf) > tinyBuf && r.calm >= calmLines {
			// We may wait here for hours: wait with a small buffer.
			putBuf(r.buf)
			r.buf = r.small
		}
	}
	if r.end == len(r.buf) {
		r.makeRoom()
	}
	r.read()
}

// makeRoom moves the unfinished line to the front, or into a larger buffer when
// it fills this one. A line that has outgrown the small buffer gets room at once
// for one as long as the last such line, because streams repeat themselves and
// each step of growth copies what is there.
func (r *Reader) makeRoom() {
	old, n := r.buf, r.end-r.start
	if r.start == 0 || n > len(r.buf)/2 {
		want := len(r.buf) + 1
		if len(r.buf) >= smallBuf {
			want = max(want, r.hint+2)
		}
		// Two bytes more than the bound: carriage return and newline.
		want = min(want, r.max+2)
		b := getBuf(max(want, n+1))
		r.buf = b[:cap(b)]
	}
	copy(r.buf, old[r.start:r.end])
	r.start, r.seen, r.end = 0, r.seen-r.start, n
	if &old[0] != &r.buf[0] {
		putBuf(old) // passes over the small one
	}
}

// read reads once into the free part of the buffer, which is not empty.
func (r *Reader) read() {
	n, err := readSome(r.src, r.buf[r.end:])
	r.end += n
	if err != nil {
		r.err = err
	}
}

// discard throws the rest of an overlong line away and reports it. It keeps the
// line's last bytes in a small window that slides along.
func (r *Reader) discard() error {
	e := r.tooLong(r.buf[r.start:r.end]).(*TooLongError) //nolint:forcetypeassert // tooLong makes no other
	window := e.Tail
	r.start, r.seen = r.end, r.end
	for {
		if r.err != nil {
			return r.partial(e.Size, e.Prefix)
		}
		r.fill()
		chunk := r.buf[r.start:r.end]
		i := bytes.IndexByte(chunk, '\n')
		if i >= 0 {
			chunk = chunk[:i]
		}
		e.Size += int64(len(chunk))
		window = slide(window, chunk)
		if i < 0 {
			r.start, r.seen = r.end, r.end
			continue
		}
		r.start += i + 1
		r.seen = r.start
		e.Tail = trimCR(window)
		e.Size -= int64(len(window) - len(e.Tail))
		e.Prefix = e.Prefix[:min(int64(len(e.Prefix)), e.Size)]
		return e
	}
}

// slide returns the last TailLen bytes of window followed by chunk.
func slide(window, chunk []byte) []byte {
	if len(chunk) >= TailLen {
		return append(window[:0], chunk[len(chunk)-TailLen:]...)
	}
	if drop := len(window) + len(chunk) - TailLen; drop > 0 {
		window = window[:copy(window, window[drop:])]
	}
	return append(window, chunk...)
}

// IsNoise reports whether a line cannot be a message: its first byte that is not
// white space opens neither object nor array. Servers print such lines to their
// stdout by mistake; they are logged and skipped (MCP-G3).
func IsNoise(line []byte) bool {
	i := skipSpace(line, 0)
	return i >= len(line) || line[i] != '{' && line[i] != '['
}

// readSome reads once, as much as there is: at least a byte, or an error. A
// source that gives neither, again and again, is broken.
func readSome(src io.Reader, buf []byte) (int, error) {
	for range 100 {
		if n, err := src.Read(buf); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}
