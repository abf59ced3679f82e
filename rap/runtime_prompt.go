package rap

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/belayhq/belay"
)

// Prompts are what a pending call asks of people. They belong to the call: with its
// end, by a result or by a Stop, they are withdrawn, and nothing is answered any
// more (RAP-85).

// promptLocked makes room for another prompt of the call; false: none is wanted.
func (c *Pending) promptLocked(what string) bool {
	if c.over {
		return false
	}
	if c.asking >= maxPrompts {
		c.th.rt.log.Warn("a call asks too much at once; the prompt was dropped", "run", c.run.ID(), "prompt", what)
		return false
	}
	if c.dismiss == nil {
		c.prompts, c.dismiss = context.WithCancelCause(context.Background())
	}
	c.asking++
	c.run.Pause()
	return true
}

// answered goes on with the work when no prompt is left.
func (c *Pending) answered() {
	c.th.mu.Lock()
	defer c.th.mu.Unlock()
	if c.asking--; c.asking == 0 && !c.over {
		c.run.Start()
	}
}

func (c *Pending) events() *Events {
	if c.o.Events != nil {
		return c.o.Events
	}
	return c.th.eventsLocked()
}

// authoriseLocked shows where the user can authorise the call, which stays
// pending and is not invoked again (RAP-80).
func (c *Pending) authoriseLocked(m *OAuth) {
	show := c.events().OAuth
	if !c.promptLocked("oauth") {
		return
	}
	ctx := c.prompts
	if show == nil {
		c.th.rt.log.Warn("a tool needs an authorisation, and there is nobody to be asked", "run", c.run.ID(), "tool", c.tool)
	}
	c.th.rt.spawn(func() {
		defer c.answered()
		if show != nil {
			show(ctx, c, m)
		}
		<-ctx.Done() // the server goes on by itself, and sends the result
	})
}

// chooseLocked has the user choose, and posts what was chosen (RAP-82, RAP-83).
func (c *Pending) chooseLocked(m *UserChoice) {
	rt := c.th.rt
	base, ok := c.server.address()
	if !ok {
		return
	}
	if err := rt.allowed(base, m.ResponseURL); err != nil {
		rt.log.Warn("a choice cannot be answered; it is not shown", "run", c.run.ID(), "error", err)
		return
	}
	choose := c.events().Choice
	if !c.promptLocked("user_choice") {
		return
	}
	ctx := c.prompts
	rt.spawn(func() {
		defer c.answered()
		selected := m.Default
		if choose != nil {
			if i, err := choose(ctx, c, m); err == nil && i >= 0 && i < len(m.Choices) {
				selected = i
			}
		}
		if err := c.answer(ctx, rt.linkTo(c.server, base, m.ResponseURL), m.ResponseURL, selected); err != nil {
			rt.log.Warn("the answer to a choice did not arrive", "run", c.run.ID(), "error", err)
		}
	})
}

// answer posts a selection, unless nobody wants it any more.
func (c *Pending) answer(ctx context.Context, l link, to string, selected int) error {
	body, err := Selection{ID: c.inv.ID, Selected: selected}.Append(nil)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		if c.isOver() || ctx.Err() != nil || c.run.Cancellation() != nil {
			return nil //nolint:nilerr // nobody wants the answer any more
		}
		status, err := c.attemptAnswer(l, to, body)
		switch {
		case ctx.Err() != nil || err == nil && status == http.StatusOK:
			return nil //nolint:nilerr // as above
		case err == nil && status < 500:
			return statusError(status) // 404 and 400 end in an error result (RAP-84)
		case err == nil:
			err = statusError(status)
		}
		if try == len(retryWaits) {
			return fmt.Errorf("%w: %w", belay.ErrUnreachable, err)
		}
		timer := time.NewTimer(jitter(retryWaits[try]))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// attemptAnswer posts once. Like an invocation, it is not broken off by the Stop.
func (c *Pending) attemptAnswer(l link, to string, body []byte) (int, error) {
	limit := c.th.rt.o.PostTimeout
	ctx, end := context.WithTimeoutCause(c.th.rt.life, limit, slowError(limit))
	defer end()
	return l.post(ctx, to, body)
}
