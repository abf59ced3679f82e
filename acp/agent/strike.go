package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// target says whom a Stop means. Its functions are called with the agent's lock
// held.
type target struct {
	means func(n *node, o *origin) bool // of a foreign process
	seen  func() bool                   // whether anybody was ever seen whom it means
	saw   func()                        // somebody is
}

// selection is the target for package proc. It is asked at every look, so that it
// finds who was born meanwhile. With force, those whom it finds are told that this
// is their Stop.
func (a *Agent) selection(t target, force bool) proc.Selection {
	return proc.Selection{Pick: func(live []proc.Process) map[proc.ID]bool {
		a.learn(live)
		a.mu.Lock()
		defer a.mu.Unlock()
		s := a.surveyLocked(live)
		a.noteLocked(s)
		a.enlistLocked(s, true)
		picked := map[proc.ID]bool{}
		for _, n := range s.nodes {
			if n.kind != foreign {
				continue
			}
			o := a.origins[n.ID()]
			if !t.means(n, o) {
				continue
			}
			picked[n.ID()] = true
			if n.Spare != "" {
				continue
			}
			t.saw()
			if force && o.fam != nil {
				o.fam.releaseLocked()
			}
		}
		return picked
	}}
}

// terminate asks those to end whom the target means.
func (a *Agent) terminate(ctx context.Context, t target) (*belay.Evidence, error) {
	signs := a.signs(t)
	sel := a.selection(t, true)
	report, err := a.tree.Tree.Terminate(ctx, sel, 0)
	return a.evidence(t, report, err, sel, signs)
}

// kill ends those by force whom the target means.
func (a *Agent) kill(ctx context.Context, t target) (*belay.Evidence, error) {
	signs := a.signs(t)
	sel := a.selection(t, true)
	report, err := a.tree.Tree.Kill(ctx, sel)
	return a.evidence(t, report, err, sel, signs)
}

// evidence says what a report proves: nothing if there was nobody.
func (a *Agent) evidence(t target, report proc.Report, err error, sel proc.Selection, signs supervise.Signs) (*belay.Evidence, error) {
	if err != nil && !errors.Is(err, proc.ErrSurvivors) {
		return nil, fmt.Errorf("end processes of the agent: %w", err)
	}
	a.mu.Lock()
	seen := t.seen()
	a.mu.Unlock()
	if !seen && len(report.Spared) == 0 {
		return nil, nil
	}
	a.log.Debug("processes of the agent were to be ended", "asked", pidsOf(report.Signalled), "killed", pidsOf(report.Killed),
		"alive", pidsOf(report.Survivors), "spared", pidsOf(report.Spared))
	e := supervise.Evidence(report, sel, signs)
	if !seen { // nobody but spared ones: that proves nothing
		e.Kind, e.Scope, e.Detail = belay.SeenSurvivors, "", "nobody but the spared"
	}
	return &e, nil
}

func pidsOf(list []proc.Process) []int {
	pids := make([]int, len(list))
	for i, p := range list {
		pids[i] = p.PID
	}
	return pids
}

// signs is what those show whom the target means, and nobody else of the tree: the
// agent itself is always connected to somewhere. The dead show nothing, so that it
// is asked before.
func (a *Agent) signs(t target) supervise.Signs {
	var signs supervise.Signs
	var ids []proc.ID
	var fams []*family
	a.meant(t, func(n *node, o *origin) {
		ids = append(ids, n.ID())
		if why, ok := a.cfg.Facts.Relay(n.argv); ok && signs.Relay == "" {
			signs.Relay = why
		}
		if o.fam != nil && !slices.Contains(fams, o.fam) {
			fams = append(fams, o.fam)
		}
	})
	if len(ids) == 0 {
		return signs
	}
	daemons, remote := proc.Connections(ids)
	if len(daemons) > 0 {
		signs.Daemon = daemons[0]
	}
	signs.Remote = remote[:min(len(remote), maxRemote)]
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range fams {
		f.signsLocked(signs)
	}
	return signs
}

// maxRemote bounds the remote connections that evidence names.
const maxRemote = 16

// meant looks, and calls do for each process that the target means and that is not
// spared, with the lock held.
func (a *Agent) meant(t target, do func(*node, *origin)) bool {
	return a.scan(func(s *survey) {
		a.noteLocked(s)
		a.enlistLocked(s, true)
		for _, n := range s.nodes {
			if n.kind != foreign || n.Spare != "" {
				continue
			}
			if o := a.origins[n.ID()]; t.means(n, o) {
				t.saw()
				do(n, o)
			}
		}
	})
}

// letCleanUp waits until a tool that needs time to clean up has had it since it was
// asked, nobody is left, or ctx is about to end: enough of it is left then to kill.
func (a *Agent) letCleanUp(ctx context.Context, t target, asked time.Time) {
	if asked.IsZero() {
		return
	}
	until := asked.Add(supervise.SlowKillAfter)
	if end, ok := ctx.Deadline(); ok && end.Add(-killTime).Before(until) {
		until = end.Add(-killTime)
	}
	for pause := 10 * time.Millisecond; time.Now().Before(until); pause = min(2*pause, 100*time.Millisecond) {
		slow := false
		if !a.meant(t, func(n *node, _ *origin) {
			if _, ok := a.cfg.Facts.Slow(n.argv); ok {
				slow = true
			}
		}) || !slow {
			return
		}
		timer := time.NewTimer(min(pause, time.Until(until)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// killTime is what is kept of a context for the kill itself.
const killTime = 500 * time.Millisecond

// show is a process as receipts name it.
func show(n *node, why string) belay.Process {
	p := supervise.Process(n.Process)
	p.Why = why
	return p
}

// maxShown bounds a list of processes.
const maxShown = 50

func bound(list []belay.Process) []belay.Process { return list[:min(len(list), maxShown)] }

// stopCommand is what a person types to stop a process.
func stopCommand(o *origin, n *node) string {
	if o.fam != nil && o.fam.run != nil {
		return "belay cancel " + o.fam.run.ID().String()
	}
	return "kill " + strconv.Itoa(n.PID)
}

// alone stops one tool call by its processes. It implements belay.Stopper,
// Terminator, Killer and Planner.
type alone struct {
	a     *Agent
	t     target
	asked time.Time // guarded by a.mu
}

var (
	_ belay.Terminator = (*alone)(nil)
	_ belay.Killer     = (*alone)(nil)
	_ belay.Planner    = (*alone)(nil)
)

// Tell implements belay.Stopper: there is no polite way.
func (s *alone) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) { return nil, nil }

// Terminate implements belay.Terminator.
func (s *alone) Terminate(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	s.a.mu.Lock()
	s.asked = time.Now()
	s.a.mu.Unlock()
	return s.a.terminate(ctx, s.t)
}

// Kill implements belay.Killer; see [Brood.Kill].
func (s *alone) Kill(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	s.a.mu.Lock()
	asked := s.asked
	s.a.mu.Unlock()
	s.a.letCleanUp(ctx, s.t, asked)
	return s.a.kill(ctx, s.t)
}

// Plan implements belay.Planner.
func (s *alone) Plan(context.Context) belay.Plan {
	would, spared := s.a.tree.Tree.Plan(s.a.selection(s.t, false))
	return belay.Plan{
		Tell: "nobody: there is no polite way", Force: "SIGTERM to the processes of the tool call, then SIGKILL",
		Kill: supervise.Processes(would), Spared: supervise.Processes(spared),
	}
}
