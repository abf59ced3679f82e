package proc

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// selfID names this process; its birth is read once.
var selfID = sync.OnceValue(func() ID {
	pid := os.Getpid()
	p, _ := readProc(pid)
	return ID{pid, p.Start}
})

// cpuNow adds up the processor time of the tree.
func (t *Tree) cpuNow() time.Duration {
	if t.cg != nil {
		if d, ok := t.cg.usage(); ok {
			return d
		}
	}
	v, err := readTable()
	if err != nil {
		return 0
	}
	var sum time.Duration
	for _, p := range v.pick(t.pids(v)) {
		sum += p.CPU + p.childCPU
	}
	// What has ended and was reaped by the guardian is counted there.
	if g, ok := v.find(t.guardian); ok {
		sum += g.childCPU
	}
	return sum
}

// orphans finds what a dead guardian left: its children are P's children now,
// with all that is below them. Beside the certain signs (the leader itself, its
// group, the cgroup, the marker) an orphan is known as a child of P, born
// since the guardian, outside P's own process group. Guardians of other trees
// are P's children too, and keep theirs to themselves.
func (t *Tree) orphans(v *view) map[int]bool {
	self := os.Getpid()
	group := unix.Getpgrp()
	var inside map[int]bool
	if t.cg != nil {
		inside = t.cg.pids()
	}
	forked.settle() // those that were being forked when the table was read
	var roots []int
	for i := range v.procs {
		p := &v.procs[i]
		if p.PID == self || p.Start < t.guardian.Born || p.ID() == t.guardian {
			continue
		}
		certain := p.ID() == t.leader || inside[p.PID]
		if !certain && p.PPID == self {
			// Those of a Belay that was in this tree and died are not in the set. One
			// that is ending has no command line any more, only its name.
			if _, ok := GuardianLabel(p.PID); ok || p.Comm == guardianName || forked.has(p.PID) {
				continue
			}
			certain = p.PGID == t.leader.PID || p.PGID != group || hasEnv(p.PID, t.marker)
		}
		if certain {
			roots = append(roots, p.PID)
		}
	}
	found := v.below(roots...)
	for _, r := range roots {
		found[r] = true
	}
	return found
}

// takeOver replaces a guardian that died: P, as a subreaper, has become the
// parent of its orphans. They are woken, killed and reaped.
func (t *Tree) takeOver() {
	t.lost.Store(true)
	t.mu.Lock()
	t.err = ErrGuardianLost
	t.mu.Unlock()
	t.cg.thaw()
	children := make(map[ID]bool)
	t.collect(children, true)
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeKill, fmt.Errorf("gave up after %v", closeKill))
	defer cancel()
	_, _ = t.eng.kill(ctx, Selection{})
	t.collect(children, false)
	for id := range children {
		t.reapOrphan(id)
	}
}

// collect notes the tree's processes, zombies included, and wakes them: a
// guardian or P may have died in the middle of a sweep.
func (t *Tree) collect(into map[ID]bool, wake bool) {
	v, err := readTable()
	if err != nil {
		return
	}
	for pid := range t.orphans(v) {
		p := v.procs[v.at[pid]]
		into[p.ID()] = true
		if wake && p.live() {
			_ = signalID(p.ID(), unix.SIGCONT)
		}
	}
}

// reapOrphan reaps one dead process that has become P's child. It waits for
// that pid only, never for any: other children of P are not ours to reap.
func (t *Tree) reapOrphan(id ID) {
	p, ok := readProc(id.PID)
	if !ok || p.Start != id.Born || p.PPID != os.Getpid() || p.live() {
		return
	}
	var ws syscall.WaitStatus
	for {
		pid, err := syscall.Wait4(id.PID, &ws, unix.WNOHANG|unix.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err == nil && pid == id.PID && id == t.leader {
			t.ended(exitOf(ws))
		}
		return
	}
}
