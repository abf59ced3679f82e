package httpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
)

// exchange writes one request on a connection that stays open and reads the
// response, with as little of a client as possible.
func exchange(b *testing.B, url, text string) {
	b.Helper()
	conn, err := net.Dial("tcp", url[len("http://"):])
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(conn, text); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			b.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(resp.StatusCode, err)
		}
	}
}

// BenchmarkCall is a call through this transport whose answer comes from
// another goroutine, as a server's does; beside it a server of the Go SDK.
func BenchmarkCall(b *testing.B) {
	calls := make(chan arrival, 1)
	f := &fake{}
	f.handle = func(s *fakeSession, a arrival) {
		clear(s.calls)
		s.frames, s.messages = s.frames[:0], s.messages[:0]
		calls <- a
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for a := range calls {
			_ = a.to.Answer(0, a.ok())
		}
	}()
	h := New(Config{Backend: f})
	srv := httptest.NewServer(h)
	text, headers := modernCall("1", "echo")
	b.Run("belay", func(b *testing.B) { exchange(b, srv.URL, rawPost(text, len(text), headers...)) })
	srv.Close()
	_ = h.Close(context.Background(), belay.Cancellation{})
	close(calls)
	<-done

	server := sdk.NewServer(&sdk.Implementation{Name: "t", Version: "1"}, nil)
	server.AddTool(&sdk.Tool{Name: "echo", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{}}, nil
	})
	for _, json := range []bool{false, true} {
		direct := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: json}))
		b.Run(fmt.Sprintf("sdk/json=%v", json), func(b *testing.B) { exchange(b, direct.URL, rawPost(text, len(text), headers...)) })
		direct.Close()
	}
}
