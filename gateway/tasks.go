package gateway

import (
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
	if !c.task || c.token.IsZero() || !answer.BecameTask() {
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
