package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// TestTellRun: a server inside this process learns which run a request is, whatever its
// caller says of that.
func TestTellRun(t *testing.T) {
	t.Parallel()
	got := make(chan string, 2)
	tree := belay.NewTree(belay.Options{})
	cfg := Config{Name: "inside", Tree: tree, Log: slog.New(slog.DiscardHandler), TellRun: true, Serve: func(_ context.Context, in io.Reader, out io.Writer) error {
		for scan := bufio.NewScanner(in); scan.Scan(); {
			var m mcp.Message
			if err := m.Read(scan.Bytes()); err != nil {
				return err
			}
			at, _, _ := jsonrpc.Path(m.Frame, m.Params, "_meta", mcp.MetaRun)
			got <- strings.Trim(string(at.Of(m.Frame)), `"`)
			_, _ = out.Write(append(jsonrpc.AppendResponse(nil, m.ID, []byte(`{"content":[]}`)), '\n'))
		}
		return nil
	}}
	reader, writer := io.Pipe()
	s, err := Open(t.Context(), cfg, writer)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	for i, meta := range []string{``, `,"_meta":{"io.github.belayhq/run":"run_spoofed"}`} {
		s.Receive(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a"%s}}`, i, meta))
		id := <-got
		name, err := belay.ParseRunID(id)
		if err != nil {
			t.Fatalf("the server was told %q", id)
		}
		if run, err := tree.Run(name); err != nil || run.Name() != "a" {
			t.Errorf("%v, %v", run, err)
		}
	}
	if err := s.Close(context.Background(), belay.Cancellation{Cause: belay.CauseShutdown}); err != nil {
		t.Error(err)
	}
	if err := tree.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
