package gateway

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// MayForce holds the rules of restraint (DESIGN 11, 1 to 3): it says whether
// force may be used for this call, waits for signs of life where the server is
// other people's, and then until no other call is in flight on the process.
func (c *call) MayForce(ctx context.Context, p belay.Pressure) error {
	c.s.mu.Lock() // after the dispatch of a call that was stopped while it was dispatched
	judged := c.judged
	c.s.mu.Unlock()
	if judged != nil {
		select {
		case <-judged:
		case <-ctx.Done():
			return restrain("nothing was left to stop")
		}
	}
	if c.mayHook(p) {
		again := p.Again || p.Now
		both := again && c.mayForceProcess(ctx, p) == nil
		c.s.mu.Lock()
		c.byHooks, c.byProcess = true, both
		c.s.mu.Unlock()
		return nil
	}
	return c.mayForceProcess(ctx, p)
}

func (c *call) mayForceProcess(ctx context.Context, p belay.Pressure) error {
	if err := c.permitted(ctx, p); err != nil {
		return err
	}
	if c.up.worker || c.serverDone() {
		return nil
	}
	return c.up.drain(ctx, c)
}

func restrain(format string, args ...any) error {
	return &belay.Restraint{Why: fmt.Sprintf(format, args...)}
}

// awaitWord gives a server on which nobody here can use force the time in which
// it may say that it has stopped (MCP-G32).
func (c *call) awaitWord(ctx context.Context, p belay.Pressure) error {
	timer := time.NewTimer(time.Until(p.GiveUp))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return &belay.Restraint{Why: c.s.cfg.unforced(), Futile: true}
}

func (c *call) strict() bool {
	return c.policy.Enforce == EnforceStrict && !c.policy.Observe || c.up != nil && c.up.worker
}

func (c *call) permitted(ctx context.Context, p belay.Pressure) error {
	cfg := c.policy
	c.s.mu.Lock()
	up := c.up
	c.s.mu.Unlock()
	again := "a second Stop uses force: belay cancel " + c.run.ID().String()
	switch {
	case up == nil:
		return restrain("it was waiting; there is nothing to force")
	case up.tree == nil:
		return c.awaitWord(ctx, p)
	case cfg.Observe:
		return restrain("observe: this server is told and watched, never forced")
	case cfg.Enforce == EnforceNever:
		return restrain("enforce never: this server is told, never forced")
	case c.standing():
		return restrain("a subscription does no work that could be stopped")
	case up.worker:
		return nil
	case !p.Again && !p.Now && !c.serverDone() && c.s.circuitOpen():
		return restrain("three forced restarts within a minute; %s", again)
	case p.Again, p.Now, cfg.Enforce == EnforceStrict:
		return nil
	case cfg.Enforce == EnforceLenient: // the operator's word goes before what is known of the server
		return restrain("enforce lenient: the server was told and kept; %s", again)
	case c.s.cfg.RestartSafe:
		return nil
	}
	giveUp := c.run.Cancellation().At.Add(cfg.watch)
	if giveUp.After(p.GiveUp) {
		giveUp = p.GiveUp
	}
	return c.watchForLife(ctx, c.afterWord(giveUp), again)
}

// watchForLife returns nil as soon as there is a sign that the server still
// works on the call, and a restraint when there was none until giveUp: a
// server that obeys the protocol is silent, and is kept (MCP-G34).
func (c *call) watchForLife(ctx context.Context, giveUp time.Time, again string) error {
	var meter supervise.Meter
	var sampled time.Time
	work := effort{}
	grace := c.run.Cancellation().At.Add(c.policy.Ladder.Grace)
	for {
		life, more := c.showsLife(grace)
		if life {
			return nil
		}
		if time.Now().After(giveUp) {
			return restrain("the server was told and shows no sign of life for this call; it was kept; %s", again)
		}
		now := time.Now()
		if alive, measured := meter.Sample(now, work.used(c)); alive && c.lonely(sampled) {
			return nil
		} else if measured || sampled.IsZero() {
			sampled = now
		}
		timer := time.NewTimer(supervise.LifeWindow)
		select {
		case <-timer.C:
		case <-more:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return restrain("nothing was left to stop")
		}
	}
}

// watchAge is how old a list of processes may be that is looked at for signs
// of life.
const watchAge = 100 * time.Millisecond

// showsLife reports whether a message for the call came after the grace period,
// in which it may end its work, or a process of it is alive, and what tells of
// the next message: nil if the caller is not settled yet, which may come late.
func (c *call) showsLife(grace time.Time) (life bool, more <-chan struct{}) {
	c.s.mu.Lock()
	sign, more := c.sign, c.alive
	c.s.mu.Unlock()
	return sign.After(grace) || len(c.children(watchAge)) > 0, more
}

// lonely reports whether no other call was in flight since then, so that
// processor time can only be this one's.
func (c *call) lonely(since time.Time) bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.up.busy == 0 && c.up.quiet.Before(since)
}

// serverDone reports whether the server itself is done with the call, by its
// own word, so that at most processes born during it are to be ended. An error
// reply is not believed under strict (MCP-G33). Once force is used on the
// process it is too late to say so.
func (c *call) serverDone() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.serverDoneLocked()
}

func (c *call) serverDoneLocked() bool {
	strict := c.strict()
	if c.up == nil || c.up.force != nil {
		return false
	}
	switch c.replied {
	case belay.SeenResult, belay.SeenHandlerReturned:
		return true
	case belay.SeenErrorReply:
		return !strict && c.ack == "" // who acknowledges stops has not yet done so
	}
	return false
}

// drain waits until nobody else waits for a call on this process, for at most
// the drain time. Meanwhile new calls wait, or go to a fresh process.
func (u *upstream) drain(ctx context.Context, c *call) error {
	s := u.s
	limit := time.NewTimer(s.cfg.Drain)
	defer limit.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	u.drains++
	if u.busy > 0 && !u.dead && c.strict() {
		others := u.othersLocked()
		s.mu.Unlock()
		u.blame(c, fmt.Sprintf("its process lives on: force waits until no other call is in flight on it: %v", others))
		s.mu.Lock()
	}
	for u.busy > 0 && !u.dead {
		if u.changed == nil {
			u.changed = make(chan struct{})
		}
		changed := u.changed
		s.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-limit.C:
			err = u.blocked()
		case <-ctx.Done():
			err = restrain("nothing was left to stop")
		}
		s.mu.Lock()
		if err != nil {
			u.supersedeLocked(c)
			u.undrainLocked()
			return err
		}
	}
	u.undrainAfterLocked(c)
	return nil
}

// undrainAfterLocked lets calls go on when the ladder of c has ended without
// force, because evidence came or force was refused. Until then the process is
// about to be ended and takes none.
func (u *upstream) undrainAfterLocked(c *call) {
	s := u.s
	s.goLocked(func() {
		_, _ = c.run.Wait(s.life)
		s.mu.Lock()
		defer s.mu.Unlock()
		if u.force == nil {
			u.undrainLocked()
		}
	})
}

// doomedLocked reports whether the process of a stopped call is sure to be
// ended unless the call ends within the grace period. Nobody's next call is
// then sent to it: a server whose only thread is inside the stopped call would
// not read it, and it would hold the force up (MCP-G36).
func (c *call) doomedLocked() bool {
	cfg := c.policy
	return !cfg.Observe && (cfg.Enforce == EnforceStrict || c.s.cfg.RestartSafe && cfg.Enforce == EnforceAuto) &&
		c.method == mcp.MethodCallTool && c.up.tree != nil && c.policy.Stop == nil && !c.up.worker && c.up.force == nil
}

func (u *upstream) undrainLocked() {
	u.drains--
	if u.drains == 0 {
		u.s.flushLocked()
		u.retireSupersededLocked()
	}
}

// supersedeLocked gives a process up on which a call was left that should have ended
// by force: it works on for the calls that are in flight there and gets no others,
// and is ended when they are done, which is then the proof. Only where a restart
// loses nothing.
func (u *upstream) supersedeLocked(c *call) {
	if !u.s.cfg.RestartSafe || !c.strict() || u.dead || c.serverDoneLocked() {
		return
	}
	u.superseded = true
	if u.s.current == u {
		u.s.current = nil
	}
}

// othersLocked are some of the calls for whose sake no force is used yet.
func (u *upstream) othersLocked() (ids []belay.RunID) {
	for _, c := range u.calls {
		if c.counted && len(ids) < 10 {
			ids = append(ids, c.run.ID())
		}
	}
	return ids
}

// blocked names the calls for whose sake no force was used.
func (u *upstream) blocked() error {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	r := &belay.Restraint{Blocking: u.othersLocked()}
	r.Why = fmt.Sprintf("other calls were still in flight on the same process after %s: %v", u.s.cfg.Drain, r.Blocking)
	u.s.log.Warn("a call could not be stopped by force: other calls are in flight on its process", "blocking", r.Blocking)
	return r
}

// blame puts the process that a call should have ended with on its receipt, alive.
func (u *upstream) blame(c *call, why string) {
	for _, p := range u.look.processes(0) {
		if p.PID != u.tree.PID() {
			continue
		}
		u.s.mu.Lock()
		c.blamed = true
		u.s.mu.Unlock()
		c.run.Observe(belay.Evidence{
			Kind: belay.SeenSurvivors, Survivors: supervise.Processes([]proc.Process{p}),
			Detail: why,
		})
	}
}

// circuit is how many forced restarts within a minute are too many (DESIGN 11, 3).
const circuit = 3

func (s *Session) circuitOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.RestartSafe || len(s.forced) < circuit || time.Since(s.forced[len(s.forced)-circuit]) > time.Minute {
		return false
	}
	s.log.Warn("three forced restarts within a minute: calls of this server are only told from now on; choose restart-safe, enforce never or isolation call to change that")
	return true
}

// noteForcedLocked counts a forced restart, and explains the first.
func (s *Session) noteForcedLocked(c *call) {
	s.forced = append(s.forced, time.Now())
	if s.cfg.Counter != nil {
		s.cfg.Counter.ForcedRestart(s.cfg.Name)
	}
	if len(s.forced) > circuit {
		s.forced = s.forced[1:]
	}
	if s.explained {
		return
	}
	s.explained = true
	text := "the server's process is ended by force because a stopped call did not end; it is started again and put into the same session"
	if c.policy.Enforce != EnforceLenient { // else a person has asked for it
		text += ". To choose otherwise: enforce lenient or never, or isolation call"
	}
	s.log.Warn(text, "run", c.run.ID(), "call", c.title(), "enforce", c.policy.Enforce)
}

// selection says which processes force ends for this call: those born during
// it if the server itself is done; all of a process that only this call uses;
// else the server with what it had at its start and what was born during the
// call, sparing what earlier calls left behind.
func (c *call) selection() proc.Selection {
	if c.serverDone() {
		return c.childSelection()
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.up.selectionLocked(c, false)
}

// childSelection selects the processes that were born while this call alone
// was in flight.
func (c *call) childSelection() proc.Selection {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	sel := supervise.Since(c.began)
	if c.until != 0 { // born during a later call
		sel.SpareFrom, sel.SpareUntil = c.until, math.MaxInt64
	}
	return sel
}

// selectionLocked is the selection for forced (nil: none in particular) and
// every other call that is being stopped on the process; with inFlight also
// for those that somebody waits for. Stopped calls that were kept because they
// showed no life do not count: what came after them is not theirs.
func (u *upstream) selectionLocked(forced *call, inFlight bool) proc.Selection {
	var since proc.Stamp
	consider := func(c *call) {
		if c != nil && c.began != 0 && (since == 0 || c.began < since) {
			since = c.began
		}
	}
	consider(forced)
	u.pruneStoppingLocked()
	for _, c := range u.stopping {
		consider(c)
	}
	if inFlight {
		for _, c := range u.calls {
			if c.counted {
				consider(c)
			}
		}
	}
	return u.exceptLeftLocked(since)
}

// exceptLeftLocked selects everything but what tool calls before since left
// behind; 0: all of them.
func (u *upstream) exceptLeftLocked(since proc.Stamp) proc.Selection {
	if since == 0 {
		since = proc.Now()
	}
	if u.firstCall == 0 || since <= u.firstCall {
		return supervise.Whole()
	}
	return supervise.Except(u.firstCall, since)
}
