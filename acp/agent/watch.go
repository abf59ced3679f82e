package agent

import (
	"time"

	"github.com/belayhq/belay/proc"
)

// The pauses between two looks while a tool call is open: short at first, when the
// tool starts.
const (
	lookFirst = 25 * time.Millisecond
	lookFound = 100 * time.Millisecond // after somebody new was found
	lookMost  = time.Second
)

// watch looks while a tool call is open, and once more when one was closed. It ends
// with the agent.
func (a *Agent) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := lookFirst
	for {
		timer.Stop()
		if a.anyOpen() {
			timer.Reset(pause)
		}
		select {
		case <-a.ctx.Done():
			return
		case <-a.wake:
			pause = lookFirst
			if a.anyOpen() {
				continue // what was announced just now starts a little later
			}
		case <-timer.C:
			pause = min(2*pause, lookMost)
		}
		if fresh, _ := a.look(false); fresh {
			pause = lookFound
		}
	}
}

// poke wakes the watcher.
func (a *Agent) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *Agent) anyOpen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.broods {
		for _, c := range b.calls {
			if c.closed == 0 {
				return true
			}
		}
	}
	return false
}

// look reads the process table and writes down who is there; now says that a Stop
// is waiting, so that runs are made of the youngest too. It reports whether somebody
// was found who was not known, and whether the table could be read.
func (a *Agent) look(now bool) (fresh, seen bool) {
	seen = a.scan(func(s *survey) {
		fresh = a.noteLocked(s)
		a.enlistLocked(s, now)
	})
	return fresh, seen
}

// scan reads the table and calls do with what was seen, under the lock. It reports
// false, and does nothing, if the table could not be read. After the end of the tree
// nobody is seen.
func (a *Agent) scan(do func(s *survey)) bool {
	var live []proc.Process
	seen, begun := false, proc.Now()
	a.tree.Tree.Plan(proc.Selection{Pick: func(l []proc.Process) map[proc.ID]bool {
		live, seen = l, true
		return nil
	}})
	if !seen {
		select {
		case <-a.tree.Gone():
		default:
			return false
		}
	}
	a.learn(live)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks++
	do(a.surveyLocked(live))
	a.looked = max(a.looked, begun)
	a.pruneLocked()
	return true
}

// remembered is how long a tool call that is over may still turn out to have
// started somebody: the looks are at most so far apart.
const remembered = 5 * time.Second

// pruneLocked forgets turns and tool calls that are over and have nobody left.
func (a *Agent) pruneLocked() {
	if len(a.broods) == 0 {
		return
	}
	alive, used := map[*Brood]bool{}, map[*call]bool{}
	for _, o := range a.origins {
		for _, b := range o.turns {
			alive[b] = true
		}
		for _, c := range o.calls {
			used[c] = true
		}
	}
	kept := a.broods[:0]
	for _, b := range a.broods {
		if b.end == 0 || alive[b] {
			kept = append(kept, b)
		}
		for tool, c := range b.calls {
			if c.closed != 0 && !used[c] && time.Since(c.closedAt) > remembered {
				delete(b.calls, tool)
			}
		}
	}
	clear(a.broods[len(kept):])
	a.broods = kept
}
