package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// TestCloseAnswersHandshake: a handshake is no run, so that nobody stops it; the
// end of the session answers it all the same, in flight or still waiting for a
// process (MCP-G28).
func TestCloseAnswersHandshake(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{})
	r.send(`{"jsonrpc":"2.0","id":"h","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	got(t, server, `"initialize"`)
	ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
	defer end()
	if err := r.s.Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown}); err != nil {
		t.Fatal(err)
	}
	if m := r.expect(`"h"`); m.Error == nil {
		t.Errorf("%s", m.Raw)
	}
	never(t, r.Client, `"result"`)
}
