package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/mcp/httpserver"
)

// TestServesBothEras: each server is reached at its path, in both eras, and
// /healthz says so without saying how it is started.
func TestServesBothEras(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	one := r.fake("one")
	one.Env = map[string]string{"TOKEN": "hush"}
	r.apply(one, r.fake("two"))
	if h := r.health(); h.Status != "ok" || len(h.Servers) != 2 || h.Servers[0].State != "idle" || h.Servers[0].Path != "/mcp/one" {
		t.Errorf("%+v", h)
	}
	session := r.begin("one")
	if a := r.must(r.post("/mcp/one", session, call(1, "echo", `{"x":1}`))); a.status != 200 || !strings.Contains(a.body, `"id":1`) {
		t.Errorf("legacy: %+v", a)
	}
	if a := r.must(r.modern("two", "echo", `{"x":2}`)); a.status != 200 || !strings.Contains(a.body, `"result"`) {
		t.Errorf("modern: %+v", a)
	}
	if a := r.must(r.post("/mcp/two", session, call(2, "echo", `{}`))); a.status != 404 {
		t.Errorf("a session of another server: %+v", a)
	}
	if a := r.must(r.post("/mcp/three", "", call(2, "echo", `{}`))); a.status != 404 || !strings.Contains(a.body, "/mcp/two") {
		t.Errorf("an unknown server: %+v", a)
	}
	if h := r.health(); h.Servers[0].State != "serving" || h.Servers[1].Sessions != 1 {
		t.Errorf("%+v", h)
	}
	resp, err := r.client.Get(r.web.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); strings.Contains(string(text), "hush") || strings.Contains(string(text), "faketool") {
		t.Errorf("/healthz shows %s", text)
	}
}

// TestShared: modern callers of one principal share one session, two principals
// never do (DESIGN 11, 2); it ends when it has been idle, and not while a call
// is in flight.
func TestShared(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) {
		o.Identify = func(r *http.Request) (httpserver.Identity, error) {
			return httpserver.Identity{Principal: "is " + r.Header.Get("X-Who")}, nil
		}
	})
	d := r.fake("a")
	d.Idle = config.Some(300 * time.Millisecond)
	r.apply(d)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if a, err := r.modern("a", "echo", `{}`); err != nil || a.status != 200 {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	wg.Wait()
	if n := r.health().Servers[0].Sessions; n != 1 {
		t.Errorf("%d sessions for one principal", n)
	}
	body := `{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"rig","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	if a := r.must(r.post("/mcp/a", "", body, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list", "X-Who: other")); a.status != 200 {
		t.Errorf("%+v", a)
	}
	if n := r.wit.Count("server", "start"); n != 2 {
		t.Errorf("%d processes for two principals", n)
	}
	long := async(func() (answer, error) { return r.modern("a", "tick", `{"n":20,"ms":50}`) })
	r.event("tick", "start")
	if a := r.wait(long, 5*time.Second); !strings.Contains(a.body, `"result"`) {
		t.Errorf("a call that takes longer than the idle time: %+v", a)
	}
	r.eventually("the idle sessions end", func() bool { return r.health().Servers[0].Sessions == 0 })
	if a := r.must(r.modern("a", "echo", `{}`)); a.status != 200 {
		t.Errorf("after the idle end: %+v", a)
	}
}

// TestLegacyOnly: a modern caller of a server that is not gets −32022 and the
// versions that it speaks (MCP-58, MCP-G4), and the server is not asked again
// for each call.
func TestLegacyOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("old", "-era", "legacy"))
	for range 3 {
		a := r.must(r.modern("old", "echo", `{}`))
		if !strings.Contains(a.body, "-32022") || !strings.Contains(a.body, "2025-11-25") {
			t.Errorf("%+v", a)
		}
	}
	if n := r.wit.Count("server", "start"); n != 1 {
		t.Errorf("%d processes were started to find that out", n)
	}
	r.begin("old")
}

// TestCannotStart: a server that cannot be started costs its own callers only.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	bad := Definition{Server: config.New("bad", config.Policy{})}
	bad.Command = []string{"/nowhere/at/all"}
	r.apply(bad, r.fake("good"))
	a := r.must(r.post("/mcp/bad", "", `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"rig","version":"1"}}}`))
	if a.status != 502 || !strings.Contains(a.body, `"id":7`) {
		t.Errorf("%+v", a)
	}
	if a := r.must(r.modern("bad", "echo", `{}`)); a.status != 502 {
		t.Errorf("%+v", a)
	}
	if h := r.health(); h.Servers[0].State != "failed" {
		t.Errorf("%+v", h)
	}
	r.begin("good")
}

// TestApplyKeeps: what has not changed keeps its sessions and calls.
func TestApplyKeeps(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a, b := r.fake("a"), r.fake("b")
	if c := r.apply(a, b); !slices.Equal(c.Added, []string{"a", "b"}) {
		t.Errorf("%+v", c)
	}
	session := r.begin("a")
	long := async(func() (answer, error) { return r.post("/mcp/a", session, call(1, "tick", `{"n":20,"ms":30}`)) })
	r.event("tick", "start")
	again := r.fake("a")
	again.Source = "another file"
	if c := r.apply(again, r.fake("c")); !slices.Equal(c.Removed, []string{"b"}) || !slices.Equal(c.Added, []string{"c"}) || len(c.Changed) > 0 {
		t.Errorf("%+v", c)
	}
	if got := r.wait(long, 5*time.Second); !strings.Contains(got.body, `"result"`) {
		t.Errorf("%+v", got)
	}
	if got := r.must(r.post("/mcp/a", session, call(2, "echo", `{}`))); got.status != 200 {
		t.Errorf("%+v", got)
	}
	if got := r.must(r.post("/mcp/b", "", call(2, "echo", `{}`))); got.status != 404 {
		t.Errorf("%+v", got)
	}
}

// TestApplyChanges: of a changed server, calls in flight end with their results
// and can still be cancelled; then its session is gone, and the caller starts
// anew with the new definition.
func TestApplyChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("a", "-reply", "iserror")) // an answer ends the ladder: a session waits for it
	session := r.begin("a")
	one := async(func() (answer, error) {
		return r.post("/mcp/a", session, call(1, "tick", `{"key":"one","n":30,"ms":30}`))
	})
	two := async(func() (answer, error) {
		return r.post("/mcp/a", session, call(2, "tick", `{"key":"two","n":2000,"ms":30}`))
	})
	shared := async(func() (answer, error) { return r.modern("a", "tick", `{"key":"shared","n":30,"ms":30}`) })
	r.event("one", "start")
	r.event("two", "start")
	r.event("shared", "start")
	changed := r.fake("a", "-reply", "iserror")
	changed.Grace = config.Some(100 * time.Millisecond)
	if c := r.apply(changed); !slices.Equal(c.Changed, []string{"a"}) {
		t.Fatalf("%+v", c)
	}
	fresh := r.begin("a") // at once, beside the old one
	if n := r.health().Servers[0].Leaving; n != 1 {
		t.Errorf("%d leave", n)
	}
	if a := r.must(r.post("/mcp/a", session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)); a.status != 202 {
		t.Errorf("cancel: %+v", a)
	}
	r.event("two", "stopped")
	if a := r.wait(two, 5*time.Second); strings.Contains(a.body, `"result"`) {
		t.Errorf("after its cancel: %+v", a)
	}
	if a := r.wait(one, 5*time.Second); !strings.Contains(a.body, `"result"`) {
		t.Errorf("in flight: %+v", a)
	}
	if a := r.wait(shared, 5*time.Second); !strings.Contains(a.body, `"result"`) {
		t.Errorf("in flight, modern: %+v", a)
	}
	r.eventually("the old definition leaves", func() bool { return r.health().Servers[0].Leaving == 0 })
	if a := r.must(r.post("/mcp/a", session, call(3, "echo", `{}`))); a.status != 404 {
		t.Errorf("the old session: %+v", a)
	}
	if a := r.must(r.post("/mcp/a", fresh, call(3, "echo", `{}`))); a.status != 200 {
		t.Errorf("the new session: %+v", a)
	}
}

// TestApplyDrains: a call that outlasts drain is stopped, and its caller is told
// why (MCP-G25).
func TestApplyDrains(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	d := r.fake("a")
	d.Drain = config.Some(300 * time.Millisecond)
	r.apply(d)
	session := r.begin("a")
	long := async(func() (answer, error) { return r.post("/mcp/a", session, call(1, "tick", `{"n":2000,"ms":30}`)) })
	r.event("tick", "start")
	r.apply()
	if a := r.wait(long, 5*time.Second); !strings.Contains(a.body, "changed or removed") || !strings.Contains(a.body, `"id":1`) {
		t.Errorf("%+v", a)
	}
	r.event("tick", "stopped")
	r.event("server", "exit")
}

// TestBadDefinitions: what cannot be served changes nothing.
func TestBadDefinitions(t *testing.T) {
	r := newRig(t, nil)
	r.apply(r.fake("a"))
	session := r.begin("a")
	none, both := Definition{Server: config.New("x", config.Policy{})}, r.fake("x")
	both.URL = "http://127.0.0.1:1"
	for name, defs := range map[string][]Definition{
		"nothing behind it": {none},
		"two ways":          {both},
		"one name twice":    {r.fake("x"), r.fake("x")},
		"a bad name":        {r.fake("x/y")},
	} {
		if _, err := r.hub.Apply(defs); !errors.Is(err, ErrDefinition) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a := r.must(r.post("/mcp/a", session, call(1, "echo", `{}`))); a.status != 200 {
		t.Errorf("%+v", a)
	}
}

// TestClose: Close answers what is in flight with the reason, stops the work,
// and refuses what comes.
func TestClose(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("a"))
	session := r.begin("a")
	legacy := async(func() (answer, error) {
		return r.post("/mcp/a", session, call(1, "tick", `{"key":"one","n":2000,"ms":20}`))
	})
	modern := async(func() (answer, error) { return r.modern("a", "tick", `{"key":"two","n":2000,"ms":20}`) })
	pids := []int{r.event("one", "start").Pid, r.event("two", "start").Pid}
	w, start := calm.Start(t), time.Now()
	r.close(belay.Cancellation{Cause: belay.CauseShutdown, Via: "test", Reason: "the end of the test"})
	w.Within(t, time.Since(start), 3*time.Second, "Close")
	for _, got := range []<-chan answer{legacy, modern} {
		if a := r.wait(got, time.Second); !strings.Contains(a.body, "the end of the test") {
			t.Errorf("%+v", a)
		}
	}
	if left := waitDead(pids); len(left) > 0 {
		t.Errorf("processes %v live on", left)
	}
	if a := r.must(r.modern("a", "echo", `{}`)); a.status != 503 {
		t.Errorf("after Close: %+v", a)
	}
	if h := r.health(); h.Status != "stopping" {
		t.Errorf("%+v", h)
	}
	if _, err := r.hub.Apply(nil); !errors.Is(err, belay.ErrClosed) {
		t.Errorf("Apply after Close: %v", err)
	}
}

// TestBuiltIn: a server inside this process is served like any other.
func TestBuiltIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	d := Definition{Server: config.New("in", config.Policy{}), Serve: answerAll}
	r.apply(d)
	r.begin("in")
	same := d
	if c := r.apply(same); !c.None() {
		t.Errorf("%+v", c)
	}
}

// TestSessionStopped: after an operator has stopped a session, a legacy caller
// gets 404 and starts anew (MCP-39), a modern one notices nothing.
func TestSessionStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("a"))
	session := r.begin("a")
	if a := r.must(r.modern("a", "echo", `{}`)); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	runs, err := r.tree.List(t.Context(), belay.Filter{Kinds: []belay.Kind{belay.KindSession}})
	if err != nil || len(runs) != 2 {
		t.Fatalf("%+v, %v", runs, err)
	}
	for _, run := range runs {
		if _, err := r.tree.Cancel(t.Context(), belay.CancelRequest{
			Filter:       belay.Filter{IDs: []belay.RunID{run.ID}},
			Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "somebody"},
			Wait:         -1,
		}); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("the sessions end", func() bool { return r.health().Servers[0].Sessions == 0 })
	if a := r.must(r.post("/mcp/a", session, call(1, "echo", `{}`))); a.status != 404 {
		t.Errorf("legacy: %+v", a)
	}
	r.begin("a")
	if a := r.must(r.modern("a", "echo", `{}`)); a.status != 200 || !strings.Contains(a.body, `"result"`) {
		t.Errorf("modern: %+v", a)
	}
}

// TestForeignHost: a page that has re-bound its name to this machine learns
// nothing, not even which servers there are (MCP-43).
func TestForeignHost(t *testing.T) {
	r := newRig(t, nil)
	r.apply(r.fake("a"))
	for _, path := range []string{"/healthz", "/", "/mcp/none", "/mcp/a"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.web.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "evil.example:7474"
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden || strings.Contains(string(text), "/mcp/a") {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
	}
}

// TestCloseEndsStreams: a GET stream that nobody ends does not hold Close up.
func TestCloseEndsStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("a"))
	session := r.begin("a")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.web.URL+"/mcp/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", session)
	req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w, start := calm.Start(t), time.Now()
	r.close(belay.Cancellation{Cause: belay.CauseShutdown})
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
	w.Within(t, time.Since(start), 3*time.Second, "Close")
}

// TestHandle: others may serve what the hub does not.
func TestHandle(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.hub.Handle("/v1/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "mine") }))
	if a := r.must(r.post("/v1/x", "", "{}")); a.body != "mine" {
		t.Errorf("%+v", a)
	}
}

// TestNoRedirects: a path is served as it was sent, or not at all: whoever has a
// prefix sees slashes and dots that a ServeMux would take away (ORC: a raw slash in
// an id is 404).
func TestNoRedirects(t *testing.T) {
	r := newRig(t, nil)
	echo := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.WriteString(w, name+" "+req.URL.EscapedPath())
		})
	}
	r.hub.Handle("/v1/", echo("all"))
	r.hub.Handle("/v1/cancellation/", echo("family"))
	r.hub.Handle("/rpc", echo("rpc"))
	for path, want := range map[string]string{
		"/v1": "all /v1", "/v1/": "all /v1/", "/v1//x": "all /v1//x", "/v1/x/../y": "all /v1/x/../y",
		"/v1/cancellation/status/a//b": "family /v1/cancellation/status/a//b", "/v1/cancellation": "family /v1/cancellation",
		"/v1/cancellation/status/a%2Fb": "family /v1/cancellation/status/a%2Fb", "/rpc": "rpc /rpc", "/v1x": "",
		"//v1/x": "", "/x/../v1/x": "", "/rpc/": "", "//rpc": "", "/./rpc": "", "/mcp//stdio": "", "/mcp/../rpc": "", "/rpc/.": "", "/mcp/..": "",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			w := httptest.NewRecorder()
			req := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader("{}"))
			req.RemoteAddr = "127.0.0.1:1"
			r.hub.ServeHTTP(w, req)
			if got := w.Body.String(); want != "" && (w.Code != 200 || got != want) || want == "" && w.Code != 404 || w.Header().Get("Location") != "" {
				t.Errorf("%s %s: %d %q at %q, want %q", method, path, w.Code, got, w.Header().Get("Location"), want)
			}
		}
	}
}

// beginAt opens a legacy session at a path.
func (r *rig) beginAt(path string) string {
	r.t.Helper()
	a := r.must(r.post(path, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"rig","version":"1"}}}`))
	if a.status != 200 || a.session == "" {
		r.t.Fatalf("initialize: %+v", a)
	}
	r.must(r.post(path, a.session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return a.session
}

// modernAt calls a tool at a path, in the 2026-07-28 revision.
func (r *rig) modernAt(path, tool, args string) (answer, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"rig","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, args)
	return r.post(path, "", body, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: "+tool)
}

// TestJoined: /mcp serves all servers as one (DESIGN 12), in both eras, through
// a reload too; an operator's Stop reaches the server at work.
func TestJoined(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("one"), r.fake("two", "-reply", "iserror"))
	session := r.beginAt("/mcp")
	if a := r.must(r.post("/mcp", session, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)); !strings.Contains(a.body, `"one__echo"`) || !strings.Contains(a.body, `"two__tick"`) {
		t.Errorf("%+v", a)
	}
	if a := r.must(r.modernAt("/mcp", "two__echo", `{"x":"through"}`)); !strings.Contains(a.body, "through") {
		t.Errorf("modern: %+v", a)
	}
	long := async(func() (answer, error) { return r.post("/mcp", session, call(2, "two__tick", `{"n":2000,"ms":20}`)) })
	r.event("tick", "start")
	r.apply(r.fake("two", "-reply", "iserror"), r.fake("three"))
	if _, err := r.tree.Cancel(t.Context(), belay.CancelRequest{
		Filter:       belay.Filter{Kinds: []belay.Kind{belay.KindCall}, Server: "two"},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "somebody", Reason: "enough of it"},
	}); err != nil {
		t.Fatal(err)
	}
	r.event("tick", "stopped")
	if a := r.wait(long, 5*time.Second); !strings.Contains(a.body, `"id":2`) || !strings.Contains(a.body, "ancelled") {
		t.Errorf("stopped: %+v", a)
	}
	r.eventually("the list changes", func() bool {
		a := r.must(r.post("/mcp", session, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`))
		return strings.Contains(a.body, `"three__echo"`) && !strings.Contains(a.body, `"one__echo"`)
	})
}

// TestApplyStress: definitions change all the time while calls are made; each
// call is answered, and nothing is left.
func TestApplyStress(t *testing.T) {
	r := newRig(t, nil)
	flip := func(n int) Definition {
		d := Definition{Server: config.New("a", config.Policy{}), Serve: answerAll}
		d.Labels = map[string]string{"n": fmt.Sprint(n)}
		d.Drain = config.Some(2 * time.Second)
		return d
	}
	r.apply(flip(0))
	var answered atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				a, err := r.modern("a", "echo", `{}`)
				if err != nil || !strings.Contains(a.body, `"result"`) {
					t.Errorf("%+v, %v", a, err)
					return
				}
				answered.Add(1)
			}
		})
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				a, err := r.post("/mcp/a", "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"rig","version":"1"}}}`)
				if err != nil || a.status != 200 {
					t.Errorf("%+v, %v", a, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for n := range 40 {
		r.apply(flip(n))
		time.Sleep(10 * time.Millisecond)
	}
	close(done)
	wg.Wait()
	if answered.Load() < 100 {
		t.Errorf("only %d answers", answered.Load())
	}
}

// TestCloseWhileOpening: a Close that meets a session being opened does not
// wait for a server that never says anything.
func TestCloseWhileOpening(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(Definition{Server: config.New("mute", config.Policy{}), Serve: func(ctx context.Context, in io.Reader, _ io.Writer) error {
		_, err := io.Copy(io.Discard, in)
		return err
	}})
	got := async(func() (answer, error) { return r.modern("mute", "echo", `{}`) })
	time.Sleep(50 * time.Millisecond)
	w, start := calm.Start(t), time.Now()
	r.close(belay.Cancellation{Cause: belay.CauseShutdown})
	w.Within(t, time.Since(start), 3*time.Second, "Close")
	if a := r.wait(got, time.Second); a.status < 500 {
		t.Errorf("%+v", a)
	}
}
