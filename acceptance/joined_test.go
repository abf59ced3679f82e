//go:build unix

package acceptance

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// beginAll opens a session at /mcp, where all servers are one.
func (s *server) beginAll(t testing.TB, who string) *session {
	t.Helper()
	c := &session{s: s, who: who, path: "/mcp"}
	a := c.post(t, `{"jsonrpc":"2.0","id":"begin","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"acceptance","version":"1"}}}`)
	if c.id = a.header.Get("Mcp-Session-Id"); a.status != 200 || c.id == "" {
		t.Fatalf("initialize: %d %s", a.status, a.body)
	}
	if a := c.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); a.status != 202 {
		t.Fatalf("initialized: %d %s", a.status, a.body)
	}
	return c
}

// What holds at /mcp/NAME holds at /mcp: a call is found by its caller's own names,
// hangs below the run that _meta or a header names, is stopped with it, and the
// sessions of its owner hear of it once (ORC-20, ORC-42, ORC-44, ORC-80).
func TestJoinedEndpoint(t *testing.T) {
	t.Parallel()
	s := plain(t)
	turn := findRun(t, s.do(t, "POST", "/v1/runs", "op", `{"kind":"turn","name":"joined turn"}`).body)
	c := s.beginAll(t, "op")
	ear, stranger := s.beginAll(t, "op").hear(t), s.beginAll(t, "ann").hear(t)
	got := map[string]<-chan reply{}
	send := func(key, meta string, headers ...string) {
		t.Helper()
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"tools__tick","arguments":%s,"_meta":%s}}`, key, tickArgs(key), meta)
		answer := make(chan reply, 1)
		got[key] = answer
		go func() {
			a, err := s.try("POST", c.path, c.who, body, append(c.headers(), headers...)...)
			r := reply{http: a.status, raw: a.body}
			for _, m := range messages(a.body) {
				if err == nil {
					_ = json.Unmarshal([]byte(m), &r)
				}
			}
			answer <- r
		}()
		s.saw(t, key, "tick")
	}
	send("joined-meta", `{"io.github.belayhq/parent":"`+turn+`","claudecode/toolUseId":"toolu_joined"}`)
	send("joined-header", `{}`, "Belay-Parent", turn, "X-Request-Id", "req-joined")
	send("joined-beside", `{}`)
	for label, key := range map[string]string{"tool_use_id=toolu_joined": "joined-meta", "request_id=req-joined": "joined-header"} {
		list := s.runs(t, "op", "?label="+label)
		if len(list) != 1 || list[0].Address != `"`+key+`"` || list[0].Parent.String() != turn {
			t.Errorf("%s: %+v", label, list)
		}
	}
	a := s.cancel(t, "op", "joined-beside", `"reason":"only this"`)
	hears(t, "the owner's other session", ear, "joined-beside", "only this", a.Run.String())
	if r := wait(t, got["joined-beside"]); r.code() != -32800 || r.Error.Data.Run != a.Run.String() {
		t.Errorf("the caller got %s", r.raw)
	}
	s.quiet(t, "joined-beside")
	s.still(t, "joined-meta")
	s.still(t, "joined-header")
	s.cancel(t, "op", turn, `"reason":"turn is over"`, `"wait":1`)
	for _, key := range []string{"joined-meta", "joined-header"} {
		if r := wait(t, got[key]); r.code() != -32800 || r.Error.Data.Cause != string(belay.CauseParent) {
			t.Errorf("%s got %s", key, r.raw)
		}
		s.quiet(t, key)
	}
	if heard := stranger.with("joined"); len(heard) > 0 {
		t.Errorf("a stranger heard %q", heard)
	}
	// Nobody's run, somebody else's and one that is over are no parent: the call is
	// refused, since the next Stop of what the caller means would miss it.
	for _, parent := range []string{belay.NewRunID().String(), turn, "turn", findRun(t, s.do(t, "POST", "/v1/runs", "agent", `{"kind":"turn","name":"another's"}`).body)} {
		s.cancel(t, "op", parent) // the stopped one stays a parent whose calls are stopped
		r := wait(t, c.call(t, `"joined-refused"`, "tools__tick", tickArgs("joined-refused"), "Belay-Parent", parent))
		if r.Error == nil || s.wit.count("joined-refused", "") != 0 {
			t.Errorf("below %s: %s", parent, r.raw)
		}
		if r.code() == -32602 && !strings.Contains(r.Error.Message, "in flight") {
			t.Errorf("below %s: %s", parent, r.Error.Message)
		}
	}
}
