package acp_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

func TestACP_3_33_45_parse_cancel(t *testing.T) {
	for _, tc := range []struct {
		method, params string
		form           acp.Form
		id             string // raw; "" malformed
	}{
		{"$/cancelRequest", `{"id":"q-3"}`, acp.FormSeed, `"q-3"`},
		{"$/cancelRequest", `{"id":7}`, acp.FormSeed, `7`},
		{"$/cancel_request", `{"requestId":3}`, acp.FormStable, `3`},
		{"$/cancel_request", `{"requestId":1.5,"_meta":{"a":1}}`, acp.FormStable, `1.5`},
		{"$/cancel_request", `{"requestId":1152921504606846976}`, acp.FormStable, `1152921504606846976`},
		{"$/cancel_request", ` { "requestId" : null } `, acp.FormStable, `null`},
		// The id under the other form's name.
		{"$/cancelRequest", `{"requestId":"x"}`, acp.FormSeed, `"x"`},
		{"$/cancel_request", `{"id":"x"}`, acp.FormStable, `"x"`},
		{"$/cancel_request", `{"id":4,"requestId":4}`, acp.FormStable, `4`},
		{"$/cancel_request", `{"id":"a","requestId":"\u0061"}`, acp.FormStable, `"\u0061"`},
		{"$/cancelRequest", `{"id":1,"why":"because","more":{"id":2}}`, acp.FormSeed, `1`},
		// Malformed.
		{"$/cancelRequest", ``, acp.FormSeed, ``},
		{"$/cancelRequest", `null`, acp.FormSeed, ``},
		{"$/cancelRequest", `[3]`, acp.FormSeed, ``},
		{"$/cancelRequest", `"3"`, acp.FormSeed, ``},
		{"$/cancelRequest", `{}`, acp.FormSeed, ``},
		{"$/cancelRequest", `{"ID":3}`, acp.FormSeed, ``},
		{"$/cancelRequest", `{"id":{}}`, acp.FormSeed, ``},
		{"$/cancelRequest", `{"id":[1]}`, acp.FormSeed, ``},
		{"$/cancelRequest", `{"id":true}`, acp.FormSeed, ``},
		{"$/cancel_request", `{"requestId":{"id":1}}`, acp.FormStable, ``},
		{"$/cancel_request", `{"id":1,"requestId":2}`, acp.FormStable, ``},
		{"$/cancel_request", `{"id":1,"requestId":"1"}`, acp.FormStable, ``},
		{"$/cancel_request", `{"id":1,"requestId":1.0}`, acp.FormStable, ``},
		{"$/cancel_request", `{"id":1,"requestId":null}`, acp.FormStable, ``},
		{"$/cancel_request", `{"requestId":1,"requestId":1}`, acp.FormStable, ``},
		{"session/cancel", `{"id":1}`, acp.FormUnknown, ``},
		{"$/cancelrequest", `{"id":1}`, acp.FormUnknown, ``},
	} {
		var params []byte
		if tc.params != "" {
			params = []byte(tc.params)
		}
		got, err := acp.ParseCancel(tc.method, params)
		if got.Form != tc.form || got.Request.Raw() != tc.id {
			t.Errorf("ParseCancel(%s, %s) = %v %s, want %v %s", tc.method, tc.params, got.Form, got.Request, tc.form, tc.id)
		}
		if (err != nil) != (tc.id == "") || err != nil && !errors.Is(err, acp.ErrMalformedCancel) {
			t.Errorf("ParseCancel(%s, %s): error %v", tc.method, tc.params, err)
		}
	}
}

func TestACP_46_one_form_is_written(t *testing.T) {
	for _, tc := range []struct {
		form acp.Form
		id   jsonrpc.ID
		want string
	}{
		{acp.FormStable, jsonrpc.StringID("b-1"), `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"b-1"}}`},
		{acp.FormSeed, jsonrpc.StringID("b-1"), `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"b-1"}}`},
		{acp.FormNone, jsonrpc.StringID("b-1"), ``},
		{acp.FormUnknown, jsonrpc.StringID("b-1"), ``},
	} {
		got := string(acp.AppendCancel(nil, tc.form, tc.id))
		if got != tc.want {
			t.Errorf("%v: %s, want %s", tc.form, got, tc.want)
		}
	}
}

// Peers and their histories (ACP-47). heard is what the peer itself has sent
// before.
func TestACP_47_form_to_send(t *testing.T) {
	const seed, stable, none = acp.FormSeed, acp.FormStable, acp.FormNone
	for _, tc := range []struct {
		name    string
		setting acp.Form
		version int
		caps    string // of the peer
		heard   []acp.Form
		want    acp.Form
	}{
		{"v1, no flag", 0, 1, `{}`, nil, stable},
		{"v1, no capabilities", 0, 1, ``, nil, stable},
		{"v1, declared", 0, 1, `{"cancellation":{"request":true}}`, nil, seed},
		{"v1, declared false", 0, 1, `{"cancellation":{"request":false}}`, nil, none},
		{"v1, the other name (ACP-6)", 0, 1, `{"supportsRequestCancellation":true}`, nil, seed},
		{"v1, the other name inside (A1)", 0, 1, `{"cancellation":{"supportsRequestCancellation":true}}`, nil, seed},
		{"v1, the other name false", 0, 1, `{"supportsRequestCancellation":false}`, nil, none},
		{"v1, two names that contradict", 0, 1, `{"supportsRequestCancellation":true,"cancellation":{"request":false}}`, nil, none},
		{"v1, flag of a wrong type", 0, 1, `{"cancellation":{"request":"yes"}}`, nil, stable},
		{"v1, field without flag", 0, 1, `{"cancellation":{}}`, nil, stable},
		{"v1, flag elsewhere", 0, 1, `{"_meta":{"cancellation":{"request":false}},"request":false}`, nil, stable},
		{"v1, spoke seed", 0, 1, `{}`, []acp.Form{seed}, seed},
		{"v1, spoke stable, declared seed", 0, 1, `{"cancellation":{"request":true}}`, []acp.Form{stable}, stable},
		{"v1, spoke both, the last counts", 0, 1, `{}`, []acp.Form{stable, seed}, seed},
		{"v1, spoke both, the last counts (2)", 0, 1, `{}`, []acp.Form{seed, stable}, stable},
		{"v1, cancels but wants none (ACP-27)", 0, 1, `{"cancellation":{"request":false}}`, []acp.Form{seed}, none},
		{"v2", 0, 2, `{}`, nil, stable},
		{"v2, declared", 0, 2, `{"cancellation":{"request":true}}`, nil, stable},
		{"v2, declared false", 0, 2, `{"cancellation":{"request":false}}`, nil, none},
		{"v2, spoke seed", 0, 2, `{}`, []acp.Form{seed}, seed},
		{"setting none", none, 1, `{"cancellation":{"request":true}}`, []acp.Form{seed}, none},
		{"setting seed", seed, 2, `{}`, []acp.Form{stable}, seed},
		{"setting stable, against false", stable, 1, `{"cancellation":{"request":false}}`, nil, stable},
		{"unknown version", 0, 7, `{}`, nil, stable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var f acp.Forms
			f.Use(tc.setting)
			if got := f.Send(); got != none {
				t.Errorf("before initialize is answered: %v, want none (ACP-9)", got)
			}
			value := `{"protocolVersion":1}`
			if tc.caps != "" {
				value = `{"protocolVersion":1,"agentCapabilities":` + tc.caps + `}`
			}
			hello := acp.ReadHello([]byte(value))
			f.Greet(tc.version, hello.Cancel)
			for _, h := range tc.heard {
				f.Heard(h)
			}
			f.Heard(acp.FormNone) // changes nothing
			if got := f.Send(); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestACP_4_6_49_hello(t *testing.T) {
	for _, tc := range []struct {
		value string
		want  acp.Hello
	}{
		{
			`{"protocolVersion":1,"clientCapabilities":{"cancellation":{"request":true}},"clientInfo":{"name":"zed","version":"1"}}`,
			acp.Hello{Version: 1, Name: "zed", Cancel: acp.FlagTrue, Used: true},
		},
		{
			`{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"close":{}}},"agentInfo":{"name":"codex"}}`,
			acp.Hello{Version: 1, Name: "codex", Close: true},
		},
		{`{"protocolVersion":2,"capabilities":{"session":{}},"info":{"name":"x"}}`, acp.Hello{Version: 2, Name: "x", Close: true}},
		{`{"protocolVersion":1,"clientCapabilities":{"cancellation":{"request":false}}}`, acp.Hello{Version: 1, Cancel: acp.FlagFalse, Used: true}},
		{`{"protocolVersion":1,"clientCapabilities":{"cancellation":null}}`, acp.Hello{Version: 1, Used: true}},
		{`{"protocolVersion":"1","clientCapabilities":[],"clientInfo":3}`, acp.Hello{}},
		{`{"protocolVersion":-1,"clientCapabilities":null}`, acp.Hello{}},
		{`null`, acp.Hello{}},
		{``, acp.Hello{}},
	} {
		got := acp.ReadHello([]byte(tc.value))
		got.Caps = nil
		if got.Version != tc.want.Version || got.Name != tc.want.Name || got.Cancel != tc.want.Cancel || got.Used != tc.want.Used || got.Close != tc.want.Close {
			t.Errorf("ReadHello(%s) = %+v, want %+v", tc.value, got, tc.want)
		}
	}
}

func TestACP_5_declare(t *testing.T) {
	for _, tc := range []struct{ caps, want string }{
		{``, `{"cancellation":{"request":true}}`},
		{`null`, `{"cancellation":{"request":true}}`},
		{`{ }`, `{"cancellation":{"request":true} }`},
		{`{"fs":{"readTextFile":true}}`, `{"cancellation":{"request":true},"fs":{"readTextFile":true}}`},
		{`{"cancellation":{"request":false}}`, `{"cancellation":{"request":false}}`},
	} {
		got := string(acp.DeclareCancel([]byte(tc.caps)))
		if got != tc.want || !json.Valid([]byte(got)) {
			t.Errorf("DeclareCancel(%s) = %s, want %s", tc.caps, got, tc.want)
		}
	}
}

func TestForm_words(t *testing.T) {
	for word, want := range map[string]acp.Form{"": acp.FormUnknown, "auto": acp.FormUnknown, "none": acp.FormNone, "stable": acp.FormStable, "seed": acp.FormSeed} {
		if got, err := acp.ParseForm(word); got != want || err != nil {
			t.Errorf("ParseForm(%q) = %v, %v", word, got, err)
		}
	}
	if _, err := acp.ParseForm("Seed"); !errors.Is(err, acp.ErrForm) {
		t.Errorf("ParseForm(Seed): %v", err)
	}
}

func FuzzParseCancel(f *testing.F) {
	f.Add("$/cancelRequest", []byte(`{"id":1}`))
	f.Add("$/cancel_request", []byte(`{"requestId":"a","id":"\u0061"}`))
	f.Add("$/cancel_request", []byte(` {"requestId":null`))
	f.Fuzz(func(t *testing.T, method string, params []byte) {
		c, err := acp.ParseCancel(method, params)
		if (err == nil) == c.Request.IsZero() {
			t.Fatalf("%s %s: %v with id %s", method, params, err, c.Request)
		}
		if err != nil || !json.Valid(params) {
			return
		}
		// What was read must be what is written, and must be read again.
		line := acp.AppendCancel(nil, c.Form, c.Request)
		var e jsonrpc.Envelope
		if err := jsonrpc.Parse(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		again, err := acp.ParseCancel(e.Method, e.Params.Of(line))
		if err != nil || again != c {
			t.Fatalf("%s: %v, %v, want %v", line, again, err, c)
		}
	})
}

func TestRead_places(t *testing.T) {
	if id, ok := acp.SessionOf([]byte(`{"prompt":[],"sessionId":"s_\u0037"}`)); id != "s_7" || !ok {
		t.Errorf("got %q, %v", id, ok)
	}
	for _, bad := range []string{``, `null`, `[]`, `{}`, `{"sessionId":7}`, `{"sessionId":""}`, `{"sessionId":null}`, `{"sessionId":"a","sessionId":"b"}`} {
		if id, ok := acp.SessionOf([]byte(bad)); ok {
			t.Errorf("SessionOf(%s) = %q", bad, id)
		}
	}
	if r, ok := acp.StopReasonOf([]byte(`{"stopReason":"cancelled"}`)); r != acp.StopCancelled || !ok {
		t.Errorf("got %q, %v", r, ok)
	}
	if r, ok := acp.StopReasonOf([]byte(`{"messageId":"m_1"}`)); ok {
		t.Errorf("got %q", r)
	}
	idle := `{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}`
	if s, ok := acp.StateOf([]byte(idle)); !ok || !s.Idle || s.Reason != acp.StopCancelled {
		t.Errorf("got %+v, %v", s, ok)
	}
	if s, ok := acp.StateOf([]byte(`{"update":{"sessionUpdate":"state_update","state":"running"}}`)); !ok || s.Idle || s.State != "running" {
		t.Errorf("got %+v, %v", s, ok)
	}
	if s, ok := acp.StateOf([]byte(`{"update":{"sessionUpdate":"tool_call","state":"idle"}}`)); ok {
		t.Errorf("got %+v", s)
	}
}
