package gateway

import (
	"context"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/hook"
	"github.com/belayhq/belay/proc"
)

// Plan implements [belay.Planner].
func (c *call) Plan(context.Context) belay.Plan {
	c.s.mu.Lock()
	up := c.up
	c.s.mu.Unlock()
	if up == nil {
		return belay.Plan{Tell: "nobody: it waits for a process", Force: "none"}
	}
	plan := belay.Plan{Tell: "server " + c.s.cfg.Name + ", by notifications/cancelled"}
	cfg := c.policy
	c.s.mu.Lock()
	hooks := c.hookLocked()
	c.s.mu.Unlock()
	if hooks.Has(hook.Tell) {
		plan.Tell += ", and the tell hook"
	}
	switch {
	case hooks.Forceful():
		plan.Force = hooks.Plan()
		return plan
	case up.tree == nil:
		plan.Force = "none: " + c.s.cfg.beyondForce()
		return plan
	case cfg.Observe || cfg.Enforce == EnforceNever:
		plan.Force = "none: this server is never forced"
		return plan
	case cfg.Enforce == EnforceLenient && !up.worker:
		plan.Force = "only on a second Stop"
	case up.worker || cfg.Enforce == EnforceStrict || c.s.cfg.RestartSafe:
		plan.Force = "SIGTERM after " + cfg.Ladder.Grace.String() + ", SIGKILL after " + (cfg.Ladder.Grace + cfg.Ladder.KillAfter).String()
	default:
		plan.Force = "SIGTERM after " + cfg.Ladder.Grace.String() + " if it shows signs of life, else on a second Stop"
	}
	up.addPlan(&plan, c.selection())
	return plan
}

func (u *upstream) addPlan(plan *belay.Plan, sel proc.Selection) {
	if u.tree == nil {
		return
	}
	p := u.tree.Plan(sel)
	plan.Kill = append(plan.Kill, p.Kill...)
	plan.Spared = append(plan.Spared, p.Spared...)
}
