package gateway

import (
	"sync"
	"time"

	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// lookout lists a tree's processes, as rarely as those allow who want to know:
// many stopped calls may ask at once.
type lookout struct {
	tree *supervise.Tree

	mu   sync.Mutex
	at   time.Time // when the look that gave list was begun
	list []proc.Process
}

// processes returns a list that is at most so old; with 0 one that was begun
// after the question.
func (l *lookout) processes(maxAge time.Duration) []proc.Process {
	if l.tree == nil {
		return nil
	}
	oldest := time.Now().Add(-maxAge)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.Before(oldest) {
		return l.list
	}
	at := time.Now()
	list, err := l.tree.List()
	if err != nil {
		return l.list
	}
	l.at, l.list = at, list
	return list
}

// bornSince lists the living processes that were born since then, without the
// leader and those that are spared, by a look that is at most so old.
func (u *upstream) bornSince(since proc.Stamp, maxAge time.Duration) []proc.Process {
	var list []proc.Process
	for _, p := range u.look.processes(maxAge) {
		if p.PID != u.tree.PID() && p.Spare == "" && p.Start/bornUnit >= since/bornUnit {
			list = append(list, p)
		}
	}
	return list
}

// bornUnit is the resolution of process births, as in package proc.
const bornUnit = proc.Stamp(10 * time.Millisecond)

// effort remembers the processor time of the processes that can be at work on
// a call: the server, what it had at its start, and what was born since. What
// earlier calls left behind and what is spared is busy for somebody else.
type effort map[proc.ID]time.Duration

// used is the processor time of them all, also of those that have ended.
func (e effort) used(c *call) (sum time.Duration) {
	c.s.mu.Lock()
	first, began := c.up.firstCall, c.began
	c.s.mu.Unlock()
	for _, p := range c.up.look.processes(watchAge) {
		left := p.PID != c.up.tree.PID() && p.Start >= first && p.Start/bornUnit < began/bornUnit
		if p.Spare == "" && !left {
			e[p.ID()] = p.CPU
		}
	}
	for _, used := range e {
		sum += used
	}
	return sum
}
