package faketool

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// extTasks names the tasks extension; relatedTask the member of _meta that ties
// a message to a task.
const (
	extTasks    = "io.modelcontextprotocol/tasks"
	relatedTask = "io.modelcontextprotocol/related-task"
)

// fakeTask is one tool call that became a task, of either kind. The tool runs as
// it would in a plain call; where that would answer, the task ends.
type fakeTask struct {
	s       *server
	id, key string
	modern  bool
	work    *call // stands for the tool's call; its answer comes here
	created time.Time
	done    chan struct{} // closed when the state is final
	input   chan json.RawMessage

	// Guarded by server.mu.
	status string
	result []byte // what the plain request would have returned
	fault  []byte // or its error
}

// wantsTask reports whether a tools/call is to become a task: the caller's wish
// in 2025-11-25, the server's own afterwards.
func (s *server) wantsTask(c *call, p params, a arguments) bool {
	if !s.opt.tasks {
		return false
	}
	if !c.modern {
		return len(p.Task) > 0
	}
	var caps struct {
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	_ = json.Unmarshal(p.Meta[metaCaps], &caps)
	_, declared := caps.Extensions[extTasks]
	return a.Task && declared
}

// startTask begins the work and says so, soon, late or twice.
func (s *server) startTask(c *call, p params, a arguments, t tool) {
	ctx, cancel := context.WithCancelCause(context.Background())
	f := &fakeTask{
		s: s, id: "task-" + a.Key, key: a.Key, modern: c.modern, created: time.Now(),
		done: make(chan struct{}), input: make(chan json.RawMessage, 1), status: "working",
	}
	f.work = &call{s: s, method: c.method, key: a.Key, token: c.token, modern: c.modern, deaf: c.deaf, ctx: ctx, cancel: cancel, task: f}
	if c.modern {
		f.work.token = nil // no progress for tasks of the extension
	}
	s.mu.Lock()
	s.tasks[f.id] = f
	c.becomes = f
	s.mu.Unlock()
	late := s.opt.taskLate > 0 || s.opt.taskWhen
	answered := make(chan struct{})
	s.running.Go(func() {
		defer cancel(nil)
		<-s.ready
		if !late {
			<-answered // or the state in the answer could be older than what is announced before it
		}
		t.run(s, f.work, a, p)
		f.end("cancelled", nil, nil) // unless it has ended in another way
	})
	answer := func() {
		defer c.finish()
		s.mu.Lock()
		raw := f.json()
		s.mu.Unlock()
		if !c.modern {
			raw = fmt.Appendf(nil, `{"task":%s}`, raw)
		} else {
			raw = append([]byte(`{"resultType":"task",`), raw[1:]...)
		}
		s.out.result(c.id, raw)
		if s.opt.taskTwice {
			s.out.result(c.id, raw)
		}
	}
	if !late {
		answer()
		close(answered)
		return
	}
	s.running.Go(func() {
		time.Sleep(s.opt.taskLate)
		for end := time.Now().Add(time.Minute); s.opt.taskWhen && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(s.opt.witness + ".task"); err == nil {
				break
			}
		}
		answer()
	})
}

// json is the task as both kinds describe it. The lock is held.
func (f *fakeTask) json() []byte {
	ttl := "ttl"
	if f.modern {
		ttl = "ttlMs"
	}
	raw := fmt.Appendf(nil, `{"taskId":%s,"status":%s,"createdAt":%s,"lastUpdatedAt":%s,%q:%d`,
		quote(f.id), quote(f.status), quote(f.created.UTC().Format(time.RFC3339)), quote(time.Now().UTC().Format(time.RFC3339)),
		ttl, f.s.opt.taskTTL.Milliseconds())
	switch {
	case !f.modern:
	case f.status == "completed":
		raw = fmt.Appendf(raw, `,"result":%s`, f.result)
	case f.status == "failed":
		raw = fmt.Appendf(raw, `,"error":%s`, f.fault)
	case f.status == "input_required":
		raw = append(raw, `,"inputRequests":{"q":{"method":"elicitation/create","params":{}}}`...)
	}
	return append(raw, '}')
}

// end makes a state final; the first wins (MCP-47).
func (f *fakeTask) end(status string, result, fault []byte) {
	f.s.mu.Lock()
	first := f.status == "working" || f.status == "input_required"
	if first {
		f.status, f.result, f.fault = status, result, fault
		close(f.done)
	}
	f.s.mu.Unlock()
	if first {
		f.announce()
	}
}

// become changes between the states that are not final.
func (f *fakeTask) become(status string) {
	f.s.mu.Lock()
	if f.status == "working" || f.status == "input_required" {
		f.status = status
	}
	f.s.mu.Unlock()
	f.announce()
}

func (f *fakeTask) announce() {
	if !f.s.opt.taskNotify || f.modern {
		return
	}
	f.s.mu.Lock()
	raw := f.json()
	f.s.mu.Unlock()
	f.s.out.notify("notifications/tasks/status", raw)
}

// aboutTask answers the tasks/* methods; false: this is none of them.
func (s *server) aboutTask(c *call, p params) bool {
	if !s.opt.tasks {
		return false
	}
	switch c.method {
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
	case "tasks/list":
		s.listTasks(c)
		return true
	default:
		return false
	}
	s.wit.write(serverKey, c.method, p.TaskID)
	s.mu.Lock()
	f := s.tasks[p.TaskID]
	s.mu.Unlock()
	if f == nil {
		c.fail(-32602, "no such task: "+p.TaskID)
		c.finish()
		return true
	}
	if c.method == "tasks/result" {
		s.running.Go(func() { f.awaitResult(c) })
		return true
	}
	defer c.finish()
	switch c.method {
	case "tasks/get":
		s.mu.Lock()
		raw := f.json()
		s.mu.Unlock()
		c.replyRaw(raw)
	case "tasks/cancel":
		f.cancel(c)
	case "tasks/update":
		select {
		case f.input <- p.InputResponses:
		default:
		}
		c.replyRaw([]byte(`{}`))
	}
	return true
}

func (s *server) listTasks(c *call) {
	defer c.finish()
	s.mu.Lock()
	raw := []byte(`{"tasks":[`)
	for _, f := range s.tasks {
		if raw[len(raw)-1] != '[' {
			raw = append(raw, ',')
		}
		raw = append(raw, f.json()...)
	}
	s.mu.Unlock()
	c.replyRaw(append(raw, `]}`...))
}

// awaitResult blocks until the task is over (MCP-50).
func (f *fakeTask) awaitResult(c *call) {
	defer c.finish()
	select {
	case <-f.done:
	case <-c.ctx.Done():
		return
	}
	if f.result == nil {
		c.fail(-32603, "the task has no result")
		return
	}
	meta := fmt.Appendf(nil, `{"_meta":{%q:{"taskId":%s}},`, relatedTask, quote(f.id))
	c.replyRaw(append(meta, f.result[1:]...))
}

// cancel takes a tasks/cancel: the record first, then the tool, which may be
// deaf (MCP-48, MCP-49, MCP-81).
func (f *fakeTask) cancel(c *call) {
	f.s.mu.Lock()
	over := f.status != "working" && f.status != "input_required"
	f.s.mu.Unlock()
	f.s.wit.write(f.key, "task-cancel", "")
	if f.modern {
		f.work.told("tasks/cancel")
		c.replyRaw([]byte(`{}`))
		return
	}
	if over {
		c.fail(-32602, "the task is over")
		return
	}
	f.end("cancelled", nil, nil)
	f.work.told("tasks/cancel")
	f.s.mu.Lock()
	raw := f.json()
	f.s.mu.Unlock()
	c.replyRaw(raw)
}

// taskAsk is a tool for tasks: it needs an answer before it goes on.
func (s *server) taskAsk(c *call, a arguments, _ params) {
	f := c.task
	if f == nil {
		c.fail(-32602, "this tool runs as a task only")
		return
	}
	s.wit.write(a.Key, "start", "")
	f.become("input_required")
	var question <-chan message
	var id string
	if !f.modern {
		a.Method = "elicitation/create"
		a.Params = fmt.Appendf(nil, `{"message":"Go on?","requestedSchema":{"type":"object"},"_meta":{%q:{"taskId":%s}}}`, relatedTask, quote(f.id))
		id, question = s.question(a)
	}
	select {
	case m := <-question:
		s.wit.write(a.Key, "answer", string(m.Result))
	case raw := <-f.input:
		s.wit.write(a.Key, "answer", string(raw))
	case <-c.ctx.Done():
		if id != "" {
			s.cancelQuestion(a.Key, id, "the task was cancelled")
		}
		s.wit.write(a.Key, "stopped", "")
		c.settle("")
		return
	}
	f.become("working")
	s.tick(c, a, params{})
}
