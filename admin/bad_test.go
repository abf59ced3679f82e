package admin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

func microseconds(us int64) time.Time { return time.UnixMicro(us) }

// The sheet's table of bad input: each has one exact answer and stops nothing
// (ORC-26, ORC-27, ORC-28, ORC-32, ORC-33, ORC-37; acceptance 17).
func TestBadInput(t *testing.T) {
	r := newRig(t, Options{})
	run := r.call("ann", `"x"`)
	finding := func(kind, key string) string {
		return `{"detail":[{"type":"` + kind + `","loc":["body","` + key + `"],`
	}
	whole := func(kind string) string { return `{"detail":[{"type":"` + kind + `","loc":["body"],` }
	good := `{"requestId":"x"}`
	tests := []struct {
		name, method, path, token, body string
		headers                         []string
		status                          int
		want                            string // prefix of the body
	}{
		{"no credentials", "POST", "/orchestrate/cancel", "", good, nil, 401, `{"detail":"Authorization token required"}`},
		{"bad token", "POST", "/orchestrate/cancel", "wrong", good, nil, 401, `{"detail":"Invalid authentication credentials"}`},
		{"cookie only", "GET", "/orchestrate/status/x", "", "", []string{"Cookie", "jwt_token=a"}, 401, `{"detail":"Cookie authentication not allowed for API requests. Use Authorization header."}`},
		{"no permission", "POST", "/orchestrate/cancel", "nothing", good, nil, 403, `{"detail":"Access denied"}`},
		{"owner, not opened", "POST", "/orchestrate/cancel", "ann", good, nil, 403, `{"detail":"Access denied"}`},
		{"no permission, bad body", "POST", "/orchestrate/cancel", "nothing", "{", nil, 403, `{"detail":"Access denied"}`},
		{"method", "GET", "/orchestrate/cancel", "", "", nil, 405, `{"detail":"Method Not Allowed"}`},
		{"method of status", "DELETE", "/cancellation/status/x", "op", "", nil, 405, `{"detail":"Method Not Allowed"}`},
		{"unknown path", "POST", "/orchestrate/stop", "op", good, nil, 404, `{"detail":"Not Found"}`},
		{"empty id", "GET", "/orchestrate/status/", "op", "", nil, 404, `{"detail":"Not Found"}`},
		{"no id", "GET", "/orchestrate/status", "op", "", nil, 404, `{"detail":"Not Found"}`},
		{"raw slash", "GET", "/orchestrate/status/a/b", "op", "", nil, 404, `{"detail":"Not Found"}`},
		{"control in path id", "GET", "/orchestrate/status/a%00b", "op", "", nil, 404, `{"detail":"Run not found"}`},
		{"not UTF-8 in path id", "GET", "/orchestrate/status/%ff", "op", "", nil, 404, `{"detail":"Run not found"}`},
		{"content type", "POST", "/orchestrate/cancel", "op", good, []string{"Content-Type", "text/plain"}, 415, `{"detail":"Unsupported Media Type"}`},
		{"content type that looks like it", "POST", "/orchestrate/cancel", "op", good, []string{"Content-Type", "application/json-patch+json"}, 415, `{"detail":"Unsupported Media Type"}`},
		{"too large", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","y":"` + strings.Repeat("y", maxBody) + `"}`, nil, 413, `{"detail":"Request body too large"}`},
		{"not JSON", "POST", "/orchestrate/cancel", "op", `{"requestId":x}`, nil, 422, whole("json_invalid")},
		{"empty", "POST", "/orchestrate/cancel", "op", "", []string{"Content-Type", "application/json"}, 422, whole("json_invalid")},
		{"trailing data", "POST", "/orchestrate/cancel", "op", good + "{}", nil, 422, whole("json_invalid")},
		{"invalid UTF-8", "POST", "/orchestrate/cancel", "op", "{\"requestId\":\"x\xff\"}", nil, 422, whole("json_invalid")},
		{"member twice", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","requestId":"y"}`, nil, 422, whole("json_invalid")},
		{"array", "POST", "/orchestrate/cancel", "op", `["x"]`, nil, 422, whole("model_attributes_type")},
		{"null", "POST", "/orchestrate/cancel", "op", `null`, nil, 422, whole("model_attributes_type")},
		{"id missing", "POST", "/orchestrate/cancel", "op", `{"reason":"r"}`, nil, 422, `{"detail":[{"type":"missing","loc":["body","requestId"],"msg":"Field required"}]}`},
		{"id null", "POST", "/orchestrate/cancel", "op", `{"requestId":null}`, nil, 422, finding("string_type", "requestId")},
		{"id number", "POST", "/orchestrate/cancel", "op", `{"requestId":7}`, nil, 422, finding("string_type", "requestId")},
		{"id boolean", "POST", "/orchestrate/cancel", "op", `{"requestId":true}`, nil, 422, finding("string_type", "requestId")},
		{"id object", "POST", "/orchestrate/cancel", "op", `{"requestId":{}}`, nil, 422, finding("string_type", "requestId")},
		{"id empty", "POST", "/orchestrate/cancel", "op", `{"requestId":""}`, nil, 422, finding("string_too_short", "requestId")},
		{"id long", "POST", "/orchestrate/cancel", "op", `{"requestId":"` + strings.Repeat("é", 257) + `"}`, nil, 422, finding("string_too_long", "requestId")},
		{"id control", "POST", "/orchestrate/cancel", "op", `{"requestId":"a\nb"}`, nil, 422, finding("string_pattern_mismatch", "requestId")},
		{"ids differ", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","request_id":"y"}`, nil, 422, finding("value_error", "requestId")},
		{"reason number", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","reason":1}`, nil, 422, finding("string_type", "reason")},
		{"reason long", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","reason":"` + strings.Repeat("r", 1001) + `"}`, nil, 422, finding("string_too_long", "reason")},
		{"reason control", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","reason":"a\u001b[2Jb"}`, nil, 422, finding("string_pattern_mismatch", "reason")},
		{"wait long", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","wait":31}`, nil, 422, finding("value_error", "wait")},
		{"wait negative", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","wait":-1}`, nil, 422, finding("value_error", "wait")},
		{"wait text", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","wait":"5"}`, nil, 422, finding("value_error", "wait")},
		{"escalate number", "POST", "/orchestrate/cancel", "op", `{"requestId":"x","escalate":1}`, nil, 422, finding("value_error", "escalate")},
		{"key empty", "POST", "/orchestrate/cancel", "op", good, []string{"Idempotency-Key", ""}, 422, `{"detail":[{"type":"value_error","loc":["header","Idempotency-Key"],`},
		{"key long", "POST", "/orchestrate/cancel", "op", good, []string{"Idempotency-Key", strings.Repeat("k", 129)}, 422, `{"detail":[{"type":"value_error","loc":["header","Idempotency-Key"],`},
	}
	for _, tt := range tests {
		got := r.do(tt.method, tt.path, tt.token, tt.body, tt.headers...)
		if got.status != tt.status || !strings.HasPrefix(got.body, tt.want) {
			t.Errorf("%s: %d %s\nwant %d %s", tt.name, got.status, got.body, tt.status, tt.want)
		}
		if tt.status == 401 && got.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: no challenge (ORC-34)", tt.name)
		}
		if tt.status == 405 && got.header.Get("Allow") == "" {
			t.Errorf("%s: no Allow", tt.name)
		}
		r.alive(run)
	}
}

// ORC-64, ORC-65, acceptance 20: off is 404 to everybody, and nothing else.
func TestSwitchedOff(t *testing.T) {
	for name, o := range map[string]Options{"orchestrate": {NoOrchestrate: true}, "cancellation": {NoCancellation: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, o)
			run := r.call("ann", `"x"`)
			for _, f := range []string{"/orchestrate", "/cancellation", "/v1/cancellation"} {
				for _, token := range []string{"op", ""} {
					r.want(r.do("POST", f+"/cancel", token, `{"requestId":"x"}`), 404, `{"detail":"Not Found"}`)
					r.want(r.do("GET", f+"/status/x", token, ""), 404, `{"detail":"Not Found"}`)
				}
			}
			direct := 403 // bob is known there, the run is not his
			if o.NoCancellation {
				direct = 404
			}
			for _, path := range []string{"/protocol/notifications", "/notifications"} {
				if got := r.do("POST", path, "bob", notified(`"x"`)); got.status != direct {
					t.Errorf("%s: %d, want %d", path, got.status, direct)
				}
			}
			r.alive(run)
		})
	}
}

// ORC-36: a rate for each principal, both verbs together, with Retry-After.
func TestRate(t *testing.T) {
	r := newRig(t, Options{Limiter: NewRates(0.1, 2), Permissions: ownerDoors})
	run := r.call("op", `"x"`)
	r.status("op", "x")
	r.status("op", "x")
	got := r.cancel("op", `{"requestId":"x"}`)
	r.want(got, 429, `{"detail":"Too many requests"}`)
	if after := got.header.Get("Retry-After"); after != "10" {
		t.Errorf("Retry-After %q, want 10", after)
	}
	r.alive(run)
	if got := r.status("ann", "x"); got.status != 404 {
		t.Errorf("another principal got %d", got.status)
	}
}

// deaf is a Control whose peers cannot be asked.
type deaf struct{ belay.Control }

func (d deaf) List(ctx context.Context, f belay.Filter) ([]belay.Info, error) {
	runs, _ := d.Control.List(ctx, f)
	return runs, belay.ErrUnreachable
}

// ORC-49: a run that is not here, and peers that cannot be asked.
func TestPeersUnreachable(t *testing.T) {
	tree := belay.NewTree(belay.Options{})
	r := newRig(t, Options{Control: deaf{tree}})
	r.tree = tree
	got := r.cancel("op", `{"requestId":"far"}`)
	r.want(got, 503, `{"detail":"Cancel could not be recorded"}`)
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	run := r.call("ann", `"near"`)
	if got := r.cancel("op", `{"requestId":"near"}`); got.status != 200 || run.Cancellation() == nil {
		t.Errorf("a run that is here: %d %s", got.status, got.body)
	}
}
