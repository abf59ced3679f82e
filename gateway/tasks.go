package gateway

import (
	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// taskTokens remembers the progress tokens of requests that became tasks: a
// task keeps its token for its whole life, long after the request was answered
// (MCP-51). Guarded by Session.mu.
type taskTokens struct {
	tokens map[string]jsonrpc.ID // by our id of the request
	order  []string
}

// maxTaskTokens bounds them; the oldest is forgotten first, since nothing that
// passes here says for certain that a task is over.
const maxTaskTokens = 1000

// add keeps the token of a call whose answer says that it became a task.
func (t *taskTokens) add(c *call, answer *mcp.Message) {
	if !c.task || c.token.IsZero() || answer.TaskID() == nil {
		return
	}
	if t.tokens == nil {
		t.tokens = make(map[string]jsonrpc.ID)
	}
	if len(t.order) == maxTaskTokens {
		delete(t.tokens, t.order[0])
		t.order = t.order[1:]
	}
	key := c.upID.Key()
	t.tokens[key] = c.token
	t.order = append(t.order, key)
}

// token is the caller's token for the key of ours, or the zero ID.
func (t *taskTokens) token(key string) jsonrpc.ID { return t.tokens[key] }

// cancelTaskLocked has the server cancel the task that a stopped call became:
// the request was answered, the work only begins (A5, A6).
func (c *call) cancelTaskLocked(task []byte) {
	u := c.up
	id := u.ids.Next()
	if u.taskCancels == nil {
		u.taskCancels = make(map[string]*call)
	}
	if len(u.taskCancels) < maxTaskTokens {
		u.taskCancels[id.Key()] = c
	}
	u.send(mcp.AppendCancelTask(nil, id, task, c.era))
	c.askedLocked()
}

// askedLocked ends the waiting of Tell for the id of the task.
func (c *call) askedLocked() {
	if c.task && !c.told {
		c.told = true
		close(c.asked)
	}
}

// taskCancelled takes the answer to our tasks/cancel. Its status is the
// server's record, which says nothing about its worker; an error means that
// the task is over or unknown.
func (c *call) taskCancelled(m *mcp.Message) {
	switch {
	case m.IsError():
		c.run.Observe(belay.Evidence{Kind: belay.SeenErrorReply, Detail: "the server refused to cancel the task", Open: c.strict()})
	case m.TaskCancelled():
		c.run.Observe(belay.Evidence{Kind: belay.SeenTaskCancelled, Detail: "the server says that the task is cancelled"})
	}
}
