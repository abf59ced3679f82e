//go:build unix

package faketool

import (
	"strings"
	"testing"
	"time"
)

// TestTasks: both kinds; the record says cancelled before a deaf tool has ended,
// and a cancel by notification is written down as a violation (MCP-44, MCP-48,
// MCP-49, MCP-81).
func TestTasks(t *testing.T) {
	c, w := start(t, "-tasks")
	_, err := c.Initialize(newestLegacy)
	must(t, err)
	must(t, c.Send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tick","arguments":{"key":"a","n":5},"task":{}}}`))
	if m := expect(t, c, "1"); !strings.Contains(m.Raw, `"result":{"task":{"taskId":"task-a","status":"working"`) {
		t.Fatal(m.Raw)
	}
	must(t, c.Send(`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"task-a"}}`))
	if m := expect(t, c, "2"); !strings.Contains(m.Raw, "a: 5 ticks") {
		t.Fatal(m.Raw)
	}
	must(t, c.Send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"tick","arguments":{"key":"b","n":500,"deaf":true},"task":{}}}`))
	expect(t, c, "3")
	must(t, c.Send(`{"jsonrpc":"2.0","id":4,"method":"tasks/cancel","params":{"taskId":"task-b"}}`))
	if m := expect(t, c, "4"); !strings.Contains(m.Raw, `"status":"cancelled"`) {
		t.Fatal(m.Raw)
	}
	if !w.StillTicking("b", time.Second) {
		t.Error("the deaf tool has ended")
	}
	caps := `"_meta":{"` + metaVersion + `":"` + modernVersion + `","` + metaCaps + `":{"extensions":{"` + extTasks + `":{}}}}`
	must(t, c.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"tick","arguments":{"key":"c","n":500,"task":true},`+caps+`}}`))
	if m := expect(t, c, "5"); !strings.Contains(m.Raw, `"resultType":"task","taskId":"task-c"`) {
		t.Fatal(m.Raw)
	}
	must(t, c.Send(`{"jsonrpc":"2.0","id":6,"method":"tasks/cancel","params":{"taskId":"task-c",`+caps+`}}`))
	if m := expect(t, c, "6"); !strings.Contains(m.Raw, `"result":{"resultType":"complete"}`) {
		t.Fatal(m.Raw)
	}
	_, err = w.WaitFor("c", "stopped", 5*time.Second)
	must(t, err)
	must(t, c.Call("7", "tick", `{"key":"d","n":1,"task":true}`, "")) // not declared: a plain call
	if m := expect(t, c, "7"); !strings.Contains(m.Raw, "d: 1 ticks") {
		t.Fatal(m.Raw)
	}
}
