package httpserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// fake is a server in memory: every message goes to a function of the test.
type fake struct {
	handle func(s *fakeSession, a arrival)
	refuse error
	hang   bool // Close waits for its context

	mu       sync.Mutex
	sessions []*fakeSession
	shared   map[string]*fakeSession
}

// arrival is a delivered message that may be kept.
type arrival struct {
	mcp.Message
	mcp.Arrival
	to mcp.Outlet
}

func (f *fake) open(who Caller, out mcp.Outlet) *fakeSession {
	return &fakeSession{fake: f, who: who, out: out, ended: make(chan struct{}), gone: make(map[uint64]belay.Cancellation), calls: make(map[uint64]arrival)}
}

func (f *fake) Open(_ context.Context, who Caller, out mcp.Outlet) (Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	s := f.open(who, out)
	f.sessions = append(f.sessions, s)
	return s, nil
}

func (f *fake) Shared(_ context.Context, who Caller) (Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	if f.shared == nil {
		f.shared = make(map[string]*fakeSession)
	}
	s := f.shared[who.Principal]
	if s == nil {
		s = f.open(who, nil)
		f.shared[who.Principal] = s
	}
	return s, nil
}

// session is the n-th legacy session that was opened.
func (f *fake) session(n int) *fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sessions[n]
}

func (f *fake) modern(principal string) *fakeSession {
	s, _ := f.Shared(context.Background(), Caller{Principal: principal})
	return s.(*fakeSession)
}

type fakeSession struct {
	*fake
	who   Caller
	out   mcp.Outlet
	ended chan struct{}

	mu       sync.Mutex
	err      error
	closed   []belay.Cancellation
	gone     map[uint64]belay.Cancellation
	calls    map[uint64]arrival // requests by exchange
	messages []string           // method or "response" of all that came
	frames   []string
}

func (s *fakeSession) Deliver(a mcp.Arrival) {
	kept := arrival{Arrival: a, to: a.To}
	_ = kept.Read(bytes.Clone(a.Frame))
	kept.Arrival.Message = &kept.Message
	if kept.to == nil {
		kept.to = s.out
	}
	s.mu.Lock()
	name := a.Method
	if a.Kind == jsonrpc.Response {
		name = "response"
	}
	s.messages = append(s.messages, name)
	s.frames = append(s.frames, string(a.Frame))
	if a.Kind == jsonrpc.Request {
		s.calls[a.Exchange] = kept
	}
	s.mu.Unlock()
	if s.handle != nil {
		s.handle(s, kept)
	}
}

func (s *fakeSession) Abandon(exchange uint64, c belay.Cancellation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[exchange] = c
}

func (s *fakeSession) Ended() <-chan struct{} { return s.ended }

func (s *fakeSession) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *fakeSession) Close(ctx context.Context, c belay.Cancellation) error {
	if s.hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, c)
	if len(s.closed) == 1 && s.err == nil {
		close(s.ended)
	}
	return nil
}

// die ends the session from the server's side.
func (s *fakeSession) die() {
	s.mu.Lock()
	s.err = errors.New("the process died")
	s.mu.Unlock()
	close(s.ended)
}

func (s *fakeSession) closes() []belay.Cancellation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.closed)
}

func (s *fakeSession) abandoned() []belay.Cancellation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []belay.Cancellation
	for _, c := range s.gone {
		all = append(all, c)
	}
	return all
}

func (s *fakeSession) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// call waits for a request with this id and returns it.
func (s *fakeSession) call(t *testing.T, id string) arrival {
	t.Helper()
	var found arrival
	eventually(t, "request "+id, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, a := range s.calls {
			if a.ID.Raw() == id {
				found = a
				return true
			}
		}
		return false
	})
	return found
}

func (a arrival) ok() []byte {
	return jsonrpc.AppendResponse(nil, a.ID, []byte(`{"content":[]}`))
}

// standard answers initialize and everything named "now"; the rest waits.
func standard(s *fakeSession, a arrival) {
	switch {
	case a.Kind != jsonrpc.Request:
	case a.Method == mcp.MethodInitialize:
		_ = a.to.Answer(0, jsonrpc.AppendResponse(nil, a.ID, []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}`)))
	case a.ToolName() == "now", a.Method == "ping":
		_ = a.to.Answer(0, a.ok())
	case a.ToolName() == "progress":
		_ = a.to.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`))
		_ = a.to.Answer(0, a.ok())
	case a.Method == "unknown":
		_ = a.to.Answer(0, jsonrpc.AppendError(nil, a.ID, mcp.CodeMethodNotFound, "no such method", nil))
	}
}

// rig is a handler over real HTTP.
type rig struct {
	*fake
	t   *testing.T
	h   *Handler
	url string
	c   *http.Client
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	f, _ := cfg.Backend.(*fake)
	if f == nil {
		f = &fake{handle: standard}
		cfg.Backend = f
	}
	h := New(cfg)
	srv := httptest.NewServer(h)
	tr := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 10*time.Second, errors.New("the handler did not end"))
		defer cancel()
		if err := h.Close(ctx, belay.Cancellation{}); err != nil {
			t.Error(err)
		}
		tr.CloseIdleConnections()
		srv.Close()
	})
	return &rig{f, t, h, srv.URL, &http.Client{Transport: tr}}
}

// request is one POST, GET or DELETE; headers come as "Name: value", and an
// empty value takes a default away.
func (r *rig) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	r.t.Helper()
	var src io.Reader
	if body != "" {
		src = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, src)
	if err != nil {
		r.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if strings.HasPrefix(name, "+") {
			req.Header.Add(name[1:], value)
			continue
		}
		req.Header.Set(name, value)
		if value == "" {
			req.Header.Del(name)
		}
		if name == "Host" {
			req.Host = value
		}
	}
	return req
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (r *rig) do(method, path, body string, headers ...string) reply {
	r.t.Helper()
	resp, err := r.c.Do(r.request(r.t.Context(), method, path, body, headers...))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.read(resp)
}

func (r *rig) read(resp *http.Response) reply {
	r.t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

func (r *rig) post(body string, headers ...string) reply {
	r.t.Helper()
	return r.do(http.MethodPost, "", body, headers...)
}

// begin sends a request and returns when its headers are here.
func (r *rig) begin(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	return r.c.Do(r.request(ctx, method, path, body, headers...))
}

// start opens a legacy session and returns the header that names it.
func (r *rig) start(version string, headers ...string) string {
	r.t.Helper()
	got := r.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, headers...)
	if got.status != 200 || got.header.Get("Mcp-Session-Id") == "" {
		r.t.Fatalf("initialize: %+v", got)
	}
	return "Mcp-Session-Id: " + got.header.Get("Mcp-Session-Id")
}

func call(id, tool string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func modernBody(id, method, more string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + more + meta + `}}`
}

// modernCall is a tools/call of 2026-07-28 with its headers.
func modernCall(id, tool string) (string, []string) {
	return modernBody(id, "tools/call", `"name":"`+tool+`",`), []string{"MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: " + tool}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never seen: %s", what)
		}
	}
}

// errorOf reads the code of a JSON-RPC error.
func errorOf(body string) int { return errorCode([]byte(body)) }

// sse is one event as a client reads it.
type sse struct{ name, id, data string }

// events reads a stream to its end.
func events(body string) (list []sse, comments int) {
	for block := range strings.SplitSeq(body, "\n\n") {
		var e sse
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data += value
			case "":
				if value != "" {
					comments++
				}
			}
		}
		if e != (sse{}) {
			list = append(list, e)
		}
	}
	return list, comments
}
