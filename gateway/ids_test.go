package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// TestIdsAreEchoed: every form of id comes back exactly as it was sent, and the
// server never sees one of them (MCP-G6, MCP-G7).
func TestIdsAreEchoed(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	ids := []string{
		`0`, `"0"`, `1`, `"1"`, `1.0`, `1e0`, `-1`, `1152921504606846976`, `9007199254740993`,
		`123456789012345678901234567890`, `""`, `"null"`, `"b-1"`, `"a\u0062c"`, `"\ud83d\ude80"`, `"ü"`, `"a\"b\\"`, `1.5`,
	}
	for _, id := range ids { // all in flight at once: typed twins are different calls
		if err := r.Call(id, "tick", fmt.Sprintf(`{"key":"k","n":8,"text":%q}`, id), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if m := r.expect(id); m.Error != nil {
			t.Errorf("the call %s was answered %s", id, m.Raw)
		}
		if n := len(r.Responses(id)); n != 1 {
			t.Errorf("%d answers for %s", n, id)
		}
	}
	seen := map[string]bool{}
	for _, line := range r.gotWith(`"tools/call"`) {
		_, rest, _ := strings.Cut(line, `"id":`)
		id, _, _ := strings.Cut(rest, ",")
		if !strings.HasPrefix(id, `"b-`) || seen[id] {
			t.Errorf("the server got the id %s", id)
		}
		seen[id] = true
	}
	if len(seen) != len(ids) {
		t.Errorf("the server got %d calls, want %d", len(seen), len(ids))
	}
}

// TestEachIdIsStopped: a cancel hits the call with the same type and value of
// id, and its typed twins go on (MCP-G7).
func TestEachIdIsStopped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ id, cancel, twin string }{
		{`0`, `0`, `"0"`},
		{`"0"`, `"0"`, `0`},
		{`1`, `1`, `"1"`},
		{`"1"`, `"1"`, `1`},
		{`1`, `1`, `1.0`},
		{`1.0`, `1.0`, `1`},
		{`1152921504606846976`, `1152921504606846976`, `1152921504606846977`},
		{`9007199254740993`, `9007199254740993`, `9007199254740992`},
		{`"a\u0062c"`, `"abc"`, `"abC"`}, // two spellings of one string are one id
		{`"abc"`, `"\u0061bc"`, `"a\\u0062c"`},
	} {
		t.Run(c.id+" beside "+c.twin, func(t *testing.T) {
			t.Parallel()
			r := legacy(t, linkOptions{})
			r.tick(c.twin, "twin", `"n":30,"ms":8`)
			r.tick(c.id, "w", `"n":3000`)
			at := time.Now()
			r.cancel(c.cancel, "")
			r.saw("w", "stopped")
			if m := r.expect(c.twin); m.Text() != "twin: 30 ticks" {
				t.Errorf("the twin was answered %s", m.Raw)
			}
			r.works()
			r.silent(c.id, at)
		})
	}
}

// TestReusedIdIsNotHit: an id that is used again right after its cancel belongs
// to the new call; neither the cancel nor the first call's late answer reaches
// it (MCP-16, MCP-G6).
func TestReusedIdIsNotHit(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"none", "result", "-32800"} {
		t.Run(reply, func(t *testing.T) {
			r := legacy(t, linkOptions{server: []string{"-reply", reply, "-late", "60ms"}})
			r.tick("7", "first", `"n":3000`)
			both := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}` + "\n" +
				`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tick","arguments":{"key":"second","n":20}}}` + "\n"
			if err := r.SendBytes([]byte(both)); err != nil {
				t.Fatal(err)
			}
			r.saw("first", "stopped")
			if m := r.expect("7"); m.Text() != "second: 20 ticks" {
				t.Fatalf("the second call was answered %s", m.Raw)
			}
			r.works()
			if n := len(r.Responses("7")); n != 1 {
				t.Errorf("the caller got %d answers, want 1", n)
			}
			if n := r.wit.Count("second", "signal"); n != 0 {
				t.Error("the second call was told to stop")
			}
		})
	}
}

// TestLateCancel: a cancel after the answer changes nothing, and a repeated one
// neither (MCP-12, MCP-15, MCP-16, MCP-21, MCP-G11).
func TestLateCancel(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	if err := r.Call("7", "tick", `{"key":"w","n":2}`, ""); err != nil {
		t.Fatal(err)
	}
	r.expect("7")
	r.cancel("7", "too late")
	r.cancel("7", "too late")
	r.works()
	// The id may be used again: no mark of the late cancel is left (MCP-G17).
	if err := r.Call("7", "tick", `{"key":"again","n":2}`, ""); err != nil {
		t.Fatal(err)
	}
	r.saw("again", "done")
	r.until("the second answer", func() bool { return len(r.Responses("7")) == 2 })
	if len(r.gotWith("notifications/cancelled")) != 0 {
		t.Error("a late cancel was passed on")
	}
}

// TestRepeatedCancel: the notification twice stops once and forces nothing
// (MCP-G11).
func TestRepeatedCancel(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceLenient }})
	r.tick("7", "w", `"n":60,"deaf":true`)
	run := r.runOf("7")
	for range 3 {
		r.cancel("7", "again")
	}
	receipt := r.receipt(run)
	if receipt.Held == "" || len(r.gotWith("notifications/cancelled")) != 1 {
		t.Errorf("held: %q; the server was told %d times", receipt.Held, len(r.gotWith("notifications/cancelled")))
	}
	for _, s := range receipt.Steps {
		if s.Step == belay.StepEscalated || s.Step == belay.StepTerminate {
			t.Errorf("a repeated cancel led to %s", s.Step)
		}
	}
	r.saw("w", "done")
	r.works()
}

// TestDuplicateId: a second request under an id that is in flight is refused
// and the first is not touched (MCP-67).
func TestDuplicateId(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	r.tick("7", "first", `"n":25`)
	if err := r.Call("7", "tick", `{"key":"second","n":2}`, ""); err != nil {
		t.Fatal(err)
	}
	if m := r.expect("7"); m.Error == nil || !strings.Contains(m.Error.Message, "in flight") {
		t.Fatalf("the duplicate was answered %s", m.Raw)
	}
	r.saw("first", "done")
	r.until("the answer of the first", func() bool { return len(r.Responses("7")) == 2 })
	if n := r.wit.Count("second", "start"); n != 0 {
		t.Error("the duplicate was started")
	}
}
