package rap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/belayhq/belay/jsonrpc"
)

// object is one JSON object of a message whose members are read by name. It is
// the one place where what a peer wrote becomes Go values: encoding/json would
// take "ID" for "id", the last of two equal names, and null for everything.
// The first thing that is wrong stays in err; later reads return zero values.
type object struct {
	body  []byte
	keys  []string
	spans []jsonrpc.Span
	where string // in front of member names in errors: "tools[3]."
	err   error
}

// readObject checks that body is one JSON object of at most limit bytes and finds
// the members named by keys.
func readObject(body []byte, limit int, keys ...string) *object {
	o := &object{body: body}
	switch {
	case len(body) > limit:
		o.err = fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, len(body), limit)
	case !utf8.Valid(body):
		o.err = fmt.Errorf("%w: it is not valid UTF-8", ErrMalformed)
	case !json.Valid(body):
		o.err = fmt.Errorf("%w: it is not valid JSON", ErrMalformed)
	default:
		start := len(body) - len(bytes.TrimLeft(body, " \t\r\n"))
		o.find(jsonrpc.Span{Start: start, End: len(body)}, keys)
	}
	return o
}

// child reads the object at s, which lies in the same body; where names it.
func (o *object) child(s jsonrpc.Span, where string, keys ...string) *object {
	c := &object{body: o.body, where: where, err: o.err}
	if c.err == nil {
		c.find(s, keys)
	}
	return c
}

func (o *object) find(s jsonrpc.Span, keys []string) {
	if k := jsonrpc.KindAt(o.body, s); k != jsonrpc.ObjectValue {
		what := "the message"
		if o.where != "" {
			what = o.where[:len(o.where)-1]
		}
		o.err = fmt.Errorf("%w: %s must be an object, not %v", ErrMalformed, what, k)
		return
	}
	o.keys, o.spans = keys, make([]jsonrpc.Span, len(keys))
	if err := jsonrpc.Lookup(o.body, s, keys, o.spans); err != nil {
		o.err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
}

// failf keeps the first complaint about a member.
func (o *object) failf(key, format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("%w: %s%s %s", ErrMalformed, o.where, key, fmt.Sprintf(format, args...))
	}
}

// at is where the member is; false if it is absent or null, which this protocol
// does not distinguish.
func (o *object) at(key string) (jsonrpc.Span, bool) {
	i := slices.Index(o.keys, key)
	if i < 0 || !o.spans[i].Ok() || jsonrpc.KindAt(o.body, o.spans[i]) == jsonrpc.NullValue {
		return jsonrpc.Span{}, false
	}
	return o.spans[i], true
}

func (o *object) has(key string) bool {
	_, ok := o.at(key)
	return ok
}

// need complains when the member is absent.
func (o *object) need(key string) bool {
	if o.has(key) {
		return true
	}
	o.failf(key, "is missing")
	return false
}

// optional reads a string of at most limit bytes; "" and false when there is none.
func (o *object) optional(key string, limit int) (string, bool) {
	s, ok := o.at(key)
	if !ok {
		return "", false
	}
	text, err := jsonrpc.ReadString(o.body, s, limit)
	if err != nil {
		o.failf(key, "cannot be read: %v", err)
		return "", false
	}
	return text, true
}

// text reads a string that must be there; it may be empty.
func (o *object) text(key string, limit int) string {
	if !o.need(key) {
		return ""
	}
	text, _ := o.optional(key, limit)
	return text
}

// id reads an id that must be there.
func (o *object) id(key string) string {
	text := o.text(key, MaxID)
	if o.err == nil {
		if err := CheckID(text); err != nil {
			o.failf(key, "cannot be used: %v", err)
		}
	}
	return text
}

// flag reads a boolean; false when there is none.
func (o *object) flag(key string) bool {
	s, ok := o.at(key)
	if !ok {
		return false
	}
	switch jsonrpc.KindAt(o.body, s) {
	case jsonrpc.TrueValue:
		return true
	case jsonrpc.FalseValue:
	default:
		o.failf(key, "must be true or false")
	}
	return false
}

// integer reads a whole number that must be there. 1.0 is one: some languages
// have no other numbers.
func (o *object) integer(key string) int {
	if !o.need(key) {
		return 0
	}
	s, _ := o.at(key)
	n, err := strconv.ParseFloat(string(s.Of(o.body)), 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
		o.failf(key, "must be a whole number")
		return 0
	}
	return int(n)
}

// raw returns a copy of the member's JSON text, which must be of that kind; nil
// when there is none.
func (o *object) raw(key string, kind jsonrpc.ValueKind) json.RawMessage {
	s, ok := o.at(key)
	if !ok {
		return nil
	}
	if k := jsonrpc.KindAt(o.body, s); k != kind {
		o.failf(key, "must be an %v, not %v", kind, k)
		return nil
	}
	return json.RawMessage(bytes.Clone(s.Of(o.body)))
}

// list returns where the elements of an array are, at most limit of them; nil
// when there is none.
func (o *object) list(key string, limit int) []jsonrpc.Span {
	s, ok := o.at(key)
	if !ok {
		return nil
	}
	if k := jsonrpc.KindAt(o.body, s); k != jsonrpc.ArrayValue {
		o.failf(key, "must be an array, not %v", k)
		return nil
	}
	elements := []jsonrpc.Span{}
	for e := range jsonrpc.Elements(o.body, s) {
		if len(elements) == limit {
			o.failf(key, "has more than %d elements", limit)
			return nil
		}
		elements = append(elements, e)
	}
	return elements
}

// texts reads an array of strings, each checked by check if there is one.
func (o *object) texts(key string, limit, size int, check func(string) error) []string {
	elements := o.list(key, limit)
	if elements == nil {
		return nil
	}
	list := make([]string, 0, len(elements))
	for i, e := range elements {
		text, err := jsonrpc.ReadString(o.body, e, size)
		if err == nil && check != nil {
			err = check(text)
		}
		if err != nil {
			o.failf(key, "[%d] cannot be used: %v", i, err)
			return nil
		}
		list = append(list, text)
	}
	return list
}

// appendJSON appends v as it is to be sent: without the escapes that HTML needs.
func appendJSON(dst []byte, v any) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return dst, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
