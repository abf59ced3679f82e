package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

func read(t *testing.T, frame string) *Message {
	t.Helper()
	var m Message
	if err := m.Read([]byte(frame)); err != nil {
		t.Fatalf("%s: %v", frame, err)
	}
	return &m
}

// TestRead finds the few places that a gateway reads, however they are spelled
// and wherever they stand, and takes nothing else for them (MCP-G2).
func TestRead(t *testing.T) {
	const version = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	for _, c := range []struct {
		frame             string
		name, token, task string
		era               Era
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, "", "", "", Legacy},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`, "", "", "", Legacy},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\u0062"}}`, "ab", "", "", Legacy},
		{`{"params":{"_meta":{"progressToken":7},"n\u0061me":"x"},"id":1,"method":"tools/call","jsonrpc":"2.0"}`, "x", "7", "", Legacy},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":42,"_meta":{"progressToken":{}}}}`, "", "", "", Legacy},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + strings.Repeat("x", 300) + `"}}`, "", "", "", Legacy},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"progressToken":7,"arguments":{"_meta":{"progressToken":8}}}}`, "", "", "", Legacy},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"7","_meta":{"progressToken":8}}}`, "", `"7"`, "", Legacy},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{` + version + `,"progressToken":1.0},"task":{"ttl":1}}}`, "", "1.0", `{"ttl":1}`, Modern},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":{` + version + `}}}`, "", "", "", Legacy},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":null,"name":"x"}}`, "x", "", "", Legacy},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"_meta":{` + version + `}}}}`, "", "", "", Legacy},
	} {
		m := read(t, c.frame)
		if m.ToolName() != c.name || m.ProgressToken().Raw() != c.token || string(m.Task.Of(m.Frame)) != c.task || m.Era() != c.era {
			t.Errorf("%s\nname %q, token %q, task %q, %s", c.frame, m.ToolName(), m.ProgressToken().Raw(), m.Task.Of(m.Frame), m.Era())
		}
	}
}

// TestReadCancel: what is malformed is never taken for a cancel of something
// else (MCP-22, A13).
func TestReadCancel(t *testing.T) {
	for _, c := range []struct{ params, id, reason string }{
		{`{"requestId":7}`, "7", ""},
		{`{"requestId":"7","reason":"x\ny"}`, `"7"`, "x y"},
		{`{"reason":7,"requestId":1.0}`, "1.0", ""},
		{`{"request\u0049d":0}`, "0", ""},
		{`{"requestId":7,"reason":"` + strings.Repeat("é", 1000) + `"}`, "7", strings.Repeat("é", 512)},
		{`{}`, "", ""},
		{`[]`, "", ""},
		{`{"requestId":null}`, "", ""},
		{`{"requestId":true}`, "", ""},
		{`{"requestId":[1]}`, "", ""},
		{`{"requestId":1,"requestId":1}`, "", ""},
		{`{"requestid":1}`, "", ""},
	} {
		m := read(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+c.params+`}`)
		cancel, err := m.ReadCancel()
		if c.id == "" {
			if !errors.Is(err, ErrMalformedCancel) {
				t.Errorf("%s: %v", c.params, err)
			}
			continue
		}
		if err != nil || cancel.Request.Raw() != c.id || cancel.Reason != c.reason || string(cancel.At.Of(m.Frame)) != c.id {
			t.Errorf("%s: %+v, %v", c.params, cancel, err)
		}
	}
	if _, err := read(t, `{"jsonrpc":"2.0","method":"notifications/cancelled"}`).ReadCancel(); !errors.Is(err, ErrMalformedCancel) {
		t.Error(err)
	}
}

// TestAppendCancelled: what we write we read as the same (MCP-3, MCP-G21, A12).
func TestAppendCancelled(t *testing.T) {
	for _, era := range []Era{Legacy, Modern} {
		m := read(t, string(AppendCancelled(nil, jsonrpc.StringID("b-1"), "a\u0000\"b\u2028"+strings.Repeat("x", 2000), era)))
		cancel, err := m.ReadCancel()
		if err != nil || cancel.Request.Raw() != `"b-1"` || len(cancel.Reason) > belay.MaxReason || !strings.HasPrefix(cancel.Reason, `a"bx`) || m.Era() != era {
			t.Errorf("%s: %s, %v", era, m.Frame, err)
		}
	}
	if text := string(AppendCancelled(nil, jsonrpc.StringID("b-1"), "", Legacy)); text != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"b-1"}}` {
		t.Error(text)
	}
}

// TestAppendStopped: the answer is a valid message, with the data that tell it
// from the server's own (MCP-G26).
func TestAppendStopped(t *testing.T) {
	for _, raw := range []string{`7`, `"<&>\u0041"`, `1152921504606846977`, `null`} {
		id, err := jsonrpc.ParseID([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		run := belay.NewRunID()
		for _, proven := range []bool{false, true} {
			m := read(t, string(AppendStopped(nil, id, run, &belay.Cancellation{Cause: belay.CauseDeadline, Reason: `a"<b>`}, proven)))
			var e struct {
				Code int
				Data map[string]any
			}
			if err := json.Unmarshal(m.Error.Of(m.Frame), &e); err != nil {
				t.Fatal(err)
			}
			note, noted := e.Data["note"]
			if m.ID.Raw() != raw || e.Code != -32800 || e.Data["run"] != run.String() || e.Data["cause"] != "deadline" || e.Data["reason"] != `a"<b>` ||
				e.Data["partial"] != false || noted == proven || noted && note != StillRunning {
				t.Errorf("%s", m.Frame)
			}
			if _, ok := e.Data["requestId"]; !ok {
				t.Errorf("%s has no requestId", m.Frame)
			}
		}
	}
}

// TestPartialText reads what a tool had; AppendPartial says that it is partial.
func TestPartialText(t *testing.T) {
	for result, want := range map[string]string{
		`"error":{"code":1,"message":"m","data":{"content":[{"text":"not this"}]}}`: "",
		`"result":{"content":[{"type":"text","text":"a\u0062"}]}`:                   "ab",
		`"result":{"content":[{"text":"a"},{"type":"image"},{"text":"b"}]}`:         "a\nb",
		`"result":{"isError":false,"content":[{"type":"text","text":"a"}]}`:         "a",
		`"result":{"isError":true,"content":[{"type":"text","text":"a"}]}`:          "",
		`"result":{"content":[]}`:                  "",
		`"result":{"content":{"text":"a"}}`:        "",
		`"result":{"content":[{"text":7},3,null]}`: "",

		`"result":{}`: "",
		`"result":[]`: "",
	} {
		m := read(t, `{"jsonrpc":"2.0","id":1,`+result+`}`)
		text, ok := PartialText(m)
		if text != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", result, text, ok)
		}
	}
	frame := AppendPartial(nil, jsonrpc.StringID("x"), &belay.Cancellation{Cause: belay.CauseOperator, Reason: "cost"}, "12 of \"40\"", Modern)
	m := read(t, string(frame))
	if !ToolFailed(m) || !strings.Contains(string(frame), `"resultType":"complete"`) ||
		!strings.Contains(string(frame), `[{"type":"text","text":"Cancelled by operator: cost."},{"type":"text","text":"12 of \"40\""}]`) {
		t.Errorf("%s", frame)
	}
}

// talk feeds a handshake with requests and answers in their order.
func talk(t *testing.T, h *Handshake, lines ...string) {
	t.Helper()
	method := ""
	for _, line := range lines {
		m := read(t, line)
		if m.Method != "" {
			method = m.Method
			h.Sent(m)
			continue
		}
		h.Answered(method, true, m)
	}
}

func script(h *Handshake) string {
	var text []string
	for _, a := range h.Script() {
		text = append(text, fmt.Sprintf("%s%s", a.Method, a.Params))
	}
	return strings.Join(text, " ")
}

// TestScript: what a fresh process has to be told, in order, and no more
// (MCP-G36).
func TestScript(t *testing.T) {
	const (
		initialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"a":1.0}}`
		initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
		discover    = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"b":2}}`
		ok          = `{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"resources":{"subscribe":true},"logging":null,"x":false,"tools":{}}}}`
		refused     = `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`
		level       = `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"%s"}}`
		sub         = `{"jsonrpc":"2.0","id":1,"method":"resources/%s","params":{"uri":"%s"}}`
		list        = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
		tools       = `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`
		page        = `{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"x"}}`
	)
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"nothing", nil, ""},
		{"not answered", []string{initialize, initialized}, ""},
		{"refused", []string{initialize, refused}, ""},
		{"legacy", []string{initialize, ok, initialized}, `initialize{"a":1.0} notifications/initialized`},
		{"before initialized", []string{initialize, ok, list, tools}, `initialize{"a":1.0}`},
		{"modern", []string{discover, ok}, `server/discover{"b":2}`},
		{"probed, then legacy", []string{discover, refused, initialize, ok, initialized}, `initialize{"a":1.0} notifications/initialized`},
		{"both eras, then legacy", []string{discover, ok, initialize, ok}, `initialize{"a":1.0}`},
		{"a legacy session stays one", []string{initialize, ok, discover, ok}, `initialize{"a":1.0}`},
		{"everything", []string{
			initialize, ok, initialized, fmt.Sprintf(level, "debug"), fmt.Sprintf(level, "error"),
			fmt.Sprintf(sub, "subscribe", "a"), fmt.Sprintf(sub, "subscribe", "b"), fmt.Sprintf(sub, "subscribe", "a"), fmt.Sprintf(sub, "subscribe", "c"),
			fmt.Sprintf(sub, "unsubscribe", "b"), list, tools,
		}, `initialize{"a":1.0} notifications/initialized logging/setLevel{"level":"error"} resources/subscribe{"uri":"a"} resources/subscribe{"uri":"c"} tools/list`},
		{"a list of many pages", []string{initialize, ok, initialized, list, page}, `initialize{"a":1.0} notifications/initialized`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h Handshake
			talk(t, &h, c.lines...)
			if got := script(&h); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
	var h Handshake
	talk(t, &h, initialize, ok)
	for path, want := range map[string]bool{"resources.subscribe": true, "logging": false, "x": false, "tools": true, "tasks": false, "tools.x": false} {
		if got := h.Capability(strings.Split(path, ".")...); got != want {
			t.Errorf("capability %s is %v", path, got)
		}
	}
}

// TestSame: another server, or the same with other abilities, is noticed
// (DESIGN 11, 3).
func TestSame(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1","serverInfo":{"name":"s"},"capabilities":{},"instructions":"x","_meta":{"io.modelcontextprotocol/serverInfo":{"v":1}}}}`
	var h Handshake
	talk(t, &h, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, answer)
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"", "", true},
		{`"instructions":"x"`, `"instructions":"y"`, true},
		{`"name":"s"`, `"name":"t"`, false},
		{`"protocolVersion":"1"`, `"protocolVersion":"2"`, false},
		{`"capabilities":{}`, `"capabilities":{"tools":{}}`, false},
		{`"capabilities":{},`, ``, false},
		{`{"v":1}`, `{"v":2}`, false},
		{`"result":{`, `"error":{"code":1,"message":"m"},"ignored":{`, false},
	} {
		err := h.Same(read(t, strings.Replace(answer, c.from, c.to, 1)))
		if (err == nil) != c.same || err != nil && !errors.Is(err, ErrChanged) {
			t.Errorf("%s for %s: %v", c.to, c.from, err)
		}
	}
}

// TestRecall: only what was asked at the start is remembered, with its very
// parameters; roots until they change (DESIGN 11, 3).
func TestRecall(t *testing.T) {
	var h Handshake
	answer := read(t, `{"jsonrpc":"2.0","id":1,"result":{"yes":1}}`)
	refusal := read(t, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}`)
	h.Told(MethodElicitation, []byte(`{"q":1}`), true, answer)
	h.Told(MethodElicitation, []byte(`{"q":2}`), false, answer)
	h.Told(MethodElicitation, []byte(`{"q":3}`), true, refusal)
	h.Told(MethodListRoots, nil, false, answer)
	for _, c := range []struct{ method, params, want string }{
		{MethodElicitation, `{"q":1}`, `{"yes":1}`},
		{MethodElicitation, `{"q":2}`, ``},
		{MethodElicitation, `{"q":3}`, ``},
		{MethodSampling, `{"q":1}`, ``},
		{MethodListRoots, `{}`, `{"yes":1}`},
	} {
		if got := string(h.Recall(c.method, []byte(c.params))); got != c.want {
			t.Errorf("%s %s: %s", c.method, c.params, got)
		}
	}
	h.Sent(read(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`))
	if h.Recall(MethodListRoots, nil) != nil {
		t.Error("roots that changed are still known")
	}
	for i := range 100 {
		h.Told(MethodSampling, fmt.Appendf(nil, `%d`, i), true, answer)
	}
	if len(h.questions) > maxQuestions {
		t.Errorf("%d questions are kept", len(h.questions))
	}
}

// FuzzRead: no frame makes the dialect panic or read outside of it, and what is
// read of a cancel can be written again.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a\u0062","reason":"\ud800\n"}}`,
		`{"jsonrpc":"2.0","id":null,"result":{"content":[{"text":"x"}],"task":{"taskId":1},"_meta":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[],"_meta":[]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var m Message
		if m.Read(frame) != nil {
			return
		}
		m.ToolName()
		m.ProgressToken()
		m.Era()
		PartialText(&m)
		ToolFailed(&m)
		m.TaskID()
		m.TaskNews()
		m.TaskRef()
		m.RelatedTask()
		for range m.ListenedTasks() {
		}
		m.Retry()
		m.AskedRound("a", "b")
		m.CreatedTask()
		m.InputRequired()
		FilterTasks(nil, &m, func(string) bool { return false })
		m.ResultSubscription()
		var h Handshake
		h.Sent(&m)
		h.Answered(m.Method, true, &m)
		h.Script()
		if cancel, err := m.ReadCancel(); err == nil {
			var again Message
			if err := again.Read(AppendCancelled(nil, cancel.Request, cancel.Reason, m.Era())); err != nil {
				t.Fatalf("%q: %v", frame, err)
			}
			if c, err := again.ReadCancel(); err != nil || !c.Request.Same(cancel.Request) || c.Reason != cancel.Reason {
				t.Fatalf("%q: %+v %v", frame, c, err)
			}
		}
	})
}
