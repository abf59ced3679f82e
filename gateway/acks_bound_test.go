package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

// TestAcksAreBounded: a server that acknowledges stops, and answers stopped calls
// as well, leaves nothing of them behind: not one token for each call for as
// long as its process lives.
func TestAcksAreBounded(t *testing.T) {
	t.Parallel()
	p := newPuppets(t)
	r := &link{t: t, logs: &faketool.Text{}}
	r.start(p.command, linkOptions{cfg: func(c *Config) {
		c.Enforce = EnforceNever
		c.Ladder = belay.Ladder{Grace: time.Millisecond, KillAfter: time.Millisecond, ConfirmAfter: 3 * time.Second}
	}})
	conn := p.conn()
	lines := bufio.NewReader(conn) // each line is looked at once: there are thousands
	read := func(text string) (id string) {
		for {
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("no line with %s: %v", text, err)
			}
			if strings.Contains(line, text) {
				var m struct{ ID json.RawMessage }
				if err := json.Unmarshal([]byte(line), &m); err != nil {
					t.Fatal(err)
				}
				return string(m.ID)
			}
		}
	}
	write := func(format string, args ...any) {
		if _, err := fmt.Fprintf(conn, format+"\n", args...); err != nil {
			t.Fatal(err)
		}
	}
	r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	write(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"io.github.belayhq/stop-ack":{"notify":true}}}}}`, read(`"initialize"`))
	r.expect("0")
	stop := func(i int) {
		r.send(`{"jsonrpc":"2.0","id":"c%d","method":"tools/call","params":{"name":"x","arguments":{"n":"n%d"}}}`, i, i)
		call := read(fmt.Sprintf(`"n%d"`, i))
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c%d"}}`, i)
		read(fmt.Sprintf(`"requestId":%s`, call))
		write(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, call)
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
