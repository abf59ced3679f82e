package gateway

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// answers is an outlet that only says that there was an answer.
type answers chan struct{}

func (a answers) Send([]byte, ...jsonrpc.Edit) error { return nil }

func (a answers) Answer(int, []byte, ...jsonrpc.Edit) error {
	a <- struct{}{}
	return nil
}

func (a answers) Drop() {}

// quickest is a server that costs next to nothing.
func quickest(_ context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return nil //nolint:nilerr // the session is over
		}
		var e jsonrpc.Envelope
		if jsonrpc.Parse(line[:len(line)-1], &e) != nil || e.Kind != jsonrpc.Request {
			continue
		}
		if _, err := out.Write(append(jsonrpc.AppendResponse(nil, e.ID, []byte(`{"content":[{"type":"text","text":"ok"}]}`)), '\n')); err != nil {
			return nil //nolint:nilerr // the session is over
		}
	}
}

// BenchmarkCall is one tools/call through a session, with and without what is
// asked for beyond carrying it.
func BenchmarkCall(b *testing.B) {
	plain := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":1},"_meta":{"progressToken":1}}}`)
	traced := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":1},"_meta":{"progressToken":1,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","claudecode/toolUseId":"toolu_1"}}}`)
	for _, c := range []struct {
		name  string
		frame []byte
		set   func(*Config)
	}{
		{"plain", plain, func(*Config) {}},
		{"plain gate", plain, func(c *Config) { c.Gate = &door{} }},
		{"plain named", plain, func(c *Config) { c.NameRuns = true }},
		{"traced named", traced, func(c *Config) { c.NameRuns, c.Trace = true, true }},
	} {
		b.Run(c.name, func(b *testing.B) {
			tree := belay.NewTree(belay.Options{KeepRuns: 100})
			cfg := Config{Name: "x", Serve: quickest, Tree: tree, Log: slog.New(slog.DiscardHandler), Owner: "o"}
			c.set(&cfg)
			to := make(answers, 1)
			s, err := OpenTo(context.Background(), cfg, to)
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				_ = s.Close(context.Background(), belay.Cancellation{Cause: belay.CauseShutdown})
				_ = tree.Close(context.Background())
			}()
			var m mcp.Message
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Read(c.frame); err != nil {
					b.Fatal(err)
				}
				s.Deliver(mcp.Arrival{Message: &m, To: to})
				<-to
			}
		})
	}
}
