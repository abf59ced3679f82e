package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/stopack"
)

// goAckMarker turns this binary into a stop-ack server on the Go SDK.
const goAckMarker = "go-stopack"

type ackSteps struct {
	N  int `json:"n"`
	MS int `json:"ms"`
}

// goAckServer has the tools of the servers under examples/stop-ack.
func goAckServer() int {
	acks := stopack.New()
	s := mcp.NewServer(&mcp.Implementation{Name: "stop-ack-go", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "tick"}, func(ctx context.Context, _ *mcp.CallToolRequest, in ackSteps) (*mcp.CallToolResult, any, error) {
		for i := range in.N {
			select {
			case <-time.After(time.Duration(in.MS) * time.Millisecond):
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
			ackStep(i + 1)
			stopack.Partial(ctx, fmt.Sprintf("%d of %d ticks", i+1, in.N))
		}
		return &mcp.CallToolResult{}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "deaf"}, func(_ context.Context, _ *mcp.CallToolRequest, in ackSteps) (*mcp.CallToolResult, any, error) {
		for i := range in.N {
			time.Sleep(time.Duration(in.MS) * time.Millisecond)
			ackStep(i + 1)
		}
		return &mcp.CallToolResult{}, nil, nil
	})
	err := acks.Install(s)
	if err == nil {
		err = s.Run(context.Background(), acks.Transport(&mcp.StdioTransport{}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-stopack:", err)
		return 1
	}
	return 0
}

// ackStep appends a line to the witness.
func ackStep(n int) {
	f, err := os.OpenFile(os.Getenv("STOP_ACK_WITNESS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(f, "tick %d\n", n)
	_ = f.Close()
}
