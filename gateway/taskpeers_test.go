package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/mcp"
)

// TestTaskInput: a task that needs an answer is shown as waiting; what it asks the
// caller belongs to it, by its related-task metadata: answered it goes on,
// stopped the question is cancelled and a late answer is dropped (MCP-51,
// MCP-G22).
func TestTaskInput(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"answered", "stopped"} {
		t.Run(how, func(t *testing.T) {
			r := taskLink(t, coreTask, linkOptions{server: []string{"-task-notify"}})
			r.tick("1", "other", `"n":3000`) // a question by itself could be this one's
			r.askTask(coreTask, "2", "taskask", "a", `"n":3000`)
			r.expect("2")
			run := r.taskRun("task-a")
			question := got(t, r.Client, "elicitation/create")
			if !strings.Contains(question.Raw, `"io.modelcontextprotocol/related-task":{"taskId":"task-a"}`) {
				t.Errorf("the question is %s", question.Raw)
			}
			got(t, r.Client, "input_required")
			if info := run.Info(); info.Work != belay.Waiting || info.Outcome != belay.Pending {
				t.Errorf("the run is %+v", info)
			}
			if how == "answered" {
				r.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, question.ID)
				r.saw("a", "tick")
				r.until("it works again", func() bool { return run.Info().Work == belay.Running })
				r.stopRun(run)
				r.saw("a", "stopped")
			} else {
				r.stopRun(run)
				r.saw("a", "stopped")
				got(t, r.Client, fmt.Sprintf(`"requestId":%s`, question.ID))
				r.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, question.ID) // a violation if it arrived
			}
			r.receipt(run)
			r.works()
			if _, stopped := r.wit.Last("other", "stopped"); stopped {
				t.Error("another call was stopped")
			}
		})
	}
}

// TestTaskInputModern: a task of the extension waits for tasks/update.
func TestTaskInputModern(t *testing.T) {
	t.Parallel()
	r := taskLink(t, extTask, linkOptions{})
	r.askTask(extTask, "1", "taskask", "a", `"n":3000`)
	r.expect("1")
	run := r.taskRun("task-a")
	r.saw("a", "start")
	r.until("it waits", func() bool { return r.status(extTask, "task-a") == "input_required" })
	if info := run.Info(); info.Work != belay.Waiting {
		t.Errorf("the run is %+v", info)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tasks/update","params":{"taskId":"task-a","inputResponses":{"q":{}},%s}}`, taskMeta)
	r.expect("2")
	r.saw("a", "tick")
	r.until("it works", func() bool { return r.status(extTask, "task-a") == "working" && run.Info().Work == belay.Running })
	r.askTask(extTask, "3", "taskask", "b", `"n":3000`)
	r.expect("3")
	r.until("it waits", func() bool { return r.status(extTask, "task-b") == "input_required" })
	waiting := r.taskRun("task-b")
	r.stopRun(waiting)
	r.saw("b", "stopped")
	r.receipt(waiting)
	r.stopRun(run)
	r.saw("a", "stopped")
	r.receipt(run)
}

// TestTaskResultPending: who waits for the result of a task that is stopped gets
// what the server sends, and holds no force up (A11, MCP-50).
func TestTaskResultPending(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", deaf), func(t *testing.T) {
			r := taskLink(t, coreTask, linkOptions{cfg: strictly})
			run := r.begin(coreTask, "1", "a", fmt.Sprintf(`"n":3000,"deaf":%v`, deaf))
			r.ask(coreTask, "2", "tasks/result", "task-a")
			if _, err := r.wit.WaitFor("server", "tasks/result", 5*time.Second); err != nil {
				t.Fatal(err)
			}
			r.stopRun(run)
			if m := r.expect("2"); m.Error == nil || m.Error.Code != -32603 || !strings.Contains(m.Raw, "no result") {
				t.Errorf("the result is %s", m.Raw)
			}
			if v := r.receipt(run).Verdict; v != belay.Confirmed {
				t.Errorf("the verdict is %s", v)
			}
			r.works()
		})
	}
}

// TestTaskIsNotCollateral: force that is used for another call waits for a task
// that works, which may go on to its end (MCP-G36, DESIGN 11, 3).
func TestTaskIsNotCollateral(t *testing.T) {
	t.Parallel()
	r := taskLink(t, coreTask, linkOptions{cfg: strictly})
	task := r.begin(coreTask, "1", "a", `"n":60,"ms":25`)
	r.tick("2", "b", `"n":3000,"deaf":true`)
	run := r.runOf("2")
	r.cancel("2", "")
	r.until("the force is held back", func() bool { return time.Since(run.Started()) > 2*quick.Grace+quick.KillAfter })
	if n := r.wit.Count("server", "sigterm"); n > 0 {
		t.Error("the task's server got a signal")
	}
	for r.status(coreTask, "task-a") == "working" { // passes although the process is drained
		time.Sleep(20 * time.Millisecond)
	}
	if o := task.Info().Outcome; o != belay.Completed {
		t.Errorf("the task's outcome is %s", o)
	}
	r.saw("a", "done")
	if v := r.receipt(run).Verdict; v != belay.Confirmed {
		t.Errorf("the verdict is %s", v)
	}
	r.works()
}

// TestTaskLost: tasks of a process that has ended are lost, and so are those that
// nobody heard of for longer than their time to live; nobody is asked for them
// any more (DESIGN 11, 3, MCP-83).
func TestTaskLost(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, kind taskKind) {
		t.Run("crash", func(t *testing.T) {
			r := taskLink(t, kind, linkOptions{})
			r.dirty = true // the modern server is not asked twice, the legacy one is asked before initialize
			run := r.begin(kind, "1", "a", `"n":3000`)
			args := `{"key":"c"}`
			if kind == extTask {
				_ = r.CallModern("2", "crash", args, "")
			} else {
				_ = r.Call("2", "crash", args, "")
			}
			r.expect("2")
			r.until("the task is lost", func() bool { return run.Info().Outcome == belay.Lost })
			r.worksFor(kind)
			if s := r.status(kind, "task-a"); s != "-32602" {
				t.Errorf("its status is %s", s)
			}
			if n := r.wit.Count("server", "tasks/get"); n > 0 {
				t.Error("the new process was asked about a task of the old one")
			}
		})
		t.Run("ttl", func(t *testing.T) {
			r := taskLink(t, kind, linkOptions{
				server: []string{"-task-ttl", "100ms"},
				cfg:    func(c *Config) { c.taskSlack = 200 * time.Millisecond },
			})
			run := r.begin(kind, "1", "a", `"n":100`)
			for range 5 { // each is news
				time.Sleep(100 * time.Millisecond)
				if s := r.status(kind, "task-a"); s != "working" {
					t.Fatalf("its status is %s", s)
				}
			}
			if o := run.Info().Outcome; o != belay.Pending {
				t.Errorf("the outcome is %s although it was heard of", o)
			}
			r.until("the task is lost", func() bool { return run.Info().Outcome == belay.Lost })
			if s := r.status(kind, "task-a"); s == "-32602" {
				t.Errorf("its status is %s: the server was not asked", s)
			}
		})
	})
}

// TestTasksEndWithTheSession: nobody is left to want them; the server is told,
// or ends (A10, MCP-G38).
func TestTasksEndWithTheSession(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, kind taskKind) {
		r := taskLink(t, kind, linkOptions{})
		run := r.begin(kind, "1", "a", `"n":3000,"fork":["setsid"]`)
		if err := r.s.Close(t.Context(), belay.Cancellation{Cause: belay.CauseDisconnect}); err != nil {
			t.Fatal(err)
		}
		receipt := r.receipt(run)
		if receipt.Cancellation.Cause != belay.CauseParent && receipt.Cancellation.Cause != belay.CauseDisconnect || receipt.Verdict != belay.Confirmed {
			t.Errorf("the receipt is %+v", receipt)
		}
		if left := faketool.WaitDead(append(r.wit.Pids("a"), r.wit.Pids("a/")...), 3*time.Second); len(left) > 0 {
			t.Errorf("alive: %v", left)
		}
	})
}

// taskServer is a remote server with tasks that says what it is told to, and
// remembers what reached it.
type taskServer struct {
	*httptest.Server
	mu     sync.Mutex
	seen   []string // method and Mcp-Name
	cancel string   // the answer to tasks/cancel, after the id; "" : 500
	status string
	hold   chan struct{} // closed to let tasks/cancel answer; nil: at once
}

func newTaskServer(t *testing.T) *taskServer {
	ts := &taskServer{status: "working", cancel: `"result":{"resultType":"complete"}`}
	ts.Server = httptest.NewServer(http.HandlerFunc(ts.serve))
	t.Cleanup(ts.Close)
	return ts
}

func (ts *taskServer) serve(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ TaskID, Name string }
	}
	_ = json.Unmarshal(body, &m)
	ts.mu.Lock()
	ts.seen = append(ts.seen, strings.TrimSpace(m.Method+" "+req.Header.Get("Mcp-Name")))
	cancel, status, hold := ts.cancel, ts.status, ts.hold
	ts.mu.Unlock()
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if m.Method == "tasks/cancel" && hold != nil {
		<-hold
	}
	answer := `"error":{"code":-32601,"message":"no such method"}`
	switch m.Method {
	case "tools/call":
		answer = `"result":{"resultType":"task","taskId":"t-` + m.Params.Name + `","status":"working","ttlMs":60000}`
	case "tasks/get":
		answer = `"result":{"resultType":"complete","taskId":"` + m.Params.TaskID + `","status":"` + status + `"}`
	case "tasks/list":
		answer = `"result":{"tasks":[{"taskId":"t-a"},{"taskId":"t-b"},{"taskId":"free"}]}`
	case "tasks/cancel":
		if answer = cancel; cancel == "" {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
}

func (ts *taskServer) count(what string) (n int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, s := range ts.seen {
		if s == what {
			n++
		}
	}
	return n
}

// web opens a session of a principal in front of the server.
func (ts *taskServer) web(t *testing.T, owner string, tasks *TaskRegistry, change func(*Config)) *link {
	t.Helper()
	r := &link{t: t, logs: &faketool.Text{}}
	r.start(nil, linkOptions{cfg: func(c *Config) {
		c.URL, c.Owner, c.Tasks = ts.URL, owner, tasks
		if change != nil {
			change(c)
		}
	}})
	return r
}

func (r *link) webTask(id, tool string) *belay.Run {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{},%s}}`, id, tool, taskMeta)
	r.expect(id)
	return r.taskRun("t-" + tool)
}

// TestTaskRemote: a task on a remote server is stopped by tasks/cancel with the
// task's id in the headers, and never by force; the receipt says what the server
// said, asked if need be, and no more (MCP-81, MCP-84, MCP-G31).
func TestTaskRemote(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, cancel, status string
		want                 belay.Verdict
	}{
		{"honours it", `"result":{"resultType":"complete"}`, "cancelled", belay.Acknowledged},
		{"completes all the same", `"result":{"resultType":"complete"}`, "completed", belay.Acknowledged},
		{"goes on", `"result":{"resultType":"complete"}`, "working", belay.Signalled},
		{"says so at once", `"result":{"taskId":"t-a","status":"cancelled"}`, "", belay.Acknowledged},
		{"unknown", `"error":{"code":-32602,"message":"unknown"}`, "", belay.Acknowledged},
		{"cannot", `"error":{"code":-32601,"message":"no such method"}`, "working", belay.Signalled},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := newTaskServer(t)
			ts.mu.Lock()
			ts.cancel, ts.status = c.cancel, c.status
			ts.mu.Unlock()
			r := ts.web(t, "tester", nil, nil)
			run := r.webTask("1", "a")
			r.stopRun(run)
			r.receipt(run)
			if c.want == belay.Acknowledged { // the word may come after the ladder gave up
				r.until("acknowledged", func() bool { return run.Receipt().Verdict == c.want })
			} else if v := run.Receipt().Verdict; v != c.want {
				t.Errorf("the verdict is %s, want %s: %+v", v, c.want, run.Receipt().Steps)
			}
			if n := ts.count("tasks/cancel t-a"); n != 1 {
				t.Errorf("the server saw %v", ts.seen)
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		ts := newTaskServer(t)
		r := ts.web(t, "tester", nil, func(c *Config) { c.Ladder.Grace = 2 * time.Second }) // in which a busy machine learns that nobody is there
		run := r.webTask("1", "a")
		ts.CloseClientConnections()
		ts.Close()
		r.stopRun(run)
		if v := r.receipt(run).Verdict; v != belay.Unreachable {
			t.Errorf("the verdict is %s: %+v", v, run.Receipt().Steps)
		}
	})
	t.Run("at the end of the session", func(t *testing.T) {
		ts := newTaskServer(t)
		r := ts.web(t, "tester", nil, nil)
		r.webTask("1", "a")
		if err := r.s.Close(t.Context(), belay.Cancellation{Cause: belay.CauseDisconnect}); err != nil {
			t.Fatal(err)
		}
		if n := ts.count("tasks/cancel t-a"); n != 1 {
			t.Errorf("the server saw %v", ts.seen)
		}
	})
}

// TestTaskPrincipals: a task belongs to the principal who got it, in every session
// of the server: nobody else's request about it reaches the server, not even a
// list shows it; unknown ids pass (MCP-86, MCP-G38).
func TestTaskPrincipals(t *testing.T) {
	t.Parallel()
	ts := newTaskServer(t)
	shared := &TaskRegistry{}
	ann, bob := ts.web(t, "ann", shared, nil), ts.web(t, "bob", shared, nil)
	again := ts.web(t, "ann", shared, nil)
	run := ann.webTask("1", "a")
	bobs := bob.webTask("1", "b")
	for i, method := range []string{"tasks/get", "tasks/result", "tasks/update", "tasks/cancel"} {
		id := fmt.Sprint(10 + i)
		bob.ask(extTask, id, method, "t-a")
		if m := bob.expect(id); m.Error == nil || m.Error.Code != -32602 || m.Error.Message != "unknown task" {
			t.Errorf("%s of another's task was answered %s", method, m.Raw)
		}
		if n := ts.count(method + " t-a"); n != 0 {
			t.Errorf("%s of another's task reached the server", method)
		}
	}
	if run.Cancellation() != nil {
		t.Error("another principal's tasks/cancel stopped the task")
	}
	bob.send(`{"jsonrpc":"2.0","id":19,"method":"subscriptions/listen","params":{"notifications":{"taskIds":["t-b","t-a"]},%s}}`, taskMeta)
	if m := bob.expect("19"); m.Error == nil || m.Error.Code != -32602 || ts.count("subscriptions/listen") != 0 {
		t.Errorf("a subscription to another's task was answered %s", m.Raw)
	}
	bob.send(`{"jsonrpc":"2.0","id":20,"method":"tasks/list","params":{%s}}`, taskMeta)
	if m := bob.expect("20"); !strings.Contains(m.Raw, `"tasks":[{"taskId":"t-b"},{"taskId":"free"}]`) {
		t.Errorf("the list is %s", m.Raw)
	}
	bob.ask(extTask, "21", "tasks/get", "free")
	bob.expect("21")
	if n := ts.count("tasks/get free"); n != 1 {
		t.Error("a request about an unknown id did not pass")
	}
	ts.mu.Lock()
	ts.status = "completed"
	ts.mu.Unlock()
	if s := again.status(extTask, "t-a"); s != "completed" { // her other session
		t.Errorf("its status is %s", s)
	}
	ann.until("her task is over", func() bool { return run.Info().Outcome == belay.Completed })
	again.ask(extTask, "22", "tasks/cancel", "t-b")
	again.expect("22")
	if bobs.Cancellation() != nil {
		t.Error("another principal's task was stopped")
	}
}

// TestTaskCancelFromElsewhere: a principal's tasks/cancel counts in whichever of
// its sessions it comes; one is sent.
func TestTaskCancelFromElsewhere(t *testing.T) {
	t.Parallel()
	ts := newTaskServer(t)
	ts.mu.Lock()
	ts.status = "cancelled"
	ts.mu.Unlock()
	shared := &TaskRegistry{}
	one, two := ts.web(t, "ann", shared, nil), ts.web(t, "ann", shared, nil)
	run := one.webTask("1", "a")
	two.ask(extTask, "1", "tasks/cancel", "t-a")
	two.expect("1")
	one.receipt(run)
	one.until("acknowledged", func() bool { return run.Receipt().Verdict == belay.Acknowledged })
	receipt := run.Receipt()
	if receipt.Cancellation.Cause != belay.CauseUser || receipt.Verdict != belay.Acknowledged || ts.count("tasks/cancel t-a") != 1 {
		t.Errorf("the receipt is %+v, the server saw %v", receipt, ts.seen)
	}
}

// TestTaskRegistryIsBounded: old ids expire, and a principal with too many loses
// its own first.
func TestTaskRegistryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &TaskRegistry{}
		ann := &Session{cfg: Config{Owner: "ann", Log: slog.New(slog.DiscardHandler)}}
		bob := &Session{cfg: Config{Owner: "bob", Log: slog.New(slog.DiscardHandler)}}
		r.bind(mcp.TaskNews{ID: "first", TTL: time.Hour}, bob, nil)
		for i := range maxTasks + 50 {
			r.bind(mcp.TaskNews{ID: fmt.Sprint("t", i), TTL: time.Hour}, ann, nil)
		}
		if n := r.order.Len(); n != maxTasks || len(r.byID) != maxTasks {
			t.Errorf("%d entries for %d ids", n, len(r.byID))
		}
		if _, foreign := r.find("first", "ann"); !foreign {
			t.Error("one principal pushed another's task out")
		}
		if b, foreign := r.find("t0", "ann"); foreign || b.s != nil {
			t.Error("the oldest was not forgotten")
		}
		time.Sleep(50 * time.Minute)
		r.touch("first", "bob", 0)
		time.Sleep(30 * time.Minute)
		if _, foreign := r.find("t9000", "bob"); foreign {
			t.Error("an id outlived its time")
		}
		if b, _ := r.find("first", "bob"); b.s != bob {
			t.Error("an id that was heard of has expired")
		}
		r.leave(bob)
		if b, _ := r.find("first", "bob"); b.s != nil || b.owner != "bob" {
			t.Errorf("after its session it is %+v", b)
		}
	})
}

// TestTaskOutlivesAConversation: a remote server goes on with its tasks when the
// session with it is over; they are stopped through the next one (MCP-37).
func TestTaskOutlivesAConversation(t *testing.T) {
	t.Parallel()
	ts := newTaskServer(t)
	r := ts.web(t, "tester", nil, nil)
	run := r.webTask("1", "a")
	r.s.mu.Lock()
	old := r.s.current
	r.s.mu.Unlock()
	(*webServer)(old).Over(io.EOF)
	<-old.gone
	if info := run.Info(); info.Outcome != belay.Pending {
		t.Errorf("the task is %+v", info)
	}
	r.until("a fresh conversation", func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return r.s.current != nil && r.s.current != old
	})
	r.stopRun(run)
	r.receipt(run)
	if n := ts.count("tasks/cancel t-a"); n != 1 {
		t.Errorf("the server saw %v", ts.seen)
	}
}

// TestTaskOfAWorker: where each call has a process to itself a task keeps that of
// its call, for itself; its end by force touches nobody.
func TestTaskOfAWorker(t *testing.T) {
	t.Parallel()
	r := taskLink(t, extTask, linkOptions{cfg: func(c *Config) { c.Isolation = IsolationCall }})
	run := r.begin(extTask, "1", "a", `"n":3000,"deaf":true`)
	other := r.begin(extTask, "2", "b", `"n":3000`)
	r.modernWorks()
	if s := r.status(extTask, "task-a"); s != "working" {
		t.Errorf("its status is %s", s)
	}
	r.stopRun(run)
	if v := r.receipt(run).Verdict; v != belay.Confirmed {
		t.Errorf("the verdict is %s", v)
	}
	if s := r.status(extTask, "task-b"); s != "working" || other.Cancellation() != nil || !r.wit.StillTicking("b", time.Second) {
		t.Errorf("the other's status is %s", s)
	}
	r.modernWorks()
}

// TestTaskNobodyWants: a request whose cancel and whose answer cross became a task
// that nobody knows of: it is cancelled (A5).
func TestTaskNobodyWants(t *testing.T) {
	t.Parallel()
	r := taskLink(t, coreTask, linkOptions{server: []string{"-task-late", "200ms"}})
	r.askTask(coreTask, "1", "tick", "a", `"n":3000`)
	r.saw("a", "tick")
	r.s.mu.Lock() // as the cancel does before the run has its outcome
	c := r.s.calls["1"]
	c.byCaller = true
	r.s.forgetLocked(c)
	c.silenceLocked()
	r.s.mu.Unlock()
	r.saw("a", "stopped")
	r.receipt(r.taskRun("task-a"))
	if n := len(r.Responses("1")); n != 0 {
		t.Errorf("the caller got %d answers", n)
	}
}

// TestTasksAreBounded: beyond the bound the task that was silent for longest is
// lost, and with all that is over nothing is left in any table.
func TestTasksAreBounded(t *testing.T) {
	t.Parallel()
	r, _, _ := play(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceNever }})
	s := r.s
	owner, err := r.tree.Register(belay.Spec{Kind: belay.KindCall, Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Finish(belay.Completed)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.current
	answer := func(i int, status string) *mcp.Message {
		m := &mcp.Message{}
		if err := m.Read(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"x","result":{"resultType":"task","taskId":"t%d","status":%q}}`, i, status)); err != nil {
			t.Fatal(err)
		}
		return m
	}
	var first *task
	for i := range maxTasks + 1 {
		c := &call{s: s, era: mcp.Modern, method: mcp.MethodCallTool, policy: &s.cfg.Policy, run: owner, up: u, upID: u.ids.Next()}
		made := u.becameTaskLocked(c, answer(i, "working"))
		if made == nil {
			t.Fatal("no task")
		}
		if first == nil {
			first = made
			time.Sleep(time.Millisecond)
		}
	}
	if n := len(s.tasks); n != maxTasks || len(u.calls) != maxTasks || u.busy != maxTasks {
		t.Errorf("%d tasks, %d calls, busy %d", n, len(u.calls), u.busy)
	}
	if o := first.run.Info().Outcome; o != belay.Lost {
		t.Errorf("the oldest is %s", o)
	}
	for _, made := range s.tasks {
		made.newsLocked(mcp.TaskNews{Status: mcp.TaskCompleted})
	}
	if len(s.tasks)+len(u.calls)+u.busy+u.tools != 0 {
		t.Errorf("left: %d tasks, %d calls, busy %d, tools %d", len(s.tasks), len(u.calls), u.busy, u.tools)
	}
}

// TestManyTasks: an end of the session tells of all of its tasks at once, whoever
// is slow.
func TestManyTasks(t *testing.T) {
	t.Parallel()
	const n = 300
	calm.Within(t, closeLimit, func() (from, to time.Time) {
		ts := newTaskServer(t)
		r := ts.web(t, "tester", nil, nil)
		for i := range n {
			r.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"n%d","arguments":{},%s}}`, i, i, taskMeta)
		}
		for i := range n {
			r.expect(fmt.Sprint(i))
		}
		from = time.Now()
		r.s.Run().Cancel(belay.Cancellation{Cause: belay.CauseOperator})
		for {
			to = time.Now()
			told := ts.told("tasks/cancel t-n")
			if told == n || to.Sub(from) > 2*closeLimit { // then the rest was given up
				t.Logf("%d of %d tasks told within %v", told, n, to.Sub(from))
				return from, to
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
}

// told counts what the server saw that begins like this.
func (ts *taskServer) told(what string) (n int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, s := range ts.seen {
		if strings.HasPrefix(s, what) {
			n++
		}
	}
	return n
}
