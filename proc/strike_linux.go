package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// meansForced is the means of a kill without a cgroup.
const meansForced = MeansSweep

// cgroupWait bounds how long a strike waits for the kernel to freeze or to
// empty a cgroup. Longer takes only one that holds a process in an
// uninterruptible sleep; the next round looks again.
const cgroupWait = 30 * time.Millisecond

// strikeCgroup kills what is in the tree's cgroup; false when it could not and
// the sweep has to do it all.
//
// As a whole (nobody spared) this is one write, which also catches processes
// in the middle of a fork. Otherwise the cgroup is frozen, so that nobody is
// born, the selected ones are killed one by one, and the rest is thawed.
func (e *engine) strikeCgroup(sel Selection, whole bool, selected []Process, r *Report) bool {
	inside := e.cg.pids()
	found := false
	for _, p := range selected {
		found = found || inside[p.PID]
	}
	if !found {
		return false
	}
	if whole {
		for _, p := range selected {
			if inside[p.PID] {
				e.killed(r, p)
			}
		}
		if e.cg.write("cgroup.kill", "1") != nil {
			return false
		}
		r.Means = MeansCgroup
		e.cg.await("populated", "0", cgroupWait)
		return true
	}
	if e.cg.write("cgroup.freeze", "1") != nil {
		return false
	}
	defer func() { _ = e.cg.write("cgroup.freeze", "0") }()
	e.cg.await("frozen", "1", cgroupWait)
	selected, _, err := e.look(sel)
	if err != nil {
		return false
	}
	inside = e.cg.pids()
	for _, p := range selected {
		if inside[p.PID] {
			e.killed(r, p)
			_ = signalID(p.ID(), unix.SIGKILL)
		}
	}
	r.Means = MeansCgroup
	return true
}
