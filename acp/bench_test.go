package acp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/belayhq/belay/acp"
)

func benchPair(b *testing.B, pair func() (acp.Transport, acp.Transport)) *acp.Conn {
	b.Helper()
	client, agent := pair()
	a := acp.NewConn(agent, acp.Options{Role: acp.RoleAgent, Handler: func(ctx context.Context, r *acp.Request) (any, error) {
		switch r.Method() {
		case acp.MethodInitialize:
			return json.RawMessage(`{"protocolVersion":1}`), nil
		case "_wait":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return json.RawMessage(r.Params()), nil
	}})
	c := acp.NewConn(client, acp.Options{Role: acp.RoleClient})
	b.Cleanup(func() {
		_ = c.Close(context.Background())
		_ = a.Close(context.Background())
	})
	if err := c.Call(b.Context(), acp.MethodInitialize, json.RawMessage(`{"protocolVersion":1}`), nil); err != nil {
		b.Fatal(err)
	}
	return c
}

func osPipes() (acp.Transport, acp.Transport) {
	inA, outC := io.Pipe()
	inC, outA := io.Pipe()
	return acp.NewStdio(inC, outC), acp.NewStdio(inA, outA)
}

// One request and its answer, both ends in this process.
func BenchmarkCall(b *testing.B) {
	for name, pair := range map[string]func() (acp.Transport, acp.Transport){"memory": acp.NewPipe, "lines": osPipes} {
		for _, size := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				c := benchPair(b, pair)
				params := json.RawMessage(fmt.Sprintf(`{"text":"%0*d"}`, size, 1))
				var got json.RawMessage
				b.ReportAllocs()
				b.ResetTimer()
				for b.Loop() {
					if err := c.Call(b.Context(), "_echo", params, &got); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// A request that is cancelled while it is served: both ends, from the end of the
// caller's ctx to its return.
func BenchmarkCancel(b *testing.B) {
	c := benchPair(b, acp.NewPipe)
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- c.Call(ctx, "_wait", nil, nil) }()
		cancel()
		<-done
	}
}
