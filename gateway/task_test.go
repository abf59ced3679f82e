package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

// taskMeta is the _meta of a modern request whose caller takes tasks.
const taskMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// taskKind is one of the two kinds of tasks.
type taskKind bool

const (
	coreTask taskKind = false // of 2025-11-25
	extTask  taskKind = true  // of the extension
)

func (k taskKind) String() string {
	if k == extTask {
		return "extension"
	}
	return "core"
}

// taskLink opens a session in front of a server with tasks.
func taskLink(t *testing.T, kind taskKind, o linkOptions) *link {
	t.Helper()
	o.server = append([]string{"-tasks"}, o.server...)
	if kind == coreTask {
		return legacy(t, o)
	}
	o.server = append([]string{"-era", "modern"}, o.server...)
	return open(t, o)
}

// ask sends a request about a task.
func (r *link) ask(kind taskKind, id, method, task string) {
	r.t.Helper()
	more := ""
	if kind == extTask {
		more = "," + taskMeta
	}
	r.send(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"taskId":%q%s}}`, id, method, task, more)
}

// request sends a call that is to become a task.
func (r *link) askTask(kind taskKind, id, tool, key, more string) {
	r.t.Helper()
	if more != "" {
		more = "," + more
	}
	if kind == extTask {
		r.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{"key":%q,"task":true%s},%s}}`, id, tool, key, more, taskMeta)
		return
	}
	r.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{"key":%q%s},"task":{"ttl":60000},"_meta":{"progressToken":"p-%s"}}}`, id, tool, key, more, key)
}

// begin starts a task that ticks, waits for its first tick and for the answer,
// and returns its run.
func (r *link) begin(kind taskKind, id, key, more string) *belay.Run {
	r.t.Helper()
	r.askTask(kind, id, "tick", key, more)
	r.saw(key, "tick")
	if m := r.expect(id); !strings.Contains(m.Raw, `"task-`+key+`"`) {
		r.t.Fatalf("it did not become a task: %s", m.Raw)
	}
	return r.taskRun("task-" + key)
}

// taskRun finds the run of a task.
func (r *link) taskRun(task string) *belay.Run {
	r.t.Helper()
	var run *belay.Run
	r.until("a run of "+task, func() bool {
		list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindTask}, Ended: true})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, info := range list {
			if info.Address == task {
				run, err = r.tree.Run(info.ID)
				return err == nil
			}
		}
		return false
	})
	return run
}

// stopRun is an operator's Stop of a run.
func (r *link) stopRun(run *belay.Run) {
	r.t.Helper()
	_, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{run.ID()}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test", Reason: "enough"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// status asks for a task's status.
func (r *link) status(kind taskKind, task string) string {
	r.t.Helper()
	probes.Lock()
	probes.n++
	id := fmt.Sprintf(`"status-%d"`, probes.n)
	probes.Unlock()
	r.ask(kind, id, "tasks/get", task)
	m := r.expect(id)
	var result struct {
		Status string `json:"status"`
	}
	if m.Error != nil {
		return fmt.Sprint(m.Error.Code)
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		r.t.Fatal(err)
	}
	return result.Status
}

// worksFor is works in the era of a kind of tasks.
func (r *link) worksFor(kind taskKind) {
	r.t.Helper()
	if kind == coreTask {
		r.works()
		return
	}
	r.modernWorks()
}

func (r *link) modernWorks() {
	r.t.Helper()
	probes.Lock()
	probes.n++
	id := fmt.Sprintf(`"probe-%d"`, probes.n)
	probes.Unlock()
	if err := r.CallModern(id, "echo", `{"probe":`+id+`}`, ""); err != nil {
		r.t.Fatal(err)
	}
	if m := r.expect(id); !strings.Contains(m.Text(), strings.Trim(id, `"`)) {
		r.t.Fatalf("the session does not work any more: %s", m.Raw)
	}
}

// bothKinds runs f for each kind of task, beside each other.
func bothKinds(t *testing.T, f func(*testing.T, taskKind)) {
	for _, kind := range []taskKind{coreTask, extTask} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			f(t, kind)
		})
	}
}

// TestTaskIsARun: a request that became a task is answered, and its work is a
// run of kind task below the session, named after its tool, until the server
// says that it is over; then it ends once (MCP-45, MCP-47, MCP-79, MCP-G38).
func TestTaskIsARun(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, kind taskKind) {
		r := taskLink(t, kind, linkOptions{cfg: func(c *Config) { c.Labels = map[string]string{"team": "a"} }})
		run := r.begin(kind, "1", "a", `"n":15`)
		info := run.Info()
		if info.Kind != belay.KindTask || info.Name != "tick" || info.Parent != r.s.Run().ID() || info.Owner != "tester" || info.Labels["team"] != "a" || info.Work != belay.Running || info.Outcome != belay.Pending {
			t.Errorf("the run is %+v", info)
		}
		if call := r.runOf("1").Info(); call.Outcome != belay.Completed || call.Work != belay.Stopped {
			t.Errorf("the call is %+v", call)
		}
		if s := r.status(kind, "task-a"); s != "working" || run.Info().Outcome != belay.Pending {
			t.Errorf("the status is %s, the run %+v", s, run.Info())
		}
		r.saw("a", "done")
		r.until("the task is over", func() bool { return r.status(kind, "task-a") == "completed" })
		r.status(kind, "task-a")
		if info := run.Info(); info.Outcome != belay.Completed || info.Work != belay.Stopped {
			t.Errorf("the run is %+v", info)
		}
		r.s.mu.Lock()
		if len(r.s.tasks) != 0 || len(r.s.current.calls) != 0 || r.s.current.busy != 0 || r.s.current.tools != 0 {
			t.Errorf("left: %d tasks, %d calls, busy %d, tools %d", len(r.s.tasks), len(r.s.current.calls), r.s.current.busy, r.s.current.tools)
		}
		r.s.mu.Unlock()
		r.worksFor(kind)
	})
}

// TestTaskProgress: one progress token counts for a task's whole life, and for
// nothing after it; related-task metadata passes unchanged (MCP-51).
func TestTaskProgress(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{})
	r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
	m := got(t, server, "initialize")
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"capabilities":{"tasks":{}}}}`, m.ID)
	r.expect("0")
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","task":{},"_meta":{"progressToken":"mine"}}}`)
	m = got(t, server, "tools/call")
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"task":{"taskId":"t","status":"working"}}}`, m.ID)
	r.expect("1")
	const related = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}`
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"b-2","progress":1,%s}}`, related)
	got(t, r.Client, `{"progressToken":"mine","progress":1,`+related+`}`)
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"completed"}}`)
	got(t, r.Client, "notifications/tasks/status")
	if info := r.taskRun("t").Info(); info.Outcome != belay.Completed {
		t.Errorf("the run is %+v", info)
	}
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"b-2","progress":2}}`)
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/marker"}`)
	got(t, r.Client, "notifications/marker")
	never(t, r.Client, `"progress":2`)
}

// TestTaskOverBeforeItsAnswer: a notification that a task is over may come before
// the answer that tells of it.
func TestTaskOverBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{})
	r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
	m := got(t, server, "initialize")
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"capabilities":{"tasks":{}}}}`, m.ID)
	r.expect("0")
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","task":{}}}`)
	m = got(t, server, "tools/call")
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"failed"}}`)
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"task":{"taskId":"t","status":"working"}}}`, m.ID)
	r.expect("1")
	if info := r.taskRun("t").Info(); info.Outcome != belay.Failed || info.Work != belay.Stopped {
		t.Errorf("the run is %+v", info)
	}
}

// TestTaskEnds: the states of a task and the answers about it end its run in the
// outcome that fits, or leave it (MCP-47, MCP-50, MCP-85).
func TestTaskEnds(t *testing.T) {
	t.Parallel()
	const pending, waiting = belay.Pending, belay.Waiting
	for _, c := range []struct {
		name, method, answer string
		outcome              belay.Outcome
		work                 belay.Work
	}{
		{"working", "tasks/get", `"result":{"taskId":"t","status":"working"}`, pending, belay.Running},
		{"input", "tasks/get", `"result":{"taskId":"t","status":"input_required"}`, pending, waiting},
		{"completed", "tasks/get", `"result":{"taskId":"t","status":"completed"}`, belay.Completed, belay.Stopped},
		{"failed", "tasks/get", `"result":{"taskId":"t","status":"failed"}`, belay.Failed, belay.Stopped},
		{"cancelled", "tasks/get", `"result":{"taskId":"t","status":"cancelled"}`, belay.Cancelled, belay.Stopped},
		{"isError inside", "tasks/get", `"result":{"taskId":"t","status":"completed","result":{"isError":true}}`, belay.Failed, belay.Stopped},
		{"unknown state", "tasks/get", `"result":{"taskId":"t","status":"new"}`, pending, belay.Running},
		{"unknown task", "tasks/get", `"error":{"code":-32602,"message":"no"}`, belay.Lost, belay.Stopped},
		{"other error", "tasks/get", `"error":{"code":-32603,"message":"no"}`, pending, belay.Running},
		{"result", "tasks/result", `"result":{"content":[]}`, belay.Completed, belay.Stopped},
		{"result isError", "tasks/result", `"result":{"content":[],"isError":true}`, belay.Failed, belay.Stopped},
		{"its error", "tasks/result", `"error":{"code":-32602,"message":"bad argument"}`, belay.Failed, belay.Stopped},
		{"update", "tasks/update", `"result":{}`, pending, belay.Running},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, server, _ := play(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceNever }})
			r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
			m := got(t, server, "initialize")
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"capabilities":{"tasks":{}}}}`, m.ID)
			r.expect("0")
			r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","task":{}}}`)
			m = got(t, server, "tools/call")
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"task":{"taskId":"t","status":"working"}}}`, m.ID)
			r.expect("1")
			r.ask(coreTask, "2", c.method, "\u0074") // the same id, whatever its spelling
			m = got(t, server, c.method)
			say(t, server, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, c.answer)
			r.expect("2")
			if info := r.taskRun("t").Info(); info.Outcome != c.outcome || info.Work != c.work {
				t.Errorf("the run is %s and %s, want %s and %s", info.Outcome, info.Work, c.outcome, c.work)
			}
		})
	}
}

// TestTaskStop: whoever stops a task, the tool hears of it by one tasks/cancel and
// ends; the receipt says no more than what the server said, the session goes
// on (MCP-44, MCP-48, MCP-80, MCP-81, MCP-G20, MCP-G38).
func TestTaskStop(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, kind taskKind) {
		for _, who := range []string{"operator", "caller", "deadline"} {
			t.Run(who, func(t *testing.T) {
				t.Parallel()
				r := taskLink(t, kind, linkOptions{cfg: func(c *Config) {
					if who == "deadline" {
						c.Deadline = 2 * time.Second // before which it is seen at work, on a busy machine, too
					}
				}})
				run := r.begin(kind, "1", "a", `"n":3000`)
				cause := belay.CauseDeadline
				switch who {
				case "operator":
					cause = belay.CauseOperator
					r.stopRun(run)
				case "caller":
					cause = belay.CauseUser
					r.ask(kind, "2", "tasks/cancel", "task-a")
					if m := r.expect("2"); m.Error != nil || strings.Contains(m.Raw, "cancelled") != (kind == coreTask) {
						t.Errorf("the answer is %s", m.Raw)
					}
				}
				r.saw("a", "stopped")
				receipt := r.receipt(run)
				if receipt.Cancellation.Cause != cause || receipt.Verdict != belay.Acknowledged || !saw(receipt, belay.SeenTaskCancelled) || receipt.Outcome != belay.Cancelled {
					t.Errorf("the receipt is %+v", receipt)
				}
				if n := r.wit.Count("a", "task-cancel"); n != 1 {
					t.Errorf("the server got %d tasks/cancel", n)
				}
				if s := r.status(kind, "task-a"); s != "cancelled" {
					t.Errorf("the status is %s", s)
				}
				if n := r.wit.Count("server", "start"); n != 1 {
					t.Errorf("the server was started %d times", n)
				}
				r.worksFor(kind)
			})
		}
	})
}

// TestTaskCancelTwice: a second tasks/cancel of the caller is passed on, gets the
// server's own refusal and changes nothing (MCP-48, MCP-G11).
func TestTaskCancelTwice(t *testing.T) {
	t.Parallel()
	r := taskLink(t, coreTask, linkOptions{})
	run := r.begin(coreTask, "1", "a", `"n":3000`)
	r.ask(coreTask, "2", "tasks/cancel", "task-a")
	r.expect("2")
	r.ask(coreTask, "3", "tasks/cancel", "task-a")
	if m := r.expect("3"); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("the second answer is %s", m.Raw)
	}
	receipt := r.receipt(run)
	if receipt.Verdict != belay.Acknowledged || !saw(receipt, belay.SeenTaskCancelled) || saw(receipt, belay.SeenErrorReply) {
		t.Errorf("the receipt is %+v", receipt.Steps)
	}
}

// TestTaskStopBeforeItsID: a Stop before the server said that the request became
// a task reaches the task as soon as its id is known (A5, A6), by tasks/cancel,
// once, even if the server says so twice.
func TestTaskStopBeforeItsID(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, kind taskKind) {
		r := taskLink(t, kind, linkOptions{server: []string{"-task-late", "150ms"}})
		r.askTask(kind, "1", "tick", "a", `"n":3000`)
		r.saw("a", "tick")
		at := time.Now()
		r.cancel("1", "")
		r.saw("a", "task-cancel")
		r.saw("a", "stopped")
		r.receipt(r.runOf("1"))
		r.worksFor(kind)
		r.silent("1", at)
		if n := r.wit.Count("a", "task-cancel"); n != 1 {
			t.Errorf("the server got %d tasks/cancel", n)
		}
	})
}

// TestTaskTwice: a server that says twice that a request became a task made one
// task, and its caller gets one answer.
func TestTaskTwice(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, kind taskKind) {
		r := taskLink(t, kind, linkOptions{server: []string{"-task-twice"}})
		run := r.begin(kind, "1", "a", `"n":3000`)
		r.worksFor(kind)
		if n := len(r.Responses("1")); n != 1 {
			t.Errorf("the caller got %d answers", n)
		}
		r.stopRun(run)
		r.saw("a", "stopped")
		r.receipt(run)
	})
}

// TestTaskDeaf: the record says cancelled, the tool works on: where force is
// allowed it ends with the process of the server, and the next call works; else
// nothing but the server's word is claimed (MCP-49, MCP-G33, MCP-G34).
func TestTaskDeaf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		cfg    func(*Config)
		args   string
		forced bool
	}{
		{"strict", strictly, `"deaf":true`, true},
		{"busy under auto", nil, `"deaf":true,"busy":true`, true},
		{"child under auto", nil, `"fork":["setsid"],"deaf":true`, true},
		{"quiet under auto", nil, `"deaf":true,"quiet":true,"ms":200`, false},
		{"never", func(c *Config) { c.Enforce = EnforceNever }, `"deaf":true,"busy":true`, false},
		{"observe", func(c *Config) { c.Observe = true }, `"deaf":true,"busy":true`, false},
	} {
		bothKinds(t, func(t *testing.T, kind taskKind) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := taskLink(t, kind, linkOptions{cfg: func(cfg *Config) {
					if c.forced {
						cfg.Ladder.ConfirmAfter = time.Minute // on a machine that others use, too
					}
					if c.cfg != nil {
						c.cfg(cfg)
					}
				}})
				run := r.begin(kind, "1", "a", `"n":3000,`+c.args)
				r.stopRun(run)
				receipt := r.receipt(run)
				forced := receipt.Verdict == belay.Confirmed
				if forced != c.forced {
					t.Errorf("the verdict is %s, held %q: %+v", receipt.Verdict, receipt.Held, receipt.Steps)
				}
				window := 10 * time.Second // until the next tick
				if c.forced {
					window = 600 * time.Millisecond
				}
				if ticking := r.wit.StillTicking("a", window); ticking == c.forced {
					t.Errorf("it ticks: %v", ticking)
				}
				if c.forced {
					if s := r.status(kind, "task-a"); s != "-32602" {
						t.Errorf("the lost task's status is %s", s)
					}
					if pids := faketool.WaitDead(r.wit.Pids("a/"), 3*time.Second); len(pids) > 0 {
						t.Errorf("alive: %v", pids)
					}
				}
				r.worksFor(kind)
			})
		})
	}
}
