package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// meansForced is the means of every kill here.
const meansForced = MeansGroup

// selfID names this process; its birth is read once.
var selfID = sync.OnceValue(func() ID {
	pid := os.Getpid()
	p, _ := readProc(pid)
	return ID{pid, p.Start}
})

// cgroup does not exist here; a tree's is always nil.
type cgroup struct{ dir string }

func newCgroup() (*cgroup, error) { return nil, errors.ErrUnsupported }
func (c *cgroup) thaw()           {}
func (c *cgroup) evacuate()       {}
func (c *cgroup) bound(int64)     {}
func (c *cgroup) starved() bool   { return false }
func (c *cgroup) remove()         {}

func (e *engine) strikeCgroup(Selection, bool, []Process, *Report) bool { return false }

func forkInto(string, string, []string, *syscall.ProcAttr) (int, error) {
	return 0, errors.ErrUnsupported
}

// becomeGuardian: no subreaper exists here, an orphan goes to launchd. What
// the guardian gives is the clean-up when P dies.
func becomeGuardian() error  { return nil }
func becomeSubreaper() error { return nil }

func guardianExe() (string, error) { return os.Executable() }

func wait4Any(ws *syscall.WaitStatus) (int, error) {
	return syscall.Wait4(-1, ws, 0, nil)
}

// awaitStrays waits, after the last child of the guardian, for orphans in the
// leader's group, which are nobody's children here.
func awaitStrays(leader ID) {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		v, err := readTable()
		if err == nil && len(v.pick(groupOf(v, leader))) == 0 {
			return
		}
		time.Sleep(pause)
	}
}

// groupOf returns the members of the leader's group, which keeps its number
// as long as one of them lives.
func groupOf(v *view, leader ID) map[int]bool {
	found := make(map[int]bool)
	for i := range v.procs {
		if p := &v.procs[i]; p.PGID == leader.PID && p.Start >= leader.Born {
			found[p.PID] = true
		}
	}
	return found
}

// tracker knows which processes belong to a tree: the guardian's descendants,
// the leader's group, whoever was seen in the tree before, and all below them.
// A process that left its group and lost its parent between two looks is not
// found: nothing on this system remembers where it came from.
type tracker struct {
	guardian, leader ID

	mu   sync.Mutex
	seen map[ID]bool // the living of the last look
}

func newTracker(guardian, leader ID) *tracker {
	return &tracker{guardian: guardian, leader: leader, seen: make(map[ID]bool)}
}

func (t *tracker) pids(v *view) map[int]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	var roots []int
	if _, ok := v.find(t.guardian); ok {
		roots = append(roots, t.guardian.PID)
	}
	for pid := range groupOf(v, t.leader) {
		roots = append(roots, pid)
	}
	for id := range t.seen {
		if _, ok := v.find(id); ok {
			roots = append(roots, id.PID)
		}
	}
	found := v.below(roots...)
	for _, pid := range roots {
		found[pid] = pid != t.guardian.PID
	}
	t.seen = make(map[ID]bool)
	for _, p := range v.pick(found) {
		t.seen[p.ID()] = true
	}
	return found
}

func (t *Tree) cpuNow() time.Duration {
	v, err := readTable()
	if err != nil {
		return 0
	}
	times := cpuTimes()
	var sum time.Duration
	for _, p := range v.pick(t.pids(v)) {
		sum += times[p.PID]
	}
	return sum
}

// orphans finds what a dead guardian has left.
func (t *Tree) orphans(v *view) map[int]bool { return t.track.pids(v) }

// takeOver replaces a guardian that died: what is known of its tree is killed.
// launchd reaps it.
func (t *Tree) takeOver() {
	t.lost.Store(true)
	t.mu.Lock()
	t.err = ErrGuardianLost
	t.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeKill, fmt.Errorf("gave up after %v", closeKill))
	defer cancel()
	if v, err := readTable(); err == nil {
		for _, p := range v.pick(t.orphans(v)) {
			_ = signalID(p.ID(), syscall.SIGCONT)
		}
	}
	_, _ = t.eng.kill(ctx, Selection{})
}

// HeldDaemon is not available on this system and returns nil, which is no
// proof that there is no connection.
func (t *Tree) HeldDaemon() []string { return nil }

// RemoteConns is not available on this system and returns nil, which is no
// proof that there is no connection.
func (t *Tree) RemoteConns() []string { return nil }

// Proven reports whether the guarantees of this package are proven by tests
// on this operating system.
func Proven() bool { return false }

// Guarantees says in one sentence what holds on this operating system.
func Guarantees() string {
	return "darwin/" + runtime.GOARCH + ": the process group and known descendants are stopped, also when Belay is killed; " +
		"a process that leaves both unseen can escape; not proven by tests on this system"
}
