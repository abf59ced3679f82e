package jsonrpc

import (
	"bytes"
	"fmt"
	"iter"
	"strings"
)

// The functions in this file walk one level of a frame that Parse has accepted.
// They validate nothing again. On bytes that are not valid JSON their spans mean
// nothing, but they neither panic nor run on.

// ValueKind is the JSON type of a value: one of n (null), t (true), f (false),
// " (string), 0 (number), { (object), [ (array), or 0 for no value at all.
type ValueKind byte

// The kinds of JSON values.
const (
	NoValue     ValueKind = 0
	NullValue   ValueKind = 'n'
	TrueValue   ValueKind = 't'
	FalseValue  ValueKind = 'f'
	StringValue ValueKind = '"'
	NumberValue ValueKind = '0'
	ObjectValue ValueKind = '{'
	ArrayValue  ValueKind = '['
)

// String names the kind for logs and errors.
func (k ValueKind) String() string {
	switch k {
	case NoValue:
		return "nothing"
	case NullValue:
		return "null"
	case TrueValue, FalseValue:
		return "boolean"
	case StringValue:
		return "string"
	case NumberValue:
		return "number"
	case ObjectValue:
		return "object"
	case ArrayValue:
		return "array"
	}
	return "invalid"
}

// KindAt returns the kind of the value at s.
func KindAt(frame []byte, s Span) ValueKind {
	if !within(frame, s) {
		return NoValue
	}
	switch c := frame[s.Start]; {
	case c == '-' || '0' <= c && c <= '9':
		return NumberValue
	default:
		return ValueKind(c)
	}
}

func within(frame []byte, s Span) bool {
	return s.Ok() && 0 <= s.Start && s.Start < s.End && s.End <= len(frame)
}

// MemberSpan is one member of an object. Key covers the name with its quotes.
type MemberSpan struct{ Key, Value Span }

// Named reports whether the member's name is key, however it is spelled.
func (m MemberSpan) Named(frame []byte, key string) bool {
	raw := m.Key.Of(frame)
	if len(raw) < 2 {
		return false
	}
	raw = raw[1 : len(raw)-1]
	if string(raw) == key {
		return true
	}
	// An escape is at most six times as long as what it stands for.
	if len(raw) <= len(key) || len(raw) > 6*len(key) || bytes.IndexByte(raw, '\\') < 0 {
		return false
	}
	return string(appendUnescaped(make([]byte, 0, len(raw)), raw)) == key
}

// Members yields the members of the object at s in their order. It yields
// nothing when there is no object.
func Members(frame []byte, s Span) iter.Seq[MemberSpan] {
	return func(yield func(MemberSpan) bool) {
		if KindAt(frame, s) != ObjectValue {
			return
		}
		b := frame[:s.End]
		for i := skipSpace(b, s.Start+1); i < len(b) && b[i] == '"'; {
			m, next := memberAt(b, i)
			if next == 0 || !yield(m) {
				return
			}
			i = next
		}
	}
}

// memberAt reads the member whose name opens at b[i], and returns where the
// next one starts; 0 when the text is broken.
func memberAt(b []byte, i int) (m MemberSpan, next int) {
	end, ok := skipString(b, i)
	if !ok {
		return m, 0
	}
	m.Key = Span{i, end}
	if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
		return m, 0
	}
	i = skipSpace(b, i+1)
	if end, ok = skipValue(b, i); !ok || end == i {
		return m, 0
	}
	m.Value = Span{i, end}
	i = skipSpace(b, end)
	if i < len(b) && b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	return m, i
}

// Elements yields the elements of the array at s in their order. It yields
// nothing when there is no array.
func Elements(frame []byte, s Span) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		if KindAt(frame, s) != ArrayValue {
			return
		}
		b := frame[:s.End]
		for i := skipSpace(b, s.Start+1); i < len(b) && b[i] != ']'; {
			end, ok := skipValue(b, i)
			if !ok || end == i || !yield(Span{i, end}) {
				return
			}
			if i = skipSpace(b, end); i < len(b) && b[i] == ',' {
				i = skipSpace(b, i+1)
			}
		}
	}
}

// Lookup finds several members of the object at s in one pass: out[i] becomes
// the value of keys[i], or the zero Span when there is none. out must be at least
// as long as keys. When there is no object at s all are absent.
//
// A key that is there twice gives an error that matches [ErrDuplicateKey]: what
// we read must be what the receiver reads. The first value is in out even so.
func Lookup(frame []byte, s Span, keys []string, out []Span) error {
	for i := range keys {
		out[i] = Span{}
	}
	var err error
	for m := range Members(frame, s) {
		for i, key := range keys {
			if !m.Named(frame, key) {
				continue
			}
			if !out[i].Ok() {
				out[i] = m.Value
			} else if err == nil {
				err = fmt.Errorf("%w: %q", ErrDuplicateKey, key)
			}
			break
		}
	}
	return err
}

// Member finds one member of the object at s. It is false when there is no such
// member or no object at s. A key that is there twice is an error, as in [Lookup].
func Member(frame []byte, s Span, key string) (Span, bool, error) {
	var out Span
	for m := range Members(frame, s) {
		if !m.Named(frame, key) {
			continue
		}
		if out.Ok() {
			return out, true, fmt.Errorf("%w: %q", ErrDuplicateKey, key)
		}
		out = m.Value
	}
	return out, out.Ok(), nil
}

// Path follows members inwards: Path(frame, e.Params, "_meta", "progressToken").
// It is false as soon as a step is missing or is no object.
func Path(frame []byte, s Span, keys ...string) (Span, bool, error) {
	for _, key := range keys {
		next, ok, err := Member(frame, s, key)
		if err != nil || !ok {
			return Span{}, false, err
		}
		s = next
	}
	return s, s.Ok(), nil
}

// ReadString returns the text of the JSON string at s. Text of more than limit
// bytes gives an error that matches [ErrTooLong], another kind of value one that
// matches [ErrKind]. The result is valid UTF-8: what is not becomes U+FFFD.
func ReadString(frame []byte, s Span, limit int) (string, error) {
	if k := KindAt(frame, s); k != StringValue || s.Len() < 2 {
		return "", fmt.Errorf("%w: want a string, found %v", ErrKind, k)
	}
	raw := frame[s.Start+1 : s.End-1]
	// Six bytes of JSON text make at least one byte of text.
	if len(raw) > 6*limit {
		return "", fmt.Errorf("%w: string of more than %d bytes", ErrTooLong, limit)
	}
	var text string
	if bytes.IndexByte(raw, '\\') < 0 {
		text = string(raw)
	} else {
		text = string(appendUnescaped(make([]byte, 0, len(raw)), raw))
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > limit {
		return "", fmt.Errorf("%w: string of %d bytes, at most %d are allowed", ErrTooLong, len(text), limit)
	}
	return text, nil
}

// ReadID returns the value at s as an id. It is for the places in a payload that
// name an id or something of the same nature: params.requestId, a progress token.
// Errors match [ErrID].
func ReadID(frame []byte, s Span) (ID, error) {
	if !within(frame, s) {
		return ID{}, fmt.Errorf("%w: there is none", ErrID)
	}
	return idFromValid(frame[s.Start:s.End])
}
