//go:build unix

package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
)

// ORC-22, ORC-24, ORC-44a: the tool is told once, with its own id for the call
// and the reason, and the run has one event that says so.
func TestAcceptance03ToldOnce(t *testing.T) {
	t.Parallel()
	s := plain(t)
	events := s.listen(t, "op", "/v1/events", "Accept", "text/event-stream")
	got := s.begin(t, "ann", "tools").tick(t, `"call-03"`, "03")
	run := *s.cancel(t, "op", "call-03", `"reason":"enough"`, `"wait":10`).Run
	wait(t, got)
	if told := s.wit.of("03", "signal"); len(told) != 1 || !strings.HasSuffix(told[0].detail, "enough") {
		t.Errorf("the tool was told %v", told)
	}
	of := func(kind belay.EventType) (n int) {
		for _, d := range events.with(run.String()) {
			var e belay.Event
			if json.Unmarshal([]byte(d), &e) == nil && e.Type == kind && e.Run.ID == run {
				n++
			}
		}
		return n
	}
	eventually(t, "the end of the run among the events", func() bool { return of(belay.EventEnded) > 0 })
	for _, kind := range []belay.EventType{belay.EventRegistered, belay.EventCancelled, belay.EventFinal, belay.EventEnded} {
		if n := of(kind); n != 1 {
			t.Errorf("%d events %s, want 1", n, kind)
		}
	}
}

// ORC-41: a server that cannot be stopped does not undo the cancel; what is true
// stands beside it.
func TestAcceptance05StopperFails(t *testing.T) {
	t.Parallel()
	s := deaf(t)
	got := s.begin(t, "ann", "deaf").tick(t, `"call-05"`, "05")
	begun := time.Now()
	a := s.cancel(t, "op", "call-05", `"reason":"try"`, `"wait":1`)
	if took := time.Since(begun); a.Status != "cancelled" || !a.Affected || deref(a.Verdict) != "" || deref(a.Work) != belay.Stopping || took > 10*time.Second {
		t.Errorf("after %v: %+v", took, a)
	}
	if r := wait(t, got); r.code() != -32800 { // the caller does not wait for the tool
		t.Errorf("the caller got %s", r.raw)
	}
	if st := s.status(t, "op", "call-05"); !st.Cancelled || deref(st.CancelReason) != "try" {
		t.Errorf("status %+v", st)
	}
	s.still(t, "05") // that is what the words above are about
	eventually(t, "the verdict", func() bool { return s.status(t, "op", "call-05").Verdict != nil })
	if r := s.receipt(t, "op", *a.Run); r.Verdict == belay.Confirmed || r.Outcome != belay.Cancelled {
		t.Errorf("receipt of a tool that goes on: %+v", r)
	}
}

// ORC-57: a call that waits for its turn is stopped before it starts.
func TestAcceptance26StoppedBeforeStart(t *testing.T) {
	t.Parallel()
	s := house(t, "one", func(c *settings) {
		c.servers["one"] = c.tool(map[string]any{"isolation": "call", "max_processes": 1}, "-name", "one")
	})
	session := s.begin(t, "ann", "one")
	first := session.tick(t, `"first-26"`, "26-first")
	second := session.call(t, `"second-26"`, "tick", tickArgs("26-second"))
	eventually(t, "the second call registered", func() bool { return s.tryStatus(t, "op", "second-26").status == 200 })
	if a := s.cancel(t, "op", "second-26", `"reason":"too late"`, `"wait":5`); !a.Affected || a.Status != "cancelled" {
		t.Errorf("cancel %+v", a)
	}
	r := wait(t, second)
	if r.http != 200 || r.code() != -32800 || r.Error.Message != "Cancelled" || deref(r.Error.Data.Partial) || r.Error.Data.Reason != "too late" ||
		r.Error.Data.Cause != "operator" || string(r.Error.Data.RequestID) != `"second-26"` || !strings.HasPrefix(r.Error.Data.Run, "run_") {
		t.Errorf("the caller got %s (ORC-55)", r.raw)
	}
	s.still(t, "26-first")
	s.cancel(t, "op", "first-26", `"wait":10`)
	wait(t, first)
	if n := s.wit.count("26-second", ""); n != 0 {
		t.Errorf("the stopped tool did %d things", n)
	}
}

// ORC-57: between registration and start, while the tool's process is starting.
func TestAcceptance27StoppedWhileStarting(t *testing.T) {
	t.Parallel()
	s := house(t, "slow", func(c *settings) {
		c.servers["slow"] = c.tool(map[string]any{"isolation": "call", "grace": "5s"}, "-name", "slow", "-start-delay", "1s")
	})
	session := s.begin(t, "ann", "slow")
	got := session.call(t, `"call-27"`, "tick", tickArgs("27"))
	eventually(t, "the call registered", func() bool { return s.tryStatus(t, "op", "call-27").status == 200 })
	s.cancel(t, "op", "call-27")
	if r := wait(t, got); r.code() != -32800 {
		t.Errorf("the caller got %s", r.raw)
	}
	next := session.tick(t, `"next-27"`, "27-next") // by now the first process would have come as far
	s.cancel(t, "op", "next-27", `"wait":10`)
	wait(t, next)
	if n := s.wit.count("27", "tick"); n != 0 {
		t.Errorf("the stopped tool ticked %d times", n)
	}
}

// ORC-6, ORC-23, ORC-55 and what the whole is about: an operator stops a call
// that a real MCP client made. The client is answered, the work has stopped by
// its own witness, status says when and why, the receipt is confirmed.
func TestAcceptance28LiveCallStops(t *testing.T) {
	t.Parallel()
	s := plain(t)
	for name, owner := range map[string]string{"listening": "dan", "deaf": "cat"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := "28-" + name
			c := s.official(t, owner, "tools")
			ended := make(chan error, 1)
			go func() {
				_, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "tick", Arguments: map[string]any{"key": key, "n": 3000, "deaf": name == "deaf"}})
				ended <- err
			}()
			s.saw(t, key, "tick")
			run := s.newest(t, owner)
			begun := time.Now()
			a := s.cancel(t, "op", run.ID.String(), `"reason":"wrong branch"`, `"wait":20`)
			if a.Status != "cancelled" || !a.Affected || deref(a.Work) != belay.Stopped || deref(a.Verdict) != belay.Confirmed {
				t.Errorf("cancel after %v: %+v", time.Since(begun), a)
			}
			answered(t, ended, run.ID)
			s.quiet(t, key)
			if last := s.wit.lastTick(key); last.Sub(begun) > 10*time.Second {
				t.Errorf("the last tick came %v after the cancel", last.Sub(begun))
			}
			s.recorded(t, run.ID)
			if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{}}); err != nil {
				t.Errorf("the session is not usable afterwards: %v", err)
			}
		})
	}
}

// answered waits for what the official client's call ended with.
func answered(t *testing.T, ended <-chan error, run belay.RunID) {
	t.Helper()
	select {
	case err := <-ended:
		wire, ok := errors.AsType[*jsonrpc.Error](err)
		if !ok || wire.Code != -32800 || !strings.Contains(string(wire.Data), run.String()) || !strings.Contains(string(wire.Data), "wrong branch") {
			t.Errorf("the client got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the client was not answered")
	}
}

// recorded checks what is said of the run that was stopped: status, receipt and
// audit.
func (s *server) recorded(t *testing.T, run belay.RunID) {
	t.Helper()
	st := s.status(t, "op", run.String())
	if !st.Cancelled || deref(st.CancelReason) != "wrong branch" || deref(st.CancelledAt) < st.RegisteredAt || deref(st.FinishedAt) < *st.CancelledAt ||
		st.Outcome != belay.Cancelled || st.Work != belay.Stopped || deref(st.Verdict) != belay.Confirmed || st.Cause != belay.CauseOperator {
		t.Errorf("status %+v", st)
	}
	r := s.receipt(t, "op", run)
	if r.Verdict != belay.Confirmed || !r.Final || r.Cancellation == nil || r.Cancellation.By != "op" || r.Cancellation.Reason != "wrong branch" || len(r.Survivors) > 0 {
		t.Errorf("receipt %+v", r)
	}
	if lines := s.audit(run.String()); len(lines) != 1 || !strings.Contains(lines[0], "principal=op") || !strings.Contains(lines[0], "verdict=confirmed") {
		t.Errorf("audit %q (ORC-43)", lines)
	}
}

// newest is the run of a call that the official client made: it chooses the ids
// itself, so that the run is known by being its owner's only one.
func (s *server) newest(t testing.TB, owner string) belay.Info {
	t.Helper()
	list := s.runs(t, "op", "?kind=call&owner="+owner)
	if len(list) != 1 {
		t.Fatalf("%d runs of %s: %+v", len(list), owner, list)
	}
	return list[0]
}

// ORC-63.
func TestAcceptance29NoToolName(t *testing.T) {
	t.Parallel()
	s := plain(t)
	c := s.begin(t, "cat", "tools")
	for n, params := range []string{`{"arguments":{}}`, `{}`, `{"name":7}`, `{"name":""}`, `[]`} {
		a := c.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":"call-29-%d","method":"tools/call","params":%s}`, n, params))
		var r reply
		for _, m := range messages(a.body) {
			_ = json.Unmarshal([]byte(m), &r)
		}
		if r.code() != -32602 {
			t.Errorf("params %s: %d %s", params, a.status, a.body)
		}
		if st := s.tryStatus(t, "op", fmt.Sprintf("call-29-%d", n)); st.status != 404 {
			t.Errorf("params %s: a run was registered: %s", params, st.body)
		}
	}
}

// Malformed params are tolerated on all doors (ORC-59 to ORC-61), and stop
// nothing.
func TestAcceptance30MalformedParams(t *testing.T) {
	t.Parallel()
	s := plain(t)
	c := s.begin(t, "ann", "tools")
	got := c.tick(t, `"call-30"`, "30")
	for _, params := range []string{
		``, `,"params":null`, `,"params":[]`, `,"params":7`, `,"params":{}`, `,"params":{"requestId":null}`,
		`,"params":{"requestId":{}}`, `,"params":{"requestId":true}`, `,"params":{"requestId":["call-30"]}`, `,"params":{"reason":"why"}`,
	} {
		notice := `{"jsonrpc":"2.0","method":"notifications/cancelled"` + params + `}`
		if a := c.post(t, notice); a.status != 202 || a.body != "" {
			t.Errorf("session: %s: %d %s", params, a.status, a.body)
		}
		for _, path := range []string{"/protocol/notifications", "/notifications"} {
			want(t, path+" "+params, s.do(t, "POST", path, "ann", notice), 200, `null`)
		}
		want(t, "/rpc "+params, s.do(t, "POST", "/rpc", "ann", `{"jsonrpc":"2.0","id":3,"method":"notifications/cancelled"`+params+`}`), 200, `{"jsonrpc":"2.0","result":{},"id":3}`)
	}
	s.still(t, "30")
	pending(t, got)
	s.cancel(t, "op", "call-30")
}

// ORC-58, ORC-59: a session's own notification takes effect, in that session
// only, and the call gets no answer.
func TestAcceptance31NotificationTakesEffect(t *testing.T) {
	t.Parallel()
	s := plain(t)
	mine, other := s.begin(t, "ann", "tools"), s.begin(t, "ann", "tools")
	got, others := mine.tick(t, `31`, "31-mine", `"deaf":true`), other.tick(t, `31`, "31-other")
	if a := mine.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":31,"reason":"changed my mind"}}`); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.quiet(t, "31-mine")
	if r := wait(t, got); r.Result != nil || r.Error != nil {
		t.Errorf("a call that its own caller stopped was answered: %s", r.raw)
	}
	s.still(t, "31-other")
	pending(t, others)
	if a := other.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"31"}}`); a.status != 202 { // another id: a string (ORC-69)
		t.Errorf("%d %s", a.status, a.body)
	}
	s.still(t, "31-other")
	s.cancel(t, "op", "31")
	s.quiet(t, "31-other")
}

// Every kind of run stops its work, not only tools/call (ORC-23, ORC-32 of the
// list's inverted number): here a call that became a task, whose caller was
// answered long ago.
func TestAcceptance32TasksStop(t *testing.T) {
	t.Parallel()
	s := house(t, "tasks", func(c *settings) {
		c.servers["tasks"] = c.tool(map[string]any{"enforce": "strict", "restart": "safe"}, "-name", "tasks", "-tasks", "-deaf")
	})
	c := s.begin(t, "ann", "tasks")
	a := c.post(t, `{"jsonrpc":"2.0","id":"call-32","method":"tools/call","params":{"name":"tick","arguments":`+tickArgs("32")+`,"task":{"ttl":60000}}}`)
	if a.status != 200 || !strings.Contains(a.body, "taskId") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.saw(t, "32", "tick")
	tasks := s.runs(t, "op", "?owner=ann&kind=task&server=tasks")
	if len(tasks) != 1 {
		t.Fatalf("tasks %+v", tasks)
	}
	got := s.cancel(t, "op", tasks[0].ID.String(), `"wait":20`)
	if got.Status != "cancelled" || deref(got.Verdict) != belay.Confirmed {
		t.Errorf("%+v", got)
	}
	s.quiet(t, "32")
}

// ORC-39, ORC-36 (raised): 200 cancels of one run at once have one effect and
// one receipt.
func TestConcurrentCancels(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"many"`, "many", `"deaf":true`)
	var all sync.WaitGroup
	answers := make([]answer, 200)
	for n := range answers {
		all.Go(func() {
			a, err := s.try("POST", families[n%3]+"/cancel", "op", cancelBody("many", fmt.Sprintf(`"reason":"number %d"`, n), `"wait":20`))
			if err != nil {
				t.Error(err)
			}
			answers[n] = a
		})
	}
	all.Wait()
	affected, reason := 0, ""
	var run belay.RunID
	for _, a := range answers {
		c := into[cancelled](t, a, 200)
		if c.Status != "cancelled" || deref(c.Verdict) != belay.Confirmed || !run.IsZero() && *c.Run != run {
			t.Errorf("%s, work %s: %+v", deref(c.Verdict), deref(c.Work), c)
		}
		if run = *c.Run; c.Affected {
			affected, reason = affected+1, *c.Reason
		}
	}
	if r := wait(t, got); r.code() != -32800 || r.Error.Data.Reason != reason {
		t.Errorf("the caller got %s", r.raw)
	}
	if told := s.wit.of("many", "signal"); affected != 1 || len(told) != 1 || !strings.HasSuffix(told[0].detail, reason) {
		t.Errorf("%d effects, the tool was told %v, the reason was %q", affected, told, reason)
	}
	r := s.receipt(t, "op", run)
	list := into[struct{ Receipts []belay.Receipt }](t, s.do(t, "GET", "/v1/receipts?stop="+r.Cancellation.Stop.String(), "op", ""), 200)
	if len(list.Receipts) != 1 || r.Cancellation.Reason != reason {
		t.Errorf("%d receipts; %+v", len(list.Receipts), r)
	}
	if n := len(s.audit("affected=true")); n == 0 || len(s.audit(run.String())) != 200 {
		t.Errorf("%d lines of audit, want one for each cancel", len(s.audit(run.String())))
	}
}

// ORC-40, ORC-77: a run that ends between the two steps gets the answer for
// ended ones, and nobody else is touched, whoever has that id by then.
func TestAcceptance42EndsMeanwhile(t *testing.T) {
	t.Parallel()
	s := house(t, "quick", func(c *settings) { c.servers["quick"] = c.tool(nil, "-name", "quick") })
	c := s.begin(t, "ann", "quick")
	words := map[string]int{}
	for n := range 60 {
		id := fmt.Sprintf("call-42-%d", n)
		got := c.call(t, `"`+id+`"`, "tick", fmt.Sprintf(`{"key":%q,"n":1,"ms":%d}`, id, 1+n%7))
		time.Sleep(time.Duration(n%10) * time.Millisecond)
		a := s.cancel(t, "op", id)
		r := wait(t, got)
		switch {
		case a.Status == "cancelled" && a.Affected && a.Run != nil && (r.code() == -32800 || strings.Contains(string(r.Result), `"text":"Cancelled`)): // ORC-55, ORC-56
			words["stopped"]++
		case a.Status == "queued" && !a.Affected && !a.Pending && a.Run != nil && a.Outcome == belay.Completed && r.Result != nil:
			words["over"]++
			if st := s.status(t, "op", a.Run.String()); st.Cancelled || st.Outcome != belay.Completed {
				t.Errorf("an ended run was changed: %+v", st)
			}
			want(t, "ended run", s.tryCancel(t, "op", id), 200,
				`{"status":"queued","requestId":"`+id+`","reason":null,"run":"`+a.Run.String()+`","affected":false,"pending":false,"outcome":"completed"}`)
			problem := s.do(t, "POST", "/v1/runs/"+a.Run.String()+"/cancel", "op", `{}`)
			if problem.status != 409 || !strings.HasPrefix(problem.header.Get("Content-Type"), "application/problem+json") {
				t.Errorf("/v1 of an ended run: %d %s", problem.status, problem.body)
			}
		case a.Status == "queued" && a.Run == nil && a.Pending && r.Result != nil: // before its call: the operator's mark is the operator's
			words["early"]++
		default:
			t.Errorf("%+v, the caller got %s", a, r.raw)
		}
	}
	t.Log(words)
	if words["over"] == 0 {
		t.Error("no run ended before its cancel; the test says nothing")
	}
}

// ORC-42, ORC-78: the Stop of a turn, which some other runtime holds, stops the
// calls below it, each with a receipt of its own.
func TestAcceptance43TurnStopsWhatIsBelow(t *testing.T) {
	t.Parallel()
	s := plain(t)
	a := s.do(t, "POST", "/v1/runs", "op", `{"kind":"turn","name":"turn 43"}`)
	if a.status != 201 {
		t.Fatalf("register: %d %s", a.status, a.body)
	}
	turn := findRun(t, a.body)
	c := s.begin(t, "op", "tools")
	one := c.call(t, `"43-one"`, "tick", tickArgs("43-one"), "Belay-Parent", turn)
	two := c.call(t, `"43-two"`, "tick", tickArgs("43-two", `"deaf":true`), "Belay-Parent", turn)
	beside := c.tick(t, `"43-beside"`, "43-beside")
	s.saw(t, "43-one", "tick")
	s.saw(t, "43-two", "tick")
	below := map[string]belay.RunID{}
	for _, id := range []string{"43-one", "43-two"} {
		below[id] = s.status(t, "op", id).Run
	}
	got := s.cancel(t, "op", turn, `"reason":"turn is over"`, `"wait":1`)
	if got.Status != "cancelled" {
		t.Errorf("%+v", got)
	}
	for _, r := range []reply{wait(t, one), wait(t, two)} {
		if r.code() != -32800 || r.Error.Data.Cause != "parent" {
			t.Errorf("the caller got %s", r.raw)
		}
	}
	s.quiet(t, "43-one")
	s.quiet(t, "43-two")
	s.still(t, "43-beside")
	for id, run := range below {
		if r := s.receipt(t, "op", run); r.Cancellation.Cause != belay.CauseParent {
			t.Errorf("receipt of %s: %+v", id, r)
		}
	}
	s.cancel(t, "op", "43-beside")
	wait(t, beside)
}

// findRun is the first run id in a body.
func findRun(t testing.TB, body string) string {
	t.Helper()
	i := strings.Index(body, "run_")
	if i < 0 || len(body) < i+30 {
		t.Fatalf("no run id in %s", body)
	}
	return body[i : i+30]
}
