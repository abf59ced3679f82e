package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin/client"
)

type latchCmd struct {
	Status latchStatusCmd `cmd:"" default:"withargs" help:"Say whether new calls are refused (what \"belay latch\" does)."`
	Engage latchEngageCmd `cmd:"" help:"Stop everything on a server, and refuse new calls until it is lifted."`
	Lift   latchLiftCmd   `cmd:"" help:"Let new calls in again."`
}

// Help implements kong.HelpProvider.
func (*latchCmd) Help() string {
	return `The stop-all latch of a server: engaged, every call in flight is stopped and every new one is refused, whoever makes it, until
somebody lifts the latch. Without --server it is the belay serve of this machine.

Examples:

    belay latch engage --reason "wrong credentials went out"
    belay latch
    belay latch lift --reason "rotated"`
}

type latchStatusCmd struct {
	JSON bool `name:"json" help:"Print one JSON object."`

	remoteFlags
}

// Run shows the latch.
func (c *latchStatusCmd) Run(env *Env) error {
	at, err := c.openServer(env)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	s, err := at.client.Latch(ctx)
	return showLatch(env, at, s, c.JSON, ctx.Err() != nil, err)
}

// showLatch prints how the latch stands.
func showLatch(env *Env, at *house, s client.LatchState, asJSON, interrupted bool, err error) error {
	switch {
	case interrupted:
		return exitWith(ExitStopped)
	case err != nil:
		return at.explain(err)
	case asJSON:
		return printObject(env.Stdout, s)
	}
	_, err = fmt.Fprintln(env.Stdout, latchText(&s, time.Now()))
	return err
}

func latchText(s *client.LatchState, now time.Time) string {
	text := "lifted: calls go through"
	if s.Engaged {
		text = "ENGAGED: new calls are refused"
	}
	if s.By != "" {
		text += "; by " + s.By
	}
	if !s.At.IsZero() {
		text += " at " + moment(s.At, now)
	}
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return oneLine(text)
}

type latchEngageCmd struct {
	Reason string         `short:"r" placeholder:"TEXT" help:"Say why; whoever is refused is told."`
	Keep   bool           `help:"Refuse new calls, but let those in flight go on."`
	Now    bool           `help:"Kill at once instead of asking first."`
	Wait   *time.Duration `placeholder:"10s" help:"Wait at most so long for proof; without it until every verdict is final, with 0 not at all."`
	JSON   bool           `name:"json" help:"Print one JSON object: the latch, and an array of results."`

	remoteFlags
}

// Help implements kong.HelpProvider.
func (*latchEngageCmd) Help() string {
	return `New calls are refused first, then everything in flight is stopped, so that none slips in between. Engaging again stops what
there is and keeps the first reason.

Exit codes: 0 the latch is engaged and every end is confirmed (or acknowledged), 3 engaged, but not every end is confirmed,
1 failed, 130 Ctrl-C: that ends the waiting, not the Stop.`
}

// Run engages the latch.
func (c *latchEngageCmd) Run(env *Env) error {
	if c.Wait != nil && *c.Wait < 0 {
		return usagef("--wait %s: want a time that is not negative, such as 10s", *c.Wait)
	}
	at, err := c.openServer(env)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	how := client.Engaging{Reason: c.Reason, Keep: c.Keep, Force: c.Now, Wait: -1}
	if c.Wait != nil {
		how.Wait = *c.Wait
	}
	view := newCancelView(env, c.JSON, nil)
	done, err := at.client.EngageLatch(ctx, how, view.update)
	view.close()
	view.finish(done.Results)
	switch {
	case !done.Latch.Engaged && ctx.Err() != nil:
		env.Warnf("interrupted before the server answered; look with \"belay latch\"")
		return exitWith(ExitStopped)
	case err != nil && !done.Latch.Engaged:
		return at.explain(err)
	}
	if c.JSON {
		if done.Results == nil {
			done.Results = []belay.CancelResult{}
		}
		if err := printObject(env.Stdout, struct {
			Latch   client.LatchState    `json:"latch"`
			Results []belay.CancelResult `json:"results"`
		}{done.Latch, done.Results}); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(env.Stdout, latchText(&done.Latch, time.Now()))
	}
	err = env.warnNotStored(err)
	switch {
	case ctx.Err() != nil:
		env.Warnf("stopped waiting; the latch is engaged and the Stop goes on")
		return exitWith(ExitStopped)
	case err != nil:
		env.warn(at.explain(err))
		return exitWith(ExitUnconfirmed)
	}
	if !allDone(done.Results) {
		return exitWith(ExitUnconfirmed)
	}
	return nil
}

// warnNotStored says what a server could not write down, and returns the other
// errors: what was asked for was done.
func (e *Env) warnNotStored(err error) error {
	var rest []error
	for _, one := range flatten(err) {
		if errors.Is(one, client.ErrNotStored) || errors.Is(one, client.ErrLatchNotStored) {
			e.warn(one)
			continue
		}
		rest = append(rest, one)
	}
	return errors.Join(rest...)
}

type latchLiftCmd struct {
	Reason string `short:"r" placeholder:"TEXT" help:"Say why; it is written down."`
	JSON   bool   `name:"json" help:"Print one JSON object."`

	remoteFlags
}

// Run lifts the latch.
func (c *latchLiftCmd) Run(env *Env) error {
	at, err := c.openServer(env)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	s, err := at.client.LiftLatch(ctx, c.Reason)
	return showLatch(env, at, s, c.JSON, ctx.Err() != nil, err)
}
