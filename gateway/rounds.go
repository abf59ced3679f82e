package gateway

import (
	"fmt"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Input rounds of the modern era (MCP-65, MCP-G18): a server that needs input
// answers the request with a question, and the caller sends it again under a new
// id, with the answer and the server's requestState. To Belay all legs are one
// call and one run, which waits between them: nothing runs then, so a Stop is
// confirmed at once, and the retry that comes after it gets -32800 and never
// reaches the server. What links the legs is a digest of requestState. Where that
// is missing, or two calls have the same, nobody can tell whose a retry is: the
// run ends with its leg, and the retry is a run of its own, whose receipt says so.

// rounds are the calls of a session between two legs, and those that were stopped
// there, by the digest of what the retry will bring. Guarded by Session.mu.
type rounds struct {
	byKey map[mcp.RoundKey]*round
	order []*round // oldest first; forgotten ones are still in it
}

// round is one question that waits for its retry.
type round struct {
	key   mcp.RoundKey
	of    *call // nil: several calls were asked this, and a retry could be either's
	timer *time.Timer
	gone  bool
}

// Bounds of rounds.
const (
	maxRounds = 10_000           // of a session; the oldest gives way
	roundTime = 10 * time.Minute // in which a retry has to come
)

// parkLocked takes an answer that asks for input. It reports whether the call
// goes on with the retry: its run then waits, and has left the process.
func (u *upstream) parkLocked(c *call, m *mcp.Message) bool {
	if c.era != mcp.Modern || c.run == nil || c.standing() || !m.InputRequired() {
		return false
	}
	s := u.s
	key, ok := m.AskedRound(c.method, c.name)
	if !ok {
		c.run.Observe(belay.Evidence{Kind: belay.SeenUnlinked, Detail: "the server asked for input without a requestState: a retry cannot be told from a new request"})
		return false
	}
	if r := s.rounds.byKey[key]; r != nil {
		s.log.Debug("two calls were asked for input with the same requestState; their retries are runs of their own", "run", c.run.ID())
		s.parted(r)
		return false
	}
	goesOn := c.run.Pause()
	if !goesOn && c.run.Cancellation() == nil {
		return false
	}
	s.addRoundLocked(key, c, roundTime) // the retry of a stopped call is refused
	if goesOn {
		c.parked, c.up = true, nil
		if u.solo == c {
			u.solo = nil
		}
	}
	return goesOn
}

func (s *Session) addRoundLocked(key mcp.RoundKey, c *call, wait time.Duration) {
	list := &s.rounds
	if list.byKey == nil {
		list.byKey = make(map[mcp.RoundKey]*round)
	}
	for len(list.byKey) >= maxRounds || len(list.order) >= 2*maxRounds {
		if oldest := list.order[0]; !oldest.gone {
			s.giveUpLocked(oldest)
		}
		list.order = list.order[1:]
	}
	r := &round{key: key, of: c}
	r.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !r.gone {
			s.giveUpLocked(r)
		}
	})
	list.byKey[key] = r
	list.order = append(list.order, r)
}

// parted makes a question that two calls were asked nobody's. The one that waits
// for its retry ends: it was answered.
func (s *Session) parted(r *round) {
	if c := r.of; c != nil {
		r.of = nil
		if c.parked {
			c.run.Finish(belay.Completed)
		}
	}
}

// giveUpLocked forgets a question that nobody came back with: the caller declined
// to go on, which it may (MCP-65).
func (s *Session) giveUpLocked(r *round) {
	s.forgetRoundLocked(r)
	if r.of != nil && r.of.held != nil {
		r.of.letGoLocked()
	}
	if r.of != nil && r.of.parked && r.of.run.Cancellation() == nil {
		r.of.run.Finish(belay.Declined)
	}
}

func (s *Session) forgetRoundLocked(r *round) {
	r.gone = true
	r.timer.Stop()
	if s.rounds.byKey[r.key] == r {
		delete(s.rounds.byKey, r.key)
	}
}

// retriedLocked finds the call that a request is the next leg of, and returns it
// with what belongs to this leg; the request's own if it is none. A retry of a
// call that was stopped meanwhile is answered here: nil.
func (s *Session) retriedLocked(c *call, m *mcp.Message) *call {
	if c.era != mcp.Modern || !m.State.Ok() && !m.Answers.Ok() || mcp.Handshaking(c.method) {
		return c
	}
	key, linked, is := m.Retry()
	r := s.rounds.byKey[key]
	if !linked || r == nil || r.of == nil {
		c.unlinked = is
		return c
	}
	first := r.of
	if cause := first.run.Cancellation(); cause != nil {
		s.log.Info("the retry of a call that was stopped between two rounds was refused", "run", first.run.ID())
		s.replyLocked(c, first.stoppedAnswer(c.id, cause))
		return nil
	}
	if c.outside() && !c.names.placed && (first.names == nil || first.names.above != c.names.above) {
		s.replyLocked(c, jsonrpc.AppendError(nil, c.id, mcp.CodeInvalidParams, fmt.Sprintf("%v; this is the next round of a call that hangs elsewhere", errParent), nil))
		return nil
	}
	if first.apart {
		s.rejoinLocked(r, c, m)
		return nil
	}
	s.forgetRoundLocked(r)
	first.parked = false
	first.nextLeg(c.names)
	if p := first.passing(); p != nil { // of the leg before
		p.timer.Stop()
		first.names.cancel = nil
	}
	first.id, first.key, first.token, first.to = c.id, c.key, c.token, c.to
	first.params, first.pass, first.batch, first.args = c.params, c.pass, c.batch, c.args
	first.upID, first.seq, first.began, first.until, first.others = c.upID, 0, 0, 0, false
	first.answered, first.byCaller = false, false
	first.ack, first.ackFor, first.hooks = "", "", nil
	return first
}

// sayUnlinkedLocked puts on the receipt of a stopped call what its Stop cannot
// reach.
func (c *call) sayUnlinkedLocked() {
	if c.unlinked {
		c.run.Observe(belay.Evidence{Kind: belay.SeenUnlinked, Detail: "it is a retry that nothing ties to the earlier rounds of its request: requestState is missing, unknown or another call's too"})
	}
}

// notRunning is the evidence of a stopped call that no process works on.
func (c *call) notRunning() *belay.Evidence {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.parked && c.s.cfg.TellRun {
		return nil // what was started for it below goes on between two legs, and has a receipt of its own
	}
	e := &belay.Evidence{Kind: belay.SeenNotStarted, Scope: belay.ScopeHandler, Detail: "it was waiting for a process"}
	if c.parked {
		e.Detail = "it was waiting for the caller between two input rounds, where nothing runs; a retry is refused"
	}
	return e
}

// endRounds stops what waits between two legs at the end of the session.
func (s *Session) endRounds(why belay.Cancellation) {
	s.mu.Lock()
	var parked []*call
	for _, r := range s.rounds.byKey {
		r.gone = true
		r.timer.Stop()
		if r.of != nil && (r.of.parked || r.of.apart) {
			parked = append(parked, r.of)
		}
	}
	s.rounds = rounds{}
	s.mu.Unlock()
	for _, c := range parked {
		c.run.Cancel(why)
	}
}
