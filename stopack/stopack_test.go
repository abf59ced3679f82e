package stopack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	belaymcp "github.com/belayhq/belay/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The names are those that Belay speaks.
func TestNames(t *testing.T) {
	if Extension != belaymcp.ExtStopAck || notice != belaymcp.NoticeStopAck || await != belaymcp.MethodAwaitStop {
		t.Error("the names differ")
	}
	for mine, theirs := range map[outcome]belaymcp.StopOutcome{
		stopped: belaymcp.StopStopped, completed: belaymcp.StopCompleted, failed: belaymcp.StopFailed, running: belaymcp.StopRunning, unknown: belaymcp.StopUnknown,
	} {
		if string(mine) != string(theirs) {
			t.Errorf("%s is %s there", mine, theirs)
		}
	}
}

// worker is a tool whose handler is the witness: it says itself when it
// started and when it returned.
type worker struct {
	started  chan string
	release  chan struct{} // of the deaf mode
	returned atomic.Int64  // nanoseconds
}

type input struct {
	Mode string `json:"mode"`
}

func newServer(t *testing.T, acks *Acks) (*mcp.Server, *worker) {
	t.Helper()
	w := &worker{started: make(chan string, 10), release: make(chan struct{})}
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Experimental: map[string]any{"other": true}},
	})
	mcp.AddTool(s, &mcp.Tool{Name: "work"}, func(ctx context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		defer func() { w.returned.Store(time.Now().UnixNano()) }()
		w.started <- in.Mode
		switch in.Mode {
		case "quick":
			return &mcp.CallToolResult{}, nil, nil
		case "deaf":
			<-w.release
			return &mcp.CallToolResult{}, nil, nil
		case "hands back":
			<-ctx.Done()
			HandBack(ctx, "half of it")
			<-w.release
			Ended(ctx, "returned")
			return nil, nil, ctx.Err()
		}
		Partial(ctx, "2 of 9")
		<-ctx.Done()
		time.Sleep(30 * time.Millisecond) // cleaning up
		switch in.Mode {
		case "fails":
			Ended(ctx, "interrupted")
			return nil, nil, errors.New("broken")
		case "result":
			Partial(ctx, "3 of 9")
			return &mcp.CallToolResult{}, nil, nil
		}
		return nil, nil, ctx.Err()
	})
	if err := acks.Install(s); err != nil {
		t.Fatal(err)
	}
	return s, w
}

// lines is a client that speaks raw lines with a server on a pipe, as on stdio.
type lines struct {
	t   *testing.T
	in  io.WriteCloser
	out chan map[string]any
}

func pipe(t *testing.T, acks *Acks, s *mcp.Server) *lines {
	t.Helper()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	l := &lines{t, toServer, make(chan map[string]any, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(context.Background(), acks.Transport(&mcp.IOTransport{Reader: fromClient, Writer: toClient}))
		_ = toClient.Close()
	}()
	go func() {
		defer close(l.out)
		for scan := bufio.NewScanner(fromServer); scan.Scan(); {
			var m map[string]any
			if json.Unmarshal(scan.Bytes(), &m) == nil {
				l.out <- m
			}
		}
	}()
	t.Cleanup(func() {
		_ = toServer.Close()
		<-done
	})
	l.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	caps := l.next()["result"].(map[string]any)["capabilities"].(map[string]any)
	if got := fmt.Sprint(caps["experimental"]); got != "map["+Extension+":map[await:true notify:true] other:true]" {
		t.Errorf("declared %s", got)
	}
	l.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return l
}

func (l *lines) send(format string, args ...any) {
	if _, err := fmt.Fprintf(l.in, format+"\n", args...); err != nil {
		l.t.Error(err)
	}
}

func (l *lines) next() map[string]any {
	select {
	case m := <-l.out:
		return m
	case <-time.After(10 * time.Second):
		l.t.Fatal("the server says nothing")
		return nil
	}
}

// ack returns the next notification of the extension.
func (l *lines) ack() string {
	for {
		m := l.next()
		if m["method"] == notice {
			text, _ := json.Marshal(m["params"])
			return string(text)
		}
	}
}

func (l *lines) call(id any, mode, token string) {
	l.send(`{"jsonrpc":"2.0","id":%v,"method":"tools/call","params":{"name":"work","arguments":{"mode":%q},"_meta":{%q:{"token":%q}}}}`, id, mode, Extension, token)
}

// DESIGN 11, 5: over a pipe the client is told when the handler has returned
// after the cancel: not before, not for a call that was not cancelled, and not
// without a token.
func TestNotification(t *testing.T) {
	acks := New()
	s, w := newServer(t, acks)
	l := pipe(t, acks, s)
	for i, c := range []struct{ mode, want string }{
		{"good", `"outcome":"stopped","partial":"2 of 9"`},
		{"fails", `"ended":"interrupted","outcome":"failed","partial":"2 of 9"`},
		{"result", `"outcome":"stopped","partial":"3 of 9"`},
		{"deaf", `"outcome":"completed"`},
	} {
		l.call(i+1, c.mode, "tok-"+c.mode)
		<-w.started
		l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i+1)
		if c.mode == "deaf" {
			time.Sleep(50 * time.Millisecond)
			close(w.release)
		}
		want := fmt.Sprintf(`{%s,"requestId":%d,"token":"tok-%s"}`, c.want, i+1, c.mode)
		if got := l.ack(); got != want {
			t.Errorf("%s: %s, want %s", c.mode, got, want)
		}
		if w.returned.Swap(0) == 0 {
			t.Errorf("%s: the ack came before the handler had returned", c.mode)
		}
	}
	l.call(10, "quick", "tok-quick") // not cancelled
	l.send(`{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"work","arguments":{"mode":"good"}}}`)
	<-w.started
	<-w.started
	l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11}}`)
	l.call(12, "good", "tok-last")
	<-w.started
	l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12}}`)
	if got := l.ack(); !strings.Contains(got, "tok-last") {
		t.Errorf("an ack for %s", got)
	}
	// It can be asked for as well.
	l.send(`{"jsonrpc":"2.0","id":20,"method":%q,"params":{"token":"tok-quick"}}`, await)
	for {
		if m := l.next(); m["id"] == 20.0 {
			if got := fmt.Sprint(m["result"]); !strings.Contains(got, "outcome:completed") {
				t.Errorf("asked: %v", m)
			}
			return
		}
	}
}

// No notification goes out for a modern request, for which nothing more may be
// sent after its cancel (MCP-55); it can be asked for.
func TestModernPipe(t *testing.T) {
	acks := New()
	s, w := newServer(t, acks)
	l := pipe(t, acks, s)
	const meta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	l.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{%s}}}`, meta)
	if got := fmt.Sprint(l.next()["result"].(map[string]any)["capabilities"].(map[string]any)["extensions"]); got != "map["+Extension+":map[await:true]]" {
		t.Errorf("declared %s", got)
	}
	l.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work","arguments":{"mode":"good"},"_meta":{%s,%q:{"token":"m"}}}}`, meta, Extension)
	<-w.started
	l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	l.send(`{"jsonrpc":"2.0","id":3,"method":%q,"params":{"token":"m","waitMs":5000,"_meta":{%s}}}`, await, meta)
	for {
		m := l.next()
		if m["method"] == notice {
			t.Errorf("a notification: %v", m)
		}
		if m["id"] == 3.0 {
			if got := fmt.Sprint(m["result"]); !strings.Contains(got, "outcome:stopped") || !strings.Contains(got, "resultType:complete") {
				t.Errorf("asked: %v", m)
			}
			return
		}
	}
}

// Who asks learns at once what a handler has handed back that takes its time to end,
// and the second time how it has ended.
func TestModernHandBack(t *testing.T) {
	acks := New()
	s, w := newServer(t, acks)
	l := pipe(t, acks, s)
	const meta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	l.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work","arguments":{"mode":"hands back"},"_meta":{%s,%q:{"token":"m"}}}}`, meta, Extension)
	<-w.started
	l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	for i, want := range []string{" outcome:running partial:half of it ", " ended:returned outcome:stopped partial:half of it "} {
		l.send(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"token":"m","waitMs":20000,"_meta":{%s}}}`, 3+i, await, meta)
		if i == 1 {
			close(w.release)
		}
		for m := l.next(); ; m = l.next() {
			if m["id"] != float64(3+i) {
				continue
			}
			if got := fmt.Sprint(m["result"]); !strings.Contains(got, want) {
				t.Errorf("asked: %s, want %s", got, want)
			}
			break
		}
	}
}

// session connects an SDK client over HTTP.
func session(t *testing.T, url string, client *http.Client) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	if err := mcp.AddSendingCustomMethod[*awaitParams, *awaitResult](c, await); err != nil {
		t.Fatal(err)
	}
	cs, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func ask(t *testing.T, cs *mcp.ClientSession, token string, wait time.Duration) *awaitResult {
	t.Helper()
	r, err := mcp.CallCustomMethod[*awaitParams, *awaitResult](t.Context(), cs, await, &awaitParams{Token: token, WaitMs: wait.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Over HTTP, legacy with sessions and modern without, the client asks; in the
// modern era the cancel is the closed stream.
func TestHTTP(t *testing.T) {
	for name, opts := range map[string]*mcp.StreamableHTTPOptions{
		"legacy, stateful": {},
		"modern":           {Stateless: true, PropagateRequestCancellation: true},
	} {
		t.Run(name, func(t *testing.T) {
			acks := New()
			s, w := newServer(t, acks)
			srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, opts))
			defer srv.Close()
			cs := session(t, srv.URL, srv.Client())
			defer cs.Close()
			call := func(mode string) (stop func()) {
				ctx, end := context.WithCancelCause(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = cs.CallTool(ctx, &mcp.CallToolParams{
						Name: "work", Arguments: input{mode}, Meta: mcp.Meta{Extension: map[string]any{"token": "tok-" + mode}},
					})
				}()
				<-w.started
				return func() { end(errors.New("enough")); <-done }
			}
			stop := call("good")
			if got := ask(t, cs, "tok-good", 50*time.Millisecond); got.Outcome != running {
				t.Errorf("before the cancel: %+v", got)
			}
			stop()
			if got := ask(t, cs, "tok-good", 5*time.Second); got.Outcome != stopped || got.Partial != "2 of 9" || w.returned.Load() == 0 {
				t.Errorf("after the cancel: %+v", got)
			}
			call("deaf")()
			if got := ask(t, cs, "tok-deaf", 50*time.Millisecond); got.Outcome != running {
				t.Errorf("deaf, after the cancel: %+v", got)
			}
			close(w.release)
			if got := ask(t, cs, "tok-deaf", 5*time.Second); got.Outcome != completed || got.Partial != "" {
				t.Errorf("deaf, at its end: %+v", got)
			}
			if got := ask(t, cs, "tok-unheard-of", time.Hour); got.Outcome != unknown {
				t.Errorf("another token: %+v", got)
			}
			if _, err := mcp.CallCustomMethod[*awaitParams, *awaitResult](t.Context(), cs, await, &awaitParams{}); err == nil || !strings.Contains(err.Error(), "token") {
				t.Errorf("no token: %v", err)
			}
		})
	}
}

// A token tells its own principal only.
func TestAnotherPrincipalLearnsNothing(t *testing.T) {
	acks := New()
	s, w := newServer(t, acks)
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	srv := httptest.NewServer(auth.RequireBearerToken(verify, nil)(handler))
	defer srv.Close()
	as := func(who string) *mcp.ClientSession {
		return session(t, srv.URL, &http.Client{Transport: bearer{who, srv.Client().Transport}})
	}
	ann, bob := as("ann"), as("bob")
	defer ann.Close()
	defer bob.Close()
	if _, err := ann.CallTool(t.Context(), &mcp.CallToolParams{Name: "work", Arguments: input{"quick"}, Meta: mcp.Meta{Extension: map[string]any{"token": "t"}}}); err != nil {
		t.Fatal(err)
	}
	<-w.started
	if got := ask(t, bob, "t", 0); got.Outcome != unknown {
		t.Errorf("bob learns %+v", got)
	}
	if got := ask(t, ann, "t", 0); got.Outcome != completed {
		t.Errorf("ann learns %+v", got)
	}
}

type bearer struct {
	who  string
	next http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.who)
	return b.next.RoundTrip(r)
}

// What is remembered is bounded, a token is taken once, and a handler that
// panics has returned too.
func TestBounds(t *testing.T) {
	a := New()
	for i := range maxKept + 100 {
		w := a.watch(fmt.Sprint("t", i), "")
		a.returned(t.Context(), w, completed)
	}
	if len(a.all) > maxKept+1 || len(a.kept) > maxKept || a.all["t0"] != nil || a.live != 0 {
		t.Errorf("%d remembered, %d kept, %d live", len(a.all), len(a.kept), a.live)
	}
	if a.watch("x", "") == nil || a.watch("x", "") != nil || a.watch("", "") != nil {
		t.Error("a token is taken twice, or none is")
	}
	for i := range maxLive {
		a.watch(fmt.Sprint("live", i), "")
	}
	if a.live != maxLive {
		t.Errorf("%d live", a.live)
	}
	a.kept[0].ended = time.Now().Add(-2 * keepFor)
	was := len(a.kept)
	a.forgetLocked()
	if len(a.kept) != was-1 {
		t.Error("what is old is kept")
	}
	if got := cut(strings.Repeat("é", maxPartial)); len(got) != maxPartial {
		t.Errorf("cut at %d", len(got))
	}
	Partial(t.Context(), "nobody asked")
	b := New()
	func() {
		defer func() { _ = recover() }()
		_, _ = b.middleware(func(context.Context, string, mcp.Request) (mcp.Result, error) { panic("oh") })(t.Context(), "tools/call",
			&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Meta: mcp.Meta{Extension: map[string]any{"token": "p"}}}})
	}()
	if w := b.all["p"]; w == nil || w.now().Outcome != failed {
		t.Errorf("after a panic: %+v", w)
	}
}
