package httpclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is how long a test waits for what must happen.
const soon = 30 * time.Second

// journal is a list of lines that can be waited for.
type journal struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
	if j.more != nil {
		close(j.more)
		j.more = nil
	}
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

// wait waits until n lines contain text and returns the last of them.
func (j *journal) wait(t testing.TB, n int, text string) string {
	t.Helper()
	deadline := time.NewTimer(soon)
	defer deadline.Stop()
	for {
		j.mu.Lock()
		found, last := 0, ""
		for _, line := range j.lines {
			if strings.Contains(line, text) {
				found++
				last = line
			}
		}
		if found >= n {
			j.mu.Unlock()
			return last
		}
		if j.more == nil {
			j.more = make(chan struct{})
		}
		more := j.more
		j.mu.Unlock()
		select {
		case <-more:
		case <-deadline.C:
			t.Fatalf("%d of %d lines with %q in\n%s", found, n, text, strings.Join(j.all(), "\n"))
		}
	}
}

// count is the number of lines that contain text.
func (j *journal) count(text string) int {
	n := 0
	for _, line := range j.all() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// recorder is a Receiver that writes down what it is told.
type recorder struct {
	journal
	t testing.TB
}

func (r *recorder) Message(m *mcp.Message, about jsonrpc.ID, status int) {
	r.add("message %s %d %s", about, status, m.Frame)
}

func (r *recorder) Lost(id jsonrpc.ID, err error) { r.add("lost %s %v", id, err) }
func (r *recorder) Over(err error)                { r.add("over %v", err) }

// server is an HTTP server that writes down what it is asked, and when an asker
// goes away.
type server struct {
	journal
	*httptest.Server
}

// exchange is one request to a server.
type exchange struct {
	http.ResponseWriter
	*http.Request
	body string
	m    mcp.Message
}

// id is the JSON text of the request's id.
func (x *exchange) id() string { return x.m.ID.Raw() }

// json answers with one message.
func (x *exchange) json(status int, format string, args ...any) {
	x.Header().Set("Content-Type", "application/json")
	x.WriteHeader(status)
	_, _ = fmt.Fprintf(x, format, args...)
}

func (x *exchange) Header() http.Header { return x.ResponseWriter.Header() }

// ok answers with a result.
func (x *exchange) ok() { x.json(200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, x.id()) }

func (x *exchange) Write(p []byte) (int, error) { return x.ResponseWriter.Write(p) }

// events begins a stream.
func (x *exchange) events() {
	x.Header().Set("Content-Type", "text/event-stream")
	x.WriteHeader(http.StatusOK)
	x.flush()
}

func (x *exchange) flush() { _ = http.NewResponseController(x.ResponseWriter).Flush() }

// event sends one event.
func (x *exchange) event(id, data string) {
	_, _ = x.Write(jsonrpc.AppendEvent(nil, id, "message", []byte(data)))
	x.flush()
}

// hang waits until the asker goes away.
func (x *exchange) hang(s *server) {
	<-x.Context().Done()
	s.add("gone %s", x.body)
}

// handler makes an HTTP handler that writes down what it is asked.
func handler(s *server, handle func(s *server, x *exchange)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			s.add("broken %v", err)
			return
		}
		x := &exchange{ResponseWriter: w, Request: r, body: string(data)}
		_ = x.m.Read(data)
		s.add("%s %s%s", r.Method, describe(r.Header), data)
		handle(s, x)
	})
}

// newServer starts a server; its handler may also be set before the first
// request.
func newServer(t testing.TB, handle func(s *server, x *exchange)) *server {
	s := &server{}
	s.Server = httptest.NewServer(handler(s, handle))
	t.Cleanup(s.Close)
	return s
}

// describe shows the headers that matter here.
func describe(h http.Header) string {
	var b strings.Builder
	for _, name := range []string{"Authorization", headerSession, headerVersion, headerMethod, headerName, "Mcp-Param-A", headerLastID} {
		for _, v := range h.Values(name) {
			fmt.Fprintf(&b, "%s=%s ", strings.TrimPrefix(name, "Mcp-"), v)
		}
	}
	return b.String()
}

// open opens a connection that the end of the test closes.
func open(t testing.TB, cfg Config) (*Conn, *recorder) {
	t.Helper()
	tr := NewTransport()
	if cfg.Client == nil {
		cfg.Client = tr
	}
	r := &recorder{t: t}
	c, err := Open(cfg, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = c.Close(ctx)
		tr.CloseIdleConnections()
	})
	return c, r
}

func send(t testing.TB, c *Conn, format string, args ...any) {
	t.Helper()
	if err := c.Send(fmt.Appendf(nil, format, args...), nil); err != nil {
		t.Fatal(err)
	}
}

const (
	initialize  = `{"jsonrpc":"2.0","id":"b-0","method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	legacyCall  = `{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"x"}}`
	modernCall  = `{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
)

// legacy is a server with sessions, whose calls are handled by call.
func legacy(session string, call func(s *server, x *exchange)) func(*server, *exchange) {
	return func(s *server, x *exchange) {
		switch {
		case x.Method == http.MethodGet && call != nil && x.Request.Header.Get("Last-Event-ID") != "":
			call(s, x)
		case x.Method == http.MethodGet:
			x.WriteHeader(http.StatusMethodNotAllowed)
		case x.Method == http.MethodDelete:
		case x.m.Method == mcp.MethodInitialize:
			if session != "" {
				x.Header().Set(headerSession, session)
			}
			x.json(200, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25"}}`, x.id())
		case x.m.Kind == jsonrpc.Request:
			call(s, x)
		default:
			x.WriteHeader(http.StatusAccepted)
		}
	}
}

// handshake opens a legacy session.
func handshake(t testing.TB, c *Conn, s *server, r *recorder) {
	t.Helper()
	send(t, c, initialize)
	r.wait(t, 1, `"b-0"`)
	send(t, c, initialized)
	s.wait(t, 1, "GET ")
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	t.Cleanup(cancel)
	return ctx
}

func cancelCall(t testing.TB, c *Conn, id string) Told {
	t.Helper()
	told, err := c.Cancel(within(t), jsonrpc.StringID(id), "because")
	if err != nil {
		t.Fatal(err)
	}
	return told
}

func same(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func mustID(text string) jsonrpc.ID {
	id, err := jsonrpc.ParseID([]byte(text))
	if err != nil {
		panic(err)
	}
	return id
}
