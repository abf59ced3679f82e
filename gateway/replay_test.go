package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

// strictly has what is deaf ended by force, however long a busy machine takes to
// see it dead.
func strictly(c *Config) {
	c.Enforce = EnforceStrict
	c.Ladder.ConfirmAfter = time.Minute
}

// deafStop has the server's process ended by force: a deaf call is stopped.
func (r *link) deafStop(id, key string) *belay.Receipt {
	r.t.Helper()
	r.tick(id, key, `"n":5000,"deaf":true`)
	run := r.runOf(id)
	r.cancel(id, "")
	receipt := r.receipt(run)
	if receipt.Verdict != belay.Confirmed {
		r.t.Fatalf("the verdict is %s: %+v", receipt.Verdict, receipt.Steps)
	}
	return receipt
}

// state asks the fake what it knows of its session.
func (r *link) state(id string) (s struct {
	Pid, Start, Initialized, Ready int
	Version, Level                 string
	Subscribed, Answers            []string
	Client                         json.RawMessage
},
) {
	r.t.Helper()
	if err := r.Call(id, "state", `{}`, ""); err != nil {
		r.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.expect(id).Text()), &s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *link) request(id, method, params string) faketool.Message {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
	return r.expect(id)
}

// TestReplay: after a forced restart the client notices nothing: the fresh
// process is in the state of the old one, and the next call is answered without
// a new handshake (MCP-G36, DESIGN 11, 3).
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2024-11-05", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			r := open(t, linkOptions{cfg: strictly})
			r.initialize(version)
			r.request("10", "logging/setLevel", `{"level":"debug"}`)
			r.request("11", "logging/setLevel", `{"level":"warning"}`)
			for i, uri := range []string{"file:///a", "file:///b", "file:///c"} {
				r.request(fmt.Sprint(20+i), "resources/subscribe", `{"uri":"`+uri+`"}`)
			}
			r.request("30", "resources/unsubscribe", `{"uri":"file:///b"}`)
			r.request("31", "tools/list", `{}`)
			before := r.state("40")
			r.deafStop("50", "w")
			at := len(r.Messages())
			after := r.state("41")
			if after.Pid == before.Pid || after.Start != 2 {
				t.Fatalf("it is the same process: %+v", after)
			}
			before.Pid, before.Start = after.Pid, after.Start
			if fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("the session was %+v and is %+v", before, after)
			}
			for _, m := range r.Messages()[at:] {
				if m.ID != "41" {
					t.Errorf("the client noticed: %s", m.Raw)
				}
			}
			// Level and subscriptions are in force, not only known.
			r.request("60", "tools/call", `{"name":"touch","arguments":{"uri":"file:///c"}}`)
			r.request("61", "tools/call", `{"name":"log","arguments":{"level":"info","text":"too low"}}`)
			r.request("62", "tools/call", `{"name":"log","arguments":{"level":"error","text":"high"}}`)
			never(t, r.Client, "too low")
			got(t, r.Client, `"data":"high"`)
			got(t, r.Client, `"uri":"file:///c"`)
			initializes := r.gotWith(`"method":"initialize"`)
			if len(initializes) != 2 || paramsOf(t, initializes[0]) != paramsOf(t, initializes[1]) {
				t.Errorf("the processes were opened by %v", initializes)
			}
		})
	}
}

func paramsOf(t *testing.T, line string) string {
	var m struct{ Params json.RawMessage }
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatal(err)
	}
	return string(m.Params)
}

// TestStartUpQuestions reach the client once, whatever the server asks and
// however late; the fresh process gets the same answer (DESIGN 11, 3).
func TestStartUpQuestions(t *testing.T) {
	t.Parallel()
	for kind, method := range map[string]string{"roots": "roots/list", "elicit": "elicitation/create", "sampling": "sampling/createMessage"} {
		t.Run(kind, func(t *testing.T) {
			r := open(t, linkOptions{server: []string{"-start-ask", kind}, cfg: strictly})
			r.initialize("2025-11-25")
			question := got(t, r.Client, method)
			r.send(`{"jsonrpc":"2.0","id":%s,"result":{"answer":"of %s"}}`, question.ID, kind)
			r.works()
			for i := range 2 {
				r.deafStop(fmt.Sprint(i), fmt.Sprint("w", i))
				r.works()
			}
			n := 0
			for _, m := range r.Messages() {
				if m.Method == method {
					n++
				}
			}
			if n != 1 {
				t.Errorf("the client was asked %d times, want once", n)
			}
			if answers := r.state("9").Answers; len(answers) != 1 || answers[0] != `{"answer":"of `+kind+`"}` {
				t.Errorf("the fresh process was told %v", answers)
			}
		})
	}
}

// TestChangedRootsAreAskedAnew: what the caller called outdated is not given to
// a fresh process.
func TestChangedRootsAreAskedAnew(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{server: []string{"-start-ask", "roots"}, cfg: strictly})
	r.initialize("2025-11-25")
	question := got(t, r.Client, "roots/list")
	r.send(`{"jsonrpc":"2.0","id":%s,"result":{"roots":["old"]}}`, question.ID)
	r.works()
	r.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	r.deafStop("1", "w")
	if err := r.Call("2", "echo", `{}`, ""); err != nil {
		t.Fatal(err)
	}
	again, err := r.Await("the question again", func(m message) bool { return m.Method == "roots/list" && m.ID != question.ID })
	if err != nil {
		t.Fatal(err)
	}
	r.send(`{"jsonrpc":"2.0","id":%s,"result":{"roots":["new"]}}`, again.ID)
	r.expect("2")
}

// TestLaterQuestionsAreAsked: only a start-up question is answered from memory.
func TestLaterQuestionsAreAsked(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: strictly})
	for i := range 2 {
		id := fmt.Sprint(100 + i)
		if err := r.Call(id, "ask", fmt.Sprintf(`{"key":"a%d","method":"elicit"}`, i), ""); err != nil {
			t.Fatal(err)
		}
		seen := 0
		question, err := r.Await("a question", func(m message) bool {
			if m.Method == "elicitation/create" {
				seen++
			}
			return seen == i+1
		})
		if err != nil {
			t.Fatal(err)
		}
		r.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, question.ID)
		r.expect(id)
		r.deafStop(fmt.Sprint(i), fmt.Sprint("w", i))
	}
}

// TestChangedServer: a fresh process that is not the same server gets no calls;
// they are answered with a clear error, and so are standing requests
// (DESIGN 11, 3).
func TestChangedServer(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-versions"}, cfg: strictly})
	r.deafStop("1", "w")
	for _, id := range []string{"2", "3"} {
		if err := r.Call(id, "tick", `{"key":"never","n":1}`, ""); err != nil {
			t.Fatal(err)
		}
		m := r.expect(id)
		if m.Error == nil || !strings.Contains(m.Error.Message, "serverInfo") || !strings.Contains(m.Error.Message, "not the same") {
			t.Errorf("the call was answered %s", m.Raw)
		}
	}
	if n := r.wit.Count("never", "start"); n != 0 {
		t.Error("a call reached a server that is not the same")
	}
	r.until("processes that do not fit are gone", func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return len(r.s.all) == 0
	})
}

// TestChangedTools: the client is told that the list has changed.
func TestChangedTools(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-tools-change"}, cfg: strictly})
	r.request("1", "tools/list", `{}`)
	r.deafStop("2", "w")
	r.works()
	got(t, r.Client, "notifications/tools/list_changed")
	if m := r.request("3", "tools/list", `{}`); !strings.Contains(m.Raw, "extra1") {
		t.Error("the list is that of the old process")
	}
}

// TestDeadAtRestart: a server that dies each time it is started again fails the
// calls, at once and with the reason; the session stays.
func TestDeadAtRestart(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-die-from", "2"}, cfg: strictly})
	r.deafStop("1", "w")
	for _, id := range []string{"2", "3"} {
		if err := r.Call(id, "echo", `{}`, ""); err != nil {
			t.Fatal(err)
		}
		if m := r.expect(id); m.Error == nil || !strings.Contains(m.Error.Message, "could not be started again") {
			t.Errorf("the call was answered %s", m.Raw)
		}
	}
}

// TestCrashBetweenHandshakeMessages: a server that dies before the caller's
// initialized notification gets it once, not twice.
func TestCrashBetweenHandshakeMessages(t *testing.T) {
	t.Parallel()
	r, server, p := play(t, linkOptions{})
	r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	m := got(t, server, "initialize")
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`, m.ID)
	r.expect("0")
	_ = server.CloseStdin() // of the socket: the process ends
	r.until("the server is gone", func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return r.s.current == nil
	})
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/x"}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	server = p.next()
	m = got(t, server, "initialize")
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`, m.ID)
	m = got(t, server, "tools/list")
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, m.ID)
	r.expect("1")
	var order []string
	for _, m := range server.Messages() {
		order = append(order, m.Method)
	}
	if text := strings.Join(order, " "); text != "initialize notifications/initialized notifications/x tools/list" {
		t.Errorf("the fresh process got %s", text)
	}
}

// TestCrashMidCall: the call gets its error at once, the next one a fresh
// process in the same session (MCP-G28, MCP-76).
func TestCrashMidCall(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	r.request("1", "resources/subscribe", `{"uri":"file:///a"}`)
	r.tick("2", "w", `"n":3000`)
	w, at := calm.Start(t), time.Now()
	if err := r.Call("3", "crash", `{"key":"c"}`, ""); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"2", "3"} {
		m := r.expect(id)
		if m.Error == nil || m.Error.Code == belay.CodeCancelled {
			t.Errorf("the call was answered %s", m.Raw)
		}
		w.Within(t, m.Time.Sub(at), time.Second, "the answer")
	}
	if s := r.state("4"); s.Start != 2 || len(s.Subscribed) != 1 {
		t.Errorf("the session is %+v", s)
	}
}

// TestRefusedIsolation: what would be kept in the wrong process is refused at
// the handshake, with a word on what to do (DESIGN 11, 2).
func TestRefusedIsolation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ caps, want string }{
		{`{"resources":{"subscribe":true}}`, "resources.subscribe"},
		{`{"tasks":{}}`, "tasks"},
		{`{"tasks":{"list":{},"requests":{}},"resources":{"subscribe":false}}`, "tasks"},
		{`{"resources":{"subscribe":false,"listChanged":true}}`, ""},
		{`{"tools":{}}`, ""},
	} {
		t.Run(c.caps, func(t *testing.T) {
			r, server, _ := play(t, linkOptions{cfg: func(c *Config) { c.Isolation = IsolationCall }})
			r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
			m := got(t, server, "initialize")
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":%s}}`, m.ID, c.caps)
			answer := r.expect("0")
			if c.want == "" {
				if answer.Error != nil {
					t.Errorf("the handshake was answered %s", answer.Raw)
				}
				return
			}
			if answer.Error == nil || !strings.Contains(answer.Error.Message, c.want) || !strings.Contains(answer.Error.Message, "isolation shared") {
				t.Errorf("the handshake was answered %s", answer.Raw)
			}
			<-r.s.Ended()
			if r.s.Err() == nil {
				t.Error("the session does not say why it ended")
			}
		})
	}
}
