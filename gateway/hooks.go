package gateway

import (
	"bytes"
	"context"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/hook"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/supervise"
)

// Stop hooks (DESIGN 11, 6) stop what a tool works on where Belay cannot reach
// it: a container, a job in a queue. They are the operator's own word that this
// call may be forced there, so nobody else's call is in their way. The server's
// process is then left alone, unless a person presses again.

// keepArguments keeps of a call what its hooks may want to know.
func (c *call) keepArguments(m *mcp.Message) {
	if c.policy.Stop == nil || c.method != mcp.MethodCallTool {
		return
	}
	if at, ok, err := jsonrpc.Member(m.Frame, m.Params, "arguments"); ok && err == nil {
		c.args = bytes.Clone(at.Of(m.Frame))
	}
}

// hookLocked makes the hooks of a call that is being stopped; nil: it has none.
func (c *call) hookLocked() *hook.Stop {
	if c.policy.Stop == nil || c.method != mcp.MethodCallTool || c.up == nil {
		return nil
	}
	if c.hooks == nil {
		id := c.id.Raw()
		if text, ok := c.id.Text(); ok {
			id = text
		}
		c.hooks = c.policy.Stop.For(hook.Call{
			Run: c.run.ID(), Server: c.s.cfg.Name, Tool: c.name, RequestID: id, Args: c.args,
			Observe: c.policy.Observe || c.policy.Enforce == EnforceNever,
			Log:     c.s.log, Redact: supervise.Redact,
		})
	}
	return c.hooks
}

// tellHooks tells by the hooks, beside the protocol's own cancel, and watches
// for what they prove for as long as anybody waits for it.
func (c *call) tellHooks(cause *belay.Cancellation) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	hooks := c.hookLocked()
	if hooks == nil {
		return
	}
	c.s.goLocked(func() {
		giveUp := cause.At.Add(c.policy.Ladder.WithDefaults().ConfirmAfter)
		ctx, end := context.WithDeadlineCause(c.s.life, giveUp, errStepOver)
		defer end()
		if err := hooks.Tell(ctx, cause); err != nil {
			c.s.log.Warn("a stop hook told nobody", "run", c.run.ID(), "tool", c.name, "error", err)
		}
		if e := hooks.Watch(ctx, cause); e != nil {
			c.run.Observe(*e)
		}
	})
}

// mayHook reports whether the hooks of a call may be used as force now.
func (c *call) mayHook(p belay.Pressure) bool {
	c.s.mu.Lock()
	hooks := c.hookLocked()
	c.s.mu.Unlock()
	if !hooks.Forceful() {
		return false
	}
	return p.Again || p.Now || c.policy.Enforce != EnforceLenient
}

// forceByHooks takes a step by the hooks. It reports whether the server's
// process is to be forced as well; then it does not wait for them.
func (c *call) forceByHooks(ctx context.Context, step int) (e *belay.Evidence, both bool, err error) {
	c.s.mu.Lock()
	hooks, both := c.hooks, c.byProcess
	c.s.mu.Unlock()
	take := hooks.Terminate
	if step == stepKill {
		take = hooks.Kill
	}
	if !both {
		e, err = take(ctx, c.run.Cancellation())
		return e, false, err
	}
	c.s.goTracked(func() {
		e, err := take(ctx, c.run.Cancellation())
		if err != nil {
			c.s.log.Warn("a stop hook failed", "run", c.run.ID(), "error", err)
		}
		if e != nil {
			c.run.Observe(*e)
		}
	})
	return nil, true, nil
}

// provenElsewhere is what the end of the server's processes means for a call.
// Where only a relay died, and a hook can look at the work itself, its word is
// waited for.
func (c *call) provenElsewhere(e belay.Evidence) belay.Evidence {
	if e.Scope == belay.ScopeRemote {
		c.s.mu.Lock()
		e.Open = e.Open || c.hookLocked().Has(hook.Alive)
		c.s.mu.Unlock()
	}
	return e
}
