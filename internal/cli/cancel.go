package cli

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin/client"
	"github.com/belayhq/belay/local"
)

type cancelCmd struct {
	Runs   []string       `arg:"" optional:"" name:"run" help:"Ids of runs, or beginnings of ids that fit no other."`
	All    bool           `help:"Stop all work of this user, or on a server all that you may stop; sessions stay."`
	Label  []string       `short:"l" placeholder:"KEY=VALUE" sep:"none" help:"Stop all work with this label (repeat it for runs that have several)."`
	Reason string         `short:"r" placeholder:"TEXT" help:"Say why; the tool, its caller and the receipt are told."`
	Now    bool           `help:"Kill at once instead of asking first."`
	DryRun bool           `short:"n" help:"Say what would be told and killed, and change nothing."`
	Wait   *time.Duration `placeholder:"10s" help:"Wait at most so long for proof; without it until the verdict is final, with 0 not at all."`
	JSON   bool           `name:"json" help:"Print JSON: an array of results, each with its run and receipt (or plan)."`

	RequestID string `name:"request-id" placeholder:"ID" help:"Stop the run whose protocol id this is, such as 7 or abc of a JSON-RPC request."`
	Owner     string `placeholder:"NAME" help:"With --all or --label, only work of this principal."`

	remoteFlags
}

// Help implements kong.HelpProvider.
func (*cancelCmd) Help() string {
	return `Stops runs with everything below them, in every Belay process of this user or on a server. Each is told first; force comes after
its grace period and only where the rules of its server allow it. A second cancel of a run that is still being stopped takes
the next step at once. Prints a receipt for each run.

Exit codes: 0 every end is confirmed (or acknowledged, with nothing left alive), 3 not confirmed, 4 nothing matched, 2 wrong
use, 1 failed, 130 Ctrl-C: that ends the waiting, not the Stop.

Examples:

    belay cancel run_01k4x2m7
    belay cancel run_01k4x2m7 --reason "wrong branch" --wait 10s
    belay cancel --label trace_id=4bf92f3577b34da6a3ce929d0e0e4736
    belay cancel --label ticket=42
    belay cancel --request-id 7 --profile work
    belay cancel --all --dry-run
    belay cancel run_01k4x2m7 --now`
}

// workKinds is what --all and --label select. A session is what work hangs
// below, not work: it is stopped by its id alone.
var workKinds = []belay.Kind{belay.KindTurn, belay.KindCall, belay.KindTask, belay.KindScript, belay.KindProcess}

// Run stops runs and says what became of them.
func (c *cancelCmd) Run(env *Env) error {
	req, err := c.request()
	if err != nil {
		return err
	}
	at, err := c.open(env)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	// How things stood before the Stop, to tell what it changed and what had
	// been over anyway.
	known, unknown, done, err := c.choose(ctx, env, at, &req)
	switch {
	case ctx.Err() != nil:
		return exitWith(ExitStopped)
	case err != nil:
		return err
	case done:
		return exitWith(ExitUnconfirmed) // nothing has stopped yet
	}
	view := newCancelView(env, c.JSON, known)
	results, err := at.Stop(ctx, req, view.update)
	view.close()
	interrupted := ctx.Err() != nil
	if !interrupted {
		err = at.explained(err)
		env.warn(err)
	}
	if errors.Is(err, client.ErrNotStored) {
		err = nil // it was said, and the Stop is none the less done
	}
	view.finish(results)
	if c.JSON {
		if err := printJSON(env.Stdout, results); err != nil {
			return err
		}
	}
	if interrupted {
		env.Warnf("stopped waiting; the Stop goes on (see \"belay ps\" and \"belay status RUN\")")
		return exitWith(ExitStopped)
	}
	return c.exit(results, unknown, err)
}

// request checks the flags.
func (c *cancelCmd) request() (belay.CancelRequest, error) {
	labels, err := parseLabels(c.Label)
	if err != nil {
		return belay.CancelRequest{}, err
	}
	ways := 0
	for _, given := range []bool{len(c.Runs) > 0, c.All, len(labels) > 0, c.RequestID != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways == 0:
		return belay.CancelRequest{}, usagef("say what to stop: the id of a run, --request-id ID, --label KEY=VALUE or --all (see \"belay ps\")")
	case ways > 1:
		return belay.CancelRequest{}, usagef("ids of runs, --request-id, --label and --all exclude one another")
	case c.Owner != "" && !c.All && len(labels) == 0:
		return belay.CancelRequest{}, usagef("--owner narrows --all or --label")
	case c.Wait != nil && *c.Wait < 0:
		return belay.CancelRequest{}, usagef("--wait %s: want a time that is not negative, such as 10s", *c.Wait)
	}
	req := belay.CancelRequest{
		Filter:       belay.Filter{Labels: labels, Kinds: workKinds, Owner: c.Owner},
		Cancellation: belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseUser, By: userName(), Via: "cli", Reason: c.Reason, At: time.Now()},
		Escalate:     true,
		Now:          c.Now,
		DryRun:       c.DryRun,
		Wait:         -1,
	}
	if c.Wait != nil {
		req.Wait = *c.Wait
	}
	return req, nil
}

// choose turns what was typed into the filter. Ids of nobody are counted, named
// and left out, unless there is no other; an ambiguous one stops everything. done:
// there is nothing more to do.
func (c *cancelCmd) choose(ctx context.Context, env *Env, at *house, req *belay.CancelRequest) (known []belay.Info, unknown int, done bool, err error) {
	if c.RequestID != "" {
		info, noted, err := at.byRequest(ctx, env, c.RequestID, c.Reason, c.DryRun)
		if err == nil && noted && c.JSON {
			err = printJSON[belay.CancelResult](env.Stdout, nil)
		}
		req.Filter = belay.Filter{IDs: []belay.RunID{info.ID}}
		return []belay.Info{info}, 0, noted, err
	}
	known, listErr := at.known(ctx, c.Runs...)
	if len(c.Runs) == 0 {
		return known, 0, false, nil
	}
	req.Filter = belay.Filter{}
	var lines []string
	for _, typed := range c.Runs {
		info, err := find(known, typed)
		switch {
		case err == nil:
			req.Filter.IDs = append(req.Filter.IDs, info.ID)
		case errors.Is(err, belay.ErrNotFound) && at.client != nil && listErr != nil:
			return nil, 0, false, listErr // nobody knows what the server would have said
		case errors.Is(err, belay.ErrNotFound):
			lines = append(lines, err.Error())
		default:
			env.warn(listErr)
			return nil, 0, false, err
		}
	}
	for i, line := range lines {
		if i == len(lines)-1 && len(req.Filter.IDs) == 0 {
			env.warn(listErr)
			return nil, 0, false, exitErrorf(ExitNothing, "%s", line)
		}
		env.Warnf("%s", line)
	}
	return known, len(lines), false, nil
}

// exit is the verdict on the whole: the first of these that is true.
func (c *cancelCmd) exit(results []belay.CancelResult, unknown int, err error) error {
	switch {
	case len(refusals(err)) > 0:
		return exitWith(ExitFailed)
	case len(results) == 0 && len(c.Label) > 0:
		return exitErrorf(ExitNothing, "no work in flight has the label %s (a session is stopped only by its id)", strings.Join(c.Label, " "))
	case len(results) == 0:
		return exitErrorf(ExitNothing, "no work is in flight (a session is stopped only by its id)")
	case c.DryRun && unknown == 0:
		return nil
	case !c.DryRun && (!allDone(results) || len(c.Runs) == 0 && missing(err)):
		// A process that could not be asked may hold work that matched.
		return exitWith(ExitUnconfirmed)
	case unknown > 0:
		return exitWith(ExitNothing)
	}
	return nil
}

// refusals picks the errors that a process answered with: the Stop was not
// carried out there, though the process was reached.
func refusals(err error) (list []error) {
	for _, one := range flatten(err) {
		if _, unreached := errors.AsType[*local.SocketError](one); !unreached {
			list = append(list, one)
		}
	}
	return list
}

// allDone reports whether each run may be called stopped, or had ended by
// itself before.
func allDone(results []belay.CancelResult) bool {
	for i := range results {
		if !done(&results[i]) {
			return false
		}
	}
	return true
}

func done(r *belay.CancelResult) bool {
	if r.Receipt != nil {
		return r.Receipt.OK()
	}
	return r.Run.Over() && r.Run.Outcome != belay.Lost
}

// parseLabels reads KEY=VALUE pairs.
func parseLabels(pairs []string) (map[string]string, error) {
	var labels map[string]string
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef("--label %q: want KEY=VALUE", pair)
		}
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[key] = value
	}
	return labels, nil
}

// userName is who is at the keyboard, as far as this machine knows.
func userName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// waitingText names the runs that are still being waited for.
func waitingText(waiting []belay.Info, since time.Time) string {
	const most = 3
	var names []string
	for i := range waiting {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(waiting)-most))
			break
		}
		names = append(names, oneLine(waiting[i].Name)+" "+waiting[i].ID.String())
	}
	return fmt.Sprintf("waiting for proof from %s: %s (%s; Ctrl-C ends the waiting, not the Stop)",
		count(len(waiting), "run"), strings.Join(names, ", "), short(time.Since(since)))
}
