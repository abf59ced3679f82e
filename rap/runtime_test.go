package rap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/rappeer"
)

func one(name string, tool func(*rappeer.Invoked)) map[string]func(*rappeer.Invoked) {
	return map[string]func(*rappeer.Invoked){name: tool}
}

// TestRAP54_Invocation: what is sent, and that the result comes back (RAP-7, 36, 39,
// 43, 54, 55, 62, 63).
func TestRAP54_Invocation(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: one("scan", func(c *rappeer.Invoked) {
		_, _ = c.Post(map[string]any{
			"type": "tool_result", "group_id": c.Group, "id": c.ID, "call_id": c.CallID,
			"content":    []any{map[string]any{"type": "text", "text": "one picture"}, map[string]any{"type": "image", "data": "AA==", "mediaType": "image/png"}},
			"display_as": []any{map[string]any{"type": "text", "content": "812 files"}},
		})
	})})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base() + "/"}} })
	th := s.thread(ThreadOptions{ID: "thread_42", Ancestors: []string{"thread_root"}, UserID: "u_9"})
	model := "call_7f"
	r, err := th.Do(soon(t), CallOptions{Tool: "scan", Arguments: json.RawMessage(`{"path":"/srv/a"}`), CallID: &model})
	if err != nil || len(r.Content) != 2 || *r.CallID != model || string(r.DisplayAs) == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	seen := p.Seen("/run")
	var got map[string]any
	if err := json.Unmarshal(seen[0].Body, &got); err != nil {
		t.Fatal(err)
	}
	if got["operation"] != "scan" || got["group_id"] != "thread_42" || got["user_id"] != "u_9" || got["call_id"] != model ||
		fmt.Sprint(got["thread_ancestors"]) != "[thread_root]" || fmt.Sprint(got["arguments"]) != "map[path:/srv/a]" {
		t.Errorf("sent %s", seen[0].Body)
	}
	prefix := s.web.URL + "/rap/callback/"
	callback, _ := got["callback_url"].(string)
	if token := strings.TrimPrefix(callback, prefix); len(token) != tokenLen || !strings.HasPrefix(callback, prefix) {
		t.Errorf("callback_url %s", callback)
	}
	if id, _ := got["id"].(string); !strings.HasPrefix(id, "run_") {
		t.Errorf("id %s, want the run's", id)
	}
}

// TestRAP39_Tokens: no two calls have one callback URL, and each has 256 bits.
func TestRAP39_Tokens(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		text, key := newToken()
		if got, ok := keyOf(text); !ok || got != key || len(text) != tokenLen || seen[text] {
			t.Fatalf("token %q", text)
		}
		seen[text] = true
	}
}

// TestRAP59_Retries: 5xx and silence are tried again after 0.2, 1 and 5 s, four times in
// all; 4xx, redirects and other statuses are not; an error result says so (RAP-58, 59).
func TestRAP59_Retries(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status []int
		want   int // attempts
		ok     bool
	}{
		{"5xx, then taken", []int{503, 500, 200}, 3, true},
		{"4xx", []int{404, 200}, 1, false},
		{"409 is as final", []int{409, 200}, 1, false},
		{"a redirect is not followed", []int{307, 200}, 1, false},
		{"202 is not taken", []int{202, 200}, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			p := peer(t, &rappeer.ToolServer{
				Tools:    one("work", func(c *rappeer.Invoked) { _, _ = c.Text("done") }),
				OnInvoke: func(context.Context, []byte) int { return tt.status[n.Add(1)-1] },
			})
			s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
			w, began := calm.Start(t), time.Now()
			r, err := s.thread(ThreadOptions{}).Do(soon(t), CallOptions{Tool: "work"})
			took := time.Since(began)
			if (err == nil) != tt.ok || tt.ok != (r != nil) || !tt.ok && !errors.Is(err, ErrNotAccepted) {
				t.Errorf("%v, %v", r, err)
			}
			if got := len(p.Seen("/run")); got != tt.want {
				t.Errorf("%d attempts, want %d", got, tt.want)
			}
			if tt.want == 3 {
				w.Within(t, took, 3*time.Second, "three attempts")
			}
			if tt.want == 3 && took < 960*time.Millisecond {
				t.Errorf("took %v, want the waits of 0.2 and 1 s with their jitter", took)
			}
			ids := map[string]bool{}
			for _, one := range p.Seen("/run") {
				var m struct {
					ID string `json:"id"`
				}
				_ = json.Unmarshal(one.Body, &m)
				ids[m.ID] = true
			}
			if len(ids) != 1 {
				t.Errorf("the attempts have %d ids, want one (RAP-61)", len(ids))
			}
		})
	}
}

// TestRAP59_StopEndsRetries: a Stop between two attempts ends them (acceptance 14).
func TestRAP59_StopEndsRetries(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: one("work", nil), OnInvoke: func(context.Context, []byte) int { return 503 }})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	c := s.invoke(s.thread(ThreadOptions{}), "work")
	p.Await(soon(t), "/run", 2)
	s.stop(c.Run())
	<-c.Done()
	time.Sleep(1300 * time.Millisecond) // longer than the wait for the third
	if n := len(p.Seen("/run")); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}

// TestRAP56_ResultBeforeAcknowledgement: a result that is faster than the 200 ends the
// call, and the lost acknowledgement is not waited for (RAP-60).
func TestRAP56_ResultBeforeAcknowledgement(t *testing.T) {
	var s *stage
	p := &rappeer.ToolServer{Tools: one("work", nil)}
	p.OnInvoke = func(ctx context.Context, body []byte) int {
		inv, err := ParseInvocation(body)
		if err != nil {
			return 400
		}
		text := fmt.Sprintf(`{"type":"tool_result","group_id":%q,"id":%q,"text":"quick"}`, inv.GroupID, inv.ID)
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, inv.CallbackURL, strings.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 500
		}
		_ = resp.Body.Close()
		<-ctx.Done()
		return 200
	}
	peer(t, p)
	s = newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	defer http.DefaultClient.CloseIdleConnections()
	r, err := s.thread(ThreadOptions{}).Do(soon(t), CallOptions{Tool: "work"})
	if err != nil || r.Text != "quick" {
		t.Errorf("%v, %v", r, err)
	}
}

// TestRAP37_Callback: what a callback URL takes, and that nothing bad ends the call:
// the rows about callbacks of the table of bad input (RAP-37, 39, 68, 69, 80, 82).
func TestRAP37_Callback(t *testing.T) {
	started := make(chan *rappeer.Invoked, 1)
	p := peer(t, &rappeer.ToolServer{Tools: one("work", func(c *rappeer.Invoked) { started <- c })})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	c := s.invoke(s.thread(ThreadOptions{ID: "t"}), "work")
	in := <-started
	ids := fmt.Sprintf(`"group_id":"t","id":%q`, in.ID)
	path := strings.TrimPrefix(in.Callback, s.web.URL)
	do := func(method, path, kind, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Body.Len() != 0 {
			t.Errorf("%s %s: a body %q", method, path, w.Body)
		}
		return w
	}
	const js = "application/json"
	good := `{"type":"tool_result",` + ids + `,"text":"done"}`
	last := byte('A') // of a token that differs from the real one, whatever that ends with
	if path[len(path)-1] == last {
		last = 'B'
	}
	unknown := path[:len(path)-1] + string(last)
	for name, tt := range map[string]struct {
		method, path, kind, body string
		want                     int
	}{
		"another method":              {"GET", path, js, "", 405},
		"an unknown token":            {"POST", unknown, js, good, 404},
		"a short token":               {"POST", path[:len(path)-1], js, good, 404},
		"more segments":               {"POST", path + "/x", js, good, 404},
		"no token":                    {"POST", "/rap/callback/", js, good, 404},
		"another prefix":              {"POST", "/x" + path, js, good, 404},
		"another thread":              {"POST", path, js, strings.Replace(good, `"t"`, `"u"`, 1), 404},
		"another call":                {"POST", path, js, strings.Replace(good, in.ID, "run_x", 1), 404},
		"no JSON":                     {"POST", path, js, "done", 400},
		"another type of content":     {"POST", path, "text/plain", good, 400},
		"trailing data":               {"POST", path, js, good + "x", 400},
		"an array":                    {"POST", path, js, "[" + good + "]", 400},
		"a type that is none":         {"POST", path, js, strings.Replace(good, "tool_result", "tool_done", 1), 400},
		"no type":                     {"POST", path, js, `{` + ids + `,"text":"x"}`, 400},
		"neither text nor content":    {"POST", path, js, `{"type":"tool_result",` + ids + `}`, 400},
		"no choices":                  {"POST", path, js, `{"type":"user_choice",` + ids + `,"prompt":"p","choices":[],"default":0,"response_url":"http://x/"}`, 400},
		"a default that is no choice": {"POST", path, js, `{"type":"user_choice",` + ids + `,"prompt":"p","choices":["a"],"default":1,"response_url":"http://x/"}`, 400},
		"an auth_url in the clear":    {"POST", path, js, `{"type":"oauth",` + ids + `,"auth_url":"http://id.test/"}`, 400},
		"a view that is no object":    {"POST", path, js, `{"type":"view_update","group_id":"t","view_type":"diff","content":"x"}`, 400},
		"too much":                    {"POST", path, js, strings.Repeat(" ", MaxMessage+1), 413},
	} {
		w := do(tt.method, tt.path, tt.kind, tt.body)
		if w.Code != tt.want {
			t.Errorf("%s: %d, want %d", name, w.Code, tt.want)
		}
		if tt.want == 405 && w.Header().Get("Allow") != "POST" {
			t.Errorf("%s: Allow %q", name, w.Header().Get("Allow"))
		}
		select {
		case <-c.Done():
			t.Fatalf("%s ended the call", name)
		default:
		}
	}
	for i, want := range []int{200, 200, 200} { // the first ends it; duplicates are harmless (RAP-68)
		if w := do("POST", path, js+"; charset=utf-8", good); w.Code != want {
			t.Errorf("result %d: %d", i, w.Code)
		}
	}
	if r, err := c.Result(); err != nil || r.Text != "done" {
		t.Errorf("%v, %v", r, err)
	}
}

// TestRAP66_ErrorResult: a text that begins with Error: is a failed call.
func TestRAP66_ErrorResult(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: one("work", func(c *rappeer.Invoked) { _, _ = c.Text("Error: no such file. Give another path.") })})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	c := s.invoke(s.thread(ThreadOptions{}), "work")
	if _, err := c.Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	if o := c.Run().Info().Outcome; o != belay.Failed {
		t.Errorf("outcome %s", o)
	}
}

// TestRAP55_Arguments: a tool that is not loaded, and arguments that do not fit, are
// refused before anything is sent.
func TestRAP55_Arguments(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: one("work", nil)})
	bad := errors.New("no path")
	s := newStage(t, func(o *RuntimeOptions) {
		o.Servers = []Server{{Name: "p", Base: p.Base()}}
		o.Validate = func(_, arguments json.RawMessage) error {
			if string(arguments) == `{"bad":1}` {
				return bad
			}
			return nil
		}
	})
	th := s.thread(ThreadOptions{})
	for name, tt := range map[string]struct {
		o    CallOptions
		want error
	}{
		"unknown":   {CallOptions{Tool: "Work"}, ErrNoTool},
		"no object": {CallOptions{Tool: "work", Arguments: json.RawMessage(`[1]`)}, ErrArguments},
		"misfit":    {CallOptions{Tool: "work", Arguments: json.RawMessage(`{"bad":1}`)}, bad},
	} {
		if _, err := th.Invoke(tt.o); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(p.Seen("/run")); n != 0 {
		t.Errorf("%d invocations", n)
	}
}

// TestRAP48_Manifests: a manifest that is bad in any way loads nothing, and the error
// says why (RAP-44 to 48; acceptance 15; the last row of the table of bad input).
func TestRAP48_Manifests(t *testing.T) {
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	defer elsewhere.Close()
	tool := func(name, schema string) string {
		return `{"name":"` + name + `","description":"d","inputSchema":` + schema + `}`
	}
	const fine = `{"type":"object"}`
	head := `{"name":"s","endpoint":"ENDPOINT","tools":[`
	for name, manifest := range map[string]string{
		"no JSON":               "tools",
		"too long":              head + tool("a", fine) + `],"x":"` + strings.Repeat("y", MaxManifest) + `"}`,
		"no name":               `{"endpoint":"ENDPOINT","tools":[` + tool("a", fine) + `]}`,
		"no endpoint":           `{"name":"s","tools":[` + tool("a", fine) + `]}`,
		"an endpoint elsewhere": `{"name":"s","endpoint":"` + elsewhere.URL + `/run","tools":[` + tool("a", fine) + `]}`,
		"no tools":              head + `]}`,
		"one bad tool":          head + tool("a", fine) + `,` + tool("b c", fine) + `]}`,
		"a bad schema":          head + tool("a", `{"type":"objekt"}`) + `]}`,
		"two of a name":         head + tool("a", fine) + `,` + tool("a", fine) + `]}`,
	} {
		p := peer(t, &rappeer.ToolServer{Manifest: manifest})
		s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
		th, err := s.Open(ThreadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := th.Load(t.Context()); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), `"p"`) || len(th.Tools()) != 0 {
			t.Errorf("%s: %v, %d tools", name, err, len(th.Tools()))
		}
	}
	for _, status := range []int{301, 302, 307, 308, 404, 401} {
		p := peer(t, &rappeer.ToolServer{Tools: one("a", nil), OnDiscovery: func(context.Context, []byte) int { return status }})
		s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
		th, _ := s.Open(ThreadOptions{})
		if err := th.Load(t.Context()); !errors.Is(err, ErrManifest) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// TestRAP49_Clash: where two servers have a tool of one name neither is offered, and
// all others are; reserved names are nobody's (acceptance 15).
func TestRAP49_Clash(t *testing.T) {
	a := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"same": nil, "a": nil, "cancel_subscription": nil}})
	b := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"same": nil, "b": nil}})
	c := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"same": nil, "c": nil}})
	s := newStage(t, func(o *RuntimeOptions) {
		o.Servers = []Server{{Name: "a", Base: a.Base()}, {Name: "b", Base: b.Base()}, {Name: "c", Base: c.Base()}}
	})
	th, _ := s.Open(ThreadOptions{})
	if err := th.Load(t.Context()); !errors.Is(err, ErrClash) {
		t.Errorf("%v", err)
	}
	var names []string
	for _, tool := range th.Tools() {
		names = append(names, tool.Server+"/"+tool.Name)
	}
	if fmt.Sprint(names) != "[a/a b/b c/c]" {
		t.Errorf("offered %v", names)
	}
}

// TestRAP50_Cache: a session keeps what it has loaded, a new one asks again, and goes
// on with the last manifest where the server cannot be asked, but not where it is bad.
func TestRAP50_Cache(t *testing.T) {
	var status atomic.Int32
	status.Store(200)
	p := peer(t, &rappeer.ToolServer{Tools: one("a", nil), OnDiscovery: func(context.Context, []byte) int { return int(status.Load()) }})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	first := s.thread(ThreadOptions{})
	child, err := s.Open(ThreadOptions{Session: first})
	if err != nil || len(child.Tools()) != 1 {
		t.Errorf("a child has %d tools, %v", len(child.Tools()), err)
	}
	if n := len(p.Seen(PathDiscovery)); n != 1 {
		t.Errorf("asked %d times", n)
	}
	status.Store(503)
	if second := s.thread(ThreadOptions{}); len(second.Tools()) != 1 {
		t.Error("the last manifest was not used")
	}
	if n := len(p.Seen(PathDiscovery)); n != 2 {
		t.Errorf("asked %d times, want again for the new session", n)
	}
	status.Store(404)
	third, _ := s.Open(ThreadOptions{})
	if err := third.Load(t.Context()); !errors.Is(err, ErrManifest) || len(third.Tools()) != 0 {
		t.Errorf("%v, %d tools", err, len(third.Tools()))
	}
}

// TestRAP70_OneAtATime: messages of one thread are taken one at a time, in their
// order, while another thread goes on.
func TestRAP70_OneAtATime(t *testing.T) {
	started := make(chan *rappeer.Invoked, 2)
	p := peer(t, &rappeer.ToolServer{Tools: one("work", func(c *rappeer.Invoked) { started <- c })})
	var busy, most atomic.Int32
	got := make(chan string, 100)
	slow := &Events{View: func(_ string, v *ViewUpdate) {
		if n := busy.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(2 * time.Millisecond)
		busy.Add(-1)
		got <- string(v.Content)
	}}
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{Events: slow})
	s.invoke(th, "work")
	in := <-started
	for i := range 20 {
		if status, err := in.Post(map[string]any{"type": "view_update", "group_id": in.Group, "view_type": "diff", "content": map[string]int{"n": i}}); status != 200 {
			t.Fatalf("%d %v", status, err)
		}
	}
	other := s.thread(ThreadOptions{})
	c := s.invoke(other, "work")
	if status, _ := (<-started).Text("done"); status != 200 {
		t.Errorf("%d", status)
	}
	<-c.Done()
	for i := range 20 {
		if text := <-got; text != fmt.Sprintf(`{"n":%d}`, i) {
			t.Fatalf("message %d is %s", i, text)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
	if v := th.Views()["diff"]; v == nil || string(v.Content) != `{"n":19}` { // RAP-86
		t.Errorf("the newest view is %v", v)
	}
	th.Close(belay.Cancellation{})
	if status, _ := in.Post(map[string]any{"type": "view_update", "group_id": in.Group, "view_type": "diff", "content": map[string]int{}}); status != 200 || len(th.Views()) != 0 {
		t.Errorf("after the close: %d, %d views", status, len(th.Views()))
	}
}

// TestRAP87_CloseThread: every server is told, the thread's calls are stopped with the
// cause parent, and no other thread's (acceptance 10).
func TestRAP87_CloseThread(t *testing.T) {
	started := make(chan *rappeer.Invoked, 2)
	p := peer(t, &rappeer.ToolServer{Tools: one("work", func(c *rappeer.Invoked) { started <- c })})
	other := peer(t, &rappeer.ToolServer{})
	hung := peer(t, &rappeer.ToolServer{OnClose: waits})
	s := newStage(t, func(o *RuntimeOptions) {
		o.NotifyTimeout = 200 * time.Millisecond
		o.Servers = []Server{{Name: "p", Base: p.Base()}, {Name: "o", Base: other.Base()}, {Name: "h", Base: hung.Base()}}
	})
	th := s.thread(ThreadOptions{ID: "mine", Servers: []string{"p"}})
	c, d := s.invoke(th, "work"), s.invoke(s.thread(ThreadOptions{Servers: []string{"p"}}), "work")
	<-started
	<-started
	w, began := calm.Start(t), time.Now()
	th.Close(belay.Cancellation{})
	w.Within(t, time.Since(began), 50*time.Millisecond, "the close")
	<-c.Done()
	if got := c.Run().Cancellation(); got == nil || got.Cause != belay.CauseParent {
		t.Errorf("%v", got)
	}
	for name, at := range map[string]*rappeer.ToolServer{"p": p, "other": other, "hung": hung} {
		if got := at.Await(soon(t), PathClose, 1); len(got) != 1 || string(got[0].Body) != `{"thread_id":"mine"}` {
			t.Errorf("%s: %v", name, got)
		}
	}
	select {
	case <-d.Done():
		t.Error("another thread's call was stopped")
	default:
	}
	if _, err := th.Invoke(CallOptions{Tool: "work"}); !errors.Is(err, belay.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestRAP89_Migrate: only servers that say so are asked, and a refusal is passed on.
func TestRAP89_Migrate(t *testing.T) {
	status := 200
	manifest := `{"name":"s","endpoint":"ENDPOINT","needsMigration":true,"tools":[{"name":"a","description":"","inputSchema":{"type":"object"}}]}`
	a := peer(t, &rappeer.ToolServer{Manifest: manifest, OnMigrate: func(context.Context, []byte) int { return status }})
	b := peer(t, &rappeer.ToolServer{Tools: one("b", nil)})
	s := newStage(t, func(o *RuntimeOptions) {
		o.Servers = []Server{{Name: "a", Base: a.Base()}, {Name: "b", Base: b.Base()}}
	})
	th := s.thread(ThreadOptions{ID: "root"})
	to := func(server string) string { return "https://gw2.test/" + server }
	if err := th.Migrate(t.Context(), to); err != nil {
		t.Error(err)
	}
	if got := a.Seen(PathMigrate); len(got) != 1 || string(got[0].Body) != `{"session_id":"root","destination_url":"https://gw2.test/a"}` {
		t.Errorf("%v", got)
	}
	if n := len(b.Seen(PathMigrate)); n != 0 {
		t.Errorf("the other was asked %d times", n)
	}
	status = 507
	var refused *MigrateError
	if err := th.Migrate(t.Context(), to); !errors.As(err, &refused) || refused.Status != 507 {
		t.Errorf("%v", err)
	}
}

// FuzzToken: no path leads anywhere but the one with a token of a call.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{"/rap/callback/", "/rap/callback/x", "/rap/callback/../x", "//", "/rap/callback/" + strings.Repeat("A", tokenLen), "%2e%2e"} {
		f.Add(seed, `{"type":"tool_result"}`)
	}
	rt, err := NewRuntime(RuntimeOptions{Tree: belay.NewTree(belay.Options{}), Callback: "http://127.0.0.1/rap/callback"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		if key, ok := rt.token(path); ok {
			if at, _, s := rt.lookup(key); at != nil || s != nil {
				t.Fatal("found a call")
			}
			if !strings.HasPrefix(path, "/rap/callback/") || strings.Count(path, "/") != 3 {
				t.Fatalf("%q has a token", path)
			}
		}
		if m, err := ParseMessage([]byte(body)); err == nil {
			if _, err := m.Append(nil); err != nil {
				t.Fatalf("%s can be read and not written: %v", body, err)
			}
		}
	})
}

// TestRAP68_Memory: what is remembered of ended calls does not hold their results, and
// unknown callbacks leave nothing behind.
func TestRAP68_Memory(t *testing.T) {
	const size = 1 << 20
	big := strings.Repeat("x", size)
	p := peer(t, &rappeer.ToolServer{Tools: one("work", func(c *rappeer.Invoked) { _, _ = c.Text(big) })})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{})
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const calls = 12
	if _, err := th.Do(soon(t), CallOptions{Tool: "work"}); err != nil {
		t.Fatal(err)
	}
	before := heap()
	for range calls {
		if _, err := th.Do(soon(t), CallOptions{Tool: "work"}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2_000 {
		text, _ := newToken()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/rap/callback/"+text, strings.NewReader("{}")))
		if w.Code != http.StatusNotFound {
			t.Fatal(w.Code)
		}
	}
	if grown := heap() - before; grown > calls*size/4 {
		t.Errorf("%d results of 1 MiB and 2,000 strangers leave %d KiB", calls, grown>>10)
	}
}
