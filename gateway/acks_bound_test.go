package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// TestAcksAreBounded: a server that acknowledges stops, and answers stopped calls
// as well, leaves nothing of them behind: not one token for each call for as
// long as its process lives.
func TestAcksAreBounded(t *testing.T) {
	r, server, _ := play(t, linkOptions{cfg: func(c *Config) {
		c.Enforce = EnforceNever
		c.Ladder = belay.Ladder{Grace: time.Millisecond, KillAfter: time.Millisecond, ConfirmAfter: 3 * time.Second}
	}})
	r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	m := got(t, server, `"initialize"`)
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"io.github.belayhq/stop-ack":{"notify":true}}}}}`, m.ID)
	got(t, r.Client, "protocolVersion")
	stop := func(i int) {
		r.send(`{"jsonrpc":"2.0","id":"c%d","method":"tools/call","params":{"name":"x","arguments":{"n":"n%d"}}}`, i, i)
		call := got(t, server, fmt.Sprintf(`"n%d"`, i))
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c%d"}}`, i)
		got(t, server, fmt.Sprintf(`"requestId":%s`, call.ID))
		say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, call.ID)
	}
	count := func() int {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return len(r.s.current.acks)
	}
	for i := range 2*maxGhosts + 50 {
		stop(i)
	}
	time.Sleep(time.Second) // they are looked through once a second at most
	for i := range 20 {
		stop(1_000_000 + i)
	}
	if n := count(); n > maxGhosts+100 {
		t.Errorf("%d tokens are remembered", n)
	}
}
