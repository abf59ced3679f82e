package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// TestBatchedTools: members of one batch run at the same time, each is a run of
// its own, and a cancel inside the batch counts after the requests before it
// (MCP-40, MCP-G38).
func TestBatchedTools(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{})
	r.initialize("2025-03-26")
	r.send(`[%s,%s,%s,`+cancelLine+`,%s]`, callLine("1", "a"), callLine("2", "b"), callLine(`"1"`, "c"), "2", callLine("4", "d"))
	m, err := r.Await("an array", isArray)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`"id":1,`, `"id":"1",`, `"id":4,`, "a: 10 ticks", "c: 10 ticks", "d: 10 ticks"} {
		if !strings.Contains(m.Raw, text) {
			t.Errorf("%q is missing in %s", text, m.Raw)
		}
	}
	if strings.Contains(m.Raw, `"id":2,`) {
		t.Errorf("a cancelled call was answered: %s", m.Raw)
	}
	if r.wit.Count("b", "done") != 0 || r.wit.Count("b", "start") != r.wit.Count("b", "stopped") {
		t.Error("the cancelled member was not stopped")
	}
	r.works()
}

// TestStopOfBatchMember: the answer of a member that a person stops does not
// wait, and the others do not wait for it; a caller that then cancels it as
// well holds nothing up (MCP-G25, MCP-G38).
func TestStopOfBatchMember(t *testing.T) {
	t.Parallel()
	for _, cancelToo := range []bool{false, true} {
		r := open(t, linkOptions{cfg: func(c *Config) { c.PartialWait = 150 * time.Millisecond }})
		r.initialize("2025-03-26")
		r.send(`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tick","arguments":{"key":"w","n":3000}}},%s]`, callLine("2", "b"))
		r.saw("w", "tick")
		r.stop("1", "enough")
		if cancelToo {
			r.cancel("1", "")
		}
		m, err := r.Await("an array", isArray)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(m.Raw, "b: 10 ticks") || strings.Contains(m.Raw, `"id":1,`) {
			t.Errorf("the array is %s", m.Raw)
		}
		r.saw("w", "stopped")
		r.works()
		if !cancelToo {
			if m := r.expect("1"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
				t.Errorf("the stopped member was answered %s", m.Raw)
			}
		}
	}
}

func isArray(m message) bool { return strings.HasPrefix(m.Raw, "[") }
