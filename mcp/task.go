package mcp

import (
	"iter"
	"time"

	"github.com/belayhq/belay/jsonrpc"
)

// Tasks come in two kinds: those of 2025-11-25, which the caller asks for with
// params.task, and those of the extension io.modelcontextprotocol/tasks, which
// the server makes of a tools/call as it likes. Both have an id that the server
// made, a status, and methods whose params.taskId names them.

// TaskStatus is the server's record of a task; it says nothing certain about
// the work (MCP-49, MCP-81).
type TaskStatus string

// The states of a task (MCP-47).
const (
	TaskWorking       TaskStatus = "working"
	TaskInputRequired TaskStatus = "input_required"
	TaskCompleted     TaskStatus = "completed"
	TaskFailed        TaskStatus = "failed"
	TaskCancelled     TaskStatus = "cancelled"
)

// Terminal reports whether a task never leaves this state (MCP-47).
func (s TaskStatus) Terminal() bool {
	return s == TaskCompleted || s == TaskFailed || s == TaskCancelled
}

// MaxTaskID bounds the id of a task that is kept, in bytes.
const MaxTaskID = 1024

// TaskNews is what a message says about a task. What it does not say is zero.
type TaskNews struct {
	ID     string // "" too if it is longer than [MaxTaskID]
	Status TaskStatus
	TTL    time.Duration // how long the server keeps it; 0: it does not say, or for ever
	Failed bool          // the tool's own result, which it carries, has isError
}

// TaskID is the JSON text of the task's id in a response that says that a
// request became a task, in either kind of tasks (MCP-45, MCP-79); else nil.
func (m *Message) TaskID() []byte {
	at := m.createdTask()
	id, ok, _ := jsonrpc.Member(m.Frame, at, "taskId")
	if !ok || jsonrpc.KindAt(m.Frame, id) != jsonrpc.StringValue {
		return nil
	}
	return id.Of(m.Frame)
}

// createdTask is the object that describes the task in such a response.
func (m *Message) createdTask() jsonrpc.Span {
	if m.Kind != jsonrpc.Response {
		return jsonrpc.Span{}
	}
	if at, ok, _ := jsonrpc.Member(m.Frame, m.Result, "task"); ok {
		return at
	}
	if m.resultType() == `"task"` {
		return m.Result
	}
	return jsonrpc.Span{}
}

func (m *Message) resultType() string {
	kind, ok, _ := jsonrpc.Member(m.Frame, m.Result, "resultType")
	if !ok {
		return ""
	}
	return string(kind.Of(m.Frame))
}

// CreatedTask is what a response that says that a request became a task says
// of it.
func (m *Message) CreatedTask() TaskNews { return m.newsAt(m.createdTask()) }

// TaskNews is what the answer to tasks/get, tasks/cancel or tasks/update, or a
// notification about a task, says of it.
func (m *Message) TaskNews() TaskNews {
	if m.Kind == jsonrpc.Notification {
		return m.newsAt(m.Params)
	}
	return m.newsAt(m.Result)
}

func (m *Message) newsAt(at jsonrpc.Span) (n TaskNews) {
	for p := range jsonrpc.Members(m.Frame, at) {
		switch {
		case p.Named(m.Frame, "taskId"):
			n.ID = m.text(p.Value, MaxTaskID)
		case p.Named(m.Frame, "status"):
			n.Status = TaskStatus(m.text(p.Value, maxText))
		case p.Named(m.Frame, "ttl"), p.Named(m.Frame, "ttlMs"):
			n.TTL = milliseconds(p.Value.Of(m.Frame))
		case p.Named(m.Frame, "result"):
			failed, ok, _ := jsonrpc.Member(m.Frame, p.Value, "isError")
			n.Failed = ok && string(failed.Of(m.Frame)) == "true"
		}
	}
	return n
}

// milliseconds reads a plain number of them; anything else is 0.
func milliseconds(text []byte) time.Duration {
	const most = int64(1) << 40 // 35 years
	var n int64
	for _, b := range text {
		if b < '0' || b > '9' || n > most {
			return 0
		}
		n = n*10 + int64(b-'0')
	}
	return time.Duration(n) * time.Millisecond
}

// TaskRef is the id of the task that a request is about, by params.taskId,
// which alone counts (MCP-51); "" if it is about none.
func (m *Message) TaskRef() string {
	switch m.Method {
	case MethodGetTask, MethodTaskResult, MethodCancelTask, MethodUpdateTask:
	default:
		return ""
	}
	at, ok, _ := jsonrpc.Member(m.Frame, m.Params, "taskId")
	if !ok {
		return ""
	}
	return m.text(at, MaxTaskID)
}

// ListenedTasks yields the ids of the tasks that a subscription asks to be told
// of; what it is told contains their results.
func (m *Message) ListenedTasks() iter.Seq[string] {
	return func(yield func(string) bool) {
		if m.Method != MethodListen {
			return
		}
		list, _, _ := jsonrpc.Path(m.Frame, m.Params, "notifications", "taskIds")
		for at := range jsonrpc.Elements(m.Frame, list) {
			if !yield(m.text(at, MaxTaskID)) {
				return
			}
		}
	}
}

// RelatedTask is the id of the task that a request of the server belongs to, by
// its _meta (MCP-51); "" if it names none.
func (m *Message) RelatedTask() string {
	at, ok, _ := jsonrpc.Path(m.Frame, m.Meta, metaRelatedTask, "taskId")
	if !ok {
		return ""
	}
	return m.text(at, MaxTaskID)
}

// FilterTasks appends the edit that takes the tasks which keep refuses out of
// the answer to tasks/list; none if all stay.
func FilterTasks(edits []jsonrpc.Edit, m *Message, keep func(id string) bool) []jsonrpc.Edit {
	list, ok, _ := jsonrpc.Member(m.Frame, m.Result, "tasks")
	if !ok {
		return edits
	}
	rest, dropped := []byte{'['}, false
	for at := range jsonrpc.Elements(m.Frame, list) {
		if n := m.newsAt(at); n.ID != "" && !keep(n.ID) {
			dropped = true
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(rest, at.Of(m.Frame)...)
	}
	if !dropped {
		return edits
	}
	return append(edits, jsonrpc.Edit{At: list, New: append(rest, ']')})
}

// AppendCancelTask appends the request that asks a server to cancel a task,
// whose id is given as JSON text (MCP-44, MCP-80).
func AppendCancelTask(dst []byte, id jsonrpc.ID, task []byte, era Era) []byte {
	return appendTaskRequest(dst, id, MethodCancelTask, task, era)
}

// AppendGetTask appends the request that asks a server what became of a task.
func AppendGetTask(dst []byte, id jsonrpc.ID, task []byte, era Era) []byte {
	return appendTaskRequest(dst, id, MethodGetTask, task, era)
}

func appendTaskRequest(dst []byte, id jsonrpc.ID, method string, task []byte, era Era) []byte {
	params := append([]byte(`{"taskId":`), task...)
	if era == Modern {
		params = append(params, `,"_meta":{"`+metaVersion+`":"`+Revision26+`",`+metaSelf+`,"`+metaCapabilities+`":{"extensions":{"`+extTasks+`":{}}}}`...)
	}
	return jsonrpc.AppendRequest(dst, id, method, append(params, '}'))
}
