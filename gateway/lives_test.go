package gateway

import (
	"errors"
	"testing"

	"github.com/belayhq/belay"
)

// TestDeadBeforeUse: a process that ended when it had just been put into the
// session is never given a call, which nobody would answer (MCP-G28).
func TestDeadBeforeUse(t *testing.T) {
	t.Parallel()
	r, _, _ := play(t, linkOptions{})
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	u := &upstream{s: r.s}
	if err := u.livesLocked(); err != nil {
		t.Error(err)
	}
	if u.dead = true; !errors.Is(u.livesLocked(), belay.ErrUnreachable) {
		t.Error("a dead process counts as alive")
	}
}
