package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tickArgs are the arguments of the Go server's tools.
type tickArgs struct {
	Key string `json:"key,omitempty"`
	N   int    `json:"n,omitempty"`
	MS  int    `json:"ms,omitempty"`
}

// goServer is a server on the official Go SDK, for both eras. args[0] is the
// witness file. With PORT it serves Streamable HTTP: with sessions, or, when
// args[1] is "stateless", each request on its own, of which 2026-07-28 makes it
// stop with its connection.
func goServer(args []string) int {
	if len(args) < 1 || len(args) > 2 {
		fmt.Fprintln(os.Stderr, "go-server: want the witness file, and stateless or nothing")
		return 2
	}
	file, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-server:", err)
		return 1
	}
	write := func(key, name, detail string) {
		line := strings.TrimSpace(fmt.Sprintf("%d %d %s %s %s", time.Now().UnixNano(), os.Getpid(), key, name, detail))
		_, _ = io.WriteString(file, line+"\n")
	}
	write("server", "start", "")
	server := mcp.NewServer(&mcp.Implementation{Name: "tick-go", Version: "1.0.0"}, nil)
	tick := func(listens bool) mcp.ToolHandlerFor[tickArgs, any] {
		return func(ctx context.Context, req *mcp.CallToolRequest, a tickArgs) (*mcp.CallToolResult, any, error) {
			write(a.Key, "start", "")
			defer context.AfterFunc(ctx, func() { write(a.Key, "signal", context.Cause(ctx).Error()) })()
			for i := 1; i <= a.N; i++ {
				time.Sleep(time.Duration(a.MS) * time.Millisecond)
				if listens && ctx.Err() != nil {
					write(a.Key, "stopped", "")
					return nil, nil, context.Cause(ctx)
				}
				write(a.Key, "tick", fmt.Sprint(i))
				if token := req.Params.GetProgressToken(); token != nil {
					_ = req.Session.NotifyProgress(context.WithoutCancel(ctx),
						&mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i), Total: float64(a.N)})
				}
			}
			write(a.Key, "done", "")
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		}
	}
	mcp.AddTool(server, &mcp.Tool{Name: "tick", Description: "ticks and listens"}, tick(true))
	mcp.AddTool(server, &mcp.Tool{Name: "deaf", Description: "ticks and does not listen"}, tick(false))
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "returns its arguments"},
		func(_ context.Context, _ *mcp.CallToolRequest, a map[string]any) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(a)}}}, nil, nil
		})
	if err := goServe(server, len(args) == 2 && args[1] == "stateless"); err != nil {
		log.Println("go-server:", err)
	}
	return 0
}

// goServe serves until it is killed, or its stdin ends.
func goServe(server *mcp.Server, stateless bool) error {
	port := os.Getenv("PORT")
	if port == "" {
		return server.Run(context.Background(), &mcp.StdioTransport{})
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: stateless})
	http1 := http.Server{Addr: "127.0.0.1:" + port, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return http1.ListenAndServe()
}
