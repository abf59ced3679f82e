package gateway

import "time"

// A server that is no process of ours does not end with the session: whoever is
// stopped at the session's end must have been told of it before the traffic is
// cut.

// toldLimit bounds that. It is longer than a process gets to end, for nothing
// else will ever stop the work.
const toldLimit = 2 * time.Second

// owesLocked counts a stopped call of which the server is to be told.
func (u *upstream) owesLocked(c *call) {
	if u.tree == nil && !c.owed {
		c.owed = true
		u.untold++
	}
}

// toldOne notes that the server was told of a call, or never will be.
func (u *upstream) toldOne(c *call) {
	if u.tree != nil {
		return
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if c.owed {
		c.owed = false
		u.untold--
		u.changedLocked()
	}
}

// awaitTold waits until the server was told of every stopped call, for a
// moment.
func (u *upstream) awaitTold() {
	limit := time.NewTimer(toldLimit)
	defer limit.Stop()
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	for u.untold > 0 {
		if u.changed == nil {
			u.changed = make(chan struct{})
		}
		changed := u.changed
		u.s.mu.Unlock()
		select {
		case <-changed:
			u.s.mu.Lock()
		case <-limit.C:
			u.s.mu.Lock()
			return
		}
	}
}
