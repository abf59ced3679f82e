package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// calls counts the runs of calls, ended ones too.
func (r *link) callRuns() []belay.Info {
	r.t.Helper()
	list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}, Ended: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// retry sends the next leg of a modern call.
func (r *link) retry(id, tool, key, state string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{"key":%q},"requestState":%s,"inputResponses":{"q":{"action":"accept"}},%s}}`,
		id, tool, key, state, modernMeta)
}

// question starts a call that is answered by a question.
func (r *link) question(id, key string) *belay.Run {
	r.t.Helper()
	if err := r.CallModern(id, "ask", fmt.Sprintf(`{"key":%q,"method":"elicit"}`, key), ""); err != nil {
		r.t.Fatal(err)
	}
	if m := r.expect(id); !strings.Contains(m.Raw, "input_required") {
		r.t.Fatalf("got %s", m.Raw)
	}
	return r.runOf(id)
}

// TestRoundsAreOneCall: a call that asks for input waits between its legs, where
// nobody else waits for it, and the retry is its next leg, not another call
// (MCP-65, MCP-G18).
func TestRoundsAreOneCall(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{server: []string{"-era", "modern"}})
	run := r.question("1", "a")
	if info := run.Info(); info.Work != belay.Waiting || info.Outcome != belay.Pending {
		t.Errorf("between the legs it is %+v", info)
	}
	r.s.mu.Lock()
	if u := r.s.current; u.busy != 0 || u.tools != 0 || len(u.calls) != 0 || len(r.s.calls) != 0 {
		t.Errorf("between the legs somebody waits: busy %d, tools %d, %d calls", u.busy, u.tools, len(u.calls))
	}
	r.s.mu.Unlock()
	r.retry("2", "ask", "a", `"\u0061sk:a"`) // however the state is spelled
	if m := r.expect("2"); m.Error != nil || !strings.Contains(m.Text(), "accept") {
		t.Errorf("got %s", m.Raw)
	}
	if list := r.callRuns(); len(list) != 1 || list[0].Outcome != belay.Completed || list[0].Work != belay.Stopped {
		t.Errorf("the runs are %+v", list)
	}
	r.modernWorks()
}

// TestStopBetweenRounds: nothing runs there, so the Stop is confirmed at once; the
// retry gets -32800, however often, and never reaches the server (MCP-G18).
func TestStopBetweenRounds(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{server: []string{"-era", "modern"}, cfg: strictly})
	run, other := r.question("1", "a"), r.question("2", "b")
	r.stopRun(run)
	receipt := r.receipt(run)
	if receipt.Verdict != belay.Confirmed || !saw(receipt, belay.SeenNotStarted) || len(r.Responses("1")) != 1 {
		t.Errorf("the receipt is %+v", receipt)
	}
	for _, id := range []string{"3", "4"} {
		r.retry(id, "ask", "a", `"ask:a"`)
		m := r.expect(id)
		if m.Error == nil || m.Error.Code != belay.CodeCancelled || !strings.Contains(m.Raw, run.ID().String()) || strings.Contains(m.Raw, mcp.StillRunning) {
			t.Errorf("the retry got %s", m.Raw)
		}
	}
	r.retry("5", "ask", "b", `"ask:b"`) // another call's goes on
	if m := r.expect("5"); m.Error != nil {
		t.Errorf("got %s", m.Raw)
	}
	if o := other.Info().Outcome; o != belay.Completed {
		t.Errorf("the other call is %s", o)
	}
	if n := r.wit.Count("a", "answer"); n != 0 {
		t.Errorf("%d retries reached the server", n)
	}
	if n := r.wit.Count("server", "start"); n != 1 {
		t.Errorf("the server was started %d times", n)
	}
}

// TestStopInLaterRound: a Stop of the run reaches the leg that is in flight, and
// its caller is answered under that leg's id; a Stop that crosses with the next
// question holds for the retry, too.
func TestStopInLaterRound(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceNever }})
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x",%s}}`, modernMeta)
	m := got(t, server, "tools/call")
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","requestState":"one"}}`, m.ID)
	r.expect("1")
	run := r.runOf("1")
	r.retry("2", "x", "k", `"one"`)
	m = got(t, server, `"one"`)
	if w := run.Info().Work; w != belay.Running {
		t.Errorf("it is %s", w)
	}
	r.stopRun(run)
	got(t, server, fmt.Sprintf(`"requestId":%s`, m.ID))
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","requestState":"two"}}`, m.ID)
	if m := r.expect("2"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("got %s", m.Raw)
	}
	r.until("the late question is seen", func() bool { return saw(run.Receipt(), belay.SeenResult) })
	r.retry("3", "x", "k", `"two"`)
	if m := r.expect("3"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("got %s", m.Raw)
	}
	never(t, server, `"two","inputResponses"`)
}

// TestRoundsThatCannotBeLinked: without a requestState, or with one that two calls
// have, nobody can tell whose a retry is: it is a call of its own, and its
// receipt says so (MCP-G18).
func TestRoundsThatCannotBeLinked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, asked, retried string }{
		{"no state", `"resultType":"input_required"`, `"inputResponses":{}`},
		{"state of a wrong type", `"resultType":"input_required","requestState":7`, `"inputResponses":{},"requestState":7`},
		{"of two calls", `"resultType":"input_required","requestState":"same"`, `"inputResponses":{},"requestState":"same"`},
		{"never seen", `"resultType":"complete"`, `"requestState":"other"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, server, _ := play(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceNever }})
			for i := 1; i <= 2; i++ {
				r.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","arguments":"n%d",%s}}`, i, i, modernMeta)
				m := got(t, server, fmt.Sprintf(`"n%d"`, i))
				say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, m.ID, c.asked)
				r.expect(fmt.Sprint(i))
				if i == 2 {
					break
				}
			}
			for _, id := range []string{"1", "2"} {
				if info := r.runOf(id).Info(); info.Outcome != belay.Completed {
					t.Errorf("the call %s is %+v", id, info)
				}
			}
			r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"x",%s,%s}}`, c.retried, modernMeta)
			m := got(t, server, c.retried)
			run := r.runOf("3")
			r.stopRun(run)
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required"}}`, m.ID)
			r.expect("3")
			if receipt := r.receipt(run); !saw(receipt, belay.SeenUnlinked) {
				t.Errorf("the receipt is %+v", receipt.Steps)
			}
		})
	}
}

// TestRoundIsGivenUp: who does not come back with an answer has declined, and
// what waits at the end of the session is stopped; questions are bounded.
func TestRoundIsGivenUp(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{server: []string{"-era", "modern"}})
	run, last := r.question("1", "a"), r.question("2", "b")
	r.s.mu.Lock()
	for _, q := range r.s.rounds.byKey {
		if q.of.run == run {
			r.s.giveUpLocked(q)
		}
	}
	r.s.mu.Unlock()
	if o := run.Info().Outcome; o != belay.Declined {
		t.Errorf("the outcome is %s", o)
	}
	r.s.mu.Lock()
	for i := range 2*maxRounds + 10 {
		r.s.addRoundLocked(mcp.RoundKey{byte(i), byte(i >> 8), byte(i >> 16), 1}, &call{}, roundTime)
	}
	if n, m := len(r.s.rounds.byKey), len(r.s.rounds.order); n > maxRounds || m > 2*maxRounds {
		t.Errorf("%d questions in %d places", n, m)
	}
	r.s.mu.Unlock()
	if o := last.Info().Outcome; o != belay.Declined {
		t.Errorf("the oldest is %s", o)
	}
	end := r.question("3", "c")
	if err := r.s.Close(t.Context(), belay.Cancellation{Cause: belay.CauseDisconnect}); err != nil {
		t.Fatal(err)
	}
	if receipt := r.receipt(end); receipt.Verdict != belay.Confirmed {
		t.Errorf("the receipt is %+v", receipt)
	}
}

// exchange is what one HTTP exchange of a modern caller gets.
type exchange chan string

func (e exchange) Send(frame []byte, edits ...jsonrpc.Edit) error {
	e <- string(jsonrpc.AppendSplice(nil, frame, edits...))
	return nil
}

func (e exchange) Answer(_ int, frame []byte, edits ...jsonrpc.Edit) error {
	return e.Send(frame, edits...)
}

func (e exchange) Drop() { close(e) }

// TestRoundsAcrossExchanges: the legs of a call come by different HTTP exchanges,
// with ids that other callers have, too; the end of the first changes nothing
// (MCP-54, MCP-G7, MCP-G18).
func TestRoundsAcrossExchanges(t *testing.T) {
	t.Parallel()
	p := newPuppets(t)
	tree := belay.NewTree(belay.Options{})
	var s *Session
	opened := make(chan error, 1)
	go func() {
		var err error
		s, err = OpenTo(context.Background(), Config{
			Name: "fake", Command: p.command, Tree: tree, Policy: Policy{Ladder: quick, Enforce: EnforceNever}, Modern: true,
			Log: slog.New(slog.DiscardHandler), Stderr: devNull(t),
		}, make(exchange, 10))
		opened <- err
	}()
	server := p.next()
	m := got(t, server, "server/discover")
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`, m.ID)
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close(context.Background(), belay.Cancellation{Cause: belay.CauseShutdown})
		_ = tree.Close(context.Background())
	})
	n := uint64(0)
	post := func(more string) (exchange, uint64) {
		n++
		var m mcp.Message
		if err := m.Read(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"x",%s%s}}`, more, modernMeta)); err != nil {
			t.Fatal(err)
		}
		out := make(exchange, 10)
		s.Deliver(mcp.Arrival{Message: &m, To: out, Exchange: n, ByExchange: true})
		return out, n
	}
	take := func(e exchange) string {
		select {
		case text := <-e:
			return text
		case <-time.After(10 * time.Second):
			t.Fatal("no answer")
			return ""
		}
	}
	for _, key := range []string{"a", "b"} {
		out, nr := post(`"arguments":"` + key + `",`)
		m := got(t, server, `"arguments":"`+key+`"`)
		say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","requestState":"state-%s"}}`, m.ID, key)
		take(out)
		s.Abandon(nr, belay.Cancellation{Cause: belay.CauseDisconnect}) // the exchange is over: that is no Stop
	}
	list, err := tree.List(t.Context(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}})
	if err != nil || len(list) != 2 || list[0].Work != belay.Waiting || list[1].Work != belay.Waiting {
		t.Fatalf("the runs are %+v, %v", list, err)
	}
	run, err := tree.Run(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	run.Cancel(belay.Cancellation{Cause: belay.CauseOperator})
	out, _ := post(`"requestState":"state-a",`)
	if text := take(out); !strings.Contains(text, "-32800") {
		t.Errorf("the retry got %s", text)
	}
	out, nr := post(`"requestState":"state-b",`)
	got(t, server, `"requestState":"state-b"`)
	never(t, server, `"requestState":"state-a",`)
	s.Abandon(nr, belay.Cancellation{Cause: belay.CauseDisconnect}) // now it is one
	got(t, server, "notifications/cancelled")
	if _, open := <-out; open {
		t.Error("an abandoned exchange was answered")
	}
}
