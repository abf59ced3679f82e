package gateway

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

// TestBadLinesOfCaller: each gets the right error where there is somebody to
// answer, and everything else goes on (MCP-G3).
func TestBadLinesOfCaller(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	r := legacy(t, linkOptions{})
	for _, c := range []struct {
		name, line string
		id         string // of the answer; "" for none
		code       int
	}{
		{"no JSON", `hello`, `null`, -32700},
		{"half a message", `{"jsonrpc":"2.0","id":1,"method":"x"`, `null`, -32700},
		{"two messages", `{"jsonrpc":"2.0","id":1,"method":"x"} {"jsonrpc":"2.0","id":2,"method":"x"}`, `null`, -32700},
		{"a number", `42`, `null`, -32600},
		{"no version", `{"id":1,"method":"x"}`, `1`, -32600},
		{"version 1.0", `{"jsonrpc":"1.0","id":"a","method":"x"}`, `"a"`, -32600},
		{"no method", `{"jsonrpc":"2.0","id":1}`, `1`, -32600},
		{"two ids", `{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}`, `null`, -32600},
		{"two methods", `{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}`, `1`, -32600},
		{"two params", `{"jsonrpc":"2.0","id":1,"method":"x","params":{},"p\u0061rams":{}}`, `1`, -32600},
		{"an id in another case", `{"jsonrpc":"2.0","id":1,"ID":2,"method":"x"}`, `null`, -32600},
		{"an object as id", `{"jsonrpc":"2.0","id":{},"method":"x"}`, `null`, -32600},
		{"an endless id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1000) + `","method":"x"}`, `null`, -32600},
		{"a depth bomb", `{"jsonrpc":"2.0","id":1,"method":"x","params":` + deep + `}`, `1`, -32600},
		{"a notification without version", `{"method":"x"}`, ``, 0},
		{"a notification of version 1.0", `{"jsonrpc":"1.0","method":"x"}`, ``, 0},
		{"a bad answer", `{"jsonrpc":"1.0","id":1,"result":{}}`, ``, 0},
		{"an answer with both", `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, ``, 0},
	} {
		at, warned := len(r.Messages()), strings.Count(r.logs.String(), "level=WARN")
		r.send("%s", c.line)
		r.works() // all the same
		n := 0
		for _, m := range r.Messages()[at:] {
			if !m.IsResponse() || strings.HasPrefix(m.ID, `"probe`) {
				continue
			}
			n++
			if m.ID != c.id || m.Error == nil || m.Error.Code != c.code || m.Error.Message == "" {
				t.Errorf("%s: the answer is %s, want code %d", c.name, m.Raw, c.code)
			}
		}
		if want := min(len(c.id), 1); n != want {
			t.Errorf("%s: %d answers, want %d", c.name, n, want)
		}
		if n := strings.Count(r.logs.String(), "level=WARN") - warned; n != 1 {
			t.Errorf("%s: %d warnings, want one clear line:\n%s", c.name, n, r.logs)
		}
	}
}

// TestNotJSONIsNotPassedOn: nothing of the above reaches a server.
func TestLinesThatPassNothing(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{})
	for _, line := range []string{`hello`, ``, `   `, `{"jsonrpc":"2.0","id":1,"id":2,"method":"secret"}`, `{"method":"secret"}`} {
		r.send("%s", line)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/marker"}`)
	got(t, server, "marker")
	if n := len(server.Messages()); n != 1 {
		t.Errorf("the server got %d lines, want 1", n)
	}
}

// TestLongLineOfCaller: it costs its own call; the connection lives (MCP-G3).
func TestLongLineOfCaller(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: func(c *Config) { c.MaxLine = 64 << 10 }})
	long := strings.Repeat("x", 300<<10)
	r.tick("1", "w", `"n":30`)
	if err := r.Call("2", "echo", `{"a":"`+long+`"}`, ""); err != nil {
		t.Fatal(err)
	}
	if m := r.expect("2"); m.Error == nil || !strings.Contains(m.Error.Message, "65536") {
		t.Errorf("the long call was answered %s", m.Raw)
	}
	// The id may come last, as some write it; a notification has none.
	r.send(`{"jsonrpc":"2.0","method":"x","params":{"a":%q},"id":"last"}`, long)
	if m := r.expect(`"last"`); m.Error == nil {
		t.Errorf("the long call was answered %s", m.Raw)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/x","params":{"a":%q}}`, long)
	if m := r.expect("1"); m.Text() != "w: 30 ticks" {
		t.Errorf("the other call was answered %s", m.Raw)
	}
	r.works()
}

// TestLongLineOfServer: the call whose answer it is gets an error, the others
// nothing (MCP-G3).
func TestLongLineOfServer(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: func(c *Config) { c.MaxLine = 64 << 10 }})
	r.tick("1", "w", `"n":30`)
	if err := r.Call("2", "bigresult", `{"bytes":300000}`, ""); err != nil {
		t.Fatal(err)
	}
	if m := r.expect("2"); m.Error == nil || !strings.Contains(m.Error.Message, "at most 65536") {
		t.Errorf("the call was answered %s", m.Raw)
	}
	if err := r.Call("3", "misbehave", `{"what":"huge","bytes":300000}`, ""); err != nil { // a notification
		t.Fatal(err)
	}
	if m := r.expect("3"); m.Text() != "did huge" {
		t.Errorf("the call was answered %s", m.Raw)
	}
	if m := r.expect("1"); m.Text() != "w: 30 ticks" {
		t.Errorf("the other call was answered %s", m.Raw)
	}
	r.works()
}

// TestMisbehavingServer: noise, floods and broken messages on its output are
// passed over, and cost no call (MCP-24, MCP-G3).
func TestMisbehavingServer(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"noise", "unknown-id", "null-id", "twice", "flood-stderr", "flood-stdout", "invalid"} {
		for _, atStart := range []bool{true, false} {
			if atStart && what == "twice" {
				continue // there is nothing to answer twice
			}
			t.Run(fmt.Sprintf("%s at start %v", what, atStart), func(t *testing.T) {
				o := linkOptions{}
				if atStart {
					o.server = []string{"-misbehave", what, "-bytes", "500000"}
				}
				r := legacy(t, o)
				r.tick("1", "w", `"n":20,"ms":5`)
				if !atStart {
					if err := r.Call("2", "misbehave", fmt.Sprintf(`{"what":%q,"bytes":500000}`, what), ""); err != nil {
						t.Fatal(err)
					}
					if m := r.expect("2"); m.Text() != "did "+what {
						t.Errorf("the call was answered %s", m.Raw)
					}
				}
				if m := r.expect("1"); m.Text() != "w: 20 ticks" {
					t.Errorf("the other call was answered %s", m.Raw)
				}
				r.works()
				for _, m := range r.Messages() {
					if !m.JSON || m.IsResponse() && (m.ID == "null" || len(r.Responses(m.ID)) != 1) {
						t.Errorf("the client got %s", m.Raw)
					}
				}
				if n := strings.Count(r.logs.String(), "level=WARN"); n > 20 || n == 0 && what != "flood-stderr" {
					t.Errorf("%d warnings about it", n)
				}
			})
		}
	}
}

// TestBrokenAnswer: an answer that cannot be read fails its call, and does not
// leave it hanging (MCP-G3).
func TestBrokenAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"cut":            `{"jsonrpc":"2.0","id":%s,"result":{"content":[`,
		"bad escape":     `{"jsonrpc":"2.0","id":%s,"result":{"a":"\q"}}`,
		"id at the end":  `{"jsonrpc":"2.0","result":{"a":tru},"id":%s}`,
		"two results":    `{"jsonrpc":"2.0","id":%s,"result":{},"result":{}}`,
		"no version":     `{"id":%s,"result":{}}`,
		"both":           `{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":""}}`,
		"a depth bomb":   `{"jsonrpc":"2.0","id":%s,"result":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `}`,
		"within a batch": `[{"id":%s,"result":{}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			r, server, _ := play(t, linkOptions{})
			r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`)
			r.send(`{"jsonrpc":"2.0","id":8,"method":"x/other"}`)
			m := got(t, server, "tools/call")
			say(t, server, answer, m.ID)
			if m := r.expect("7"); m.Error == nil || m.Error.Code != -32603 || !strings.Contains(m.Error.Message, "fake") {
				t.Errorf("the call was answered %s", m.Raw)
			}
			m = got(t, server, "x/other")
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
			r.expect("8")
		})
	}
}

// TestBrokenQuestion: a request of the server that cannot be read is answered,
// so that the server does not wait for ever.
func TestBrokenQuestion(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{})
	say(t, server, `{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{},"params":{}}`)
	if m := got(t, server, `"id":"q"`); m.Error == nil || m.Error.Code != -32600 {
		t.Errorf("the server was answered %s", m.Raw)
	}
	say(t, server, `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
	m := got(t, r.Client, "roots/list")
	say(t, server, `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`) // an id in flight
	if m := got(t, server, `"id":"r"`); m.Error == nil {
		t.Errorf("the server was answered %s", m.Raw)
	}
	r.send(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, m.ID)
	got(t, server, `"roots":[]`)
	never(t, r.Client, "sampling")
}

// TestServerThatEnds in odd ways fails its calls at once, and the next call has
// a fresh process (MCP-G28).
func TestServerThatEnds(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"exit", "half-exit", "close-stdout"} {
		t.Run(what, func(t *testing.T) {
			r := legacy(t, linkOptions{})
			r.tick("1", "w", `"n":5000`)
			w, at := calm.Start(t), time.Now()
			if err := r.Call("2", "misbehave", fmt.Sprintf(`{"what":%q}`, what), ""); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"1", "2"} {
				m := r.expect(id)
				if m.Error == nil {
					t.Errorf("the call was answered %s", m.Raw)
				}
				w.Within(t, m.Time.Sub(at), 2*time.Second, "the answer")
			}
			r.works()
			if left := faketool.WaitDead(r.wit.Pids("w"), 5*time.Second); len(left) > 0 {
				t.Errorf("the old process works on: %v", left)
			}
		})
	}
}

// TestServerThatNeverStood: one that dies before it answered anything ends the
// session, with an error for the handshake and a reason.
func TestServerThatNeverStood(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-die", "-misbehave=half-exit", "-misbehave=close-stdout"} {
		t.Run(flag, func(t *testing.T) {
			r := open(t, linkOptions{server: []string{flag}})
			r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
			if m := r.expect("0"); m.Error == nil {
				t.Errorf("the handshake was answered %s", m.Raw)
			}
			select {
			case <-r.s.Ended():
			case <-time.After(5 * time.Second):
				t.Fatal("the session goes on")
			}
			if err := r.s.Err(); err == nil || !strings.Contains(err.Error(), "before the session stood") {
				t.Errorf("the session ended because of %v", err)
			}
			r.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			if m := r.expect("1"); m.Error == nil {
				t.Errorf("a later call was answered %s", m.Raw)
			}
		})
	}
}

// TestCallerThatDoesNotRead holds up its own server and nobody else; what it
// was owed is there when it reads again, in order and whole.
func TestCallerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	toSession, fromClient := io.Pipe()
	fromSession, toClient := io.Pipe()
	const n, size, limit = 60, 100 << 10, 1 << 20 // more than the queues of both sides take
	slow := open(t, linkOptions{in: toSession, out: toClient, cfg: func(c *Config) { c.maxUnread = limit }})
	other := legacy(t, linkOptions{})
	write := func(text string) {
		t.Helper()
		if _, err := io.WriteString(fromClient, text+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for i := range n {
		write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"bigresult","arguments":{"bytes":%d}}}`, i, size))
	}
	slow.until("the queue towards the caller is full", func() bool {
		_, queued := slow.s.lines.Queued()
		return queued > limit/2
	})
	write(fmt.Sprintf(cancelLine, "999")) // Receive goes on although nobody reads
	other.works()
	if _, queued := slow.s.lines.Queued(); queued > 2*limit {
		t.Errorf("%d bytes are queued", queued)
	}
	if err := slow.s.Err(); err != nil {
		t.Fatalf("the session ended: %v", err)
	}
	slow.Client = faketool.NewClient(fromSession, fromClient)
	slow.Timeout = 20 * time.Second
	for i := range n {
		if m := slow.expect(fmt.Sprint(i)); len(m.Text()) != size {
			t.Fatalf("answer %d has %d bytes", i, len(m.Text()))
		}
	}
	slow.works()
}
