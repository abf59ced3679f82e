package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// TestQuestionsPass: what the server asks reaches the caller under an id of
// Belay's own, and the answer the server under its own (MCP-2, MCP-G9).
func TestQuestionsPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, method, answer string }{
		{"roots", "roots/list", `{"roots":[{"uri":"file:///home","name":"h"}]}`},
		{"sampling", "sampling/createMessage", `{"role":"assistant","content":{"type":"text","text":"hi \u00fc"},"model":"m","x":1e5}`},
		{"elicit", "elicitation/create", `{"action":"accept","content":{"folder":"/tmp"}}`},
		{"custom/ask", "custom/ask", `{"ok":true}`},
	} {
		t.Run(c.kind, func(t *testing.T) {
			r := legacy(t, linkOptions{})
			// The caller's own id is the one that the server uses: ids of two
			// directions must not meet.
			for i, id := range []string{`1`, `"b-2"`, `0`, `1152921504606846977`} {
				key, asked := fmt.Sprint("w", i), 0
				if err := r.Call(id, "ask", fmt.Sprintf(`{"key":%q,"method":%q,"askId":%s}`, key, c.kind, id), ""); err != nil {
					t.Fatal(err)
				}
				m, err := r.Await("a question", func(m message) bool {
					if m.Method == c.method {
						asked++
					}
					return asked == i+1
				})
				if err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprintf(`"b-%d"`, i+1); m.ID != want {
					t.Errorf("the question has the id %s, want %s", m.ID, want)
				}
				r.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, c.answer)
				if e := r.saw(key, "answer"); e.Detail != c.answer {
					t.Errorf("the server got %s", e.Detail)
				}
				if m := r.expect(id); m.Text() != c.answer {
					t.Errorf("the call was answered %s", m.Raw)
				}
			}
			r.works()
		})
	}
}

// TestQuestionRefused: an error of the caller passes too.
func TestQuestionRefused(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	if err := r.Call("1", "ask", `{"key":"w","method":"sampling"}`, ""); err != nil {
		t.Fatal(err)
	}
	m := got(t, r.Client, "sampling/createMessage")
	r.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"User rejected"}}`, m.ID)
	if e := r.saw("w", "answer"); !strings.Contains(e.Detail, "User rejected") {
		t.Errorf("the server got %s", e.Detail)
	}
	r.expect("1")
}

// TestServerCancelsItsQuestion: in that direction the cancel carries the mapped
// id, and a late answer of the caller is dropped (MCP-2, MCP-G9, MCP-14).
func TestServerCancelsItsQuestion(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	if err := r.Call("1", "ask", `{"key":"w","method":"elicit","cancelMs":30,"askId":"q"}`, ""); err != nil {
		t.Fatal(err)
	}
	question := got(t, r.Client, "elicitation/create")
	m := got(t, r.Client, "notifications/cancelled")
	if !strings.Contains(m.Raw, `"requestId":`+question.ID+`,`) || !strings.Contains(m.Raw, "asked too long") {
		t.Errorf("the caller got %s for its question %s", m.Raw, question.ID)
	}
	r.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, question.ID) // a violation, if it came through
	if m := r.expect("1"); m.Text() != "question cancelled" {
		t.Errorf("the call was answered %s", m.Raw)
	}
	r.works()
}

// TestQuestionsOfStoppedCall: they are cancelled at the caller, whose answers
// are dropped; the server's own cancel of them is not passed on a second time
// (MCP-G22).
func TestQuestionsOfStoppedCall(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sampling", "elicit"} {
		for _, operator := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s operator=%v", kind, operator), func(t *testing.T) {
				r := legacy(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceNever }})
				// A silent call that was stopped before must not keep a question from
				// being known as that of the only call.
				r.tick("9", "ghost", `"n":1000`)
				r.cancel("9", "")
				r.receipt(r.runOf("9"))
				if err := r.Call("1", "ask", fmt.Sprintf(`{"key":"w","method":%q}`, kind), ""); err != nil {
					t.Fatal(err)
				}
				question, err := r.Await("a question", func(m faketool.Message) bool { return m.Method != "" && m.ID != "" })
				if err != nil {
					t.Fatal(err)
				}
				at := time.Now()
				if operator {
					r.stop("1", "enough")
					r.expect("1")
				} else {
					r.cancel("1", "enough")
				}
				r.saw("w", "stopped")
				m := got(t, r.Client, "notifications/cancelled")
				if !strings.Contains(m.Raw, `"requestId":`+question.ID) {
					t.Errorf("the caller got %s for its question %s", m.Raw, question.ID)
				}
				r.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, question.ID)
				r.works()
				n := 0
				for _, m := range r.Messages() {
					if m.Method == "notifications/cancelled" {
						n++
					}
				}
				if n != 1 {
					t.Errorf("the caller got %d cancels, want 1", n)
				}
				if !operator {
					r.silent("1", at)
				}
			})
		}
	}
}

// TestPingIsNobodys: a server's ping or roots/list is answered by the caller
// whatever was stopped (MCP-42).
func TestPingIsNobodys(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{})
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	got(t, server, "tools/call")
	r.cancel("1", "")
	got(t, server, "notifications/cancelled")
	for _, method := range []string{"ping", "roots/list"} {
		say(t, server, `{"jsonrpc":"2.0","id":"p","method":%q}`, method)
		m := got(t, r.Client, method)
		r.send(`{"jsonrpc":"2.0","id":%s,"result":{"of":%q}}`, m.ID, method)
		if a := got(t, server, `"of":"`+method); a.ID != `"p"` {
			t.Errorf("the server got %s", a.Raw)
		}
	}
}

// TestProgressIsMapped: tokens go under Belay's own name and come back in their
// type, in both directions; a caller without a token gets no progress
// (MCP-41, MCP-G8).
func TestProgressIsMapped(t *testing.T) {
	t.Parallel()
	for _, enforce := range []Enforce{EnforceAuto, EnforceStrict} {
		t.Run(string(enforce), func(t *testing.T) {
			r := legacy(t, linkOptions{cfg: func(c *Config) { c.Enforce = enforce }})
			for i, token := range []string{`7`, `"7"`, `"a\u0062"`, `0`, `1152921504606846977`, ``} {
				id, at, n := fmt.Sprint(i), len(r.Messages()), 0
				if err := r.Call(id, "tick", `{"key":"w","n":5,"ms":2}`, token); err != nil {
					t.Fatal(err)
				}
				r.expect(id)
				for _, m := range r.Messages()[at:] {
					if m.Method == "notifications/progress" {
						n++
						if !strings.HasPrefix(string(m.Params), `{"progressToken":`+token+`,"progress":`) {
							t.Errorf("the caller of token %s got %s", token, m.Params)
						}
					}
				}
				if want := 5 * min(len(token), 1); n != want {
					t.Errorf("%d progress notifications for token %s, want %d", n, token, want)
				}
			}
		})
	}
}

// TestProgressOfQuestions: the caller's progress on a question of the server
// comes back under the server's token.
func TestProgressOfQuestions(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{})
	say(t, server, `{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{"_meta":{"progressToken":77},"maxTokens":1}}`)
	q := got(t, r.Client, "sampling/createMessage")
	_, rest, _ := strings.Cut(q.Raw, `"progressToken":`)
	token, _, _ := strings.Cut(rest, "}")
	if token == "77" {
		t.Fatal("the token was not mapped: two servers' tokens would meet at one caller")
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.5,"progressToken":%s,"message":"half"}}`, token)
	m := got(t, server, "notifications/progress")
	if string(m.Params) != `{"progress":0.5,"progressToken":77,"message":"half"}` {
		t.Errorf("the server got %s", m.Params)
	}
	r.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, q.ID)
	got(t, server, `"id":5`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":%s,"message":"late"}}`, token)
	r.send(`{"jsonrpc":"2.0","method":"notifications/marker"}`)
	got(t, server, "notifications/marker")
	never(t, server, "late")
}

// TestAnswersNobodyAskedFor are dropped, in both directions (MCP-5).
func TestAnswersNobodyAskedFor(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{})
	r.send(`{"jsonrpc":"2.0","id":"b-1","result":{"to":"nobody"}}`)
	r.send(`{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"to nobody"}}`)
	say(t, server, `{"jsonrpc":"2.0","id":"b-99","result":{"to":"nobody"}}`)
	say(t, server, `{"jsonrpc":"2.0","id":1,"result":{"to":"nobody"}}`)
	say(t, server, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"to nobody"}}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"x/y"}`)
	m := got(t, server, "x/y")
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"to":"nobody, a second time"}}`, m.ID)
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/marker"}`)
	got(t, r.Client, "notifications/marker")
	never(t, server, "nobody")
	never(t, r.Client, "nobody")
	r.expect("1")
	if n := strings.Count(r.logs.String(), "not in flight"); n < 4 {
		t.Errorf("%d lines were logged about answers that nobody asked for", n)
	}
}

// TestQuestionsOfDeadServer are cancelled at the caller, whose answer goes
// nowhere (MCP-G22).
func TestQuestionsOfDeadServer(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	if err := r.Call("1", "ask", `{"key":"w","method":"elicit"}`, ""); err != nil {
		t.Fatal(err)
	}
	question := got(t, r.Client, "elicitation/create")
	if err := r.Call("2", "crash", `{}`, ""); err != nil {
		t.Fatal(err)
	}
	m := got(t, r.Client, "notifications/cancelled")
	if !strings.Contains(m.Raw, `"requestId":`+question.ID) {
		t.Errorf("the caller got %s", m.Raw)
	}
	r.expect("1")
	r.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, question.ID)
	r.works()
}

// TestIsolatedCall: with isolation call a process that works for one call can
// ask, is told of the level that was set since it was started, and nothing of
// it but what belongs to its call reaches the caller.
func TestIsolatedCall(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-no-subscribe"}, cfg: func(c *Config) { c.Isolation = IsolationCall }})
	if err := r.Call("1", "ask", `{"key":"w","method":"sampling"}`, ""); err != nil {
		t.Fatal(err)
	}
	question := got(t, r.Client, "sampling/createMessage")
	r.send(`{"jsonrpc":"2.0","id":%s,"result":{"x":1}}`, question.ID)
	if m := r.expect("1"); m.Text() != `{"x":1}` {
		t.Errorf("the call was answered %s", m.Raw)
	}
	before := r.state("2")
	r.request("3", "logging/setLevel", `{"level":"error"}`)
	after := r.state("4")
	if before.Level != "" || after.Level != "error" {
		t.Errorf("the level was %q and is %q", before.Level, after.Level)
	}
	if m := r.request("5", "tools/call", `{"name":"log","arguments":{"level":"info","text":"too low"}}`); m.Text() != "sent: false" {
		t.Errorf("a message below the level: %s", m.Raw)
	}
	never(t, r.Client, "too low")
	r.request("6", "tools/call", `{"name":"log","arguments":{"level":"error","text":"high"}}`)
	got(t, r.Client, `"data":"high"`)
}
