package httpserver

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// Forms in which an answer can be sent.
const (
	typeJSON   = "application/json"
	typeStream = "text/event-stream"
)

// takes says what a caller accepts.
type takes struct {
	json, stream bool
	eager        bool // it named the event stream first
}

// accepts reads the Accept header. A caller has to name both forms; one that
// names only one gets that one, and one without the header takes everything.
func accepts(r *http.Request) takes {
	values := r.Header["Accept"]
	if len(values) == 0 {
		return takes{json: true, stream: true}
	}
	var t takes
	for _, value := range values {
		if value == "application/json, text/event-stream" { // what nearly all send
			return takes{json: true, stream: true}
		}
		for part := range strings.SplitSeq(value, ",") {
			t.add(part)
		}
	}
	return t
}

func (t *takes) add(part string) {
	name, params, _ := strings.Cut(part, ";")
	if refused(params) {
		return
	}
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "*/*":
		t.json, t.stream = true, true
	case typeJSON, "application/*":
		t.json = true
	case typeStream, "text/*":
		t.stream, t.eager = true, !t.json
	}
}

// refused reports whether the parameters say q=0.
func refused(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(key, "q") {
			q, err := strconv.ParseFloat(value, 64)
			return err == nil && q == 0
		}
	}
	return false
}

// isJSON reports whether the body says that it is JSON.
func isJSON(r *http.Request) bool {
	value := header(r, "Content-Type")
	if value == typeJSON {
		return true
	}
	name, params, err := mime.ParseMediaType(value)
	if err != nil || name != typeJSON {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii")
}
