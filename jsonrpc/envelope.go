package jsonrpc

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	// MaxDepth is the deepest nesting of objects and arrays that Parse accepts
	// (MCP-G3). Recursive parsers behind us need such a bound.
	MaxDepth = 1000
	// MaxMethodLen bounds a method name, in bytes of its JSON text.
	MaxMethodLen = 1024
)

// Kind says what a message is.
type Kind uint8

// The kinds of messages. The zero value means that it could not be told.
const (
	Unknown      Kind = iota
	Request           // method and id, which may be null
	Notification      // method without id
	Response          // result or error
)

// String returns the kind's name for logs.
func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	}
	return "unknown"
}

// Span is a part of a frame: frame[Start:End]. The zero Span means that the part
// is not there; no JSON value inside an object can start at 0.
type Span struct{ Start, End int }

// Ok reports whether the part is there.
func (s Span) Ok() bool { return s.End > 0 }

// Len returns the length in bytes.
func (s Span) Len() int { return s.End - s.Start }

// Of returns the part of frame, which aliases it, with its capacity cut so that
// appending to it cannot overwrite the frame. It is nil for the zero Span.
func (s Span) Of(frame []byte) []byte {
	if !s.Ok() {
		return nil
	}
	return frame[s.Start:s.End:s.End]
}

// Envelope is what a message says about itself, outside its payload. Spans are
// offsets into the frame that was parsed and cover the exact JSON text of a
// value; a member that is absent has the zero Span, and null is not absent.
type Envelope struct {
	Kind   Kind
	ID     ID     // zero when absent
	Method string // decoded; "" in responses

	IDAt     Span
	MethodAt Span
	Params   Span
	Result   Span
	Error    Span
	Object   Span // the object itself, from its { to behind its }
}

// IsError reports whether the message is a response with an error.
func (e *Envelope) IsError() bool { return e.Kind == Response && e.Error.Ok() }

// Parse reads the envelope of one message into e, which it overwrites. It
// validates the whole frame but decodes nothing of the payload. It keeps no
// reference to frame, may be called concurrently, and for usual messages
// allocates only the text of the id.
//
// Errors match [ErrSyntax] or [ErrInvalid] ([Code] gives the number). Even then e
// holds what could be read: Kind is what the message claims to be, ID what an
// answer can be addressed to; the id is left out when there are two.
//
// A message with a method and the id null is a request with a null id, not a
// notification. An error response may lack an id.
func Parse(frame []byte, e *Envelope) error {
	*e = Envelope{}
	seen := fields{e: e, frame: frame}
	if f := seen.read(); !f.ok() {
		if f.deep {
			e.ID, e.Kind, _ = Salvage(frame, nil)
		}
		return f.err()
	}
	if !e.Object.Ok() {
		return ErrNotObject
	}
	return seen.verdict()
}

// field is a bit for each envelope member.
type field uint8

const (
	fieldVersion field = 1 << iota
	fieldID
	fieldMethod
	fieldParams
	fieldResult
	fieldError
)

var fieldNames = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}

// String returns the name of a single field.
func (f field) String() string {
	for i, name := range fieldNames {
		if f == 1<<i {
			return name
		}
	}
	return "?"
}

// fieldOf finds which envelope member a name, given as its JSON text, stands for,
// and whether it is spelled in the usual letter case.
func fieldOf(quoted []byte) (f field, exact bool) {
	name := quoted[1 : len(quoted)-1]
	switch string(name) {
	case "jsonrpc":
		return fieldVersion, true
	case "id":
		return fieldID, true
	case "method":
		return fieldMethod, true
	case "params":
		return fieldParams, true
	case "result":
		return fieldResult, true
	case "error":
		return fieldError, true
	}
	// The longest disguise is every letter as an escape of six bytes.
	if len(name) > 6*len("jsonrpc") {
		return 0, false
	}
	if bytes.IndexByte(name, '\\') >= 0 {
		name = appendUnescaped(make([]byte, 0, len(name)), name)
	}
	for i, want := range fieldNames {
		// encoding/json and others match names without regard to case, also by
		// Unicode folding (U+017F is an s to them).
		if strings.EqualFold(string(name), want) {
			return 1 << i, string(name) == want
		}
	}
	return 0, false
}

// fields collects the envelope members of one message and then judges them.
type fields struct {
	e       *Envelope
	frame   []byte
	present field // exact names
	claimed field // exact names and those in another letter case
	twice   field
	version Span
}

// read checks the whole frame and takes down where its members are. A valid
// frame that is no object leaves Envelope.Object zero.
func (s *fields) read() fault {
	b := s.frame
	start := skipSpace(b, 0)
	if start == len(b) || b[start] != '{' {
		return checkWhole(b, MaxDepth)
	}
	i := skipSpace(b, start+1)
	for more := i >= len(b) || b[i] != '}'; more; {
		end, at, f := checkKey(b, i)
		if !f.ok() {
			return f
		}
		name := b[i:end]
		if end, f = checkValue(b, at, MaxDepth-1); !f.ok() {
			return f
		}
		if field, exact := fieldOf(name); field != 0 {
			s.add(field, exact, Span{at, end})
		}
		switch i = skipSpace(b, end); {
		case i >= len(b):
			return fault{at: i, why: whyEnd}
		case b[i] == ',':
			i = skipSpace(b, i+1)
		case b[i] == '}':
			more = false
		default:
			return fault{at: i, why: whyNext}
		}
	}
	f := checkEnd(b, i+1)
	if f.ok() {
		s.e.Object = Span{start, i + 1}
	}
	return f
}

func (s *fields) add(f field, exact bool, value Span) {
	if s.claimed&f != 0 {
		s.twice |= f
	}
	s.claimed |= f
	if !exact {
		return
	}
	s.present |= f
	switch f {
	case fieldVersion:
		s.version = value
	case fieldID:
		s.e.IDAt = value
	case fieldMethod:
		s.e.MethodAt = value
	case fieldParams:
		s.e.Params = value
	case fieldResult:
		s.e.Result = value
	case fieldError:
		s.e.Error = value
	}
}

// verdict fills id, kind and method, and returns the first thing that is wrong.
func (s *fields) verdict() error {
	e := s.e
	var badID error
	if e.IDAt.Ok() && s.twice&fieldID == 0 {
		e.ID, badID = idFromValid(e.IDAt.Of(s.frame))
	}
	switch {
	case s.present&fieldMethod != 0 && s.present&fieldID != 0:
		e.Kind = Request
	case s.present&fieldMethod != 0:
		e.Kind = Notification
	case s.present&(fieldResult|fieldError) != 0:
		e.Kind = Response
	}
	badMethod := s.readMethod()
	switch {
	case s.twice != 0:
		return fmt.Errorf("%w: %q", ErrDuplicateKey, s.firstTwice())
	case !isVersion2(s.version.Of(s.frame)):
		return ErrVersion
	case badID != nil:
		return badID
	case badMethod != nil:
		return badMethod
	}
	return s.shape()
}

func (s *fields) firstTwice() string { return (s.twice & -s.twice).String() }

// shape checks which members are there together.
func (s *fields) shape() error {
	has := func(f field) bool { return s.present&f != 0 }
	switch {
	case has(fieldResult) && has(fieldError):
		return fmt.Errorf("%w: both result and error", ErrShape)
	case has(fieldMethod) && has(fieldResult|fieldError):
		return fmt.Errorf("%w: method together with result or error", ErrShape)
	case has(fieldMethod), has(fieldError):
		// An error without id answers a message whose id could not be read.
		return nil
	case !has(fieldResult):
		return fmt.Errorf("%w: no method, result or error", ErrShape)
	case !has(fieldID):
		return fmt.Errorf("%w: a result without id", ErrShape)
	}
	return nil
}

func (s *fields) readMethod() error {
	raw := s.e.MethodAt.Of(s.frame)
	switch {
	case raw == nil || s.twice&fieldMethod != 0:
		return nil
	case raw[0] != '"':
		return fmt.Errorf("%w: method must be a string", ErrShape)
	case len(raw) > MaxMethodLen:
		return fmt.Errorf("%w: method has %d bytes, at most %d are allowed", ErrShape, len(raw), MaxMethodLen)
	}
	s.e.Method = intern(raw[1 : len(raw)-1])
	return nil
}

func isVersion2(raw []byte) bool {
	if string(raw) == `"2.0"` {
		return true
	}
	return len(raw) <= len(`"2.0"`)*6 && len(raw) > 2 && raw[0] == '"' &&
		string(appendUnescaped(nil, raw[1:len(raw)-1])) == "2.0"
}
