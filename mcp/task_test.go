package mcp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/jsonrpc"
)

// TestCreatedTask: either kind of answer says that a request became a task, and
// nothing else does (MCP-45, MCP-79).
func TestCreatedTask(t *testing.T) {
	long := strings.Repeat("x", MaxTaskID+1)
	for frame, want := range map[string]TaskNews{
		`"result":{"task":{"taskId":"t","status":"working","ttl":60000}}`:                                {ID: "t", Status: TaskWorking, TTL: time.Minute},
		`"result":{"resultType":"task","taskId":"\u0074","status":"working","ttlMs":5,"pollInterval":1}`: {ID: "t", Status: TaskWorking, TTL: 5 * time.Millisecond},
		`"result":{"resultType":"complete","taskId":"t"}`:                                                {},
		`"result":{"taskId":"t","status":"working"}`:                                                     {},
		`"result":{"task":"t"}`:                                          {},
		`"result":{"task":{"taskId":7}}`:                                 {},
		`"result":{"task":{"taskId":"` + long + `"}}`:                    {},
		`"result":{"task":{"taskId":"t","ttl":null}}`:                    {ID: "t"},
		`"result":{"task":{"taskId":"t","ttl":-1}}`:                      {ID: "t"},
		`"result":{"task":{"taskId":"t","ttl":1e3}}`:                     {ID: "t"},
		`"error":{"code":1,"message":"","data":{"task":{"taskId":"t"}}}`: {},
	} {
		m := read(t, `{"jsonrpc":"2.0","id":1,`+frame+`}`)
		if got := m.CreatedTask(); got != want {
			t.Errorf("%.80s: %+v, want %+v", frame, got, want)
		}
		if raw := m.TaskID(); want.ID != "" && raw == nil || want == (TaskNews{}) && raw != nil && len(raw) < MaxTaskID {
			t.Errorf("%.80s: the id is %s", frame, raw)
		}
	}
}

// TestTaskRequests: which task a request is about, by params.taskId alone, and to
// which a server's belongs, by its metadata (MCP-51).
func TestTaskRequests(t *testing.T) {
	related := `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"r"}}`
	for method, want := range map[string]string{
		"tasks/get": "t", "tasks/result": "t", "tasks/cancel": "t", "tasks/update": "t", "tools/call": "", "tasks/list": "",
	} {
		m := read(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"taskId":"t",`+related+`}}`)
		if m.TaskRef() != want || m.RelatedTask() != "r" {
			t.Errorf("%s: about %q, related to %q", method, m.TaskRef(), m.RelatedTask())
		}
	}
	for params, want := range map[string][]string{
		`{"notifications":{"taskIds":["a","b"]}}`: {"a", "b"}, `{"notifications":{"taskIds":"a"}}`: nil, `{}`: nil,
	} {
		m := read(t, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":`+params+`}`)
		if got := slices.Collect(m.ListenedTasks()); !slices.Equal(got, want) {
			t.Errorf("%s: %v", params, got)
		}
	}
}

// TestFilterTasks: what stays of a list is the bytes it was.
func TestFilterTasks(t *testing.T) {
	m := read(t, `{"jsonrpc":"2.0","id":1,"result":{"tasks":[{"taskId":"a","x": 1.50},{"taskId":"b"},{"other":true},{"taskId":"c"}],"nextCursor":"z"}}`)
	edits := FilterTasks(nil, m, func(id string) bool { return id != "b" })
	if got := string(jsonrpc.AppendSplice(nil, m.Frame, edits...)); got != `{"jsonrpc":"2.0","id":1,"result":{"tasks":[{"taskId":"a","x": 1.50},{"other":true},{"taskId":"c"}],"nextCursor":"z"}}` {
		t.Errorf("got %s", got)
	}
	if edits := FilterTasks(nil, m, func(string) bool { return true }); len(edits) != 0 {
		t.Errorf("%d edits", len(edits))
	}
}

// TestRoundKeys: a retry meets the question it answers, by method, name and
// requestState, however those are spelled, and no other (MCP-65, MCP-G18).
func TestRoundKeys(t *testing.T) {
	asked := read(t, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"sA"}}`)
	if !asked.InputRequired() {
		t.Error("it asks for input")
	}
	want, ok := asked.AskedRound("tools/call", "x")
	if !ok {
		t.Fatal("it cannot be linked")
	}
	for params, meets := range map[string]bool{
		`"name":"x","requestState":"s\u0041"`:                true,
		`"name":"x","requestState":"sA","inputResponses":{}`: true,
		`"name":"y","requestState":"sA"`:                     false,
		`"name":"xs","requestState":"A"`:                     false,
		`"name":"x","requestState":"sa"`:                     false,
		`"name":"x","requestState":7,"inputResponses":{}`:    false,
		`"name":"x","inputResponses":{"requestState":"sA"}`:  false,
		`"name":"x","arguments":{"requestState":"sA"}`:       false,
	} {
		m := read(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+params+`}}`)
		key, linked, is := m.Retry()
		if got := linked && key == want; got != meets || is != (m.State.Ok() && linked || m.Answers.Ok()) {
			t.Errorf("%s: meets %v, is a retry %v", params, got, is)
		}
	}
	if _, ok := read(t, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required"}}`).AskedRound("tools/call", "x"); ok {
		t.Error("a question without state was linked")
	}
}
