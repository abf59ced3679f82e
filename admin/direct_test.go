package admin

import (
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

func notified(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"why"}}`
}

// ORC-60, ORC-62, acceptance 21 to 24: notifications without a session.
func TestNotifications(t *testing.T) {
	for _, path := range []string{"/protocol/notifications", "/notifications"} {
		t.Run(path, func(t *testing.T) {
			cry, early := &crier{}, NewTombstones()
			r := newRig(t, Options{Broadcaster: cry, Early: early})
			post := func(token, body string) answer { return r.do("POST", path, token, body) }
			mine, foreign := r.call("ann", `0`), r.call("bob", `"b"`)
			r.want(post("ann", notified(`0`)), 200, "null")
			if c := mine.Cancellation(); c == nil || c.Cause != belay.CauseUser || c.Reason != "why" {
				t.Errorf("cancellation %+v", c)
			}
			r.want(post("ann", notified(`0`)), 200, "null") // ended by now
			refused := `{"detail":"Not authorized to cancel this run"}`
			r.want(post("ann", notified(`"b"`)), 403, refused)
			r.want(post("ann", notified(`"nobody"`)), 403, refused)
			r.want(post("ann", notified(`"`+foreign.ID().String()+`"`)), 403, refused)
			r.want(post("op", notified(`"nobody"`)), 200, "null")
			r.want(post("ann", strings.Replace(notified(`"b"`), "cancelled", "progress", 1)), 200, "null")
			r.want(post("ann", `{"method":"notifications/cancelled","params":[]}`), 200, "null")
			r.want(post("ann", `{"method":"notifications/cancelled"}`), 200, "null")
			r.want(post("ann", `[]`), 200, "null")
			r.want(post("ann", `{`), 400, `{"detail":"Parse error"}`)
			r.want(post("", notified(`0`)), 401, `{"detail":"Authorization token required"}`)
			r.want(r.do("GET", path, "ann", ""), 405, `{"detail":"Method Not Allowed"}`)
			r.alive(foreign)
			one, two := r.call("ann", `5`), r.call("ann", `"5"`)
			if got := post("ann", notified(`5`)); got.status != 409 || !strings.Contains(got.body, one.ID().String()) {
				t.Errorf("ambiguous: %d %s", got.status, got.body)
			}
			r.alive(one, two)
			if n := cry.notices(); len(n) != 1 {
				t.Errorf("%d broadcasts, want the first cancel's alone", len(n))
			}
			if _, ok := early.Take("op", "nobody"); ok {
				t.Error("a tombstone was made")
			}
			r.want(post("op", notified(`"b"`)), 200, "null")
			if foreign.Cancellation() == nil {
				t.Error("the operator did not reach it")
			}
		})
	}
}

// ORC-61, acceptance 25 and 30: the same as a request.
func TestRPC(t *testing.T) {
	r := newRig(t, Options{})
	mine, foreign := r.call("ann", `"a"`), r.call("bob", `1`)
	call := func(id, request string) string {
		return `{"jsonrpc":"2.0","id":` + request + `,"method":"notifications/cancelled","params":{"requestId":` + id + `}}`
	}
	post := func(token, body string) answer { return r.do("POST", "/rpc", token, body) }
	r.want(post("ann", call(`1`, `3`)), 200, `{"jsonrpc":"2.0","id":3,"error":{"code":-32003,"message":"Not authorized to cancel this run","data":{"requestId":1}}}`)
	r.want(post("ann", call(`"none"`, `"x"`)), 200, `{"jsonrpc":"2.0","id":"x","error":{"code":-32003,"message":"Not authorized to cancel this run","data":{"requestId":"none"}}}`)
	r.want(post("op", call(`"none"`, `1.50`)), 200, `{"jsonrpc":"2.0","result":{},"id":1.50}`)
	r.alive(mine, foreign)
	r.want(post("ann", call(`"a"`, `3`)), 200, `{"jsonrpc":"2.0","result":{},"id":3}`)
	r.want(post("op", notified(`1`)), 202, "")
	if mine.Cancellation() == nil || foreign.Cancellation() == nil {
		t.Error("not cancelled")
	}
	r.want(post("ann", `{"jsonrpc":"2.0","id":3,"method":"tools/call"}`), 200, `{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"Method not found"}}`)
	r.want(post("ann", `{"jsonrpc":"2.0","id":3,"method":"notifications/cancelled","params":7}`), 200, `{"jsonrpc":"2.0","result":{},"id":3}`)
	r.want(post("ann", `[1]`), 200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}`)
	r.want(post("ann", `{`), 200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`)
}
