//go:build unix

package acceptance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// session is an MCP session of 2025-11-25 by hand, so that ids can be chosen.
type session struct {
	s             *server
	who, path, id string
}

// begin opens a session.
func (s *server) begin(t testing.TB, who, name string) *session {
	t.Helper()
	c := &session{s: s, who: who, path: "/mcp/" + name}
	a := c.post(t, `{"jsonrpc":"2.0","id":"begin","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"acceptance","version":"1"}}}`)
	if c.id = a.header.Get("Mcp-Session-Id"); a.status != 200 || c.id == "" {
		t.Fatalf("initialize: %d %s", a.status, a.body)
	}
	if a := c.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); a.status != 202 {
		t.Fatalf("initialized: %d %s", a.status, a.body)
	}
	return c
}

func (c *session) headers() []string {
	h := []string{"Accept", "application/json, text/event-stream"}
	if c.id != "" {
		h = append(h, "Mcp-Session-Id", c.id, "Mcp-Protocol-Version", "2025-11-25")
	}
	return h
}

func (c *session) post(t testing.TB, body string, headers ...string) answer {
	t.Helper()
	return c.s.do(t, "POST", c.path, c.who, body, append(c.headers(), headers...)...)
}

// reply is the JSON-RPC answer to a call.
type reply struct {
	http   int
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			RequestID json.RawMessage `json:"requestId"`
			Partial   *bool           `json:"partial"`
			Run       string          `json:"run"`
			Reason    string          `json:"reason"`
			Cause     string          `json:"cause"`
		} `json:"data"`
	} `json:"error"`
	raw string
}

// code is the error's, 0 for a result.
func (r reply) code() int {
	if r.Error == nil {
		return 0
	}
	return r.Error.Code
}

// call sends a tools/call with this id, as raw JSON, and returns where its
// answer will be. Nothing, "": the stream ended without one.
func (c *session) call(t testing.TB, id, tool, args string, headers ...string) <-chan reply {
	t.Helper()
	got := make(chan reply, 1)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
	go func() {
		a, err := c.s.try("POST", c.path, c.who, body, append(c.headers(), headers...)...)
		r := reply{http: a.status, raw: a.body}
		if err != nil {
			r.raw += err.Error()
		}
		for _, m := range messages(a.body) {
			var one reply
			if json.Unmarshal([]byte(m), &one) == nil && string(one.ID) == id {
				r.ID, r.Result, r.Error = one.ID, one.Result, one.Error
			}
		}
		got <- r
	}()
	return got
}

// messages are those of a body, whether it is one JSON text or a stream.
func messages(body string) (list []string) {
	if strings.HasPrefix(body, "{") {
		return []string{body}
	}
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:"); ok {
			list = append(list, strings.TrimPrefix(data, " "))
		}
	}
	return list
}

// tick starts a tick call that goes on until it is stopped and returns when its
// first tick is in the witness.
func (c *session) tick(t testing.TB, id, key string, more ...string) <-chan reply {
	t.Helper()
	got := c.call(t, id, "tick", tickArgs(key, more...))
	c.s.saw(t, key, "tick")
	return got
}

// tickArgs let a call live for a minute.
func tickArgs(key string, more ...string) string {
	return `{` + strings.Join(append([]string{fmt.Sprintf(`"key":%q,"n":3000`, key)}, more...), ",") + `}`
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

// wait is the answer of a call.
func wait(t testing.TB, got <-chan reply) reply {
	t.Helper()
	select {
	case r := <-got:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("no answer")
		return reply{}
	}
}

// pending fails if the call has been answered.
func pending(t testing.TB, got <-chan reply) {
	t.Helper()
	select {
	case r := <-got:
		t.Errorf("answered: %s", r.raw)
	default:
	}
}

// official connects the official SDK's client.
func (s *server) official(t testing.TB, who, name string) *sdk.ClientSession {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "acceptance", Version: "1"}, nil)
	transport := &sdk.StreamableClientTransport{Endpoint: s.url + "/mcp/" + name, HTTPClient: &http.Client{Transport: as(who)}, MaxRetries: -1}
	c, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// as adds somebody's token to each request.
type as string

// RoundTrip implements http.RoundTripper.
func (who as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token(string(who)))
	return web.Transport.RoundTrip(r)
}

// stream is an open event stream, of a session or of /v1/events.
type stream struct {
	resp *http.Response
	end  context.CancelFunc

	mu   sync.Mutex
	data []string
	over chan struct{}
}

// listen opens GET path as an event stream.
func (s *server) listen(t testing.TB, who, path string, headers ...string) *stream {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token(who))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := web.Transport.RoundTrip(req) //nolint:bodyclose // by close
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("GET %s: %d %s", path, resp.StatusCode, text)
	}
	l := &stream{resp: resp, end: end, over: make(chan struct{})}
	go l.read()
	t.Cleanup(l.close)
	return l
}

// hear opens the stream of a session.
func (c *session) hear(t testing.TB) *stream {
	t.Helper()
	h := c.headers()
	h[1] = "text/event-stream"
	return c.s.listen(t, c.who, c.path, h...)
}

func (l *stream) read() {
	defer close(l.over)
	for lines := bufio.NewReader(l.resp.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if data, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:"); ok {
			l.mu.Lock()
			l.data = append(l.data, strings.TrimPrefix(data, " "))
			l.mu.Unlock()
		}
	}
}

func (l *stream) close() {
	l.end()
	l.resp.Body.Close()
	<-l.over
}

// with are the data that have this in them.
func (l *stream) with(part string) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.data {
		if strings.Contains(d, part) {
			list = append(list, d)
		}
	}
	return list
}
