package gateway

import (
	"time"

	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/proc"
)

// Workers: with IsolationCall each tools/call has a process to itself. One that a
// call has ended on cleanly is kept for the next; one whose call was stopped is
// ended, which is the proof. A worker never leaves its session, so that no two
// principals ever meet in one.
//
// How many are wanted is computed anew whenever something has changed, from what
// waits and what is there: an event that is missed, or a worker that dies, is then
// put right by the next, and no call is left waiting for a process that nobody
// starts.

// maxIdle is how many workers are kept when they are free again.
const maxIdle = 4

// spareRest is how long after the last call all but one of the spares are kept: a
// session that nobody uses is not to hold many processes.
const spareRest = 5 * time.Minute

// leaseLocked gives a call a process to itself (DESIGN 11, 2), or nil: then it has
// to wait for one.
func (s *Session) leaseLocked(c *call) *upstream {
	s.warm = true
	for n := len(s.idle); n > 0; n = len(s.idle) {
		u := s.idle[n-1]
		s.idle = s.idle[:n-1]
		select {
		case <-u.tree.Done():
			continue // its pump has not come to that yet, and will account for it
		default:
		}
		u.lease = c
		s.hireLocked()
		return u
	}
	return nil
}

// releaseLocked takes a worker back from its call. One whose call was stopped
// after it saw a byte of it is never leased again; what earlier calls left behind in it lives on.
func (u *upstream) releaseLocked(c *call) {
	s := u.s
	if !u.worker || u.lease != c || c == nil {
		return
	}
	u.lease = nil
	switch {
	case u.dead:
	case (c.stopped || c.byCaller) && !c.withdrawn:
		u.retireLocked(u.exceptLeftLocked(c.began))
	case u.stale || len(s.idle) >= s.keepLocked():
		u.retireLocked(u.exceptLeftLocked(0))
	case s.cfg.IdleMemory > 0 && u.tree.Memory() > s.cfg.IdleMemory:
		s.log.Debug("a process that has grown is not kept for another call", "pid", u.tree.PID())
		u.retireLocked(u.exceptLeftLocked(0))
	default:
		s.idle = append(s.idle, u)
		s.restLocked()
	}
	s.flushLocked()
}

// keepLocked is how many workers may be idle.
func (s *Session) keepLocked() int { return max(maxIdle, s.cfg.Spares) }

// outdateLocked has processes for calls replaced by fresh ones after a message
// that only the primary process gets has changed the session for all: a fresh
// one is put into the session as it is then.
func (s *Session) outdateLocked(method string) {
	if s.cfg.Isolation != IsolationCall || method != mcp.MethodSetLevel && method != mcp.NoticeRoots {
		return
	}
	for _, u := range s.all {
		u.stale = u.worker
	}
	s.retireIdleLocked(0)
	s.hireLocked()
}

// retireIdleLocked ends idle workers until so many are left, the oldest first.
func (s *Session) retireIdleLocked(left int) {
	for len(s.idle) > left {
		u := s.idle[0]
		s.idle = s.idle[1:]
		u.retireLocked(u.exceptLeftLocked(0))
	}
}

// retireLocked ends the selected processes of one that is not wanted any more.
// For the calls that were stopped on it this end is the evidence.
func (u *upstream) retireLocked(sel proc.Selection) {
	u.dead, u.ready, u.expected = true, false, true
	u.unleaseLocked()
	u.s.goLocked(func() {
		u.sweep(sel)
		u.s.mu.Lock()
		clear(u.calls)
		u.s.mu.Unlock()
	})
}

// unleaseLocked makes room for another worker, once.
func (u *upstream) unleaseLocked() {
	if u.worker && !u.unleased {
		u.unleased = true
		u.s.leased--
	}
}

// hireLocked has as many workers started as are wanted and allowed.
func (s *Session) hireLocked() {
	if s.cfg.Isolation != IsolationCall || s.failure != nil || s.openingLocked() {
		return
	}
	for want := s.wantedLocked(); s.coming < want && s.leased < s.cfg.MaxProcesses; {
		if !s.goLocked(s.spawnWorker) {
			return
		}
		s.leased++
		s.coming++
	}
}

// openingLocked reports whether the answer to the caller's handshake is awaited: what
// a worker would have to be put into is not known yet. A caller may send its calls
// behind the handshake without waiting.
func (s *Session) openingLocked() bool {
	if s.stood {
		return false
	}
	for _, c := range s.calls {
		if mcp.Handshaking(c.method) {
			return true
		}
	}
	return false
}

// openedLocked goes on with what openingLocked held up.
func (s *Session) openedLocked() {
	if s.hand.Stands() {
		s.warm = true
	}
	s.hireLocked()
}

// wantedLocked is how many workers are missing: for the calls that wait, or, when
// none does, to be ready before the next. Nobody who waits is to be slowed down by
// what is made ahead; and who waits although there are idle ones waits for something
// else.
func (s *Session) wantedLocked() int {
	waiting := 0
	for i := range s.queue {
		if waiting >= s.cfg.MaxProcesses {
			break
		}
		if c := s.queue[i].call; c != nil && !c.dropped && c.method == mcp.MethodCallTool {
			waiting++
		}
	}
	if waiting == 0 && s.warm && s.leased-s.coming < s.cfg.Spares {
		waiting = 1 // the next
	}
	return waiting - len(s.idle)
}

// warmLocked has spares made from now on: a fresh process can be put into the
// session.
func (s *Session) warmLocked() {
	if !s.warm {
		s.warm = true
		s.hireLocked()
	}
}

// restLocked gives most spares up when no call has come for a while.
func (s *Session) restLocked() {
	if s.cfg.Spares <= 1 || s.closing {
		return
	}
	if s.lean != nil {
		s.lean.Reset(spareRest)
		return
	}
	s.lean = time.AfterFunc(spareRest, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closing {
			s.retireIdleLocked(1)
		}
	})
}

// spawnWorker starts a process for calls with IsolationCall.
func (s *Session) spawnWorker() {
	u, err := s.start(s.life, s.run.ID())
	if err == nil {
		s.mu.Lock()
		u.worker = true
		s.mu.Unlock()
		err = u.enterSession()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming--
	if err == nil {
		err = u.livesLocked()
	}
	if err != nil {
		if u != nil {
			u.unleaseLocked()
		} else {
			s.leased--
		}
		s.startFailedLocked("a server process for a call could not be started", err)
		// Where another worker is left, its end or its return looks at the queue
		// again. Nobody tries once more just because this one failed.
		if s.leased == 0 {
			s.failQueueLocked(err)
		}
		return
	}
	if u.stale || len(s.idle) >= s.keepLocked() { // the session was changed meanwhile, or others have come back
		u.retireLocked(u.exceptLeftLocked(0))
		s.flushLocked()
		return
	}
	u.ready = true
	s.idle = append(s.idle, u)
	s.flushLocked()
}
