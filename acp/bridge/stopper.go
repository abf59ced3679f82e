package bridge

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

// notFronted is on the receipt for each MCP server of the session to which a Stop
// does not reach (DESIGN 11, 8). It proves nothing.
const notFronted belay.EvidenceKind = "not_fronted"

// partGone is on the receipt when some of the turn's work was seen gone. It says
// nothing of the rest, and so proves nothing before the end: others of its processes
// may be alive, and the agent itself may go on.
const partGone belay.EvidenceKind = "part_gone"

// turnTeller stops a turn by telling the agent, and by nothing else.
type turnTeller struct{ t *turn }

// turnStopper also ends what the turn's tool calls have started and left behind.
type turnStopper struct{ turnTeller }

var (
	_ belay.Gate       = (*turnStopper)(nil)
	_ belay.Terminator = (*turnStopper)(nil)
	_ belay.Killer     = (*turnStopper)(nil)
	_ belay.Planner    = (*turnStopper)(nil)
	_ belay.Planner    = (*turnTeller)(nil)
)

func newTurnStopper(t *turn) belay.Stopper {
	if t.b.set.Enforce == Never {
		return &turnTeller{t}
	}
	return &turnStopper{turnTeller{t}}
}

// Tell says whether the agent was told, which onCancel has done before.
func (p *turnTeller) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	p.t.b.mu.Lock()
	defer p.t.b.mu.Unlock()
	if p.t.stop == nil {
		return nil, nil
	}
	return nil, p.t.stop.err
}

// agentFirst is how long the look at the processes waits after the agent was told.
// The line has woken the agent on our processor, where it would wait for the look to
// end; and no agent kills its tool in so short a time.
const agentFirst = time.Millisecond

// firstLook looks who is alive, and which calls of MCP servers are cut, right after
// the Stop: what is gone later was there then.
func (b *Bridge) firstLook(ctx context.Context, t *turn) {
	timer := time.NewTimer(agentFirst)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	b.mu.Lock()
	st, brood := t.stop, t.brood
	front, passed := t.s.front, t.s.passed
	b.mu.Unlock()
	if brood != nil {
		open, _ := brood.Living()
		b.with(func() { st.alive = open })
	}
	if front != nil {
		cut := len(b.o.Front.Calls(t.run)) > 0
		b.with(func() {
			st.cut = st.cut || cut
			st.unsure = false
		})
	}
	for _, one := range passed {
		t.run.Observe(belay.Evidence{Kind: notFronted, Detail: fmt.Sprintf("not fronted: MCP server %s (%s); what it does for the agent was not told", one.Name, one.Why)})
	}
}

// Plan says what a Stop would do.
func (p *turnTeller) Plan(context.Context) belay.Plan {
	t, b := p.t, p.t.b
	b.mu.Lock()
	sent, brood := t.sent, t.brood
	b.mu.Unlock()
	if !sent {
		return belay.Plan{Tell: "nobody: the prompt would not be passed to the agent", Force: "none"}
	}
	plan := belay.Plan{Tell: "the agent, by " + acp.NoticeSessionCancel, Force: "none: enforce is " + string(b.set.Enforce)}
	if b.set.Enforce == Never {
		return plan
	}
	plan.Force = fmt.Sprintf("SIGTERM for what its open tool calls have started, %s after the agent has ended the turn, at the latest after %s; SIGKILL %s later", b.set.Linger, b.set.Grace, b.set.KillAfter)
	if b.set.Enforce == Strict {
		plan.Force += fmt.Sprintf("; the agent itself if it has not ended the turn after %s", b.set.AgentDeadline)
	}
	if brood != nil {
		open, others := brood.Living()
		plan.Kill = open
		for _, one := range others {
			if one.Why == "" {
				one.Why = "it belongs to no open tool call: a second Stop takes it"
			}
			plan.Spared = append(plan.Spared, one)
		}
	}
	return plan
}

// MayForce waits for the time of the look at the processes, and looks. Force is used
// only if a tool call that was open has left something alive, or a person presses.
func (p *turnStopper) MayForce(ctx context.Context, pressure belay.Pressure) error {
	t, b := p.t, p.t.b
	b.mu.Lock()
	st := t.stop
	b.mu.Unlock()
	if st == nil || pressure.Again || pressure.Now {
		return nil
	}
	if err := st.waitUntilDue(ctx, b.set); err != nil {
		return err
	}
	for {
		force, why := b.look(t)
		if force {
			return nil
		}
		if why != nil {
			return why
		}
		// Nobody is alive, and the agent has not said anything yet.
		timer := time.NewTimer(time.Until(pressure.GiveUp))
		select {
		case <-st.confirmed:
			timer.Stop()
			if err := st.waitUntilDue(ctx, b.set); err != nil {
				return err
			}
		case <-timer.C:
			return &belay.Restraint{Why: "the agent does not end the turn, and no process of an open tool call is alive"}
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// waitUntilDue waits until linger after the agent's word, at the latest until grace
// after the Stop. After the word alone counts.
func (st *stopping) waitUntilDue(ctx context.Context, set Settings) error {
	grace := time.NewTimer(time.Until(st.at.Add(set.Grace)))
	defer grace.Stop()
	select {
	case <-st.confirmed:
	case <-grace.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	linger := time.NewTimer(time.Until(st.saidAt.Add(set.Linger)))
	defer linger.Stop()
	select {
	case <-linger.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// look looks at the processes of a stopped turn. It reports whether some that belong
// to a tool call which was open are alive. If none are, and the agent has ended the
// turn, that is the end: the receipt becomes final, and why says how.
func (b *Bridge) look(t *turn) (force bool, why error) {
	b.mu.Lock()
	st, brood := t.stop, t.brood
	spared := b.version == acp.Version2 && b.set.Background == Spare && t.s.work.runs()
	b.mu.Unlock()
	var open, others []belay.Process
	if brood != nil {
		open, others = brood.Living()
	}
	switch {
	case spared:
		open, others = nil, append(open, others...)
	case st.all:
		open, others = append(open, others...), nil
	}
	if len(open) > 0 {
		return true, nil
	}
	b.mu.Lock()
	said := st.said
	if st.gone == nil && len(st.alive) > 0 && !spared {
		st.gone = &belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree, Detail: "the processes of its open tool calls were seen gone"}
	}
	gone := st.gone
	b.mu.Unlock()
	if said == nil {
		return false, nil
	}
	return false, conclude(t, said, gone, others, spared)
}

// conclude makes the receipt of a turn final which the agent has ended, and of
// whose open tool calls nothing is alive.
func conclude(t *turn, said, gone *belay.Evidence, others []belay.Process, spared bool) error {
	if len(others) > 0 {
		why := fmt.Sprintf("%d processes that belong to no open tool call are alive; a second Stop takes them: belay cancel %s", len(others), t.run.ID())
		switch {
		case t.b.set.Enforce == Never:
			why = fmt.Sprintf("%d processes are alive; enforce is never", len(others))
		case spared:
			why = fmt.Sprintf("%d processes are spared, for the agent reports background work", len(others))
		}
		t.run.Observe(belay.Evidence{Kind: belay.SeenSurvivors, Survivors: others, Detail: why})
		t.run.GiveUp(why)
		return &belay.Restraint{Why: why}
	}
	e := *said
	if gone != nil {
		e = *gone
	}
	e.Open, e.At = false, time.Time{}
	t.run.Observe(e)
	return &belay.Restraint{Why: e.Detail, Futile: true}
}

// lookAgain is the look that follows the agent's word when force was used before it
// came, or is not used at all.
func (b *Bridge) lookAgain(ctx context.Context, t *turn) {
	b.mu.Lock()
	st, brood := t.stop, t.brood
	forced := st.forced
	b.mu.Unlock()
	if b.set.Enforce == Never {
		e := *st.said
		e.Open = false
		if brood != nil {
			if open, others := brood.Living(); len(open)+len(others) > 0 {
				_ = conclude(t, &e, nil, append(open, others...), false)
				return
			}
		}
		t.run.Observe(e)
		return
	}
	if !forced {
		return // the gate looks
	}
	if force, _ := b.look(t); !force {
		return
	}
	// It was started after the force.
	b.spawn(func() {
		ctx, end := context.WithTimeoutCause(ctx, slowKill, errClock)
		defer end()
		if e, err := brood.Kill(ctx, st.all); err == nil && e != nil {
			b.struck(t, *e)
		}
		_, _ = b.look(t)
	})
}

// Terminate asks the survivors to end. After a second press that is all of them.
func (p *turnStopper) Terminate(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	return p.force(ctx, p.t.b.set.KillAfter, Brood.Terminate)
}

// Kill ends them.
func (p *turnStopper) Kill(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	return p.force(ctx, slowKill, Brood.Kill)
}

func (p *turnStopper) force(ctx context.Context, most time.Duration, do func(Brood, context.Context, bool) (*belay.Evidence, error)) (*belay.Evidence, error) {
	t, b := p.t, p.t.b
	b.mu.Lock()
	st, brood := t.stop, t.brood
	if st != nil {
		st.forced = true
		st.cut = st.cut || brood != nil
	}
	b.mu.Unlock()
	if st == nil {
		return nil, nil
	}
	all := st.all || steps(t.run.Receipt()).pressed
	var e *belay.Evidence
	var err error
	if brood != nil {
		limited, end := context.WithTimeoutCause(ctx, most, errClock)
		e, err = do(brood, limited, all)
		end()
	}
	if e != nil {
		b.struck(t, *e)
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() == nil {
		_, _ = b.look(t) // makes the receipt final if there is nobody left
		b.settleKept(t)
	}
	return nil, nil
}

// struck notes what was seen after force. The proof comes with the look, which also
// knows what the agent has said and who else is alive.
func (b *Bridge) struck(t *turn, e belay.Evidence) {
	e.Open = true
	if e.Kind == belay.SeenProcessGone && len(e.Survivors) == 0 {
		whole := e
		b.with(func() { t.stop.gone = &whole })
		e.Kind = partGone
		if e.Detail == "" {
			e.Detail = "the processes that were to be ended were seen gone"
		}
	}
	t.run.Observe(e)
}

// settleKept lets go of a turn that was kept for a second Stop when that is done.
func (b *Bridge) settleKept(t *turn) {
	if r := t.run.Receipt(); !r.Final || r.Held != "" {
		return
	}
	b.lock()
	defer b.unlock()
	if slices.Contains(b.kept, t) {
		b.kept = slices.DeleteFunc(b.kept, func(u *turn) bool { return u == t })
		b.later(t.release)
	}
}
