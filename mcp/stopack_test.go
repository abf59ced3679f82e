package mcp

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// TestReadStopAck: only the three outcomes of a handler that returned are
// evidence, and what is malformed or unknown proves nothing (DESIGN 11, 5).
func TestReadStopAck(t *testing.T) {
	for _, c := range []struct {
		params  string
		bad     bool
		outcome StopOutcome
		partial string
		proof   bool
	}{
		{`{"token":"t","outcome":"stopped"}`, false, StopStopped, "", true},
		{`{"token":"t","outcome":"completed","partial":"12 \u006ff 40","requestId":7,"other":[]}`, false, StopCompleted, "12 of 40", true},
		{`{"token":"t","outcome":"failed","partial":7}`, false, StopFailed, "", true},
		{`{"token":"t","outcome":"running","partial":"half"}`, false, StopRunning, "half", false}, // handed back early
		{`{"token":"t","outcome":"exploded"}`, false, StopUnknown, "", false},
		{`{"token":"t","outcome":7}`, true, "", "", false},
		{`{"token":"t"}`, true, "", "", false},
		{`{"outcome":"stopped"}`, true, "", "", false},
		{`{"token":7,"outcome":"stopped"}`, true, "", "", false},
		{`{"token":"` + strings.Repeat("x", 129) + `","outcome":"stopped"}`, true, "", "", false},
		{`{"token":"t","token":"u","outcome":"stopped"}`, true, "", "", false},
		{`[]`, true, "", "", false},
		{`{"token":"t","outcome":"stopped","partial":"` + strings.Repeat("é", 40_000) + `"}`, false, StopStopped, strings.Repeat("é", 32_768), true},
	} {
		a, err := ReadStopAck(read(t, `{"jsonrpc":"2.0","method":"notifications/stop-ack","params":`+c.params+`}`))
		name := c.params[:min(len(c.params), 80)]
		if c.bad {
			if !errors.Is(err, ErrStopAck) || a.Evidence() != nil {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
			continue
		}
		if err != nil || a.Token != "t" || a.Outcome != c.outcome || a.Partial != c.partial || (a.Evidence() != nil) != c.proof {
			t.Errorf("%s: %.200v, %v", name, a, err)
		}
		if e := a.Evidence(); e != nil && (e.Kind != belay.SeenHandlerReturned || e.Scope != belay.ScopeHandler || !strings.Contains(e.Detail, string(c.outcome))) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestReadStopAckResult reads the answers to an await, errors included.
func TestReadStopAckResult(t *testing.T) {
	for _, c := range []struct {
		rest    string
		outcome StopOutcome
	}{
		{`"result":{"outcome":"stopped","resultType":"complete"}`, StopStopped},
		{`"result":{"outcome":"running"}`, StopRunning},
		{`"result":{"outcome":"unknown"}`, StopUnknown},
		{`"result":{"outcome":"?"}`, StopUnknown},
		{`"result":{}`, ""},
		{`"error":{"code":-32601,"message":"no such method"}`, ""},
	} {
		a, err := ReadStopAck(read(t, `{"jsonrpc":"2.0","id":"b-1",`+c.rest+`}`))
		if (err != nil) != (c.outcome == "") || err == nil && a.Outcome != c.outcome {
			t.Errorf("%s: %+v, %v", c.rest, a, err)
		}
	}
}

// TestStopAckWritten: what is written is read back.
func TestStopAckWritten(t *testing.T) {
	a := StopAck{Token: "a\"b", Outcome: StopStopped, Partial: "1\n2", Ended: EndedInterrupted, Request: jsonrpc.NullID()}
	a.Request, _ = jsonrpc.ParseID([]byte("1.0"))
	m := read(t, string(AppendStopAck(nil, a)))
	if got, err := ReadStopAck(m); err != nil || got != a || m.Kind != jsonrpc.Notification || m.Method != NoticeStopAck {
		t.Errorf("%s: %+v, %v", m.Frame, got, err)
	}
	m = read(t, string(AppendStopAckResult(nil, a.Request, a, Modern)))
	if got, err := ReadStopAck(m); err != nil || got.Outcome != a.Outcome || got.Partial != a.Partial || got.Ended != a.Ended || m.ID != a.Request || !strings.Contains(string(m.Frame), `"resultType":"complete"`) {
		t.Errorf("%s: %+v, %v", m.Frame, got, err)
	}
	if e := a.Evidence(); e.Kind != belay.SeenInterrupted || !strings.HasSuffix(e.Detail, "stopped, interrupted") {
		t.Errorf("evidence %+v", e)
	}
	for _, era := range []Era{Legacy, Modern} {
		m = read(t, string(AppendAwaitStop(nil, jsonrpc.StringID("b-7"), "tok", 1500*time.Millisecond, era)))
		token, wait, err := ReadAwaitStop(m)
		if err != nil || token != "tok" || wait != 1500*time.Millisecond || m.Era() != era || m.Method != MethodAwaitStop {
			t.Errorf("%s: %q, %v, %v", m.Frame, token, wait, err)
		}
	}
	for _, params := range []string{`{}`, `{"token":"t","waitMs":-1}`, `{"token":"t","waitMs":"5"}`, `{"token":"t","waitMs":1.5}`, `{"token":"t","waitMs":99999999999}`, `{"token":"t","token":"t"}`} {
		if _, _, err := ReadAwaitStop(read(t, `{"jsonrpc":"2.0","id":1,"method":"stop-ack/await","params":`+params+`}`)); !errors.Is(err, ErrStopAck) {
			t.Errorf("%s: %v", params, err)
		}
	}
}

// TestStopAckAsked: the edits put the token, and the declaration, into whatever
// the caller sent, beside other members, and change nothing else (MCP-G2).
func TestStopAckAsked(t *testing.T) {
	const caps, ver = `"io.modelcontextprotocol/clientCapabilities"`, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	const ext = `"io.github.belayhq/stop-ack"`
	const ours = ext + `:{"token":"T"},"progressToken":"b-1"`
	for _, c := range []struct{ in, want string }{
		{`{"id":1,"method":"tools/call"}`, `{"id":1,"method":"tools/call"}`},
		{`{"id":1,"method":"tools/call","params":{}}`, `{"id":1,"method":"tools/call","params":{"_meta":{` + ours + `}}}`},
		{`{"id":1,"method":"tools/call","params":{ "name":"x"}}`, `{"id":1,"method":"tools/call","params":{"_meta":{` + ours + `}, "name":"x"}}`},
		{`{"id":1,"method":"tools/call","params":{"_meta":{ }}}`, `{"id":1,"method":"tools/call","params":{"_meta":{` + ours + ` }}}`},
		{`{"id":1,"method":"tools/call","params":{"_meta":null}}`, `{"id":1,"method":"tools/call","params":{"_meta":{` + ours + `}}}`},
		{`{"id":1,"method":"tools/call","params":{"_meta":{"progressToken":5,"a":1e2}}}`, `{"id":1,"method":"tools/call","params":{"_meta":{` + ext + `:{"token":"T"},"progressToken":"b-1","a":1e2}}}`},
		{`{"id":1,"method":"tools/call","params":{"_meta":{` + ext + `:{"token":"theirs"},"progressToken":5}}}`, `{"id":1,"method":"tools/call","params":{"_meta":{` + ours + `}}}`},
		{`{"id":1,"method":"tools/call","params":{"_meta":7}}`, `{"id":1,"method":"tools/call","params":{"_meta":7}}`},
		{`{"id":1,"method":"tools/call","params":[7]}`, `{"id":1,"method":"tools/call","params":[7]}`},
		{
			`{"id":1,"method":"tools/call","params":{"_meta":{` + ver + `,` + caps + `:{}}}}`,
			`{"id":1,"method":"tools/call","params":{"_meta":{` + ours + `,` + ver + `,` + caps + `:{"extensions":{` + ext + `:{}}}}}}`,
		},
		{
			`{"id":1,"method":"tools/call","params":{"_meta":{` + ver + `,` + caps + `:{"roots":{},"extensions":{"x":{}}}}}}`,
			`{"id":1,"method":"tools/call","params":{"_meta":{` + ours + `,` + ver + `,` + caps + `:{"roots":{},"extensions":{` + ext + `:{},"x":{}}}}}}`,
		},
		{
			`{"id":1,"method":"tools/call","params":{"_meta":{` + ver + `,` + caps + `:{"extensions":{` + ext + `:{"a":1}}}}}}`,
			`{"id":1,"method":"tools/call","params":{"_meta":{` + ours + `,` + ver + `,` + caps + `:{"extensions":{` + ext + `:{"a":1}}}}}}`,
		},
		{
			`{"id":1,"method":"tools/call","params":{"_meta":{` + ver + `,` + caps + `:7}}}`,
			`{"id":1,"method":"tools/call","params":{"_meta":{` + ours + `,` + ver + `,` + caps + `:7}}}`,
		},
	} {
		head := `{"jsonrpc":"2.0",`
		m := read(t, head+c.in[1:])
		edits := AppendMeta(nil, m, StopAckMeta("T"), MetaMember{"progressToken", []byte(`"b-1"`)})
		edits = DeclareStopAck(edits, m)
		got := string(jsonrpc.AppendSplice(nil, m.Frame, edits...))
		want := head + c.want[1:]
		if got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, want)
		}
		if asked := StopAckToken(read(t, got)); asked != "T" && strings.Contains(got, ours) {
			t.Errorf("%s: token %q", got, asked)
		}
	}
	if got := StopAckToken(read(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{`+ext+`:{"token":7}}}}`)); got != "" {
		t.Errorf("a token that is no text: %q", got)
	}
	if a, b := NewStopAckToken(), NewStopAckToken(); a == b || len(a) < 22 {
		t.Errorf("tokens %q, %q", a, b)
	}
}

// TestStopAckDeclared: initialize is declared to once, in every form.
func TestStopAckDeclared(t *testing.T) {
	const ext = `"io.github.belayhq/stop-ack"`
	for _, c := range []struct{ caps, want string }{
		{`{}`, `{"experimental":{` + ext + `:{}}}`},
		{`{"roots":{}}`, `{"experimental":{` + ext + `:{}},"roots":{}}`},
		{`{"experimental":{}}`, `{"experimental":{` + ext + `:{}}}`},
		{`{"experimental":{"x":1}}`, `{"experimental":{` + ext + `:{},"x":1}}`},
		{`{"experimental":{` + ext + `:{"v":1}}}`, `{"experimental":{` + ext + `:{"v":1}}}`},
		{`{"experimental":null}`, `{"experimental":null}`},
		{`null`, `null`},
	} {
		frame := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":`
		m := read(t, frame+c.caps+`}}`)
		if got := string(jsonrpc.AppendSplice(nil, m.Frame, DeclareStopAck(nil, m)...)); got != frame+c.want+`}}` {
			t.Errorf("%s: %s", c.caps, got)
		}
	}
	m := read(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if got := DeclareStopAck(nil, m); got != nil {
		t.Errorf("a notification: %v", got)
	}
}

// TestStopAckDoors reads what a server declared, in its own era's place.
func TestStopAckDoors(t *testing.T) {
	for _, c := range []struct {
		method, caps string
		want         StopAckDoors
	}{
		{MethodInitialize, `{"experimental":{"io.github.belayhq/stop-ack":{"notify":true,"await":true}}}`, StopAckDoors{true, true}},
		{MethodInitialize, `{"experimental":{"io.github.belayhq/stop-ack":{"notify":"true","await":{}}}}`, StopAckDoors{}},
		{MethodInitialize, `{"extensions":{"io.github.belayhq/stop-ack":{"notify":true}}}`, StopAckDoors{Notify: true}},
		{MethodDiscover, `{"experimental":{"io.github.belayhq/stop-ack":{"await":true}}}`, StopAckDoors{}},
		{MethodDiscover, `{"extensions":{"io.github.belayhq/stop-ack":{"notify":true,"await":true}}}`, StopAckDoors{Await: true}},
		{MethodDiscover, `{}`, StopAckDoors{}},
	} {
		var h Handshake
		h.Sent(read(t, `{"jsonrpc":"2.0","id":1,"method":"`+c.method+`","params":{}}`))
		if got := h.StopAck(); got != (StopAckDoors{}) {
			t.Errorf("before the handshake: %+v", got)
		}
		h.Answered(c.method, true, read(t, `{"jsonrpc":"2.0","id":1,"result":{"capabilities":`+c.caps+`}}`))
		if got := h.StopAck(); got != c.want {
			t.Errorf("%s %s: %+v", c.method, c.caps, got)
		}
	}
}

// FuzzStopAck: hostile messages never panic, and edits of what parses yield
// what parses.
func FuzzStopAck(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{}}}`)
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"experimental":{}}}}`)
	f.Add(`{"jsonrpc":"2.0","method":"notifications/stop-ack","params":{"token":"t","outcome":"stopped"}}`)
	f.Fuzz(func(t *testing.T, frame string) {
		var m Message
		if m.Read([]byte(frame)) != nil {
			return
		}
		_, _ = ReadStopAck(&m)
		_, _, _ = ReadAwaitStop(&m)
		_ = StopAckToken(&m)
		if m.Method == "" {
			return
		}
		edits := DeclareStopAck(AppendMeta(nil, &m, StopAckMeta("T")), &m)
		out := jsonrpc.AppendSplice(nil, m.Frame, edits...)
		if err := new(Message).Read(out); err != nil {
			t.Fatalf("%s\nbecame %s: %v", frame, out, err)
		}
	})
}
