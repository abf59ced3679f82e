package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestIgnoredCancels: malformed cancels, and those of what cannot be cancelled
// or is unknown, change nothing and cost nothing: the call in flight goes on
// (MCP-11, MCP-20, MCP-22, MCP-23, MCP-G14, A13).
func TestIgnoredCancels(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	r.tick("7", "w", `"n":60`)
	lines := []string{
		`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"no id"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"id":7}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[7]}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":true}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":[7]}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"requestId":8}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8,"requestId":7}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"request\u0049d":7}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7},"params":{"requestId":7}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"RequestId":7}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + strings.Repeat("7", 300) + `}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7"}}`,   // another type
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7.0}}`,   // another text
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"b-1"}}`, // an id of ours, the server's side
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"init"}}`,
		`{"jsonrpc":"2.0","method":"notifications/Cancelled","params":{"requestId":7}}`, // another notification, which passes
	}
	for _, line := range lines {
		r.send("%s", line)
	}
	if m := r.expect("7"); m.Text() != "w: 60 ticks" {
		t.Fatalf("the call was answered %s", m.Raw)
	}
	if n := r.wit.Count("w", "signal"); n != 0 {
		t.Error("the call was told to stop")
	}
	if list := r.gotWith("notifications/cancelled"); len(list) != 0 {
		t.Errorf("the server got %v", list)
	}
	for _, m := range r.Messages() {
		if m.IsResponse() && m.ID != "7" && m.ID != `"init"` {
			t.Errorf("a notification was answered: %s", m.Raw) // MCP-23
		}
	}
	r.works()
}

// TestHandshakeIsNotCancelled: in flight, early and late (MCP-7, MCP-G14).
func TestHandshakeIsNotCancelled(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"initialize", "server/discover"} {
		t.Run(method, func(t *testing.T) {
			r, server, _ := play(t, linkOptions{})
			r.cancel("1", "early")
			r.send(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{}}`, method)
			request := got(t, server, method)
			r.cancel("1", "in flight")
			r.send(`{"jsonrpc":"2.0","method":"notifications/marker"}`)
			got(t, server, "notifications/marker")
			never(t, server, "notifications/cancelled")
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"capabilities":{}}}`, request.ID)
			r.expect("1")
			r.cancel("1", "late")
			r.send(`{"jsonrpc":"2.0","method":"notifications/marker2"}`)
			got(t, server, "notifications/marker2")
			never(t, server, "notifications/cancelled")
		})
	}
}

// TestReasonOfCancel: passed on, bounded, without control characters; one of a
// wrong type is dropped and the cancel honoured (MCP-G21, A13).
func TestReasonOfCancel(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 2000)
	r, server, _ := play(t, linkOptions{})
	far, n := &end{Client: server}, 0
	for _, c := range []struct{ name, params, want string }{
		{"absent", `{"requestId":%s}`, ""},
		{"text", `{"requestId":%s,"reason":"user closed the panel"}`, "user closed the panel"},
		{"escapes", `{"reason":"a\"b\\c \ud83d\ude80","requestId":%s}`, "a\"b\\c \U0001F680"},
		{"control characters", `{"requestId":%s,"reason":"a\u001b[31mb\u0007\nc\u202ed"}`, "a[31mb cd"},
		{"too long", `{"requestId":%s,"reason":"` + long + `"}`, long[:1024]},
		{"a number", `{"requestId":%s,"reason":42}`, ""},
		{"an object", `{"requestId":%s,"reason":{"text":"no"}}`, ""},
		{"null", `{"requestId":%s,"reason":null}`, ""},
		{"unknown members", `{"requestId":%s,"reason":"x","extra":[1]}`, "x"},
	} {
		n++
		id := fmt.Sprint(n)
		r.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"x","arguments":{}}}`, id)
		call := far.message(t)
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+c.params+`}`, id)
		m := far.message(t)
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
			Reason    string          `json:"reason"`
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatal(err)
		}
		if string(p.RequestID) != call.ID || p.Reason != c.want || len(p.Reason) > 1024 || !utf8.ValidString(p.Reason) {
			t.Errorf("%s: the server was told %.200s of %s (the call is %s), want %.200q", c.name, m.Params, p.RequestID, call.ID, c.want)
		}
		if run := r.runOf(id); run.Cancellation().Reason != c.want {
			t.Errorf("%s: the receipt has the reason %.200q", c.name, run.Cancellation().Reason)
		}
	}
}

// TestModernCancelCarriesMeta: on a modern connection the cancel names its
// version, in a legacy session it does not (A12, MCP-G20).
func TestModernCancelCarriesMeta(t *testing.T) {
	t.Parallel()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint(modern), func(t *testing.T) {
			r, server, _ := play(t, linkOptions{})
			more := ""
			if modern {
				more = "," + meta
			}
			r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"%s}}`, more)
			got(t, server, "tools/call")
			r.cancel("7", "enough")
			m := got(t, server, "notifications/cancelled")
			if strings.Contains(m.Raw, meta) != modern || strings.Contains(m.Raw, "_meta") != modern {
				t.Errorf("the server got %s", m.Raw)
			}
		})
	}
}
