//go:build unix

package acceptance

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// The sheet's table of bad input, over the wire, on all three families: each
// request has one answer, and nothing is cancelled (ORC-26 to ORC-28, ORC-30,
// ORC-32 to ORC-34, ORC-37).
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"bad"`, "bad")
	const good = `{"requestId":"bad"}`
	body := func(kind, key string) string {
		return `{"detail":[{"type":"` + kind + `","loc":["body","` + key + `"],"msg":"`
	}
	whole := func(kind string) string { return `{"detail":[{"type":"` + kind + `","loc":["body"],"msg":"` }
	text := func(s string) string { return `{"detail":"` + s + `"}` }
	const secret = "echo-of-the-input"
	for _, c := range []struct {
		name, method, path, who, body string
		headers                       []string
		status                        int
		want                          string // how the body begins
	}{
		{"no credentials", "POST", "/cancel", "", good, nil, 401, text("Authorization token required")},
		{"bad token", "POST", "/cancel", "wrong", good, nil, 401, text("Invalid authentication credentials")},
		{"another scheme", "POST", "/cancel", "", good, []string{"Authorization", "Basic b3A6b3A="}, 401, text("")[:11]},
		{"cookie only", "POST", "/cancel", "", good, []string{"Cookie", "jwt_token=x"}, 401, text("Cookie authentication not allowed for API requests. Use Authorization header.")},
		{"no permission", "POST", "/cancel", "ann", good, nil, 403, text("Access denied")},
		{"no permission, no JSON", "POST", "/cancel", "ann", `{`, nil, 403, text("Access denied")},
		{"GET of cancel", "GET", "/cancel", "op", "", nil, 405, text("Method Not Allowed")},
		{"PUT of cancel", "PUT", "/cancel", "op", good, nil, 405, text("Method Not Allowed")},
		{"POST of status", "POST", "/status/bad", "op", good, nil, 405, text("Method Not Allowed")},
		{"DELETE of status", "DELETE", "/status/bad", "op", "", nil, 405, text("Method Not Allowed")},
		{"unknown path", "POST", "/stop", "op", good, nil, 404, text("Not Found")},
		{"more path", "POST", "/cancel/bad", "op", good, nil, 404, text("Not Found")},
		{"slash at the end", "POST", "/cancel/", "op", good, nil, 404, text("Not Found")},
		{"empty id", "GET", "/status/", "op", "", nil, 404, text("Not Found")},
		{"no id", "GET", "/status", "op", "", nil, 404, text("Not Found")},
		{"raw slash", "GET", "/status/a/b", "op", "", nil, 404, text("Not Found")},
		{"two slashes", "GET", "//status/bad", "op", "", nil, 404, text("Not Found")},
		{"dots", "GET", "/status/../status/bad", "op", "", nil, 404, text("Not Found")},
		{"decoded once", "GET", "/status/%2562ad", "op", "", nil, 404, text("Run not found")},
		{"control in the path", "GET", "/status/a%00b", "op", "", nil, 404, text("Run not found")},
		{"no UTF-8 in the path", "GET", "/status/%ff", "op", "", nil, 404, text("Run not found")},
		{"no content type", "POST", "/cancel", "op", good, []string{"Content-Type", "-"}, 415, text("Unsupported Media Type")},
		{"text", "POST", "/cancel", "op", good, []string{"Content-Type", "text/plain"}, 415, text("Unsupported Media Type")},
		{"form", "POST", "/cancel", "op", "requestId=bad", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, text("Unsupported Media Type")},
		{"almost", "POST", "/cancel", "op", good, []string{"Content-Type", "application/json-seq"}, 415, text("Unsupported Media Type")},
		{"too large", "POST", "/cancel", "op", `{"requestId":"bad","x":"` + strings.Repeat("x", 64<<10) + `"}`, nil, 413, text("Request body too large")},
		{"no JSON", "POST", "/cancel", "op", secret, nil, 422, whole("json_invalid")},
		{"empty", "POST", "/cancel", "op", "", []string{"Content-Type", "application/json"}, 422, whole("json_invalid")},
		{"trailing data", "POST", "/cancel", "op", good + `{}`, nil, 422, whole("json_invalid")},
		{"no UTF-8", "POST", "/cancel", "op", "{\"requestId\":\"bad\xff\"}", nil, 422, whole("json_invalid")},
		{"a member twice", "POST", "/cancel", "op", `{"requestId":"none","requestId":"bad"}`, nil, 422, whole("json_invalid")},
		{"list", "POST", "/cancel", "op", `["bad"]`, nil, 422, whole("model_attributes_type")},
		{"text for object", "POST", "/cancel", "op", `"bad"`, nil, 422, whole("model_attributes_type")},
		{"null", "POST", "/cancel", "op", `null`, nil, 422, whole("model_attributes_type")},
		{"id missing", "POST", "/cancel", "op", `{"reason":"` + secret + `"}`, nil, 422, `{"detail":[{"type":"missing","loc":["body","requestId"],"msg":"Field required"}]}`},
		{"id null", "POST", "/cancel", "op", `{"requestId":null}`, nil, 422, body("string_type", "requestId")},
		{"id number", "POST", "/cancel", "op", `{"requestId":7}`, nil, 422, body("string_type", "requestId")},
		{"id boolean", "POST", "/cancel", "op", `{"requestId":true}`, nil, 422, body("string_type", "requestId")},
		{"id object", "POST", "/cancel", "op", `{"requestId":{"` + secret + `":1}}`, nil, 422, body("string_type", "requestId")},
		{"id empty", "POST", "/cancel", "op", `{"requestId":""}`, nil, 422, body("string_too_short", "requestId")},
		{"id long", "POST", "/cancel", "op", `{"requestId":"` + strings.Repeat("ü", 257) + `"}`, nil, 422, body("string_too_long", "requestId")},
		{"id control", "POST", "/cancel", "op", `{"requestId":"bad\n` + secret + `"}`, nil, 422, body("string_pattern_mismatch", "requestId")},
		{"reason number", "POST", "/cancel", "op", `{"requestId":"bad","reason":7}`, nil, 422, body("string_type", "reason")},
		{"reason list", "POST", "/cancel", "op", `{"requestId":"bad","reason":["` + secret + `"]}`, nil, 422, body("string_type", "reason")},
		{"reason long", "POST", "/cancel", "op", `{"requestId":"bad","reason":"` + strings.Repeat("ü", 1001) + `"}`, nil, 422, body("string_too_long", "reason")},
		{"reason control", "POST", "/cancel", "op", `{"requestId":"bad","reason":"\u001b]0;` + secret + `\u0007"}`, nil, 422, body("string_pattern_mismatch", "reason")},
		{"ids differ", "POST", "/cancel", "op", `{"requestId":"bad","request_id":"` + secret + `"}`, nil, 422, body("value_error", "requestId")},
		{"wait negative", "POST", "/cancel", "op", `{"requestId":"bad","wait":-0.1}`, nil, 422, body("value_error", "wait")},
		{"wait long", "POST", "/cancel", "op", `{"requestId":"bad","wait":30.1}`, nil, 422, body("value_error", "wait")},
		{"wait text", "POST", "/cancel", "op", `{"requestId":"bad","wait":"5"}`, nil, 422, body("value_error", "wait")},
		{"escalate text", "POST", "/cancel", "op", `{"requestId":"bad","escalate":"true"}`, nil, 422, body("value_error", "escalate")},
		{"key empty", "POST", "/cancel", "op", good, []string{"Idempotency-Key", ""}, 422, `{"detail":[{"type":"value_error","loc":["header","Idempotency-Key"]`},
		{"key long", "POST", "/cancel", "op", good, []string{"Idempotency-Key", strings.Repeat("k", 129)}, 422, `{"detail":[{"type":"value_error","loc":["header","Idempotency-Key"]`},
	} {
		for _, f := range families {
			a := s.do(t, c.method, f+c.path, c.who, c.body, c.headers...)
			if a.status != c.status || !strings.HasPrefix(a.body, c.want) || strings.Contains(a.body, secret) {
				t.Errorf("%s on %s: %d %.300s\nwant %d %s", c.name, f, a.status, a.body, c.status, c.want)
			}
			switch h := a.header; {
			case h.Get("Content-Type") != "application/json":
				t.Errorf("%s on %s: Content-Type %q (ORC-33)", c.name, f, h.Get("Content-Type"))
			case c.status == 401 && h.Get("WWW-Authenticate") != "Bearer", c.status == 405 && h.Get("Allow") == "":
				t.Errorf("%s on %s: headers %v", c.name, f, h)
			}
		}
	}
	s.still(t, "bad")
	pending(t, got)
	if st := s.status(t, "op", "bad"); st.Cancelled {
		t.Errorf("%+v", st)
	}
	// What is just within the bounds is taken.
	if a := s.cancel(t, "op", "bad", `"reason":"`+strings.Repeat("ü", 999)+`x"`, `"request_id":"bad"`, `"wait":30`, `"escalate":false`, `"more":null`); !a.Affected {
		t.Errorf("%+v", a)
	}
	wait(t, got)
	for _, id := range []string{strings.Repeat("ü", 256), "7", " ", belay.NewRunID().String() + "x"} {
		if a := s.cancel(t, "op", id); a.Status != "queued" || a.RequestID != id {
			t.Errorf("%q: %+v", id, a)
		}
	}
}

// ORC-36: 20 a second and principal, 40 at once, for both verbs together, then
// 429 with Retry-After; one's rate is not another's.
func TestRate(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *settings) { delete(c.orch, "rate"); delete(c.orch, "burst") })
	var all sync.WaitGroup
	var passed, refused atomic.Int32
	begun := time.Now()
	for n := range 200 {
		all.Go(func() {
			method, path, body := "POST", "/orchestrate/cancel", cancelBody("rate")
			if n%2 == 0 {
				method, path, body = "GET", "/cancellation/status/rate", ""
			}
			switch a, err := s.try(method, path, "op", body); {
			case err != nil:
				t.Error(err)
			case a.status == 429:
				refused.Add(1)
				if want(t, "too many", a, 429, `{"detail":"Too many requests"}`); a.header.Get("Retry-After") != "1" {
					t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
				}
			default:
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if most := 41 + int32(20*time.Since(begun).Seconds()); passed.Load() < 40 || passed.Load() > most || refused.Load() == 0 && most < 200 {
		t.Errorf("%d passed, want 40 to %d; %d were refused", passed.Load(), most, refused.Load())
	}
	if a := s.tryStatus(t, "reader", "rate"); a.status != 403 {
		t.Errorf("another principal: %d", a.status)
	}
}
