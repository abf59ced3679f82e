package mcp

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

func request(meta string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":` + meta + `}}`
}

// TestReadNames finds what callers name in _meta, whatever the spelling, and
// follows nothing that could be read in two ways.
func TestReadNames(t *testing.T) {
	for _, c := range []struct {
		meta                string
		parent, trace, tool string
		state               string
		parents             int
		hidden              string
		noAllocation        bool
	}{
		{meta: `{}`, noAllocation: true},
		{meta: `null`},
		{meta: `[1]`},
		{meta: `{"progressToken":1,"vscode.requestId":"r"}`, noAllocation: true},
		{meta: `{"io.github.belayhq/parent":"run_a"}`, parent: `"run_a"`, parents: 1, hidden: `{"io.github.belayhq/parent":null}`},
		{meta: `{"io.github.belayhq\/parent" : 7 ,"a":1}`, parent: `7`, parents: 1, hidden: `{"io.github.belayhq\/parent" : null ,"a":1}`},
		{meta: `{"io.github.belayhq/parent":null}`, hidden: `{"io.github.belayhq/parent":null}`},
		{meta: `{"io.github.belayhq/parent":"a","io.github.belayhq/parent":"b"}`, parent: `"b"`, parents: 2, hidden: `{"io.github.belayhq/parent":null,"io.github.belayhq/parent":null}`},
		{meta: `{"traceparent":"t","tracestate":"s"}`, trace: `"t"`, state: `"s"`},
		{meta: `{"traceparent":"t","traceparent":"u"}`},
		{meta: `{"callId":"c","claudecode/toolUseId":"toolu_1"}`, tool: `"toolu_1"`},
		{meta: `{"claudecode/toolUseId":"toolu_1","callId":"c"}`, tool: `"toolu_1"`},
		{meta: `{"claudecode/toolUseId":7,"callId":"c"}`, tool: `"c"`},
	} {
		m := read(t, request(c.meta))
		n := m.ReadNames()
		of := func(s jsonrpc.Span) string {
			if !s.Ok() {
				return ""
			}
			return string(s.Of(m.Frame))
		}
		if of(n.Parent) != c.parent || n.Parents != c.parents || of(n.Traceparent) != c.trace || of(n.ToolUse) != c.tool || of(n.Tracestate) != c.state {
			t.Errorf("%s was read as %+v", c.meta, n)
		}
		want := c.hidden
		if want == "" {
			want = c.meta
		}
		if got := string(jsonrpc.AppendSplice(nil, m.Frame, HideParent(nil, m)...)); got != request(want) {
			t.Errorf("%s went on as %s", c.meta, got)
		}
		if c.noAllocation {
			if n := testing.AllocsPerRun(100, func() { m.ReadNames() }); n != 0 {
				t.Errorf("%s: %v allocations", c.meta, n)
			}
		}
	}
}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestParseTraceparent: what is not exactly a traceparent is none.
func TestParseTraceparent(t *testing.T) {
	for _, good := range []string{parent, strings.Replace(parent, "-01", "-ff", 1), "cc" + parent[2:], "cc" + parent[2:] + "-more"} {
		got, ok := ParseTraceparent(good)
		if !ok || got.ID != parent[3:35] || got.Span != parent[36:52] || got.Flags != good[53:55] {
			t.Errorf("%s was read as %+v, %v", good, got, ok)
		}
	}
	for _, bad := range []string{
		"", parent[:54], parent + "0", parent + "-x", "ff" + parent[2:], "cc" + parent[2:] + "x", strings.ToUpper(parent), " " + parent,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		strings.ReplaceAll(parent, "-", "_"), strings.Replace(parent, "4bf", "4bg", 1), parent[:53] + "0\n", parent[:53] + "é",
	} {
		if got, ok := ParseTraceparent(bad); ok {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
	var run belay.RunID
	for i := range run {
		run[i] = byte(i)
	}
	if got := (Trace{ID: TraceID(run), Flags: "01"}).Traceparent(run); got != "00-000102030405060708090a0b0c0d0e0f-08090a0b0c0d0e0f-01" {
		t.Errorf("a run is passed on as %s", got)
	}
	if ValidTracestate("") || ValidTracestate("a\nb") || ValidTracestate(strings.Repeat("a", 513)) || !ValidTracestate("v=1,w=2") {
		t.Error("tracestate")
	}
}

// TestNameRun: the run id comes into a result, beside what is there, and every
// other byte stays (MCP-G2).
func TestNameRun(t *testing.T) {
	run := belay.NewRunID()
	name := `"io.github.belayhq/run":"` + run.String() + `"`
	for _, c := range [][2]string{
		{`{}`, `{"_meta":{` + name + `}}`},
		{`{ }`, `{"_meta":{` + name + `} }`},
		{`{"content":[],"n":1.0}`, `{"_meta":{` + name + `},"content":[],"n":1.0}`},
		{`{"_meta":{}}`, `{"_meta":{` + name + `}}`},
		{`{"a":1, "_meta" : { "b" : 2 } }`, `{"a":1, "_meta" : {` + name + `, "b" : 2 } }`},
		{`{"\u005fmeta":{"b":2}}`, `{"\u005fmeta":{` + name + `,"b":2}}`},
		{`{"_meta":{"io.github.belayhq/run":"run_x"}}`, `{"_meta":{"io.github.belayhq/run":"` + run.String() + `"}}`},
		{`{"_meta":{"io.github.belayhq/run":null,"b":2}}`, `{"_meta":{"io.github.belayhq/run":"` + run.String() + `","b":2}}`},
		{`{"_meta":null}`, ``},
		{`{"_meta":[1]}`, ``},
		{`{"_meta":"x"}`, ``},
		{`{"_meta":{},"_meta":{}}`, ``},
		{`{"_meta":{"io.github.belayhq/run":1,"io.github.belayhq/run":2}}`, ``},
		{`null`, ``},
		{`[]`, ``},
		{`7`, ``},
	} {
		want := c[1]
		if want == "" {
			want = c[0]
		}
		frame := func(result string) string { return ` {"jsonrpc":"2.0", "result":` + result + `,"id" : 1} ` }
		if got := string(NameRun([]byte(frame(c[0])), run)); got != frame(want) {
			t.Errorf("%s became\n%s, want\n%s", c[0], got, frame(want))
		}
	}
	failed := `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":{"_meta":{}}}}`
	if got := string(NameRun([]byte(failed), run)); got != failed {
		t.Errorf("an error became %s", got)
	}
}

// FuzzNameRun: whatever a server answers, what it becomes is the same answer with
// one member more, or the same bytes.
func FuzzNameRun(f *testing.F) {
	for _, result := range []string{`{}`, `{"_meta":{}}`, `{"_meta":null}`, `{"content":[{"text":"_meta"}],"_meta":{"a":[{}]}}`, `{"_meta":{"io.github.belayhq/run":7}}`, ` { } `} {
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`))
	}
	run := belay.NewRunID()
	f.Fuzz(func(t *testing.T, frame []byte) {
		var m, after Message
		if m.Read(frame) != nil {
			return
		}
		before := bytes.Clone(frame)
		named := NameRun(frame, run)
		if !bytes.Equal(before, frame) {
			t.Fatal("the frame was changed")
		}
		if bytes.Equal(named, frame) {
			return
		}
		if err := after.Read(named); err != nil || m.Kind != after.Kind || m.ID != after.ID {
			t.Fatalf("%s became %s: %v", frame, named, err)
		}
		at, ok, err := jsonrpc.Path(after.Frame, after.Result, "_meta", MetaRun)
		if !ok || err != nil || string(at.Of(after.Frame)) != `"`+run.String()+`"` {
			t.Fatalf("%s became %s", frame, named)
		}
		was, had, _ := jsonrpc.Path(m.Frame, m.Result, "_meta", MetaRun)
		if had {
			back := jsonrpc.AppendSplice(nil, named, jsonrpc.Edit{At: at, New: was.Of(frame)})
			if !bytes.Equal(back, frame) {
				t.Fatalf("%s became %s", frame, named)
			}
			return
		}
		same, more := 0, len(named)-len(frame)
		for same < len(frame) && frame[same] == named[same] {
			same++
		}
		if more <= 0 || !bytes.Equal(frame[same:], named[same+more:]) {
			t.Fatalf("more than one insertion: %s became %s", frame, named)
		}
		var x any
		if json.Unmarshal(frame, &x) == nil && json.Unmarshal(named, &x) != nil {
			t.Fatalf("%s is no JSON any more: %s", frame, named)
		}
	})
}
