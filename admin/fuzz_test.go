package admin

import (
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/belayhq/belay"
)

// Whatever is sent is refused, or within the bounds (ORC-26 to ORC-28, ORC-37).
func FuzzReadCancel(f *testing.F) {
	for _, s := range []string{
		`{"requestId":"x","reason":null,"wait":30,"escalate":true}`, `{"request_id":"x"}`, `{"requestId":"x","request_id":"x"}`,
		`{"requestId":1}`, `{"requestId":"\ud800"}`, `{"requestId":"x","wait":1e999}`, `{"requestId":"x","wait":-0.0}`, `[]`, `null`, ``, `{"requestId":"x"}}`,
	} {
		f.Add([]byte(s), "k")
	}
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		o, wrong := readCancel(body, http.Header{"Idempotency-Key": {key}})
		if len(wrong) > 0 {
			return
		}
		n := utf8.RuneCountInString(o.id)
		if n < 1 || n > maxID || strings.ContainsFunc(o.id, unicode.IsControl) || !utf8.ValidString(o.id) {
			t.Errorf("id %q of %q", o.id, body)
		}
		if o.reason != nil && utf8.RuneCountInString(*o.reason) > maxReason {
			t.Errorf("a reason of %d bytes", len(*o.reason))
		}
		if o.wait < 0 || o.wait > maxWait || o.key == "" || len([]rune(o.key)) > maxKey {
			t.Errorf("wait %v, key %q", o.wait, o.key)
		}
	})
}

// The quick comparison agrees with the decoded text (ORC-70), and what is shown
// as request_id is always JSON (ORC-51).
func FuzzIsNamed(f *testing.F) {
	f.Add(`"a\u0041"`, "aA")
	f.Add(`7`, "7")
	f.Add(`"`, `"`)
	f.Fuzz(func(t *testing.T, raw, name string) {
		i := belay.Info{Address: raw, Kind: belay.KindCall}
		if text, ok := text([]byte(raw)); ok && utf8.ValidString(raw) && isNamed(&i, text) != (raw != "") {
			t.Errorf("%q is not named %q", raw, text)
		}
		if isNamed(&i, name) && utf8.ValidString(raw) && RequestText(&i) != name && !strings.ContainsFunc(raw, unicode.IsControl) {
			t.Errorf("%q is named %q", raw, name)
		}
		_ = compact(requestIDJSON(&i)) // panics on what is no JSON
	})
}
