package gateway

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

// A caller that is gone is noticed by the first message it should have read,
// also when its end of our input stays open, and the session ends.
func TestCallerThatTakesNothingEndsTheSession(t *testing.T) {
	t.Parallel()
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	tree := belay.NewTree(belay.Options{})
	s, err := Open(t.Context(), Config{
		Command: faketool.Command("server", "-strict=false"), Tree: tree, Log: slog.New(slog.DiscardHandler),
	}, out)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	s.Receive([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	select {
	case <-s.Ended():
	case <-time.After(20 * time.Second):
		t.Error("the session goes on for nobody")
	}
	if err := s.Err(); !errors.Is(err, ErrCallerGone) {
		t.Errorf("Err: %v", err)
	}
	if err := s.Close(t.Context(), belay.Cancellation{Cause: belay.CauseDisconnect}); err != nil {
		t.Error(err)
	}
	if err := tree.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
