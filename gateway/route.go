package gateway

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// routeLocked finds the process for a call, or nil if the call has to wait for
// one; then one is on its way.
func (s *Session) routeLocked(c *call) *upstream {
	if c.policy.Overlap == OverlapWait && s.overlapsLocked(c, true) != nil {
		return nil // doubtLocked sees to it that it is looked at again
	}
	if s.cfg.Isolation == IsolationCall && c.method == mcp.MethodCallTool {
		return s.leaseLocked(c)
	}
	if u := s.taskHostLocked(c.ref); u != nil {
		return u
	}
	u := s.current
	switch {
	case u == nil:
		s.spawnLocked()
		return nil
	case !u.ready:
		return nil
	case u.drains > 0 && c.method != mcp.MethodPing:
		if s.cfg.RestartSafe { // the old process is drained while a fresh one serves
			u.superseded = true
			s.current = nil
			s.spawnLocked()
		}
		return nil
	}
	return u
}

// unrouteLocked gives back what routeLocked took, for a call that came to
// nothing.
func (s *Session) unrouteLocked(u *upstream) {
	if u != nil && u.worker {
		u.releaseLocked(u.lease)
	}
}

// retireSupersededLocked ends a process that a fresh one has replaced, as soon
// as nobody waits for a call on it: it gets no other.
func (u *upstream) retireSupersededLocked() {
	if !u.superseded || u.busy > 0 || u.drains > 0 || u.dead {
		return
	}
	if u.pruneStoppingLocked(); len(u.stopping) > 0 {
		return // their ladders go first
	}
	u.retireLocked(u.selectionLocked(nil, true))
}

// dropLocked forgets a process of which nothing is left.
func (s *Session) dropLocked(u *upstream) {
	for i, other := range s.all {
		if other == u {
			s.all = append(s.all[:i:i], s.all[i+1:]...)
			return
		}
	}
}

// spawnLocked has a fresh process made for the session.
func (s *Session) spawnLocked() {
	if s.spawning || s.closing || s.failure != nil {
		return
	}
	s.spawning = s.goLocked(s.spawn)
}

// spawn starts a process and puts it into the session's state.
func (s *Session) spawn() {
	u, err := s.start(s.life, s.run.ID())
	if err == nil {
		err = u.enterSession()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spawning = false
	if err == nil {
		err = u.livesLocked()
	}
	if err != nil {
		s.startFailedLocked("a fresh server process could not be put into the session", err)
		s.failQueueLocked(err)
		s.failStandingLocked(err)
		return
	}
	s.current = u
	u.ready = true
	s.resumeLocked(u)
	s.flushLocked()
}

// startFailedLocked says that a process could not be started; that the session's end came
// first is nobody's fault.
func (s *Session) startFailedLocked(text string, err error) {
	level := slog.LevelError
	if s.closing {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, text, "error", err)
}

// livesLocked is the error of a process that was put into the session and has
// ended before anything could be sent to it: nobody would answer.
func (u *upstream) livesLocked() error {
	if u.dead {
		return fmt.Errorf("%w (%s)", belay.ErrUnreachable, u.exit())
	}
	return nil
}

// failQueueLocked answers everything that waits for a process that does not
// come. The next call tries again.
func (s *Session) failQueueLocked(err error) {
	queue := s.queue
	s.queue, s.queued = nil, 0
	for _, w := range queue {
		if w.call != nil && !w.call.dropped {
			w.call.notStartedLocked(err)
		}
	}
}

// failStandingLocked ends the subscriptions that were to be sent to a fresh
// process: silence would be taken for a server where nothing happens.
func (s *Session) failStandingLocked(err error) {
	for _, c := range s.calls {
		if c.standing() && !c.stopped && (c.up == nil || c.up.dead) {
			c.notStartedLocked(err)
		}
	}
}

func (c *call) notStartedLocked(err error) {
	c.failLocked(mcp.CodeInternal, fmt.Sprintf("server %q could not be started again: %v", c.s.cfg.Name, err))
}

// flushLocked sends on what waits for a process, as far as there is one now.
func (s *Session) flushLocked() {
	queue := s.queue
	s.queue, s.queued = nil, 0
	for i, w := range queue {
		if !s.flushOneLocked(w) {
			s.queue = append(s.queue, w)
			s.queued += len(w.frame)
		}
		queue[i] = waiting{}
	}
	s.hireLocked()
}

// flushOneLocked reports whether w needs to wait no longer.
func (s *Session) flushOneLocked(w waiting) bool {
	if w.call == nil {
		if s.current == nil || !s.current.ready {
			return false
		}
		if w.method != mcp.NoticeInitialized || !s.current.initialized { // once, also if it came while there was no process
			s.forwardLocked(s.current, w.frame)
		}
		return true
	}
	c := w.call
	if c.dropped {
		return true
	}
	u := s.routeLocked(c)
	if u == nil {
		return false
	}
	if c.run != nil && !c.run.Start() {
		s.unrouteLocked(u) // cancelled a moment ago: onCancel settles it
		return true
	}
	var m mcp.Message
	if err := m.Read(w.frame); err != nil { // it was read once before
		c.failLocked(mcp.CodeInternal, err.Error())
		return true
	}
	u.dispatchLocked(c, &m)
	return true
}

// resumeLocked sends the standing requests of the caller again to a fresh
// process (MCP-76).
func (s *Session) resumeLocked(u *upstream) {
	for _, c := range s.calls {
		if !c.standing() || c.frame == nil || c.stopped || c.up == u {
			continue
		}
		var m mcp.Message
		if m.Read(c.frame) == nil {
			u.dispatchLocked(c, &m)
		}
	}
}

var errNoSession = fmt.Errorf("%w: the server ended before the session stood", belay.ErrUnreachable)
