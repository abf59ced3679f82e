package aggregate_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/aggregate"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/sdkfake"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// server is the backend of one server, as the hub has it.
type server struct {
	cfg gateway.Config

	mu     sync.Mutex
	shared *gateway.Session
	all    []*gateway.Session
}

func (s *server) Open(ctx context.Context, _ httpserver.Caller, out mcp.Outlet) (httpserver.Session, error) {
	in, err := gateway.OpenTo(ctx, s.cfg, out)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, in)
	return in, nil
}

func (s *server) Shared(ctx context.Context, _ httpserver.Caller) (httpserver.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		cfg := s.cfg
		cfg.Modern = true
		in, err := gateway.OpenTo(ctx, cfg, nowhere{})
		if err != nil {
			return nil, err
		}
		s.shared = in
		s.all = append(s.all, in)
	}
	return s.shared, nil
}

type nowhere struct{ mcp.Outlet }

// joint is an aggregate of real servers a and b behind HTTP.
type joint struct {
	t    *testing.T
	url  string
	wit  *faketool.Witness
	tree *belay.Tree
	back []*httptest.Server
	dead [2]atomic.Bool // a server that answers nothing but the end of its sessions
}

func newJoint(t *testing.T, so sdkfake.Options) *joint {
	t.Helper()
	j := &joint{t: t, wit: faketool.NewWitness(filepath.Join(t.TempDir(), "witness")), tree: belay.NewTree(belay.Options{})}
	so.Witness = j.wit.Path
	log := slog.New(slog.DiscardHandler)
	var members []aggregate.Member
	var servers []*server
	for i, name := range []string{"a", "b"} {
		handler := sdkfake.Handler(so)
		back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if j.dead[i].Load() && r.Method != http.MethodDelete {
				panic(http.ErrAbortHandler)
			}
			handler.ServeHTTP(w, r)
		}))
		j.back = append(j.back, back)
		s := &server{cfg: gateway.Config{
			Name: name, URL: back.URL, Tree: j.tree, Log: log,
			Policy: gateway.Policy{Ladder: belay.Ladder{Grace: 200 * time.Millisecond, KillAfter: 300 * time.Millisecond, ConfirmAfter: time.Second}},
		}}
		servers = append(servers, s)
		members = append(members, aggregate.Member{Name: name, Backend: s})
	}
	agg := aggregate.New(aggregate.Config{Members: func() []aggregate.Member { return members }, Log: log})
	handler := httpserver.New(httpserver.Config{Backend: agg, Path: "/mcp", Log: log})
	front := httptest.NewServer(handler)
	j.url = front.URL + "/mcp"
	t.Cleanup(func() {
		ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
		defer end()
		c := belay.Cancellation{Cause: belay.CauseShutdown}
		if err := agg.Close(ctx, c); err != nil {
			t.Error(err)
		}
		if err := handler.Close(ctx, c); err != nil {
			t.Error(err)
		}
		for _, s := range servers {
			for _, in := range s.all {
				if err := in.Close(ctx, c); err != nil {
					t.Error(err)
				}
			}
		}
		if err := j.tree.Close(ctx); err != nil {
			t.Error(err)
		}
		front.Close()
		for _, back := range j.back {
			back.CloseClientConnections()
			back.Close()
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return j
}

// post sends one message; the response is open.
func (j *joint) post(ctx context.Context, header map[string]string, body string) *http.Response {
	j.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, j.url, strings.NewReader(body))
	if err != nil {
		j.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		j.t.Fatal(err)
	}
	return resp
}

// said posts and returns all that is said in the response.
func (j *joint) said(header map[string]string, body string) string {
	j.t.Helper()
	resp := j.post(j.t.Context(), header, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		j.t.Fatal(err)
	}
	return string(text)
}

// session makes the handshake of a legacy caller and returns its headers.
func (j *joint) session() map[string]string {
	j.t.Helper()
	resp := j.post(j.t.Context(), nil, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if !strings.Contains(string(text), `"protocolVersion":"2025-11-25"`) {
		j.t.Fatalf("got %s", text)
	}
	header := map[string]string{"Mcp-Session-Id": resp.Header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": "2025-11-25"}
	j.said(header, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return header
}

// call starts a tick tool and waits for its first tick. The channel gets all of
// the response when that has ended.
func (j *joint) call(ctx context.Context, header map[string]string, id int, tool, key, more string) <-chan string {
	j.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"key":%q,"n":60}%s}}`, id, tool, key, more)
	out := make(chan string, 1)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, j.url, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for name, value := range header {
			r.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			out <- err.Error()
			return
		}
		defer resp.Body.Close()
		var text strings.Builder
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			text.WriteString(lines.Text() + "\n")
		}
		out <- text.String()
	}()
	j.saw(key, "tick")
	return out
}

func (j *joint) saw(key, event string) faketool.Event {
	j.t.Helper()
	e, err := j.wit.WaitFor(key, event, 10*time.Second)
	if err != nil {
		j.t.Fatal(err)
	}
	return e
}

func (j *joint) ended(out <-chan string) string {
	j.t.Helper()
	select {
	case text := <-out:
		return text
	case <-time.After(10 * time.Second):
		j.t.Fatal("the response does not end")
		return ""
	}
}

const meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func modern(method, name string) map[string]string {
	h := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method}
	if name != "" {
		h["Mcp-Name"] = name
	}
	return h
}

// stopped checks that the tool of one key stopped soon after at, and that the
// others ran on to their ends.
func (j *joint) stopped(key string, at time.Time, others map[string]<-chan string) {
	j.t.Helper()
	if took := j.saw(key, "stopped").Time.Sub(at); took > 2*time.Second {
		j.t.Errorf("the tool stopped %v after the Stop", took)
	}
	for other, out := range others {
		if text := j.ended(out); !strings.Contains(text, `"done"`) {
			j.t.Errorf("the call of %s got %s", other, text)
		}
		j.saw(other, "done")
		if got := j.wit.Of(other, "stopped"); len(got) > 0 {
			j.t.Errorf("the tool of %s was stopped as well", other)
		}
	}
	if got := j.wit.Of(key, "done"); len(got) > 0 {
		j.t.Error("the stopped tool went on to its end")
	}
}

// TestRealCancel: with two real servers behind one URL, a cancel of b__tick by
// notification stops b's tool and leaves a's at work; so it is with the same id
// in another session (MCP-32, MCP-G12, MCP-G20). The stopped POST ends without
// a message (MCP-G24).
func TestRealCancel(t *testing.T) {
	j := newJoint(t, sdkfake.Options{})
	one, two := j.session(), j.session()
	ctx := t.Context()
	a := j.call(ctx, one, 1, "a__tick", "a", "")
	b := j.call(ctx, one, 2, "b__tick", "b", "")
	twin := j.call(ctx, two, 2, "b__tick", "twin", "")
	at := time.Now()
	j.said(one, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"enough"}}`)
	if text := j.ended(b); strings.Contains(text, "jsonrpc") {
		t.Errorf("after its cancel the caller got %s", text)
	}
	j.stopped("b", at, map[string]<-chan string{"a": a, "twin": twin})
}

// TestRealAbandon: the same for callers of 2026-07-28, who close the stream, with
// equal ids everywhere (MCP-53, MCP-54, MCP-G7).
func TestRealAbandon(t *testing.T) {
	j := newJoint(t, sdkfake.Options{Stateless: true, Propagate: true})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	a := j.call(t.Context(), modern("tools/call", "a__tick"), 1, "a__tick", "a", meta)
	b := j.call(ctx, modern("tools/call", "b__tick"), 1, "b__tick", "b", meta)
	twin := j.call(t.Context(), modern("tools/call", "b__tick"), 1, "b__tick", "twin", meta)
	at := time.Now()
	leave()
	j.ended(b)
	j.stopped("b", at, map[string]<-chan string{"a": a, "twin": twin})
}

// TestRealOperator: an operator's Stop of a member's call settles the caller of
// the aggregate at once, with the reason (MCP-G25).
func TestRealOperator(t *testing.T) {
	j := newJoint(t, sdkfake.Options{})
	b := j.call(t.Context(), j.session(), 1, "b__tick", "b", "")
	at := time.Now()
	if _, err := j.tree.Cancel(t.Context(), belay.CancelRequest{
		Filter:       belay.Filter{Server: "b", Kinds: []belay.Kind{belay.KindCall}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Reason: "cost limit"},
	}); err != nil {
		t.Fatal(err)
	}
	if text := j.ended(b); !strings.Contains(text, "-32800") || !strings.Contains(text, "cost limit") {
		t.Errorf("the caller got %s", text)
	}
	j.stopped("b", at, nil)
}

// TestRealDies: a server that goes away fails its own calls at once (MCP-G28); the
// other goes on, and lists have what it has.
func TestRealDies(t *testing.T) {
	j := newJoint(t, sdkfake.Options{})
	one := j.session()
	a := j.call(t.Context(), one, 1, "a__tick", "a", "")
	b := j.call(t.Context(), one, 2, "b__tick", "b", "")
	j.dead[1].Store(true)
	j.back[1].CloseClientConnections()
	w, at := calm.Start(t), time.Now()
	if text := j.ended(b); !strings.Contains(text, `"error"`) {
		t.Errorf("the caller got %s", text)
	}
	w.Within(t, time.Since(at), 5*time.Second, "the caller's answer")
	if text := j.said(one, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`); !strings.Contains(text, `"a__tick"`) || strings.Contains(text, `"b__tick"`) {
		t.Errorf("got %s", text)
	}
	if text := j.ended(a); !strings.Contains(text, `"done"`) {
		t.Errorf("the call of a got %s", text)
	}
}

// TestRealDelete: the end of a session stops its calls in every server (A10).
func TestRealDelete(t *testing.T) {
	j := newJoint(t, sdkfake.Options{})
	one, two := j.session(), j.session()
	a := j.call(t.Context(), one, 1, "a__tick", "a", "")
	b := j.call(t.Context(), one, 2, "b__tick", "b", "")
	other := j.call(t.Context(), two, 1, "a__tick", "other", "")
	at := time.Now()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, j.url, nil)
	for name, value := range one {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	j.ended(a)
	j.ended(b)
	j.stopped("a", at, nil)
	j.stopped("b", at, map[string]<-chan string{"other": other})
}

// TestRealClient: the official client lists and calls the tools of both servers,
// in either era, and its cancel reaches the right one.
func TestRealClient(t *testing.T) {
	for name, so := range map[string]sdkfake.Options{"legacy": {}, "modern": {Stateless: true, Propagate: true}} {
		t.Run(name, func(t *testing.T) {
			j := newJoint(t, so)
			client := sdk.NewClient(&sdk.Implementation{Name: "client", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: j.url, MaxRetries: -1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			list, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var tools []string
			for _, tool := range list.Tools {
				tools = append(tools, tool.Name)
			}
			if want := []string{"a__echo", "a__tick", "b__echo", "b__tick"}; !slices.Equal(tools, want) {
				t.Errorf("got %v", tools)
			}
			t.Logf("the client speaks %s", session.InitializeResult().ProtocolVersion)
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error, 1)
			go func() {
				_, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "b__tick", Arguments: map[string]any{"key": "b"}})
				over <- err
			}()
			j.saw("b", "tick")
			cancel()
			if err := <-over; err == nil {
				t.Error("the call was not cancelled")
			}
			j.saw("b", "stopped")
			result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "a__echo", Arguments: map[string]any{"text": "here"}})
			if err != nil || result.Content[0].(*sdk.TextContent).Text != "here" {
				t.Errorf("got %v, %v", result, err)
			}
		})
	}
}
