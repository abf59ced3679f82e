package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/auth"
)

type psCmd struct {
	Tree  bool `help:"Draw the tree of runs, across processes."`
	All   bool `short:"a" help:"Also show runs that are over and still remembered."`
	Watch bool `short:"w" help:"Go on and show what changes, until Ctrl-C."`
	JSON  bool `name:"json" help:"Print JSON: an array of runs, or with --watch one event per line."`

	State []string `placeholder:"STATE" help:"Only runs in this state (repeat it for any of several): waiting, running, stopping, stopped, unconfirmed, or an outcome such as failed."`
	Owner string   `placeholder:"NAME" help:"Only runs of this principal."`
	Of    string   `placeholder:"SERVER" help:"Only runs of this MCP server."`
	Kind  []string `placeholder:"KIND" help:"Only runs of this kind: session, turn, call, task, script or process."`
	Label []string `short:"l" placeholder:"KEY=VALUE" sep:"none" help:"Only runs with this label (repeat it for runs that have several)."`
	Limit int      `default:"1000" placeholder:"N" help:"With a server, show at most so many, the newest; 0: all."`

	remoteFlags

	at     *house // where the runs are
	labels map[string]string
}

// Help implements kong.HelpProvider.
func (*psCmd) Help() string {
	return `Asks every Belay process of this user, or a server. A state is what the work is really doing: waiting, running, running on (its
caller has an answer already), stopping, stopped, unconfirmed (told, but nothing proves that it stopped) or held (told, and
force is held back; a line below says why and what would use it).

Examples:

    belay ps              what is running now
    belay ps --tree       who started what
    belay ps --all --json everything that is remembered, for programs
    belay ps --watch      keep looking
    belay ps --profile work --owner ann --state stopping`
}

// Run lists the runs.
func (c *psCmd) Run(env *Env) (err error) {
	if c.labels, err = parseLabels(c.Label); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.at, err = c.open(env); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	if c.Watch {
		return c.watch(ctx, env)
	}
	runs, err := c.list(ctx)
	switch {
	case ctx.Err() != nil:
		return exitWith(ExitStopped)
	case c.at.client != nil && err != nil && len(runs) == 0:
		return err
	}
	env.warn(err)
	switch {
	case c.JSON:
		return printJSON(env.Stdout, runs)
	case len(runs) == 0 && c.filtered():
		env.Warnf("no run matches")
		return nil
	case len(runs) == 0 && c.All:
		env.Warnf("no run is remembered")
		return nil
	case len(runs) == 0:
		env.Warnf("nothing is running (see also \"belay ps --all\")")
		return nil
	}
	if c.Tree && !c.filtered() && c.at.client == nil {
		runs = c.rooted(ctx, runs)
	}
	c.print(env.Stdout, styleOf(env.Stdout, env.Getenv), runs, time.Now())
	if c.at.client != nil && len(runs) == c.Limit {
		env.Warnf("these are the newest %d; there may be more (see --limit)", c.Limit)
	}
	return nil
}

func (c *psCmd) print(w io.Writer, st style, runs []belay.Info, now time.Time) {
	if c.Tree {
		treeTable(runs, now).print(w, st)
		return
	}
	runTable(runs, st, now).print(w, st)
}

// printJSON writes a value for programs, indented for the people who debug
// them. A nil slice is an empty array.
func printJSON[T any](w io.Writer, list []T) error {
	if list == nil {
		list = []T{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(list)
}

// runTable is the flat list, oldest first.
func runTable(runs []belay.Info, st style, now time.Time) *table {
	t := &table{columns: []column{
		{head: "RUN"}, {head: "STATE"}, {head: "AGE"}, {head: "KIND"}, {head: "SERVER", min: 6}, {head: "NAME", min: 10}, {head: "OWNER", min: 6}, {head: "STOPPED BY", min: 10},
	}}
	name := func(id belay.RunID) string { return id.String() }
	if st.terminal {
		name = shortIDs(runs)
	}
	for i := range runs {
		r := &runs[i]
		state, tone := stateOf(r)
		t.add(cell{name(r.ID), plain}, cell{state, tone}, cell{age(r, now), plain}, cell{string(r.Kind), plain},
			cell{oneLine(r.Server), plain}, cell{oneLine(r.Name), bold}, cell{oneLine(r.Owner), plain}, cell{stoppedBy(r.Cancellation), plain})
		if r.Held != "" {
			t.note(heldText(r.Held))
		}
	}
	hideOwners(t, runs)
	return t
}

// hideOwners leaves out the column of owners where all runs are of whoever sits at
// this machine.
func hideOwners(t *table, runs []belay.Info) {
	me := userName() // of what belay exec and wrap started
	for i := range runs {
		if owner := runs[i].Owner; owner != "" && owner != auth.LocalName && owner != me {
			return
		}
	}
	t.hide("OWNER")
}

func age(r *belay.Info, now time.Time) string { return short(now.Sub(r.Started)) }

// shortIDs cuts ids to what tells the listed runs apart, with some to spare;
// every command takes such a beginning of an id.
func shortIDs(runs []belay.Info) func(belay.RunID) string {
	const least = len("run_") + 12
	length := least
	for ; length < len(belay.RunID{1}.String()); length++ {
		seen := make(map[string]bool, len(runs))
		for i := range runs {
			seen[runs[i].ID.String()[:length]] = true
		}
		if len(seen) == len(runs) {
			break
		}
	}
	return func(id belay.RunID) string { return id.String()[:length] }
}

// watch shows changes until the context ends.
func (c *psCmd) watch(ctx context.Context, env *Env) error {
	st := styleOf(env.Stdout, env.Getenv)
	switch {
	case c.JSON:
		e := json.NewEncoder(env.Stdout)
		return c.events(ctx, env, func(ev *belay.Event) error { return e.Encode(ev) })
	case st.terminal:
		return c.screen(ctx, env)
	}
	runs, err := c.list(ctx)
	env.warn(err)
	if len(runs) > 0 {
		c.print(env.Stdout, st, runs, time.Now())
	}
	return c.events(ctx, env, func(ev *belay.Event) error {
		_, err := io.WriteString(env.Stdout, eventLine(ev))
		return err
	})
}

// events calls show for each event until ctx ends or showing fails.
func (c *psCmd) events(ctx context.Context, env *Env, show func(*belay.Event) error) error {
	var last error
	for ev, err := range c.at.Watch(ctx, c.filter()) {
		if err != nil {
			last = c.at.explained(err)
			env.warn(last)
			continue
		}
		if last = nil; !c.keeps(&ev.Run) {
			continue
		}
		if err := show(&ev); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if ctx.Err() == nil && last != nil {
		return exitWith(ExitFailed) // a server's refusal; it was said
	}
	return exitWith(ExitStopped)
}

func eventLine(ev *belay.Event) string {
	state, _ := stateOf(&ev.Run)
	line := fmt.Sprintf("%s  %s  %-14s  %-11s  %s", clock(ev.At), ev.Run.ID, ev.Type, state,
		title(ev.Run.Name, ev.Run.Kind, ev.Run.Server))
	if r := ev.Receipt; r != nil && len(r.Steps) > 0 && ev.Type == belay.EventStep {
		s := &r.Steps[len(r.Steps)-1]
		line += "  " + string(s.Step) + " " + stepText(style{}, s)
	}
	if r := ev.Receipt; r != nil && ev.Type == belay.EventFinal {
		text, _ := verdictWords(r)
		line += "  " + text
	}
	if ev.Type == belay.EventCancelled {
		line += "  by " + stoppedBy(ev.Run.Cancellation)
	}
	if ev.Lost > 0 {
		line += fmt.Sprintf("  (%s before this one were lost)", count(int(ev.Lost), "event"))
	}
	return line + "\n"
}
