package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// lookout lists a tree's processes, as rarely as those allow who want to know:
// many stopped calls may ask at once.
type lookout struct {
	tree *supervise.Tree

	mu   sync.Mutex
	at   time.Time // when the look that gave list was begun
	list []proc.Process
}

// processes returns a list that is at most so old; with 0 one that was begun
// after the question.
func (l *lookout) processes(maxAge time.Duration) []proc.Process {
	oldest := time.Now().Add(-maxAge)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.Before(oldest) {
		return l.list
	}
	at := time.Now()
	list, err := l.tree.List()
	if err != nil {
		return l.list
	}
	l.at, l.list = at, list
	return list
}

// bornSince lists the living processes that were born since then, without the
// leader and those that are spared, by a look that is at most so old.
func (u *upstream) bornSince(since proc.Stamp, maxAge time.Duration) []proc.Process {
	var list []proc.Process
	for _, p := range u.look.processes(maxAge) {
		if p.PID != u.tree.PID() && p.Spare == "" && p.Start/bornUnit >= since/bornUnit {
			list = append(list, p)
		}
	}
	return list
}

// bornUnit is the resolution of process births, as in package proc.
const bornUnit = proc.Stamp(10 * time.Millisecond)

// effort remembers the processor time of the processes that can be at work on
// a call: the server, what it had at its start, and what was born since. What
// earlier calls left behind and what is spared is busy for somebody else.
type effort map[proc.ID]time.Duration

// used is the processor time of them all, also of those that have ended.
func (e effort) used(c *call) (sum time.Duration) {
	c.s.mu.Lock()
	first, began := c.up.firstCall, c.began
	c.s.mu.Unlock()
	for _, p := range c.up.look.processes(watchAge) {
		left := p.PID != c.up.tree.PID() && p.Start >= first && p.Start/bornUnit < began/bornUnit
		if p.Spare == "" && !left {
			e[p.ID()] = p.CPU
		}
	}
	for _, used := range e {
		sum += used
	}
	return sum
}

// Plan implements [belay.Planner].
func (c *call) Plan(context.Context) belay.Plan {
	c.s.mu.Lock()
	up := c.up
	c.s.mu.Unlock()
	if up == nil {
		return belay.Plan{Tell: "nobody: it waits for a process", Force: "none"}
	}
	plan := belay.Plan{Tell: "server " + c.s.cfg.Name + ", by notifications/cancelled"}
	cfg := &c.s.cfg
	switch {
	case cfg.Observe || cfg.Enforce == EnforceNever:
		plan.Force = "none: this server is never forced"
		return plan
	case up.worker || cfg.Enforce == EnforceStrict || cfg.RestartSafe:
		plan.Force = "SIGTERM after " + cfg.Ladder.Grace.String() + ", SIGKILL after " + (cfg.Ladder.Grace + cfg.Ladder.KillAfter).String()
	case cfg.Enforce == EnforceLenient:
		plan.Force = "only on a second Stop"
	default:
		plan.Force = "SIGTERM after " + cfg.Ladder.Grace.String() + " if it shows signs of life, else on a second Stop"
	}
	up.addPlan(&plan, c.selection())
	return plan
}

func (u *upstream) addPlan(plan *belay.Plan, sel proc.Selection) {
	p := u.tree.Plan(sel)
	plan.Kill = append(plan.Kill, p.Kill...)
	plan.Spared = append(plan.Spared, p.Spared...)
}
