package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// lookout lists a tree's processes, at most every few milliseconds however many
// stopped calls want to know.
type lookout struct {
	tree *supervise.Tree

	mu   sync.Mutex
	at   time.Time
	list []proc.Process
}

const lookFresh = 10 * time.Millisecond

func (l *lookout) processes() []proc.Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) < lookFresh {
		return l.list
	}
	list, err := l.tree.List()
	if err != nil {
		return l.list
	}
	l.at, l.list = time.Now(), list
	return list
}

// bornSince lists the living processes that were born since then, without the
// leader and those that are spared.
func (u *upstream) bornSince(since proc.Stamp) []proc.Process {
	var list []proc.Process
	for _, p := range u.look.processes() {
		if p.PID != u.tree.PID() && p.Spare == "" && p.Start/bornUnit >= since/bornUnit {
			list = append(list, p)
		}
	}
	return list
}

// bornUnit is the resolution of process births, as in package proc.
const bornUnit = proc.Stamp(10 * time.Millisecond)

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
