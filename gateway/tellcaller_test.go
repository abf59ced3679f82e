package gateway

import (
	"fmt"
	"strings"
	"testing"
)

func stopFrame(id string) []byte {
	return []byte(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%q,"reason":"r"}}`, id))
}

// TestTellCaller: the caller is told of a request that is not here, and never of
// one whose id is in flight here, whatever its type and whoever asked (ORC-44,
// DESIGN 11, 11).
func TestTellCaller(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{})
	if r.s.Tell("9", stopFrame("9")) {
		t.Error("a caller that is not ready was told")
	}
	r.initialize("2025-11-25")
	r.until("the caller's word that it is ready was read", r.s.hand.Stands)
	if !r.s.Tell("9", stopFrame("9")) || !r.s.Tell("", stopFrame("")) || !r.s.Tell(`"7"`, stopFrame(`x`)) {
		t.Error("nobody was told")
	}
	if m := got(t, r.Client, `"requestId":"9"`); m.Raw != string(stopFrame("9")) {
		t.Errorf("the caller got %s", m.Raw)
	}
	r.tick("7", "a", `"n":3000`)
	r.tick(`"eight"`, "b", `"n":3000`)
	r.tick(`"1\u0030"`, "c", `"n":3000`)
	for _, id := range []string{"7", "eight", "10"} {
		if r.s.Tell(id, stopFrame(id)) {
			t.Errorf("told about %s, which is in flight", id)
		}
	}
	if !r.s.Tell("11", stopFrame("11")) {
		t.Error("not told about another id")
	}
	for _, id := range []string{"7", `"eight"`, `"1\u0030"`} {
		r.cancel(id, "")
	}
	r.until("the ids are free", func() bool { return r.s.Tell("7", stopFrame("7")) })
	never(t, r.Client, `"requestId":"eight"`)
}

// TestTellWhileAsked: an id under which the caller is asked something is in flight,
// too: it would take the frame for the end of that question.
func TestTellWhileAsked(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	if err := r.Call("1", "ask", `{"key":"a","method":"elicitation/create"}`, ""); err != nil {
		t.Fatal(err)
	}
	m := got(t, r.Client, "elicitation/create")
	id := strings.Trim(m.ID, `"`)
	if r.s.Tell(id, stopFrame(id)) {
		t.Error("told about a question to the caller")
	}
	say(t, r.Client, `{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, m.ID)
	r.expect("1")
	if !r.s.Tell(id, stopFrame(id)) {
		t.Error("not told about an id that is free again")
	}
}

// TestModernCallersAreNotTold: nothing goes to who has no session (MCP-74).
func TestModernCallersAreNotTold(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{server: []string{"-era", "modern"}, cfg: func(c *Config) { c.Modern = true }})
	r.worksModern()
	if r.s.Tell("9", stopFrame("9")) {
		t.Error("told")
	}
}
