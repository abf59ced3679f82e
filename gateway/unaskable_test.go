package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// noStream is the outlet of a caller who takes nothing but answers.
type noStream struct{}

func (noStream) Send([]byte, ...jsonrpc.Edit) error        { return errors.New("the caller takes no stream") }
func (noStream) Answer(int, []byte, ...jsonrpc.Edit) error { return nil }
func (noStream) Drop()                                     {}

// TestUnaskable: a server's question that cannot reach the caller is answered
// with an error; a call that waits for it would hang for ever (MCP-G9).
func TestUnaskable(t *testing.T) {
	t.Parallel()
	p := newPuppets(t)
	tree := belay.NewTree(belay.Options{})
	s, err := OpenTo(t.Context(), Config{Name: "fake", Command: p.command, Tree: tree, Stderr: devNull(t), Log: slog.New(slog.DiscardHandler)}, noStream{})
	if err != nil {
		t.Fatal(err)
	}
	server := p.next()
	t.Cleanup(func() {
		ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
		defer end()
		if err := s.Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown}); err != nil {
			t.Error(err)
		}
	})
	say(t, server, `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
	if m := got(t, server, `"id":"q"`); !strings.Contains(m.Raw, "cannot be asked: the caller takes no stream") {
		t.Error(m.Raw)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asks) != 0 {
		t.Errorf("%d questions are open", len(s.asks))
	}
}
