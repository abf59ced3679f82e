package gateway

import (
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/proc"
)

// Death is how a process of the server ended that nobody wanted to end.
type Death struct {
	Exit        proc.Exit
	Stderr      []byte // the last of what it said there; of a Go program that crashed, how that began
	OutOfMemory bool   // the kernel ended it, because it had more than Config.Memory
}

// deathTime is how long a process may take to be dead whose output has ended, before
// it counts as one that lives on without.
const deathTime = 5 * time.Second

// epitaph is what the callers of a process are told that has ended by itself; "":
// nothing in particular.
func (u *upstream) epitaph() string {
	if u.s.cfg.Epitaph == nil || u.tree == nil {
		return ""
	}
	select {
	case <-u.tree.Done():
	default:
		return "" // it has only closed its output
	}
	d := Death{Exit: u.tree.Exit()}
	d.OutOfMemory = d.Exit.OutOfMemory
	d.Stderr = u.heard.words()
	text := u.s.cfg.Epitaph(d)
	u.heard.bury(text != "")
	return text
}

// failTextLocked settles a call that could not be carried out with a tool's own
// error, which a model reads.
func (c *call) failTextLocked(text string) {
	s := c.s
	if !c.run.Finish(belay.Failed) {
		return
	}
	s.forgetLocked(c)
	if c.byCaller { // its own cancel came first: it is told nothing (MCP-G24)
		c.silenceLocked()
		return
	}
	c.answered = true
	frame := mcp.AppendToolError(nil, c.id, text, c.era)
	if s.cfg.NameRuns {
		frame = mcp.NameRun(frame, c.run.ID())
	}
	s.replyLocked(c, frame)
}
