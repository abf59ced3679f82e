package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

const cancelLine = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`

func callLine(id, key string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"tick","arguments":{"key":%q,"n":10}}}`, id, key)
}

// TestEarlyCancel: a cancel that comes before its call stops it on arrival, in
// writes of their own and in one; it is used once (MCP-G17, A9).
func TestEarlyCancel(t *testing.T) {
	t.Parallel()
	for _, id := range []string{`7`, `"seven"`, `0`} {
		for _, oneWrite := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s in one write %v", id, oneWrite), func(t *testing.T) {
				r := legacy(t, linkOptions{})
				cancel, call := fmt.Sprintf(cancelLine, id)+"\n", callLine(id, "w")+"\n"
				writes := []string{cancel, call}
				if oneWrite {
					writes = []string{cancel + call}
				}
				for _, w := range writes {
					if err := r.SendBytes([]byte(w)); err != nil {
						t.Fatal(err)
					}
				}
				receipt := r.receipt(r.runOf(id))
				if receipt.Verdict != belay.Confirmed || receipt.Outcome != belay.Cancelled || !saw(receipt, belay.SeenNotStarted) {
					t.Errorf("the receipt says %s, %s, %+v", receipt.Verdict, receipt.Outcome, receipt.Steps)
				}
				r.works()
				if n := r.wit.Count("w", "start"); n != 0 {
					t.Error("the call was started")
				}
				if n := len(r.Responses(id)); n != 0 {
					t.Error("a cancelled call was answered")
				}
				if len(r.gotWith("notifications/cancelled")) != 0 {
					t.Error("the server was told of a call that it never got")
				}
				// One use: the id may be used for a call that runs.
				if err := r.Call(id, "tick", `{"key":"again","n":2}`, ""); err != nil {
					t.Fatal(err)
				}
				r.expect(id)
			})
		}
	}
}

func saw(receipt *belay.Receipt, kind belay.EvidenceKind) bool {
	for _, s := range receipt.Steps {
		if s.Evidence != nil && s.Evidence.Kind == kind {
			return true
		}
	}
	return false
}

// TestEarlyCancelExpires: the mark is forgotten after its time (MCP-G17).
func TestEarlyCancelExpires(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{before: func(s *Session) { s.stones = belay.NewTombstones[string, string](30*time.Millisecond, 0) }})
	r.cancel("7", "")
	r.works()
	time.Sleep(60 * time.Millisecond)
	if err := r.Call("7", "tick", `{"key":"w","n":2}`, ""); err != nil {
		t.Fatal(err)
	}
	r.expect("7")
}

// TestEarlyCancelOfTwin: the mark counts for that type and value alone.
func TestEarlyCancelOfTwin(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	r.cancel("7", "")
	if err := r.Call(`"7"`, "tick", `{"key":"w","n":2}`, ""); err != nil {
		t.Fatal(err)
	}
	r.expect(`"7"`)
}

// TestCallAndCancelInOneWrite: the call never runs, or is told at once; in
// either case it stops and is not answered.
func TestCallAndCancelInOneWrite(t *testing.T) {
	t.Parallel()
	for _, isolation := range []Isolation{IsolationShared, IsolationCall} {
		t.Run(string(isolation), func(t *testing.T) {
			r := legacy(t, linkOptions{server: []string{"-no-subscribe"}, cfg: func(c *Config) { c.Isolation = isolation }})
			at := time.Now()
			for i := range 40 {
				id := fmt.Sprint(100 + i)
				text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"tick","arguments":{"key":"w%d","n":500}}}`, id, i) + "\n" +
					fmt.Sprintf(cancelLine, id) + "\n"
				if err := r.SendBytes([]byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			r.works() // of isolation call: no process is lost to a call that never was
			for i := range 40 {
				r.until("the call has stopped or never started", func() bool {
					key := fmt.Sprint("w", i)
					return r.wit.Count(key, "start") == r.wit.Count(key, "stopped") || isolation == IsolationCall && !r.wit.StillTicking(key, 100*time.Millisecond)
				})
				r.silent(fmt.Sprint(100+i), at)
			}
		})
	}
}

// TestCancelOfQueuedCall: what waits for its process is taken back, nothing
// goes to the server, and an operator gets an answer (MCP-G16).
func TestCancelOfQueuedCall(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-no-subscribe"}, cfg: func(c *Config) { c.Isolation, c.MaxProcesses = IsolationCall, 1 }})
	r.tick("1", "first", `"n":40`)
	for _, id := range []string{"2", "3"} {
		if err := r.Call(id, "tick", `{"key":"w`+id+`","n":10}`, ""); err != nil {
			t.Fatal(err)
		}
	}
	byCaller := r.runOf("2")
	r.cancel("2", "")
	byOperator := r.stop("3", "cost")
	if m := r.expect("3"); m.Error == nil || m.Error.Code != belay.CodeCancelled || strings.Contains(m.Raw, "may still be running") {
		t.Errorf("the answer is %s", m.Raw)
	}
	for _, run := range []*belay.Run{byCaller, byOperator} {
		receipt := r.receipt(run)
		if receipt.Verdict != belay.Confirmed || !saw(receipt, belay.SeenNotStarted) {
			t.Errorf("the receipt says %s: %+v", receipt.Verdict, receipt.Steps)
		}
	}
	if m := r.expect("1"); m.Text() != "first: 40 ticks" {
		t.Errorf("the first call was answered %s", m.Raw)
	}
	r.works()
	for _, key := range []string{"w2", "w3"} {
		if n := r.wit.Count(key, "start"); n != 0 {
			t.Errorf("%s was started", key)
		}
	}
	if n := len(r.Responses("2")); n != 0 {
		t.Error("the cancelled call was answered")
	}
}

// TestCancelBeforeTheFirstByte: a call behind a server that does not read is
// withdrawn, and the cancel of one that is half written waits for the rest of
// its line and overtakes all others (MCP-G16, MCP-G19).
func TestCancelBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	p := newPuppets(t)
	r := &link{t: t, logs: &faketool.Text{}}
	r.start(p.command, linkOptions{})
	conn := p.conn() // which nobody reads yet
	big := strings.Repeat("x", 2<<20)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"half","arguments":{"a":%q}}}`, big)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"whole","arguments":{}}}`)
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"stays","arguments":{}}}`)
	two, one := r.runOf("2"), r.runOf("1")
	r.cancel("2", "")
	if receipt := r.receipt(two); receipt.Verdict != belay.Confirmed || !saw(receipt, belay.SeenNotStarted) {
		t.Errorf("the receipt says %s", receipt.Verdict)
	}
	r.cancel("1", "")
	r.until("the cancel is queued", func() bool { return one.Receipt() != nil })
	r.until("the cancel is queued", func() bool {
		frames, _ := r.s.current.wire.(pipe).in.Queued()
		return frames >= 2
	})
	server := newServer(t, conn)
	last := got(t, server, `"stays"`)
	var order []string
	for _, m := range server.Messages() {
		order = append(order, m.Method)
		if strings.Contains(m.Raw, `"whole"`) {
			t.Error("a withdrawn call was sent")
		}
	}
	if strings.Join(order, " ") != "tools/call notifications/cancelled tools/call" {
		t.Errorf("the server got %v", order)
	}
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, last.ID)
	r.expect("3")
}
