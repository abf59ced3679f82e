package script

import (
	"errors"
	"time"
	"unicode/utf8"

	"github.com/dop251/goja"
)

// stop is the Stop of a call: it sets the flag, lets onCancel have the next turn,
// and starts the clocks (AT-28, AT-29). Of a call that has ended nothing is left
// to stop.
func (c *Call) stop() {
	c.cancelled.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.timers = append(c.timers,
		time.AfterFunc(c.options.Grace, c.graceOver),
		time.AfterFunc(c.options.KillAfter, c.breakOff))
	c.loop.add(func() error { c.runOnCancel(); return nil })
}

// Interrupt ends the grace period of a stopped call at once: a person pressed
// again. On a call that was not stopped it changes nothing.
func (c *Call) Interrupt() {
	c.mu.Lock()
	ctx := c.ctx
	c.mu.Unlock()
	if ctx != nil && ctx.Err() != nil { // the goroutine that hears of the Stop may be later than the press
		c.graceOver()
	}
}

// isCancelled is what the script reads: true from the end of the context on, by
// whomever that is noticed first (AT-28). It is for the call's own goroutine.
func (c *Call) isCancelled() bool {
	return c.cancelled.Load() || c.ctx != nil && c.ctx.Err() != nil
}

// graceOver ends the patience (AT-33, AT-34): what the host does for the script is
// dropped, and a script that does not yield is interrupted.
func (c *Call) graceOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.graced || c.over {
		return
	}
	c.graced = true
	c.desk.end()
	c.loop.add(func() error {
		c.runOnCancel()
		c.net.end()
		c.loop.dropTimers()
		return nil
	})
	if c.busy && !c.handing {
		job := c.job
		c.timers = append(c.timers, time.AfterFunc(yieldTime, func() { c.interruptJob(job, errGrace) }))
	}
}

// interruptJob interrupts a job that did not yield: the one that ran when the grace
// was over (AT-34), or that holds up an answer.
func (c *Call) interruptJob(job uint64, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy && c.job == job && !c.handing && !c.over {
		c.vm.Interrupt(why)
	}
}

// breakOff ends the virtual machine wherever it is.
func (c *Call) breakOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.desk.end()
	if c.busy {
		c.vm.Interrupt(errBroken)
	}
	c.loop.stir()
}

// interruptBusy interrupts what runs now, if anything does.
func (c *Call) interruptBusy(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy && !c.over {
		c.vm.Interrupt(why)
	}
}

// runOnCancel gives onCancel its one turn (AT-15, AT-27, AT-30, AT-31). It is run by
// the call's goroutine, as a job or after the last one.
func (c *Call) runOnCancel() {
	if c.told {
		return
	}
	c.told = true
	message, partial := "", false
	if c.phase == executing || c.phase == finished && c.script.cancel != nil {
		c.hand(true)
		defer c.hand(false)
		limit := time.AfterFunc(OnCancelLimit, func() { c.vm.Interrupt(errSlow) })
		// The text is kept inside the call: what follows it, jobs of promises, may
		// be interrupted without losing it.
		store := func(f goja.FunctionCall) goja.Value {
			message, partial = f.Argument(0).String(), true
			return nil
		}
		err := c.handBack(store)
		limit.Stop()
		if interrupted := (*goja.InterruptedError)(nil); errors.As(err, &interrupted) && !partial {
			c.log("warn", "onCancel was interrupted after "+OnCancelLimit.String())
		}
	}
	c.ended.Message, c.ended.Partial = cut(message), partial
	c.tellCancelled(c.ended.Message, partial)
}

// handBack calls onCancel. Behind a job that found a mistake in the interpreter the
// machine may fail again: then there is no message.
func (c *Call) handBack(store func(goja.FunctionCall) goja.Value) (err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = c.crashed(bug)
		}
	}()
	_, err = c.script.cancel(goja.Undefined(), c.vm.ToValue(store))
	return err
}

// hand says that onCancel has the virtual machine: it has its own limit, and no
// other interrupt is meant for it.
func (c *Call) hand(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handing = on
	c.vm.ClearInterrupt()
}

// isHanding reports whether onCancel has the virtual machine.
func (c *Call) isHanding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handing
}

// cut bounds onCancel's text, and says so.
func cut(message string) string {
	const note = "\n[cut: the message was longer]"
	if len(message) <= MaxMessage {
		return message
	}
	end := MaxMessage - len(note)
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + note
}

func (c *Call) tellCancelled(message string, partial bool) {
	if c.options.Cancelled != nil {
		c.options.Cancelled(message, partial)
	}
}

func (c *Call) log(level, message string) {
	if c.options.Log != nil {
		c.options.Log(level, cut(message))
	}
}
