package belay

import (
	"context"
	"errors"
	"sync"
	"time"
)

// forceful reports whether a stopper can do more than tell.
func forceful(s Stopper) bool {
	switch s.(type) {
	case Interrupter, Terminator, Killer:
		return true
	}
	return false
}

// rung is one step of the ladder with the time that is given to it.
type rung struct {
	means Means
	do    func(context.Context, *Cancellation) (*Evidence, error)
	wait  time.Duration
}

// rungs lists the force that a stopper has, in order.
func rungs(s Stopper, l Ladder, now bool) []rung {
	var list []rung
	if i, ok := s.(Interrupter); ok {
		list = append(list, rung{StepInterrupt, i.Interrupt, l.KillAfter})
	}
	if k, ok := s.(Terminator); ok {
		list = append(list, rung{StepTerminate, k.Terminate, l.KillAfter})
	}
	if len(list) == 2 { // interrupt and terminate share the time before the kill
		list[0].wait, list[1].wait = l.KillAfter/2, l.KillAfter/2
	}
	if k, ok := s.(Killer); ok {
		if now {
			list = nil
		}
		list = append(list, rung{StepKill, k.Kill, confirmMargin})
	}
	return list
}

// climb takes the forceful steps of one run's ladder, one after the other. It
// runs at most once at a time for a run, started by the grace timer or by a
// person's second Stop; a later press can start it again after it gave up.
func (t *Tree) climb(r *Run) {
	t.mu.Lock()
	s := r.stop
	if s.over || s.climbing || s.receipt.Final || t.base.Err() != nil {
		if t.base.Err() != nil && !s.receipt.Final {
			t.giveUpLocked(r, "Belay ended before there was evidence")
		}
		t.mu.Unlock()
		return
	}
	s.climbing = true
	t.wg.Add(1)
	ladder := r.spec.Ladder.WithDefaults()
	giveUp := maxTime(s.cause.At.Add(ladder.ConfirmAfter), time.Now().Add(ladder.KillAfter+confirmMargin))
	if !forceful(s.stopper) {
		giveUp = time.Now()
	}
	t.mu.Unlock()
	defer t.wg.Done()

	c := &climber{tree: t, run: r, stop: s, ladder: ladder, giveUp: giveUp}
	why := ""
	if forceful(s.stopper) {
		why = c.force()
	}
	t.mu.Lock()
	s.climbing = false
	if !s.over {
		t.giveUpLocked(r, why)
	}
	t.mu.Unlock()
	c.steps.Wait()
}

// climber is one ascent. Only its own goroutine touches it.
type climber struct {
	tree   *Tree
	run    *Run
	stop   *stop
	ladder Ladder
	giveUp time.Time
	steps  sync.WaitGroup
}

// force passes the gate and climbs the rungs. It returns why it gave up.
func (c *climber) force() string {
	if held := c.gate(); held != "" {
		return held
	}
	c.giveUp = maxTime(c.giveUp, time.Now().Add(c.ladder.KillAfter+confirmMargin))
	list := rungs(c.stop.stopper, c.ladder, c.now())
	for i := 0; i < len(list); i++ {
		c.take(list[i])
		over, pressed := c.rest(list[i].wait)
		if over {
			return ""
		}
		if pressed && c.now() && i < len(list)-2 {
			i = len(list) - 2 // straight to the kill
		}
	}
	for {
		left := time.Until(c.giveUp)
		if left <= 0 {
			return ""
		}
		if over, _ := c.rest(left); over {
			return ""
		}
	}
}

// now reports whether a person asked to go straight to the kill.
func (c *climber) now() bool {
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	return c.stop.now
}

// rest waits for the time to pass, a press, or the end of the ladder.
func (c *climber) rest(d time.Duration) (over, pressed bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		c.tree.mu.Lock()
		over = c.stop.over
		c.tree.mu.Unlock()
		if over {
			return true, false
		}
		select {
		case <-timer.C:
			return false, false
		case <-c.stop.wake:
			c.tree.mu.Lock()
			over = c.stop.over
			c.tree.mu.Unlock()
			return over, true
		case <-c.tree.base.Done():
			return true, false
		}
	}
}

// take carries out one rung in a goroutine of its own, so that a step which
// blocks delays no later one.
func (c *climber) take(r rung) {
	t, run, s := c.tree, c.run, c.stop
	t.mu.Lock()
	t.stepLocked(run, Step{At: time.Now(), Step: r.means})
	t.mu.Unlock()
	c.steps.Go(func() {
		e, err := r.do(s.ctx, s.cause)
		t.mu.Lock()
		defer t.mu.Unlock()
		if err != nil && !s.over {
			t.stepLocked(run, Step{At: time.Now(), Step: r.means, Error: err.Error()})
			s.signal() // a step that failed gives its time to the next
		}
		if e != nil {
			t.observeLocked(run, *e)
		}
	})
}

// gate asks the stopper's Gate, again for each press, until it lets force
// through (""), refuses (the reason), or the ladder is over.
func (c *climber) gate() (held string) {
	gate, ok := c.stop.stopper.(Gate)
	if !ok {
		return ""
	}
	for {
		answer := make(chan error, 1)
		ctx, end := context.WithCancelCause(c.stop.ctx)
		p := c.pressure()
		c.steps.Go(func() { answer <- gate.MayForce(ctx, p) })
		err, asked := c.await(answer)
		end(c.stop.cause)
		if asked {
			continue // a person pressed: ask again, with more behind it
		}
		if err == nil {
			return ""
		}
		var r *Restraint
		if errors.As(err, &r) {
			return r.Why
		}
		return err.Error()
	}
}

func (c *climber) pressure() Pressure {
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	return Pressure{Presses: c.stop.presses, Again: c.stop.again, Now: c.stop.now, GiveUp: c.giveUp}
}

// errOver ends a gate's wait when there is nothing left to force.
var errOver = &Restraint{Why: "nothing was left to stop"}

// await waits for the gate's answer. At giveUp the work becomes unconfirmed,
// but the wait goes on: the gate may be waiting for other calls to end.
func (c *climber) await(answer <-chan error) (err error, asked bool) {
	timer := time.NewTimer(time.Until(c.giveUp) + 10*time.Millisecond)
	defer timer.Stop()
	for {
		c.tree.mu.Lock()
		over := c.stop.over
		c.tree.mu.Unlock()
		if over {
			return errOver, false
		}
		select {
		case err := <-answer:
			return err, false
		case <-c.stop.wake:
			c.tree.mu.Lock()
			over := c.stop.over
			c.tree.mu.Unlock()
			if !over {
				return nil, true
			}
		case <-timer.C:
			c.tree.mu.Lock()
			c.tree.stepLocked(c.run, Step{At: time.Now(), Step: StepHeld, Detail: "no evidence yet; force is waiting for other calls to end"})
			c.tree.mu.Unlock()
		case <-c.tree.base.Done():
			return errOver, false
		}
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// giveUpLocked makes the verdict final without evidence that ends the ladder.
func (t *Tree) giveUpLocked(r *Run, held string) {
	s := r.stop
	if held != "" {
		s.receipt.Held = held
		t.stepLocked(r, Step{At: time.Now(), Step: StepHeld, Detail: held})
	}
	t.stepLocked(r, Step{At: time.Now(), Step: StepGaveUp})
	r.work = Unconfirmed
	t.sealLocked(r)
}

// Observe records evidence about a cancelled run: it raises the verdict as far
// as it justifies, and ends the ladder if it says so. Evidence that comes
// after the ladder gave up upgrades the receipt all the same (MCP-G32). On a
// run that is not cancelled it does nothing.
func (r *Run) Observe(e Evidence) {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeLocked(r, e)
}

func (t *Tree) observeLocked(r *Run, e Evidence) {
	s := r.stop
	if s == nil {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	s.receipt.observe(e)
	t.emitLocked(EventStep, r)
	if !e.ends() || s.over {
		return
	}
	s.over = true
	s.receipt.Held = ""
	r.work = Stopped
	if s.grace != nil {
		s.grace.Stop()
	}
	s.signal()
	t.sealLocked(r)
}

// sealLocked makes the receipt final: the run is over as soon as its caller is
// settled too.
func (t *Tree) sealLocked(r *Run) {
	s := r.stop
	s.receipt.Work, s.receipt.Outcome = r.work, r.outcome
	s.receipt.Final, s.receipt.Ended = true, time.Now()
	if s.over && s.end != nil {
		s.end(s.cause)
		s.stopper = nil
	}
	t.emitLocked(EventFinal, r)
	t.overLocked(r)
}

func (t *Tree) stepLocked(r *Run, step Step) {
	r.stop.receipt.add(step)
	t.emitLocked(EventStep, r)
}
