package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/mcp/httpserver"
)

// get asks for a path with headers.
func (r *rig) get(path string, headers ...string) (int, http.Header, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.web.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// TestReady: /readyz is 200 while calls should be sent here, else 503 with the
// names of the problems, and needs no credentials.
func TestReady(t *testing.T) {
	var now error
	r := newRig(t, func(o *Options) {
		byHeader(o)
		o.Ready = func(context.Context) error { return now }
	})
	check := func(status int, want ...string) {
		t.Helper()
		code, header, body := r.get("/readyz")
		var got Readiness
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != status || !slices.Equal(got.Problems, want) || (status == 200) != (got.Status == "ready") {
			t.Errorf("%d %s, %v", code, body, err)
		}
		if (status == 503) != (header.Get("Retry-After") != "") {
			t.Errorf("%v", header)
		}
	}
	check(200)
	now = errors.Join(errors.New("the ledger cannot be written"), errors.New("no keys\nof corp"))
	check(503, "the ledger cannot be written", `no keys of corp`)
	now = errors.New("one")
	check(503, "one")
	now = nil
	check(200)
	r.close(belay.Cancellation{})
	check(503, "Belay is shutting down")
}

// TestReadyInTime: a check that hangs is given up.
func TestReadyInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) {
		o.Ready = func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
	})
	w, began := calm.Start(t), time.Now()
	code, _, body := r.get("/readyz")
	w.Within(t, time.Since(began), 2*readyWait, "the answer")
	if code != 503 || !strings.Contains(body, "in time") {
		t.Errorf("%d %s", code, body)
	}
}

// TestGuardsEverything: what a foreign page could send gets nowhere, whoever
// serves the path; and nothing that is not foreign is kept out (MCP-43, DESIGN
// section 8).
func TestGuardsEverything(t *testing.T) {
	reached := 0
	r := newRig(t, func(o *Options) {
		o.AllowedHosts, o.AllowedOrigins = []string{"belay.example"}, []string{"https://desk.example"}
	})
	r.apply(r.fake("a"))
	r.hub.Handle("/v1/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		w.WriteHeader(http.StatusNoContent)
	}))
	for _, path := range []string{"/v1/runs", "/healthz", "/readyz", "/", "/nothing", "/mcp", "/mcp/a", "/mcp/a/sse", "/mcp/none"} {
		for _, header := range []string{"Host: evil.example", "Origin: https://evil.example", "Origin: null", "Host: 127.0.0.1.evil.example"} {
			code, h, body := r.get(path, header)
			problem := h.Get("Content-Type") == typeProblem
			if code != http.StatusForbidden || problem == strings.HasPrefix(path, "/mcp") || strings.Contains(body, "/mcp/a") {
				t.Errorf("%s with %s: %d %s", path, header, code, body)
			}
		}
	}
	if reached != 0 {
		t.Errorf("foreign pages reached /v1 %d times", reached)
	}
	for _, header := range []string{"Host: localhost:1", "Host: belay.example:8443", "Origin: https://desk.example", "Origin: http://localhost:3000", "X-None: "} {
		if code, _, body := r.get("/v1/runs", header); code != http.StatusNoContent {
			t.Errorf("%s: %d %s", header, code, body)
		}
	}
}

// TestRefusesStrangers: who is not known, may not, or cannot be looked up now
// reads the status, the challenge and the time that the error says, at every
// server and at /mcp; who is known owns what runs (ORC-33, ORC-34).
func TestRefusesStrangers(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Identify = func(r *http.Request) (httpserver.Identity, error) {
			switch who := r.Header.Get("X-Who"); who {
			case "nobody":
				return httpserver.Identity{}, refusal{http.StatusUnauthorized, "Www-Authenticate", `Bearer realm="belay", error="invalid_token"`}
			case "idle":
				return httpserver.Identity{}, refusal{http.StatusForbidden, "X-None", ""}
			case "later":
				return httpserver.Identity{}, refusal{http.StatusServiceUnavailable, "Retry-After", "10"}
			default:
				return httpserver.Identity{Principal: who}, nil
			}
		}
	})
	r.apply(r.fake("tools"))
	for _, path := range []string{Path("tools"), JoinedPath, Path("tools") + "/sse", Path("tools") + "/message?session=x"} {
		for who, want := range map[string]refusal{
			"nobody": {401, "Www-Authenticate", `Bearer realm="belay", error="invalid_token"`},
			"idle":   {403, "Www-Authenticate", ""},
			"later":  {503, "Retry-After", "10"},
		} {
			code, header, body := r.get(path, "X-Who: "+who)
			if code != want.status || header.Get(want.name) != want.value || !strings.Contains(body, `"error"`) || !strings.Contains(body, "as the refusal says") {
				t.Errorf("%s as %s: %d %v %s", path, who, code, header, body)
			}
		}
	}
	got := async(func() (answer, error) {
		body := `{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"tick","arguments":{"key":"k","n":300},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
		return r.post(Path("tools"), "", body, "X-Who: ana", "X-Request-Id: r-1", "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: tick")
	})
	r.event("k", "tick")
	runs, err := r.tree.List(t.Context(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}})
	if err != nil || len(runs) != 1 || runs[0].Owner != "ana" {
		t.Errorf("%+v, %v", runs, err)
	}
	if _, err := r.tree.Cancel(t.Context(), belay.CancelRequest{Filter: belay.Filter{Owner: "ana"}, Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "op", Via: "test"}}); err != nil {
		t.Error(err)
	}
	r.wait(got, 5*time.Second)
}

// refusal is an error that says its answer.
type refusal struct {
	status      int
	name, value string
}

func (refusal) Error() string { return "for the log" }
func (e refusal) Refusal() (int, http.Header, string) {
	return e.status, http.Header{e.name: {e.value}}, "as the refusal says"
}

// TestHandsOver: what is said of all sessions reaches each of them.
func TestHandsOver(t *testing.T) {
	d := Definition{Server: config.New("a", config.Policy{})}
	d.Command = []string{"x"}
	gate := &openGate{}
	c := d.gateway(&Options{Facts: &peers.Facts{}, Gate: gate, PassCancels: true, NameRuns: true, Trace: true})
	if c.Gate != gate || !c.PassCancels || !c.NameRuns || !c.Trace {
		t.Errorf("%+v", c)
	}
	if c := d.gateway(&Options{Facts: &peers.Facts{}}); c.Gate != nil || c.PassCancels || c.NameRuns || c.Trace {
		t.Errorf("%+v", c)
	}
}

type openGate struct{}

func (*openGate) Admit(string) error                              { return nil }
func (*openGate) Early(string, string) (belay.Cancellation, bool) { return belay.Cancellation{}, false }

// TestLeavesBesideManyRuns: how long a changed server takes to be gone does not
// depend on how much others have in flight, and a call that hangs below somebody
// else's run is in flight all the same.
func TestLeavesBesideManyRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.NameRuns = true })
	d := r.fake("tools")
	d.Idle = config.Some(300 * time.Millisecond)
	d.Drain = config.Some(20 * time.Second)
	r.apply(d)
	turn, err := r.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "turn", Owner: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Finish(belay.Completed)
	for i := range 50_000 {
		other, err := r.tree.Register(belay.Spec{Kind: belay.KindCall, Name: fmt.Sprint("other", i), Server: "tools", Owner: "tester"})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Finish(belay.Completed)
	}
	got := async(func() (answer, error) {
		body := `{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"tick","arguments":{"key":"k","n":120},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
		return r.post(Path("tools"), "", body, "Belay-Parent: "+turn.ID().String(), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: tick")
	})
	r.event("k", "tick")
	runs, err := r.tree.List(t.Context(), belay.Filter{Under: turn.ID(), Kinds: []belay.Kind{belay.KindCall}})
	if err != nil || len(runs) != 1 {
		t.Fatalf("below the turn are %v, %v", runs, err)
	}
	session := r.begin("tools") // which is quiet
	d.Labels = map[string]string{"changed": "yes"}
	w, began := calm.Start(t), time.Now()
	r.apply(d)
	r.eventually("the quiet session has ended", func() bool {
		a, err := r.post(Path("tools"), session, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		return err == nil && a.status == http.StatusNotFound
	})
	w.Within(t, time.Since(began), 3*time.Second, "the end of the quiet session")
	if a := r.wait(got, 15*time.Second); a.status != 200 || !strings.Contains(a.body, "120 ticks") {
		t.Errorf("the call in flight got %+v", a)
	}
}

// TestInFlight: a session has something in flight from a call's arrival until it
// is answered, or until the receipt of its Stop is final, and nothing after that.
func TestInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	d := r.fake("tools")
	d.Enforce, d.Grace = config.Some("never"), config.Some(1500*time.Millisecond) // so that the receipt takes its time
	r.apply(d)
	session := r.begin("tools")
	e := r.hub.endpoints()[0]
	e.mu.Lock()
	var in *held
	for s := range e.sessions {
		in = s
	}
	e.mu.Unlock()
	r.eventually("nothing is in flight", func() bool { return in.InFlight() == 0 })
	got := async(func() (answer, error) {
		return r.post(Path("tools"), session, call(7, "tick", `{"key":"k","n":250,"deaf":true}`))
	})
	r.event("k", "tick")
	if n := in.InFlight(); n != 1 {
		t.Errorf("%d are in flight beside one call", n)
	}
	r.must(r.post(Path("tools"), session, cancelOf("7")))
	r.wait(got, 5*time.Second)
	if n := in.InFlight(); n != 1 {
		t.Errorf("%d are in flight while a stopped call may be at work", n)
	}
	r.eventually("nothing is in flight when the receipt is final", func() bool { return in.InFlight() == 0 })
}

// TestTellWhileAllChanges: sessions come, go and are replaced while everybody is
// told: nothing races, waits for ever or is told twice.
func TestTellWhileAllChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	one := r.fake("tools")
	r.apply(one)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := r.hub.Tell(t.Context(), "", "x", frameOf(fmt.Sprint("n", n, "-"))); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 3 {
		a, b := r.listens(Path("tools"), ""), r.listens(JoinedPath, "")
		r.eventually("both hear something", func() bool { return a.count("-") > 0 && b.count("-") > 0 })
		one.Labels = map[string]string{"n": fmt.Sprint(i)}
		r.apply(one)
		r.must(r.post(Path("tools"), r.begin("tools"), `{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		for _, l := range []*listener{a, b} {
			l.mu.Lock()
			seen := map[string]bool{}
			for _, h := range l.heard {
				if strings.Contains(h, "cancelled") && seen[h] {
					t.Errorf("told twice: %s", h)
				}
				seen[h] = true
			}
			l.mu.Unlock()
		}
	}
	close(stop)
	wg.Wait()
}
