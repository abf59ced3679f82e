package builtin

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
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a raw client of Serve.
type served struct {
	t     *testing.T
	in    *io.PipeWriter
	lines chan string
	done  chan error
	stop  context.CancelCauseFunc
}

func serveTools(t *testing.T) *served {
	t.Helper()
	in, w := io.Pipe()
	r, out := io.Pipe()
	ctx, stop := context.WithCancelCause(context.Background())
	s := &served{t, w, make(chan string, 1000), make(chan error, 1), stop}
	go func() {
		s.done <- Serve(ctx, in, out)
		_ = out.Close()
	}()
	go func() {
		defer close(s.lines)
		for scan := bufio.NewScanner(r); scan.Scan(); {
			s.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		_ = w.Close()
		for range s.lines {
		}
		stop(nil)
	})
	s.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	s.find(`"id":0`)
	s.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

func (s *served) send(format string, args ...any) {
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		s.t.Error(err)
	}
}

func (s *served) call(id int, tool, args string) {
	s.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"p","io.github.belayhq/stop-ack":{"token":"t%d"}}}}`, id, tool, args, id)
}

func (s *served) cancel(id int) {
	s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
}

// find returns the next line that contains all the parts.
func (s *served) find(parts ...string) string {
	s.t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the server ended before %q", parts)
			}
			all := true
			for _, p := range parts {
				all = all && strings.Contains(line, p)
			}
			if all {
				return line
			}
		case <-timeout:
			s.t.Fatalf("no line with %q", parts)
		}
	}
}

// The tools do what they say, and a cancel of those that heed it is proven.
func TestTools(t *testing.T) {
	s := serveTools(t)
	s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	list := s.find(`"id":1`)
	for _, tool := range []string{"wait", "count", "stubborn"} {
		if !strings.Contains(list, `"name":"`+tool+`"`) {
			t.Errorf("%s is not listed: %s", tool, list)
		}
	}
	s.call(2, "wait", `{"seconds":0.01}`)
	s.find(`"id":2`, "Waited 0.0 seconds.")
	s.call(3, "count", `{"to":3,"pause_ms":1}`)
	s.find("notifications/progress", `"progress":3`)
	s.find(`"id":3`, "Counted to 3: 1 2 3")
	s.call(4, "stubborn", `{"seconds":0.5}`)
	s.call(7, "wait", `{"seconds":0.01}`)
	s.find(`"id":7`) // by then the call before it has begun: the SDK does not begin what was cancelled
	s.cancel(4)
	s.find("notifications/stop-ack", `"t4"`, `"completed"`)

	s.call(5, "wait", `{"seconds":60}`)
	s.call(6, "count", `{"to":9,"pause_ms":300}`)
	s.find("notifications/progress", `"progress":2`)
	s.cancel(6)
	s.find("notifications/stop-ack", `"t6"`, `"stopped"`, "counted to 2 of 9: 1 2")
	s.cancel(5)
	s.find("notifications/stop-ack", `"t5"`, `"stopped"`, "of 60.0 seconds")

	for i, c := range []struct{ tool, args string }{
		{"wait", `{"seconds":-1}`},
		{"wait", `{"seconds":1e9}`},
		{"wait", `{"seconds":"x"}`},
		{"count", `{"to":-1}`},
		{"count", `{"to":1000000}`},
		{"stubborn", `{"seconds":601}`},
		{"nobody", `{}`},
	} {
		s.call(10+i, c.tool, c.args)
		if line := s.find(fmt.Sprintf(`"id":%d`, 10+i)); !strings.Contains(line, "isError") && !strings.Contains(line, `"error"`) {
			t.Errorf("%s %s: %s", c.tool, c.args, line)
		}
	}
}

// Serve returns when its input ends or its context does, whatever runs.
func TestServeEnds(t *testing.T) {
	why := errors.New("enough")
	for name, end := range map[string]func(*served){
		"input":   func(s *served) { _ = s.in.Close() },
		"context": func(s *served) { s.stop(why) },
	} {
		s := serveTools(t)
		s.call(1, "stubborn", `{"seconds":500}`)
		s.call(2, "count", `{"to":1000,"pause_ms":10}`)
		s.find("notifications/progress")
		end(s)
		select {
		case err := <-s.done:
			if name == "context" && !errors.Is(err, why) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: Serve does not return", name)
		}
	}
}

// The same tools behind an HTTP handler, for a modern client.
func TestServer(t *testing.T) {
	server, err := Server()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}))
	defer srv.Close()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL, HTTPClient: srv.Client(), DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "count", Arguments: json.RawMessage(`{"to":2,"pause_ms":1}`)})
	if err != nil || res.IsError {
		t.Errorf("%+v, %v", res, err)
	}
}
