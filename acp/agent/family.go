package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// family is the run of a process that a tool call has started, with all that comes
// from it. It stops when the bridge says so, or when it is stopped by itself.
type family struct {
	a    *Agent
	run  *belay.Run
	pid  int
	over chan struct{} // closed when all were seen dead
	free chan struct{} // closed when the Stop from above reaches it

	// Guarded by a.mu.
	released bool
	members  map[proc.ID]bool // that were seen alive, and not yet dead
	dead     int              // that were seen dead
	left     []belay.Process  // that live on purpose: kept, or moved to another scope meanwhile
	signs    supervise.Signs
}

// maxFamilies bounds the runs of one agent's processes; what is born beyond has no
// run of its own and is stopped with its turn all the same.
const maxFamilies = 512

// grown is the age from which on a process gets a run: most are gone before, and the
// youngest still run their parent's program.
const grown = 50 * time.Millisecond

// nameMax bounds the name of a run, in bytes.
const nameMax = 80

// enlistLocked gives runs to processes of tool calls, and notes who belongs to them.
// now makes no difference by age: a Stop is waiting.
func (a *Agent) enlistLocked(s *survey, now bool) {
	for _, n := range s.nodes {
		o := a.origins[n.ID()]
		if o == nil {
			continue
		}
		if n.kind != foreign || n.Spare != "" {
			if o.fam != nil && o.fam.members[n.ID()] {
				delete(o.fam.members, n.ID())
				o.fam.left = append(o.fam.left, show(n, n.Spare))
			}
			continue
		}
		if o.fam == nil {
			a.enrolLocked(n, o, now)
		}
		if o.fam != nil {
			o.fam.members[n.ID()] = true
		}
	}
}

// buryLocked notes a death.
func (f *family) buryLocked(id proc.ID) {
	if f.members[id] {
		delete(f.members, id)
		f.dead++
	}
}

// enrolLocked puts a process into the family of its parent, or registers a new one.
func (a *Agent) enrolLocked(n *node, o *origin, now bool) {
	if n.parent != nil && n.parent.kind == foreign {
		if above := a.origins[n.parent.ID()]; above != nil && above.fam != nil && sameCalls(above, o) {
			o.fam = above.fam
			return
		}
	}
	above := runAbove(o)
	if above == nil || a.cfg.Tree == nil || a.ending || len(a.families) >= maxFamilies || !now && time.Since(n.Born) < grown {
		return
	}
	f := &family{a: a, pid: n.PID, over: make(chan struct{}), free: make(chan struct{}), members: map[proc.ID]bool{n.ID(): true}}
	killAfter := a.cfg.KillAfter
	if _, slow := a.cfg.Facts.Slow(n.argv); slow {
		killAfter = max(killAfter, supervise.SlowKillAfter)
	}
	f.signs.Relay, _ = a.cfg.Facts.Relay(n.argv)
	spec := belay.Spec{
		Kind: belay.KindProcess, Name: nameOf(n), Owner: a.cfg.Owner, Parent: above,
		Address: fmt.Sprintf("pid %d", n.PID), Stopper: f,
		// There is no polite way to wait for, and who decides about force is asked at
		// once.
		Ladder: belay.Ladder{Grace: time.Millisecond, KillAfter: killAfter, ConfirmAfter: confirmAfter},
	}
	run, err := a.cfg.Tree.Register(spec)
	if errors.Is(err, belay.ErrEnded) { // its tool call is over, its turn perhaps not
		spec.Parent = o.turns[0].run
		run, err = a.cfg.Tree.Register(spec)
	}
	stop := above.Cancellation()
	if err != nil && stop != nil {
		// It was found by the very Stop that is to end it. Nothing new can be put below
		// what is stopped: it is said whose it is, and stopped by itself.
		spec.Parent, spec.ParentID = nil, above.ID()
		run, err = a.cfg.Tree.Register(spec)
	}
	if err != nil {
		a.log.Debug("a process has no run of its own", "pid", n.PID, "error", err)
		return
	}
	f.run, o.fam = run, f
	a.families[f] = struct{}{}
	if stop != nil {
		below := *stop
		if below.Cause != belay.CauseParent || below.Origin.IsZero() {
			below.Origin = above.ID()
		}
		below.Cause = belay.CauseParent
		run.Cancel(below)
	}
	a.wg.Go(f.await)
}

// nameOf is what people see of a process: its command line without the folder of the
// program, and without secrets.
func nameOf(n *node) string {
	name := n.Command
	if len(n.argv) > 0 {
		name = strings.Join(append([]string{filepath.Base(n.argv[0])}, n.argv[1:]...), " ")
	}
	if name = supervise.Redact(name); len(name) > nameMax {
		name = strings.ToValidUTF8(name[:nameMax], "") + "…"
	}
	return name
}

// confirmAfter is when a run of a process gives up: the bridge's own times are over
// by then, those of a tool that cleans up slowly included.
const confirmAfter = 15 * time.Second

func sameCalls(x, y *origin) bool {
	if len(x.calls) != len(y.calls) || x.indirect != y.indirect {
		return false
	}
	for i := range x.calls {
		if x.calls[i] != y.calls[i] {
			return false
		}
	}
	return true
}

// runAbove is the run below which a process hangs: its tool call's, or, where several
// could own it, their turn's. Nil: it is of no tool call, or of unclear birth.
func runAbove(o *origin) *belay.Run {
	switch {
	case o.indirect || len(o.calls) == 0 || len(o.turns) != 1:
		return nil
	case len(o.calls) == 1:
		return o.calls[0].run
	}
	return o.turns[0].run
}

// await waits for the deaths of all members, and then says so. It ends with the
// agent's context.
func (f *family) await() {
	for quiet := 0; quiet < 2; {
		f.a.mu.Lock()
		one, found := f.anyLocked()
		f.a.mu.Unlock()
		if found {
			quiet = 0
			if err := proc.Await(f.a.ctx, one); err != nil {
				return
			}
			f.a.mu.Lock()
			f.buryLocked(one)
			_, found = f.anyLocked()
			f.a.mu.Unlock()
			if found {
				continue
			}
		}
		// Somebody who was just being born while the last one died is found by one of
		// two looks.
		if _, seen := f.a.look(true); seen {
			quiet++
			continue
		}
		timer := time.NewTimer(lookFound) // the table cannot be read: death is to be proven
		select {
		case <-f.a.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
	f.finish()
}

func (f *family) anyLocked() (one proc.ID, found bool) {
	for id := range f.members {
		return id, true
	}
	return one, false
}

// finish says that all were seen dead, or that only those live who are to.
func (f *family) finish() {
	f.a.mu.Lock()
	delete(f.a.families, f)
	signs, dead, left := f.signs, f.dead, f.left
	f.a.mu.Unlock()
	defer close(f.over)
	if f.run.Cancellation() == nil { // else nobody waits for its answer
		f.run.Finish(belay.Completed)
	}
	if f.run.Cancellation() == nil {
		return
	}
	e := supervise.Evidence(proc.Report{Gone: true}, supervise.Whole(), signs)
	e.Spared = left
	switch {
	case e.Scope != belay.ScopeLocalTree:
	case dead > 1:
		e.Detail = fmt.Sprintf("pid %d and %d more were seen dead", f.pid, dead-1)
	case dead == 1:
		e.Detail = fmt.Sprintf("pid %d was seen dead", f.pid)
	default: // nobody died: all are spared
		e.Kind, e.Scope, e.Detail = belay.SeenSurvivors, "", "nobody but the spared is left"
	}
	f.run.Observe(e)
}

// signsLocked adds what was seen of the family's connections.
func (f *family) signsLocked(s supervise.Signs) {
	if f.signs.Relay == "" {
		f.signs.Relay = s.Relay
	}
	if f.signs.Daemon == "" {
		f.signs.Daemon = s.Daemon
	}
	if len(f.signs.Remote) == 0 {
		f.signs.Remote = s.Remote
	}
}

// releaseLocked says that the Stop from above has reached the family.
func (f *family) releaseLocked() {
	if !f.released {
		f.released = true
		close(f.free)
	}
}

var (
	_ belay.Gate       = (*family)(nil)
	_ belay.Terminator = (*family)(nil)
	_ belay.Killer     = (*family)(nil)
	_ belay.Planner    = (*family)(nil)
)

// Tell implements belay.Stopper: there is no polite way.
func (f *family) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) { return nil, nil }

// fromAbove reports whether the run was stopped with what it works for: then it is
// the bridge that ends its processes.
func (f *family) fromAbove() bool {
	f.a.mu.Lock()
	run := f.run // written under the lock, after it was registered
	f.a.mu.Unlock()
	if run == nil {
		return false
	}
	c := run.Cancellation()
	return c != nil && c.Cause == belay.CauseParent
}

// The words of a gate that does not let force through.
const (
	heldNever = "no force is used here, as was asked for"
	heldOther = "its tool call is over; a second Stop takes it"
	heldAbove = "it was not ended with its turn; a Stop of its own takes it"
)

// pressWait is how long a second Stop from above is given to come by the bridge, too,
// which asks all processes of the turn at once.
const pressWait = 300 * time.Millisecond

// MayForce implements belay.Gate. A Stop from above waits for the bridge, which
// decides when force is used, and on whom; a person's second Stop does not.
func (f *family) MayForce(ctx context.Context, p belay.Pressure) error {
	switch {
	case f.a.cfg.Never:
		return &belay.Restraint{Why: heldNever, Futile: true}
	case !f.fromAbove():
		return nil
	}
	f.a.mu.Lock()
	released, mine := f.released, f.mineLocked()
	f.a.mu.Unlock()
	wait := time.Until(p.GiveUp)
	switch {
	case released, mine && p.Now:
		return nil
	case p.Again:
		wait = pressWait
	case !mine:
		return &belay.Restraint{Why: heldOther}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-f.free:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	if p.Again {
		return nil
	}
	return &belay.Restraint{Why: heldAbove}
}

// mineLocked reports whether the first Stop means the family: a tool call of it is
// open.
func (f *family) mineLocked() bool {
	for id := range f.members {
		o := f.a.origins[id]
		if o == nil {
			continue
		}
		for _, b := range o.turns {
			if b.claimLocked(o) == mine {
				return true
			}
		}
	}
	return false
}

// target is the family alone.
func (f *family) target() target {
	return target{
		means: func(_ *node, o *origin) bool { return o != nil && o.fam == f },
		seen:  func() bool { return true },
		saw:   func() {},
	}
}

// Terminate implements belay.Terminator. Where the bridge has asked the processes it
// does nothing: a second SIGTERM means to many tools that they are not to clean up.
func (f *family) Terminate(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	f.a.mu.Lock()
	asked := f.released
	f.a.mu.Unlock()
	if asked {
		return nil, nil
	}
	_, err := f.a.terminate(ctx, f.target())
	return nil, err // who is dead is seen by await
}

// Kill implements belay.Killer.
func (f *family) Kill(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	e, err := f.a.kill(ctx, f.target())
	if e != nil && e.Kind == belay.SeenSurvivors {
		return e, err
	}
	return nil, err
}

// Plan implements belay.Planner.
func (f *family) Plan(context.Context) belay.Plan {
	would, spared := f.a.tree.Tree.Plan(f.a.selection(f.target(), false))
	return belay.Plan{
		Tell: "nobody: there is no polite way", Force: "SIGTERM at once, then SIGKILL",
		Kill: supervise.Processes(would), Spared: supervise.Processes(spared),
	}
}
