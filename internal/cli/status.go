package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/belayhq/belay"
)

type statusCmd struct {
	ID   string `arg:"" name:"run" help:"The run's id, or a beginning of it that fits no other."`
	JSON bool   `name:"json" help:"Print JSON: the run with its receipt."`

	Ledger string `placeholder:"FILE" help:"Look into this ledger instead of your own."`

	remoteFlags
}

// Help implements kong.HelpProvider.
func (*statusCmd) Help() string {
	return `Shows what a run is and, if it was stopped, its receipt: every step with the time since the Stop, what was seen, the
verdict, and what was left alive. A run that is over is remembered for ten minutes, as long as its Belay process lives; what
belay serve has seen is in its ledger for longer, and is found there also when nothing runs.

Examples:

    belay status run_01k4x2m7
    belay status 01k4x2m7 --json
    belay status 01k4x2m7 --ledger /var/lib/belay/ledger.db
    belay status 01k4x2m7 --server https://belay.example.com --token-file work.token`
}

// Run shows one run.
func (c *statusCmd) Run(env *Env) error {
	at, err := c.open(env)
	if err != nil {
		return err
	}
	if at.client != nil && c.Ledger != "" {
		return usagef("--ledger is a file of this machine, and a server was named too")
	}
	ctx, stop := interruptible()
	defer stop()
	d, err := at.lookUp(ctx, env, c.ID, c.Ledger)
	switch {
	case ctx.Err() != nil:
		return exitWith(ExitStopped)
	case err != nil:
		return err
	case c.JSON:
		e := json.NewEncoder(env.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(d)
	}
	printDetail(env.Stdout, styleOf(env.Stdout, env.Getenv), &d, time.Now())
	return nil
}

// printDetail writes everything that is known about a run.
func printDetail(w io.Writer, st style, d *belay.Detail, now time.Time) {
	fmt.Fprintf(w, "%s  %s\n", d.ID, st.paint(bold, title(d.Name, d.Kind, d.Server)))
	state, tone := stateOf(&d.Info)
	text := st.paint(tone, state)
	switch {
	case d.Outcome == belay.Lost: // its caller, if there is one yet, was told nothing
		text += "; lost: nobody reported how it ended"
	case d.Outcome.Terminal():
		text += "; its caller was told: " + string(d.Outcome)
	}
	field(w, st, "state", text)
	field(w, st, "started", moment(d.Started, now))
	if !d.Ended.IsZero() {
		field(w, st, "ended", moment(d.Ended, now)+", "+short(d.Ended.Sub(d.Started))+" after its start")
	}
	if !d.Deadline.IsZero() {
		when := moment(d.Deadline, now)
		if d.Deadline.After(now) {
			when = wall(d.Deadline).Format(time.DateTime) + " (in " + short(d.Deadline.Sub(now)) + ")"
		}
		field(w, st, "deadline", when)
	}
	optional := func(name, text string) {
		if text != "" {
			field(w, st, name, oneLine(text))
		}
	}
	optional("below", d.Parent.String())
	optional("owner", d.Owner)
	optional("address", d.Address)
	optional("labels", labelText(d.Labels))
	optional("held by", processText(&d.Info))
	r := d.Receipt
	if r == nil {
		return
	}
	printVerdict(w, st, r)
	if r.Cancellation != nil {
		field(w, st, "stop", r.Cancellation.Stop.String()+" at "+clock(r.Cancellation.At))
	}
	printSteps(w, st, r)
	printRest(w, st, r)
}

func moment(t, now time.Time) string {
	return wall(t).Format(time.DateTime) + " (" + ago(now, t) + ")"
}

func processText(i *belay.Info) string {
	text := ""
	if i.Pid > 0 {
		text = "Belay process " + strconv.Itoa(i.Pid)
	}
	if i.Node != "" {
		text += " on " + i.Node
	}
	return text
}

func pidText(i *belay.Info) string {
	if i.Pid == 0 {
		return ""
	}
	return strconv.Itoa(i.Pid)
}
