//go:build linux || darwin

package proc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lookPause bounds how long a wait goes on without reading the whole
	// process table again; in between only known processes are asked.
	lookPause = 100 * time.Millisecond
	// stopRounds bounds the "stop all, look again" phase against a tree that
	// forks faster than it is stopped; then it is killed as it is, and again.
	stopRounds = 50
	// quietLooks is how many looks in a row must find nobody. The table is
	// not read atomically, so one may just have missed a newborn.
	quietLooks = 2
)

// engine looks at one tree and ends its processes. P has one, and so has the
// guardian, for the case that P dies. Its methods may be called concurrently.
type engine struct {
	leader  ID
	cg      *cgroup                 // nil without one
	read    func() (*view, error)   // readTable
	members func(v *view) []Process // live processes of the tree, leader included
	ended   <-chan struct{}         // closed when the tree is empty; nil in the guardian
	own     map[string]bool         // units that are not "another scope"
	strikes chan struct{}           // capacity 1: held during one strike, so that two kills do not thaw each other's freezer
	lost    func() bool             // whether the guardian is dead; nil in the guardian

	silent bool // the guardian reports to nobody and describes nobody

	mu      sync.Mutex
	rules   []SpareRule   // those that do not match the leader
	scoped  map[ID]string // what otherScope found since scopeAt
	scopeAt time.Time
}

// scopeMemory is how long the answer of otherScope is believed: the looks of
// one sweep, of which each would read one more file for each process.
const scopeMemory = 30 * time.Millisecond

// otherScope says why a process is spared for having been moved to another
// systemd unit, "" when it has not.
func (e *engine) otherScope(id ID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); e.scoped == nil || now.Sub(e.scopeAt) > scopeMemory {
		e.scoped, e.scopeAt = make(map[ID]string), now
	}
	why, known := e.scoped[id]
	if known {
		return why
	}
	for _, s := range scopes(id.PID) {
		if !e.own[s] {
			why = WhyScope + " (" + s + ")"
			break
		}
	}
	e.scoped[id] = why
	return why
}

// describe completes a process for a report.
func (e *engine) describe(p *Process) {
	if !e.silent {
		describe(p)
	}
}

func newEngine(leader ID, guardian int, cg *cgroup, rules []SpareRule) *engine {
	e := &engine{read: readTable, leader: leader, cg: cg, rules: rules, strikes: make(chan struct{}, 1), own: map[string]bool{}}
	// The leader's own scope is not "another": systemd-run --scope moves
	// itself before it becomes the command.
	for _, pid := range []int{guardian, leader.PID} {
		for _, s := range scopes(pid) {
			e.own[s] = true
		}
	}
	return e
}

// dropLeaderRules puts rules out of force that match the leader. It is asked
// at every look, since a wrapper script becomes the program later.
func (e *engine) dropLeaderRules(leader Process) []SpareRule {
	e.mu.Lock()
	defer e.mu.Unlock()
	line := lazyCmdline(leader.PID)
	kept := make([]SpareRule, 0, len(e.rules))
	for _, r := range e.rules {
		if !r.matches(leader.Comm, line) {
			kept = append(kept, r)
		}
	}
	e.rules = kept
	return kept
}

func lazyCmdline(pid int) func() string {
	return sync.OnceValue(func() string { return cmdline(pid, cmdlineMax) })
}

// all returns every live process of the tree, the spared ones marked.
func (e *engine) all() ([]Process, *view, error) {
	v, err := e.read()
	if err != nil {
		return nil, nil, fmt.Errorf("read process table: %w", err)
	}
	members := e.members(v)
	e.mu.Lock()
	rules := e.rules
	e.mu.Unlock()
	for i := range members {
		if members[i].ID() == e.leader && len(rules) > 0 {
			rules = e.dropLeaderRules(members[i])
		}
	}
	spareAll(v, members, e.leader, func(p *Process) string {
		line := lazyCmdline(p.PID)
		for _, r := range rules {
			if r.matches(p.Comm, line) {
				return r.why()
			}
		}
		return e.otherScope(p.ID())
	})
	return members, v, nil
}

// look returns the selected and the spared processes of this moment.
func (e *engine) look(sel Selection) (selected, spared []Process, err error) {
	members, v, err := e.all()
	if err != nil {
		return nil, nil, err
	}
	selected, spared = split(v, members, e.leader, sel)
	return selected, spared, nil
}

// over reports whether the tree has ended.
func (e *engine) over() bool {
	select {
	case <-e.ended: // nil blocks: never over in the guardian
		return true
	default:
		return false
	}
}

// pause waits; false when ctx is done first. The end of the tree ends it too.
func (e *engine) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-e.ended:
	case <-t.C:
	}
	return true
}

// untilDead waits until none of the processes is alive, at most limit; false
// when ctx is done first. It reads only their own entries.
func (e *engine) untilDead(ctx context.Context, list []Process, limit time.Duration) bool {
	end := time.Now().Add(limit)
	for wait := 500 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		for len(list) > 0 && !alive(list[0].ID()) {
			list = list[1:]
		}
		if len(list) == 0 || e.over() || time.Now().After(end) {
			return true
		}
		if !e.pause(ctx, wait) {
			return false
		}
	}
}

// finish takes the last look. It is the one that counts: a look that failed,
// or found somebody, is not Gone, whatever was seen before.
func (e *engine) finish(r *Report, sel Selection) error {
	r.TakenOver = e.lost != nil && e.lost()
	if e.over() {
		r.Gone = true
		return nil
	}
	selected, spared, err := e.look(sel)
	if err != nil {
		return err
	}
	for i := range selected {
		e.describe(&selected[i])
		r.Survivors = appendOnce(r.Survivors, selected[i])
	}
	for i := range spared {
		e.describe(&spared[i])
		r.Spared = appendOnce(r.Spared, spared[i])
	}
	r.Gone = len(selected) == 0
	return nil
}

// terminate asks the selected processes to end: the leader at once, the others
// after half, or as soon as there is no leader to wait for. A stopped process
// is woken, since it could not act on SIGTERM. beforeLeader runs before the
// leader is told.
func (e *engine) terminate(ctx context.Context, sel Selection, half time.Duration, beforeLeader func()) (r Report, err error) {
	begun := time.Now()
	told := make(map[ID]bool)
	tell := func(p Process) {
		if told[p.ID()] {
			return
		}
		told[p.ID()] = true
		if p.ID() == e.leader && beforeLeader != nil {
			beforeLeader()
		}
		e.describe(&p)
		if signalID(p.ID(), unix.SIGTERM) != nil {
			return
		}
		if p.State == "T" {
			_ = signalID(p.ID(), unix.SIGCONT)
		}
		r.Signalled = appendOnce(r.Signalled, p)
		r.Means = MeansSignal
	}
	for quiet := 0; quiet < quietLooks && !e.over(); {
		selected, _, err := e.look(sel)
		if err != nil {
			if !e.pause(ctx, lookPause) {
				break
			}
			continue
		}
		if len(selected) == 0 {
			quiet++
			continue
		}
		quiet = 0
		left := min(e.tellInTurn(selected, half-time.Since(begun), tell), lookPause)
		if !e.untilDead(ctx, selected, left) {
			break
		}
	}
	return r, e.finish(&r, sel)
}

// tellInTurn tells the leader, and the others when their time has come: after
// what is left of half, or as soon as there is no leader. It returns how long
// nothing more has to be told.
func (e *engine) tellInTurn(selected []Process, left time.Duration, tell func(Process)) time.Duration {
	leads := false
	for _, p := range selected {
		if p.ID() == e.leader {
			leads = true
			tell(p)
		}
	}
	if leads && left > 0 {
		return left
	}
	for _, p := range selected {
		tell(p)
	}
	return lookPause
}

// kill ends the selected processes by force and looks again until nobody is
// left or ctx is done. It strikes at least once, also when ctx is done before.
func (e *engine) kill(ctx context.Context, sel Selection) (r Report, err error) {
	for quiet := 0; quiet < quietLooks && !e.over(); {
		if !e.turn(ctx) {
			break
		}
		found, err := e.strike(sel, &r)
		<-e.strikes
		if err != nil {
			quiet = 0
			if !e.pause(ctx, lookPause/10) {
				break
			}
			continue
		}
		if len(found) == 0 {
			quiet++
			continue
		}
		quiet = 0
		if !e.untilDead(ctx, found, lookPause) {
			break
		}
	}
	return r, e.finish(&r, sel)
}

// turn waits until no other strike is under way; false when ctx is done first.
func (e *engine) turn(ctx context.Context) bool {
	select {
	case e.strikes <- struct{}{}:
		return true
	default:
	}
	select {
	case e.strikes <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// strike is one round of a kill. It returns whom it found, to be waited for.
func (e *engine) strike(sel Selection, r *Report) ([]Process, error) {
	found, spared, err := e.look(sel)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	left := found
	if e.cg != nil {
		whole := sel.everything() && len(spared) == 0
		if e.strikeCgroup(sel, whole, found, r) {
			// Whoever left the cgroup is still there.
			if left, _, err = e.look(sel); err != nil || len(left) == 0 {
				return found, err
			}
		}
	}
	e.sweep(sel, left, r)
	return found, nil
}

// killed notes a process in the report before it is killed.
func (e *engine) killed(r *Report, p Process) {
	e.describe(&p)
	r.Killed = appendOnce(r.Killed, p)
}

// sweep stops all selected processes, looks again until there is nobody new,
// and kills them all. Stopped processes cannot fork or restart each other.
func (e *engine) sweep(sel Selection, selected []Process, r *Report) {
	stopped := make(map[ID]bool)
	for range stopRounds {
		fresh := false
		for _, p := range selected {
			if !stopped[p.ID()] {
				stopped[p.ID()], fresh = true, true
				e.killed(r, p)
				_ = signalID(p.ID(), unix.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
		// What an error leaves unseen is found by the next strike.
		again, spared, err := e.look(sel)
		if err != nil {
			continue
		}
		selected = again
		for _, p := range spared {
			if stopped[p.ID()] {
				// Somebody moved it to a scope of its own just now.
				_ = signalID(p.ID(), unix.SIGCONT)
				delete(stopped, p.ID())
			}
		}
	}
	// Whoever was stopped is killed, also one that a later look missed:
	// nothing may be left lying stopped.
	for _, p := range selected {
		stopped[p.ID()] = true
	}
	for id := range stopped {
		_ = signalID(id, unix.SIGKILL)
	}
	if r.Means != MeansCgroup {
		r.Means = meansForced
	}
}
