//go:build linux || darwin

package proc

import (
	"os/exec"
	"sync"
)

// forked are the guardians that P has started and not yet waited for. They must
// not be taken for orphans, which are P's children as well.
var forked = guardians{pids: make(map[int]struct{})}

// guardians is a set of processes that knows more than their command lines say:
// a guardian has none yet for a moment after its exec, and none any more while it
// ends.
type guardians struct {
	// gate is held for reading while a guardian is forked: until its exec it looks
	// like P itself.
	gate sync.RWMutex
	mu   sync.Mutex
	pids map[int]struct{}
}

// start starts a guardian. It is in the set before anybody can pass the gate.
func (g *guardians) start(cmd *exec.Cmd) error {
	g.gate.RLock()
	defer g.gate.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pids[cmd.Process.Pid] = struct{}{}
	return nil
}

// wait waits for a guardian, whose number may be another's from then on.
func (g *guardians) wait(cmd *exec.Cmd) {
	_ = cmd.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.pids, cmd.Process.Pid)
}

// settle returns when every guardian that was being forked before is in the set.
func (g *guardians) settle() {
	g.gate.Lock()
	g.gate.Unlock() //nolint:staticcheck // a barrier, nothing to protect
}

func (g *guardians) has(pid int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.pids[pid]
	return ok
}
