package aggregate

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// TestInitialize: the answer has the lowest version, what any member can, and
// the instructions of all under their names; every member gets the caller's own
// handshake (MCP-G4, DESIGN 12).
func TestInitialize(t *testing.T) {
	a := &fake{name: "a", caps: `"tools":{},"logging":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`, more: `,"instructions":"Be kind."`}
	b := &fake{name: "b", caps: `"resources":{"subscribe":true},"completions":{},"prompts":{"listChanged":false}`, version: "2025-06-18", more: `,"instructions":"Be\nquick."`}
	c := &fake{name: "c", refuse: &httpserver.EraError{Supported: []string{mcp.Revision26}}}
	d := &fake{name: "d", version: "2099-01-01"}
	r := newRig(t, false, Config{Name: "joined", Version: "9"}, a, b, c, d)
	result := r.hello()
	var got struct {
		ProtocolVersion string
		Capabilities    json.RawMessage
		ServerInfo      implementation
		Instructions    string
	}
	if err := json.Unmarshal([]byte(result), &got); err != nil {
		t.Fatal(err)
	}
	if got.ProtocolVersion != "2025-06-18" || got.ServerInfo != (implementation{"joined", "9"}) {
		t.Errorf("got %s", result)
	}
	want := `{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},` +
		`"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}},"tools":{"listChanged":true}}`
	if string(got.Capabilities) != want {
		t.Errorf("got %s\nwant %s", got.Capabilities, want)
	}
	for _, text := range []string{"# a\n\nBe kind.\n\n# b\n\nBe\nquick.\n\n# Servers that are left out\n\n- c: it does not speak this protocol era\n- d: it does"} {
		if !strings.Contains(got.Instructions, text) {
			t.Errorf("the instructions are %q", got.Instructions)
		}
	}
	for _, name := range []string{"c", "d"} {
		if !r.logs.has("a server was left out of an answer\" server=" + name) {
			t.Errorf("%s is not named in the log", name)
		}
	}
	if hello := a.last().got("initialize\""); len(hello) != 1 || !strings.Contains(hello[0], `"capabilities":{"roots":{}}`) {
		t.Errorf("a got %v", hello)
	}
	select {
	case <-d.last().Ended(): // after the answer: nobody waits for it
	case <-time.After(10 * time.Second):
		t.Error("the session of a server that was left out is open")
	}
}

// TestInitializeNobody: where no member can be had the handshake fails, with the
// versions where that is the reason; without any configured it is an empty
// server.
func TestInitializeNobody(t *testing.T) {
	hello := func(r *rig) *box { return r.ask("0", "initialize", `{"protocolVersion":"2025-11-25"}`) }
	r := newRig(t, false, Config{}, &fake{name: "a", refuse: &httpserver.EraError{Supported: []string{mcp.Revision26}}})
	box := hello(r)
	if got := r.failure(box); got != mcp.CodeInvalidParams || !strings.Contains(r.answer(box), `"supported":["2026-07-28"],"requested":"2025-11-25"`) {
		t.Errorf("got %s", r.answer(box))
	}
	r = newRig(t, false, Config{}, &fake{name: "a", refuse: errors.New("broken")})
	if got := r.failure(hello(r)); got != mcp.CodeInternal {
		t.Errorf("got %d", got)
	}
	r = newRig(t, false, Config{})
	if got := member(t, r.result(hello(r)), "protocolVersion"); got != "2025-11-25" {
		t.Errorf("got %s", got)
	}
	if got := names(t, r.result(r.ask("1", "tools/list", "")), "tools", "name"); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// TestInitializeLate: a member that is slow does not hold up the handshake; it
// joins when it is ready, and the caller is told.
func TestInitializeLate(t *testing.T) {
	late := make(chan *fakeCall, 1)
	a := &fake{name: "a", caps: allCaps}
	b := &fake{name: "b", caps: allCaps, handle: func(_ *fakeSession, c *fakeCall) bool {
		if c.Method == mcp.MethodInitialize {
			late <- c
		}
		return c.Method == mcp.MethodInitialize
	}}
	r := newRig(t, false, Config{OpenWait: 20 * time.Millisecond}, a, b)
	if got := member(t, r.hello(), "instructions"); !strings.Contains(got, "b: it is not ready yet") {
		t.Errorf("got %q", got)
	}
	box := r.ask("1", mcp.MethodCallTool, `{"name":"b__x"}`) // waits for it
	(<-late).answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`)
	r.home.heard(t, mcp.NoticeTools)
	b.find(t, mcp.MethodCallTool).answer(`{}`)
	r.result(box)
	if got := b.last().got(""); !strings.Contains(got[1], mcp.NoticeInitialized) {
		t.Errorf("b got %v", got)
	}
}

// TestBeforeHello: nothing but ping goes before initialize, which comes once and
// cannot be cancelled (MCP-7, MCP-42, MCP-G14).
func TestBeforeHello(t *testing.T) {
	blocked := make(chan *fakeCall, 1)
	a := &fake{name: "a", caps: allCaps, handle: func(_ *fakeSession, c *fakeCall) bool {
		if c.Method == mcp.MethodInitialize {
			blocked <- c
		}
		return c.Method == mcp.MethodInitialize
	}}
	r := newRig(t, false, Config{}, a)
	if got := r.failure(r.ask("1", "tools/list", "")); got != mcp.CodeInvalidRequest {
		t.Errorf("got %d", got)
	}
	r.notify(mcp.NoticeInitialized, "")
	if got := r.answer(r.ask("1", mcp.MethodPing, "")); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("got %s", got)
	}
	box, exchange := r.askExchange("2", "initialize", `{"protocolVersion":"2025-11-25"}`)
	c := <-blocked
	r.notify(mcp.NoticeCancelled, `{"requestId":2}`)
	r.s.Abandon(exchange, belay.Cancellation{})
	if got := r.failure(r.ask("3", "initialize", `{"protocolVersion":"2025-11-25"}`)); got != mcp.CodeInvalidRequest {
		t.Errorf("got %d", got)
	}
	c.answer(`{"protocolVersion":"2025-11-25","capabilities":{}}`)
	r.result(box)
}

// TestDiscover: the same for callers without a handshake (MCP-68). Members of the
// other era are left out of that, and named once.
func TestDiscover(t *testing.T) {
	a := &fake{name: "a", caps: `"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{"x":1.0},"vendor/e":{}}`, more: `,"instructions":"Be kind."`}
	b := &fake{name: "b", caps: `"prompts":{}`}
	c := &fake{name: "c", refuse: &httpserver.EraError{Supported: []string{"2025-11-25"}}}
	d := &fake{name: "d", handle: func(_ *fakeSession, c *fakeCall) bool { // it knows the question only
		switch c.Method {
		case mcp.MethodDiscover:
			c.answer(`{"supportedVersions":["2025-11-25"]}`)
		case mcp.MethodListTools:
			_ = c.to.Answer(400, jsonrpc.AppendError(nil, c.ID, mcp.CodeVersionUnknown, "no", []byte(`{"supported":["2025-11-25"]}`)))
		}
		return true
	}}
	r := newRig(t, true, Config{Version: "9"}, a, b, c, d)
	result := r.result(r.ask("1", mcp.MethodDiscover, ""))
	for _, want := range []string{
		`"resultType":"complete","supportedVersions":["2026-07-28"]`,
		`"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{"x":1.0}},"prompts":{},"tools":{"listChanged":true}}`,
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"belay","version":"9"}}`,
		`- c: it does not speak this protocol era\n- d: it does not speak`, `# a\n\nBe kind.`, `"ttlMs":0,"cacheScope":"private"`,
	} {
		if !strings.Contains(result, want) {
			t.Errorf("%s\nis not in\n%s", want, result)
		}
	}
	if !r.logs.has("server=c") {
		t.Error("c is not named in the log")
	}
	r.set(c, d)
	box := r.ask("2", mcp.MethodDiscover, "")
	if got := r.failure(box); got != mcp.CodeVersionUnknown || !strings.Contains(r.answer(box), `"supported":["2025-11-25"],"requested":"2026-07-28"`) {
		t.Errorf("got %s", r.answer(box))
	}
	box = r.ask("3", "tools/list", "")
	if got := r.failure(box); got != mcp.CodeVersionUnknown {
		t.Errorf("got %s", r.answer(box))
	}
}

// TestSharedSessions: modern callers of a principal have one session, different
// ones never do; there is an end to how many.
func TestSharedSessions(t *testing.T) {
	r := newRig(t, true, Config{}, &fake{name: "a"})
	again, err := r.b.Shared(t.Context(), httpserver.Caller{Principal: "tester"})
	if err != nil || again != r.s {
		t.Errorf("got another session, %v", err)
	}
	for i := range maxShared - 1 {
		if s, err := r.b.Shared(t.Context(), httpserver.Caller{Principal: strings.Repeat("x", i+1)}); err != nil || s == r.s {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if _, err := r.b.Shared(t.Context(), httpserver.Caller{Principal: "one more"}); !errors.Is(err, httpserver.ErrBusy) {
		t.Errorf("got %v", err)
	}
	r.b.mu.Lock()
	r.b.shared["x"].used.Store(0)
	r.b.mu.Unlock()
	if _, err := r.b.Shared(t.Context(), httpserver.Caller{Principal: "one more"}); err != nil {
		t.Errorf("no room where one is idle: %v", err)
	}
}
