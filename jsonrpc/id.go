package jsonrpc

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxIDLen bounds the JSON text of an id that comes from outside, in bytes with
// its quotes. Ids are kept in tables while calls are in flight; real ones are
// counters and UUIDs.
const MaxIDLen = 256

// ID is a JSON-RPC id with its exact JSON text. The zero ID means that a message
// has no id member. IDs may be compared with ==, which compares text: "a" and
// "\u0061" are then different. Use [ID.Key] or [ID.Same] where two spellings of
// one string must meet. An ID is immutable and aliases no frame (MCP-G2, MCP-G7).
type ID struct {
	raw string // JSON text without surrounding white space; "" when absent
}

// IDKind is the JSON type of an id.
type IDKind uint8

// The kinds of an id. The zero value means that there is none.
const (
	IDAbsent IDKind = iota
	IDNull
	IDNumber
	IDString
)

// String returns the kind's name for logs.
func (k IDKind) String() string {
	switch k {
	case IDNull:
		return "null"
	case IDNumber:
		return "number"
	case IDString:
		return "string"
	}
	return "absent"
}

// NullID is the id that is the JSON value null, as in an answer to a message
// whose id could not be read.
func NullID() ID { return ID{raw: "null"} }

// StringID returns the id that is the JSON string s. It is for ids of our own:
// [MaxIDLen] is not checked, and invalid UTF-8 in s becomes U+FFFD.
func StringID(s string) ID {
	raw, _ := jsontext.AppendQuote(make([]byte, 0, len(s)+2), s)
	return ID{raw: string(raw)}
}

// ParseID reads an id from its JSON text; surrounding white space is dropped.
// Anything but one string, number or null of at most [MaxIDLen] bytes gives an
// error that matches [ErrID] or [ErrSyntax].
func ParseID(text []byte) (ID, error) {
	raw := bytes.Trim(text, " \t\r\n")
	if len(raw) > MaxIDLen {
		return ID{}, errIDTooLong(len(raw))
	}
	if f := checkWhole(raw, MaxIDLen); !f.ok() {
		return ID{}, fmt.Errorf("%w: id %.40q", ErrSyntax, raw)
	}
	return idFromValid(raw)
}

// idFromValid is ParseID for text that is known to be one valid JSON value.
func idFromValid(raw []byte) (ID, error) {
	if len(raw) > MaxIDLen {
		return ID{}, errIDTooLong(len(raw))
	}
	switch c := raw[0]; {
	case c == '"':
		// Receivers replace or refuse invalid UTF-8, so such an id would not come
		// back as it went out, and two of them could become one.
		if !utf8.Valid(raw) {
			return ID{}, fmt.Errorf("%w: it is not valid UTF-8: %.40q", ErrID, raw)
		}
	case c == '-' || '0' <= c && c <= '9':
	case c == 'n':
		return NullID(), nil
	default:
		return ID{}, fmt.Errorf("%w: it must be a string, a number or null, not %.40q", ErrID, raw)
	}
	return ID{raw: string(raw)}, nil
}

func errIDTooLong(n int) error {
	return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrID, n, MaxIDLen)
}

// IsZero reports whether there is no id at all. A null id is not zero.
func (id ID) IsZero() bool { return id.raw == "" }

// IsNull reports whether the id is the JSON value null.
func (id ID) IsNull() bool { return id.raw == "null" }

// Kind returns the JSON type of the id.
func (id ID) Kind() IDKind {
	switch {
	case id.raw == "":
		return IDAbsent
	case id.raw[0] == '"':
		return IDString
	case id.raw[0] == 'n':
		return IDNull
	}
	return IDNumber
}

// Raw returns the exact JSON text, to be echoed in an answer; "" when absent.
func (id ID) Raw() string { return id.raw }

// AppendTo appends the exact JSON text to dst, null when the id is absent: the
// form that JSON-RPC prescribes in an answer to a message without readable id.
func (id ID) AppendTo(dst []byte) []byte {
	if id.raw == "" {
		return append(dst, "null"...)
	}
	return append(dst, id.raw...)
}

// Key returns a map key that is equal for two ids exactly when they have the same
// JSON type and the same value; numbers are compared by their text, so 1 and 1.0
// differ (MCP-G7). It is not JSON. It allocates only for strings with escapes.
func (id ID) Key() string {
	if id.Kind() != IDString || !hasEscape(id.raw) {
		return id.raw
	}
	// The quotes keep strings apart from numbers; what lies between them is the
	// decoded text, which for a string without escapes is the text itself.
	key := make([]byte, 0, len(id.raw))
	key = append(key, '"')
	key = appendUnescaped(key, []byte(id.raw[1:len(id.raw)-1]))
	return string(append(key, '"'))
}

// Same reports whether id and other have the same [ID.Key].
func (id ID) Same(other ID) bool {
	return id.raw == other.raw || id.Key() == other.Key()
}

// Text returns the decoded string of a string id, and false for other kinds.
func (id ID) Text() (string, bool) {
	if id.Kind() != IDString {
		return "", false
	}
	key := id.Key()
	return key[1 : len(key)-1], true
}

// String returns the JSON text for logs, and "-" when the id is absent. It never
// contains control characters below U+0020.
func (id ID) String() string {
	if id.raw == "" {
		return "-"
	}
	return id.raw
}
