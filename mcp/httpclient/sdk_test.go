package httpclient

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// witness is a file that a tool appends to: what really happened.
type witness string

func newWitness(t *testing.T) witness { return witness(filepath.Join(t.TempDir(), "witness")) }

func (w witness) add(line string) {
	f, err := os.OpenFile(string(w), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintln(f, line)
	_ = f.Close()
}

func (w witness) read() string {
	data, _ := os.ReadFile(string(w))
	return string(data)
}

// wait waits until the file contains a line.
func (w witness) wait(t *testing.T, line string) {
	t.Helper()
	for end := time.Now().Add(soon); !strings.Contains(w.read(), line+"\n"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in the witness file:\n%s", line, w.read())
		}
	}
}

// tickServer is a server of the Go SDK with a tool that ticks until it is told
// to stop.
func tickServer(w witness) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "tick", Version: "1"}, nil)
	type args struct {
		Key string `json:"key"`
		N   int    `json:"n"`
	}
	sdk.AddTool(server, &sdk.Tool{Name: "tick", Description: "appends to a file"}, func(ctx context.Context, req *sdk.CallToolRequest, a args) (*sdk.CallToolResult, any, error) {
		w.add("start " + a.Key)
		for range a.N {
			select {
			case <-ctx.Done():
				w.add("stopped " + a.Key)
				return nil, nil, context.Cause(ctx)
			case <-time.After(20 * time.Millisecond):
				w.add("tick " + a.Key)
			}
		}
		w.add("done " + a.Key)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil, nil
	})
	return server
}

const (
	tickCall   = `{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"tick","arguments":{"key":%[1]q,"n":%d}%s}}`
	modernMeta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}`
	sdkInit    = `{"jsonrpc":"2.0","id":"b-0","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
)

// MCP-G20: on each path the cancel reaches the handler of a real server, within
// its grace, no call beside it is touched, and the next call works. Legacy
// servers without sessions are left out: this SDK's heed neither way.
func TestCancelReachesTheHandler(t *testing.T) {
	streamable := func(o sdk.StreamableHTTPOptions) func(*sdk.Server) http.Handler {
		return func(s *sdk.Server) http.Handler {
			return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &o)
		}
	}
	for name, tc := range map[string]struct {
		handler func(*sdk.Server) http.Handler
		config  Config
		modern  bool
		means   string
	}{
		"stateful":            {streamable(sdk.StreamableHTTPOptions{}), Config{}, false, "notification, 202"},
		"stateful, JSON":      {streamable(sdk.StreamableHTTPOptions{JSONResponse: true}), Config{}, false, "notification, 202"},
		"stateful, resumable": {streamable(sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)}), Config{}, false, "notification, 202"},
		"modern":              {streamable(sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}), Config{}, true, "POST closed"},
		"modern, JSON":        {streamable(sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true, PropagateRequestCancellation: true}), Config{}, true, "POST closed"},
		"HTTP+SSE": {func(s *sdk.Server) http.Handler {
			return sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil)
		}, Config{Transport: SSE}, false, "notification, 202"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWitness(t)
			server := httptest.NewServer(tc.handler(tickServer(w)))
			defer server.Close()
			tc.config.URL, tc.config.Client = server.URL, client(t)
			c, r := open(t, tc.config)
			defer func() { _ = c.Close(within(t)) }()
			meta := modernMeta
			if !tc.modern {
				meta = ""
				send(t, c, sdkInit)
				r.wait(t, 1, `message "b-0" 200`)
				send(t, c, initialized)
			}
			send(t, c, tickCall, "b-1", 500, meta)
			send(t, c, tickCall, "b-2", 10, meta)
			w.wait(t, "tick b-1")
			began := time.Now()
			told := cancelCall(t, c, "b-1")
			same(t, told.Means, tc.means)
			w.wait(t, "stopped b-1")
			t.Logf("told and stopped in %v", time.Since(began))
			if line := r.wait(t, 1, `"id":"b-2"`); !strings.Contains(line, `"text":"done"`) {
				t.Error(line)
			}
			if strings.Contains(w.read(), "stopped b-2") {
				t.Error("another call was stopped")
			}
			send(t, c, tickCall, "b-3", 1, meta)
			if line := r.wait(t, 1, `"id":"b-3"`); !strings.Contains(line, `"text":"done"`) {
				t.Error(line)
			}
			if r.count("lost")+r.count("over") != 0 {
				t.Error(r.all())
			}
		})
	}
}

// MCP-G19: a cancel right behind its call is not lost on the way.
func TestCancelRightBehindTheCall(t *testing.T) {
	w := newWitness(t)
	handler := sdk.NewStreamableHTTPHandler(func() func(*http.Request) *sdk.Server {
		s := tickServer(w)
		return func(*http.Request) *sdk.Server { return s }
	}(), nil)
	server := httptest.NewServer(handler)
	defer server.Close()
	c, r := open(t, Config{URL: server.URL})
	defer func() { _ = c.Close(within(t)) }()
	send(t, c, sdkInit)
	r.wait(t, 1, `message "b-0" 200`)
	send(t, c, initialized)
	send(t, c, tickCall, "warm", 0, "")
	r.wait(t, 1, `message "warm" 200`)
	started, withdrawn := 0, 0
	const n = 50
	for i := range n {
		id := fmt.Sprintf("b-%d", i+1)
		send(t, c, tickCall, id, 200, "")
		if i%2 == 0 {
			time.Sleep(time.Duration(i) * 10 * time.Microsecond)
		}
		if cancelCall(t, c, id).NotStarted {
			withdrawn++
		} else {
			started++
		}
	}
	r.wait(t, started, `message "b-`) // this SDK always answers, sometimes before the handler has returned
	for end := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		all := w.read()
		ran, stopped, done := strings.Count(all, "start b-"), strings.Count(all, "stopped b-"), strings.Count(all, "done b-")
		if done == 0 && stopped == ran && ran <= started {
			return
		}
		if done > 0 || time.Now().After(end) {
			t.Fatalf("%d were sent, %d withdrawn; %d ran, %d stopped, %d ran to the end", started, withdrawn, ran, stopped, done)
		}
	}
}
