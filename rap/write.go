package rap

import (
	"encoding/json"
	"strconv"

	"github.com/belayhq/belay/jsonrpc"
)

// writer writes one JSON object member by member. Calls and results are written
// by it, since reflection takes longer than all else that is done to a small
// message. What it is given has been checked: JSON text goes out as it is.
type writer struct{ buf []byte }

func newWriter(dst []byte) *writer { return &writer{append(dst, '{')} }

// end closes the object and returns everything.
func (w *writer) end() []byte { return append(w.buf, '}') }

// name begins a member. Keys are those of this package: nothing in them needs an
// escape.
func (w *writer) name(key string) {
	if w.buf[len(w.buf)-1] != '{' {
		w.buf = append(w.buf, ',')
	}
	w.buf = append(append(append(w.buf, '"'), key...), '"', ':')
}

func (w *writer) text(key, text string) {
	w.name(key)
	w.buf = jsonrpc.AppendString(w.buf, text)
}

// optional writes a text that may be absent.
func (w *writer) optional(key string, text *string) {
	if text != nil {
		w.text(key, *text)
	}
}

func (w *writer) texts(key string, list []string) {
	w.name(key)
	w.buf = append(w.buf, '[')
	for i, text := range list {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.buf = jsonrpc.AppendString(w.buf, text)
	}
	w.buf = append(w.buf, ']')
}

// raw writes a value that is JSON already; nothing when it is empty.
func (w *writer) raw(key string, value json.RawMessage) {
	if len(value) > 0 {
		w.name(key)
		w.buf = append(w.buf, value...)
	}
}

// flag writes a boolean that is absent when it is false.
func (w *writer) flag(key string, set bool) {
	if set {
		w.name(key)
		w.buf = append(w.buf, "true"...)
	}
}

func (w *writer) integer(key string, n int) {
	w.name(key)
	w.buf = strconv.AppendInt(w.buf, int64(n), 10)
}

// items writes the content of a result.
func (w *writer) items(key string, list []Item) {
	if len(list) == 0 {
		return
	}
	w.name(key)
	w.buf = append(w.buf, '[')
	for i := range list {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		item := newWriter(w.buf)
		item.text("type", list[i].Type)
		if list[i].Type == ItemText { // which is there even when it is empty
			item.text("text", list[i].Text)
		} else {
			item.text("data", list[i].Data)
			item.text("mediaType", list[i].MediaType)
		}
		w.buf = item.end()
	}
	w.buf = append(w.buf, ']')
}
