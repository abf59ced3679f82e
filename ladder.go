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

// rungs lists the force that a stopper has, in order. Interrupt and terminate
// share the time before the kill.
func rungs(s Stopper, l Ladder) []rung {
	var list []rung
	if i, ok := s.(Interrupter); ok {
		list = append(list, rung{StepInterrupt, i.Interrupt, l.KillAfter})
	}
	if k, ok := s.(Terminator); ok {
		list = append(list, rung{StepTerminate, k.Terminate, l.KillAfter})
	}
	for i := range list {
		list[i].wait /= time.Duration(len(list))
	}
	if k, ok := s.(Killer); ok {
		list = append(list, rung{StepKill, k.Kill, 0})
	}
	return list
}

// climber is one ascent: it takes the forceful steps of one run's ladder, one
// after the other. Only its own goroutine touches it.
type climber struct {
	tree    *Tree
	run     *Run
	stop    *stop
	stopper Stopper
	ladder  Ladder
	giveUp  time.Time
	heard   int32  // the presses that were answered; fewer than stop.presses: take the next step
	futile  string // why no Stop can ever use force
	steps   sync.WaitGroup

	patience context.Context // of the steps: see Patience
	hasten   context.CancelCauseFunc
}

// climbLocked starts the ascent, because the time for it has come or because a
// person pressed; at most one is under way for a run. Without any force there
// is nothing but to give up.
func (t *Tree) climbLocked(r *Run) {
	s := r.stop
	switch {
	case t.gone || s.over || s.climbing || s.final:
		return
	case !forceful(r.spec.Stopper):
		t.giveUpLocked(r, "", "")
		return
	}
	s.climbing = true
	s.bell = make(chan struct{}, 1)
	ladder := r.spec.Ladder.WithDefaults()
	c := &climber{tree: t, run: r, stop: s, stopper: r.spec.Stopper, ladder: ladder, giveUp: s.first.begun.Add(ladder.ConfirmAfter), heard: s.presses}
	t.wg.Go(c.climb)
}

func (c *climber) climb() {
	c.patience, c.hasten = context.WithCancelCause(&c.stop.ctx)
	for !c.finish(c.force()) {
	}
	c.steps.Wait()
	c.hasten(c.stop.first.cause)
}

// force passes the gate and takes the rungs, then waits for evidence. It
// returns why force was not used, if that was the gate's answer.
func (c *climber) force() (held string) {
	c.extend(c.ladder.KillAfter)
	if held, ok := c.gate(); !ok {
		return held
	}
	c.extend(c.ladder.KillAfter)
	list := rungs(c.stopper, c.ladder)
	for i := 0; i < len(list); i++ {
		if c.straight() {
			i = len(list) - 1
			c.hasten(c.stop.first.cause)
		}
		failed, ok := c.take(list[i])
		if !ok {
			return ""
		}
		switch c.rest(time.Now().Add(list[i].wait), failed) {
		case ended:
			return ""
		case pressed:
			c.hasten(c.stop.first.cause)
		case timeUp:
		}
		c.extend(0)
	}
	for stood := false; ; {
		switch c.rest(c.giveUp, nil) {
		case ended:
			return ""
		case pressed: // nothing is left to take
			c.hasten(c.stop.first.cause)
		case timeUp:
			if stood || time.Since(c.giveUp) < standstill {
				return ""
			}
			stood = true
			c.extend(0)
		}
	}
}

// standstill is by how much the climber wakes up late when the whole machine
// stood still: then whoever was to bring the evidence stood still, too, and has
// confirmMargin once more.
const standstill = confirmMargin / 4

// extend moves the giving up so far that steps which need this time have it, and
// the last of them its margin for evidence, however late that step came.
func (c *climber) extend(steps time.Duration) {
	if least := time.Now().Add(steps + confirmMargin); c.giveUp.Before(least) {
		c.giveUp = least
	}
}

// straight reports whether a person asked to go straight to the kill.
func (c *climber) straight() bool {
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	return c.stop.now
}

// finish ends the ascent without evidence, unless a person has pressed since
// the climber looked last: then it returns false, and all is tried again.
func (c *climber) finish(held string) bool {
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	s := c.stop
	if !s.over && !s.final {
		if c.heard != s.presses {
			c.heard = s.presses
			return false
		}
		c.tree.giveUpLocked(c.run, held, c.futile)
	}
	s.climbing = false
	return true
}

// woken is why a rest was over.
type woken int

const (
	timeUp  woken = iota // the time has passed, or the step failed
	pressed              // a person pressed
	ended                // evidence, or the tree gave up
)

// lookLocked reports what has happened to the ladder since the last look.
func (c *climber) lookLocked() woken {
	switch s := c.stop; {
	case s.over || s.final:
		return ended
	case s.presses != c.heard:
		c.heard = s.presses
		return pressed
	}
	return timeUp
}

func (c *climber) look() woken {
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	return c.lookLocked()
}

// rest waits for the time to pass, the failure of a step, a press, or the end.
func (c *climber) rest(until time.Time, failed <-chan struct{}) woken {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		if w := c.look(); w != timeUp {
			return w
		}
		select {
		case <-timer.C:
			return c.look()
		case <-failed:
			return c.look() // its time is given to the next step
		case <-c.stop.bell:
		}
	}
}

// take carries out one rung in a goroutine of its own, so that a step which
// blocks delays no later one; it is false if the ladder has ended. The channel
// is closed when the step failed.
func (c *climber) take(r rung) (failed <-chan struct{}, ok bool) {
	t, run, s := c.tree, c.run, c.stop
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.lookLocked() == ended {
		return nil, false
	}
	t.stepLocked(run, s, Step{At: time.Now(), Step: r.means})
	failure := make(chan struct{})
	c.steps.Go(func() {
		e, err := r.do(stepContext{&s.ctx, c.patience}, s.first.cause)
		step := Step{At: time.Now(), Step: r.means}
		if err != nil {
			step.Error = err.Error()
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if err != nil && !s.over {
			t.stepLocked(run, s, step)
			close(failure)
		}
		if e != nil {
			t.observeLocked(run, *e)
		}
	})
	return failure, true
}

// gate asks the stopper's Gate, again for each press, until it lets force
// through, refuses (held says why), or the ladder has ended.
func (c *climber) gate() (held string, ok bool) {
	gate, is := c.stopper.(Gate)
	if !is {
		return "", true
	}
	for {
		ctx, end := context.WithCancelCause(&c.stop.ctx)
		answer := make(chan error, 1)
		p := c.pressure()
		c.steps.Go(func() { answer <- gate.MayForce(ctx, p) })
		why, err := c.await(answer)
		end(c.stop.first.cause)
		switch {
		case why == ended:
			return "", false
		case why == pressed: // ask again, with more behind it
		case err == nil:
			c.hold("")
			return "", true
		default:
			text, futile := reason(err)
			if text = CleanReason(text); futile {
				c.futile, text = text, ""
			}
			return text, false
		}
	}
}

// reason is why the gate refused, in words, and whether that is for ever.
func reason(err error) (why string, futile bool) {
	var r *Restraint
	if errors.As(err, &r) && r.Why != "" {
		return r.Why, r.Futile
	}
	return err.Error(), false
}

func (c *climber) pressure() Pressure {
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	s := c.stop
	c.heard = s.presses
	return Pressure{Presses: int(s.presses), Again: s.again, Now: s.now, GiveUp: c.giveUp}
}

// await waits for the gate's answer. When there should have been evidence long
// since it notes what holds the force back, and waits on: the gate may be
// waiting for other calls to end, and bounds that wait itself.
func (c *climber) await(answer <-chan error) (why woken, err error) {
	timer := time.NewTimer(time.Until(c.giveUp) + 10*time.Millisecond) // a gate that answers at GiveUp comes first
	defer timer.Stop()
	for {
		select {
		case err := <-answer:
			if why := c.look(); why == ended || err != nil {
				return why, err
			}
			return timeUp, nil // force may be used, which is all that a press can ask for
		case <-timer.C:
			c.hold("force is held back until it is known to harm no other call")
		case <-c.stop.bell:
			if why := c.look(); why != timeUp {
				return why, nil
			}
		}
	}
}

// hold notes why no force is used for now; "" takes that back.
func (c *climber) hold(why string) {
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	if s := c.stop; !s.over && !s.final {
		s.held = why
		if why != "" {
			c.tree.stepLocked(c.run, c.stop, Step{At: time.Now(), Step: StepHeld, Detail: why})
		}
	}
}
