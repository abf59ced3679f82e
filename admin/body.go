package admin

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what a request may hold (ORC-28, ORC-37).
const (
	maxBody   = 64 << 10
	maxID     = 256   // characters
	maxReason = 1_000 // characters
	maxKey    = 128   // characters of an Idempotency-Key
	maxWait   = 30 * time.Second
)

// finding is one thing that is wrong with a request, in the form that existing
// clients read (ORC-33). It never repeats what was sent.
type finding struct {
	Type string   `json:"type"`
	Loc  []string `json:"loc"`
	Msg  string   `json:"msg"`
}

func found(kind, msg string, loc ...string) finding { return finding{kind, loc, msg} }

// cancelOrder is a cancel as it was asked for.
type cancelOrder struct {
	id       string
	reason   *string
	wait     time.Duration
	escalate bool
	key      string // of idempotency; empty: none

	// direct: it came by a JSON-RPC door. Ended runs are found at any age, and
	// for an unknown id nobody is told and nothing is remembered (ORC-62).
	direct bool
}

// isJSON reports whether the request says that its body is JSON.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// Why a body could not be read.
var (
	errTooLarge = errors.New("the body is too large")
	errTooSlow  = errors.New("the body did not arrive in time")
)

// bodyPatience is how long a body may take.
const bodyPatience = 5 * time.Second

// readBody reads at most [maxBody] in at most the API's patience. Afterwards no
// deadline is left on the connection: the server reads on it to see whether the
// client goes away, and a deadline that passes looks to it like that.
func (a *API) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(a.patience)) // a writer without deadlines has a server of another kind
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_, over := errors.AsType[*http.MaxBytesError](err)
	switch {
	case over:
		return nil, errTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errTooSlow
	}
	_ = c.SetReadDeadline(time.Time{})
	return body, err
}

// refuseBody answers for a body of the seed's families that could not be read.
func refuseBody(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errTooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, "Request body too large")
	case errors.Is(err, errTooSlow):
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestTimeout, "Request body not received in time")
	default: // the rest of it never came
		refuse(w, http.StatusUnprocessableEntity, []finding{found("json_invalid", "JSON decode error", "body")})
	}
}

// readCancel reads the body and the headers of a cancel. All that is wrong with
// its members is reported at once.
func readCancel(body []byte, h http.Header) (cancelOrder, []finding) {
	// Strict: no second member of a name, of which two readers would take
	// different ones, and no invalid UTF-8.
	if !jsontext.Value(body).IsValid() {
		return cancelOrder{}, []finding{found("json_invalid", "JSON decode error", "body")}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return cancelOrder{}, []finding{found("model_attributes_type", "Input should be a valid dictionary or object to extract fields from", "body")}
	}
	var o cancelOrder
	var wrong []finding
	wrong = append(wrong, o.readID(members)...)
	wrong = append(wrong, o.readReason(members)...)
	wrong = append(wrong, o.readExtras(members)...)
	wrong = append(wrong, o.readKey(h)...)
	return o, wrong
}

func (o *cancelOrder) readID(members map[string]json.RawMessage) []finding {
	raw, ok := members["requestId"]
	other, alias := members["request_id"] // the released name (ORC-26)
	if !ok {
		raw, ok, alias = other, alias, false
	}
	if !ok {
		return []finding{found("missing", "Field required", "body", "requestId")}
	}
	id, isText := text(raw)
	if alias {
		if second, ok := text(other); !ok || !isText || second != id {
			return []finding{found("value_error", "Value error, requestId and request_id differ", "body", "requestId")}
		}
	}
	o.id = id
	switch n := utf8.RuneCountInString(id); {
	case !isText:
		return []finding{found("string_type", "Input should be a valid string", "body", "requestId")}
	case n == 0:
		return []finding{found("string_too_short", "String should have at least 1 character", "body", "requestId")}
	case n > maxID:
		return []finding{found("string_too_long", "String should have at most 256 characters", "body", "requestId")}
	case strings.ContainsFunc(id, unicode.IsControl):
		return []finding{found("string_pattern_mismatch", "String should have no control characters", "body", "requestId")}
	}
	return nil
}

func (o *cancelOrder) readReason(members map[string]json.RawMessage) []finding {
	raw, ok := members["reason"]
	if !ok || string(raw) == "null" {
		return nil
	}
	reason, isText := text(raw)
	o.reason = &reason
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }
	switch {
	case !isText:
		return []finding{found("string_type", "Input should be a valid string", "body", "reason")}
	case utf8.RuneCountInString(reason) > maxReason:
		return []finding{found("string_too_long", "String should have at most 1000 characters", "body", "reason")}
	case strings.ContainsFunc(reason, control):
		return []finding{found("string_pattern_mismatch", "String should have no control characters but tab and newline", "body", "reason")}
	}
	return nil
}

func (o *cancelOrder) readExtras(members map[string]json.RawMessage) (wrong []finding) {
	if raw, ok := members["wait"]; ok {
		var seconds *float64
		if err := json.Unmarshal(raw, &seconds); err != nil || seconds == nil || *seconds < 0 || *seconds > maxWait.Seconds() {
			wrong = append(wrong, found("value_error", "Value error, wait is a number of seconds from 0 to 30", "body", "wait"))
		} else {
			o.wait = time.Duration(*seconds * float64(time.Second))
		}
	}
	if raw, ok := members["escalate"]; ok {
		var escalate *bool
		if err := json.Unmarshal(raw, &escalate); err != nil || escalate == nil {
			wrong = append(wrong, found("value_error", "Value error, escalate is true or false", "body", "escalate"))
		} else {
			o.escalate = *escalate
		}
	}
	return wrong
}

func (o *cancelOrder) readKey(h http.Header) []finding {
	keys := h.Values("Idempotency-Key")
	if len(keys) == 0 {
		return nil
	}
	o.key = keys[0]
	if n := utf8.RuneCountInString(o.key); len(keys) > 1 || n < 1 || n > maxKey || !utf8.ValidString(o.key) {
		return []finding{found("value_error", "Value error, Idempotency-Key is one text of 1 to 128 characters", "header", "Idempotency-Key")}
	}
	return nil
}

// text is the value of a JSON string; ok is false for any other JSON.
func text(raw json.RawMessage) (s string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}
