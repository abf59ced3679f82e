// Package sdkfake serves tick tools by the official Go SDK over HTTP, for tests
// that need a real peer: what they do, they write into a witness file
// themselves.
//
// The tool "tick" works until its context ends, or n ticks are done; with "deaf"
// it never looks at its context, with "hold" it does nothing else. "echo" answers at once.
package sdkfake

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/internal/faketool"
)

// Options say how the server speaks.
type Options struct {
	Witness   string // the file to append to
	Stateless bool   // no sessions; the 2026-07-28 revision is spoken only so
	JSON      bool   // answers are plain JSON, not a stream
	Propagate bool   // 2026-07-28: a closed stream cancels the handler's context
}

// Period is the time between two ticks.
const Period = 20 * time.Millisecond

type tickArgs struct {
	Key  string `json:"key"`
	N    int    `json:"n,omitempty"`
	Deaf bool   `json:"deaf,omitempty"`
	Hold bool   `json:"hold,omitempty"` // do nothing until the context ends
}

type echoArgs struct {
	Text string `json:"text,omitempty"`
}

// Server is a server with the tools.
func Server(o Options) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdkfake", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "tick", Description: "works and writes it down"},
		func(ctx context.Context, req *mcp.CallToolRequest, a tickArgs) (*mcp.CallToolResult, any, error) {
			return tick(ctx, req, a, o.Witness)
		})
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "answers at once"},
		func(_ context.Context, _ *mcp.CallToolRequest, a echoArgs) (*mcp.CallToolResult, any, error) {
			return text(a.Text), nil, nil
		})
	return s
}

// Handler serves them over Streamable HTTP.
func Handler(o Options) http.Handler {
	s := Server(o)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{
		Stateless: o.Stateless, JSONResponse: o.JSON, PropagateRequestCancellation: o.Propagate,
	})
}

// SSEHandler serves them over the HTTP+SSE transport of 2024-11-05.
func SSEHandler(o Options) http.Handler {
	s := Server(o)
	return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func tick(ctx context.Context, req *mcp.CallToolRequest, a tickArgs, witness string) (*mcp.CallToolResult, any, error) {
	faketool.Record(witness, a.Key, "start", "")
	if a.Hold {
		<-ctx.Done()
		faketool.Record(witness, a.Key, "stopped", fmt.Sprint(context.Cause(ctx)))
		return nil, nil, context.Cause(ctx)
	}
	if a.N == 0 {
		a.N = 250
	}
	done := ctx.Done()
	if a.Deaf {
		done, ctx = nil, context.WithoutCancel(ctx) // some transports drop the progress of a cancelled call
	}
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for i := range a.N {
		select {
		case <-done:
			faketool.Record(witness, a.Key, "stopped", fmt.Sprint(context.Cause(ctx)))
			return nil, nil, context.Cause(ctx)
		case <-ticker.C:
		}
		faketool.Record(witness, a.Key, "tick", fmt.Sprint(i+1))
		if token := req.Params.GetProgressToken(); token != nil {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1)})
		}
	}
	faketool.Record(witness, a.Key, "done", "")
	return text("done"), nil, nil
}
