package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belayhq/belay"
)

type approvalsCmd struct {
	List    approvalsListCmd `cmd:"" default:"withargs" help:"List what waits for an answer (what \"belay approvals\" does)."`
	Approve approveCmd       `cmd:"" help:"Let it go on."`
	Decline declineCmd       `cmd:"" help:"Do not let it go on."`
}

// Help implements kong.HelpProvider.
func (*approvalsCmd) Help() string {
	return `Some runs ask a person before they go on, and wait. Without --server they are those of your own processes, and of the
belay serve of this machine. A process that was started by the program which asks answers nothing.

Examples:

    belay approvals
    belay approvals approve 01k4x2m7
    belay approvals decline 01k4x2m7 --reason "not on a Friday"`
}

type approvalsListCmd struct {
	Owner string   `placeholder:"NAME" help:"Only of runs of this principal."`
	Of    string   `placeholder:"SERVER" help:"Only of runs of this MCP server."`
	Label []string `short:"l" placeholder:"KEY=VALUE" sep:"none" help:"Only of runs with this label."`
	JSON  bool     `name:"json" help:"Print JSON: an array of approvals."`

	remoteFlags
}

// Run lists the open questions.
func (c *approvalsListCmd) Run(env *Env) error {
	labels, err := parseLabels(c.Label)
	if err != nil {
		return err
	}
	at, err := c.openServer(env)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	f := belay.Filter{Owner: c.Owner, Server: c.Of, Labels: labels}
	own, asked, err := c.own(ctx, env, f)
	if err != nil {
		return err
	}
	list, err := at.client.Approvals(ctx, f)
	if asked && errors.Is(err, syscall.ECONNREFUSED) {
		err = nil // there is no belay serve, and need not be
	}
	list = append(own, list...)
	switch {
	case ctx.Err() != nil:
		return exitWith(ExitStopped)
	case err != nil && len(own) == 0:
		return at.explain(err)
	case c.JSON:
		return printJSON(env.Stdout, list)
	case len(list) == 0:
		env.Warnf("nothing waits for an answer")
		return nil
	}
	st := styleOf(env.Stdout, env.Getenv)
	for i := range list {
		printApproval(env.Stdout, st, &list[i], time.Now())
	}
	return nil
}

// own are the open questions of the user's own processes, if these are to be asked:
// no server was named.
func (f *remoteFlags) own(ctx context.Context, env *Env, filter belay.Filter) (list []belay.Approval, asked bool, err error) {
	t, err := f.target(env)
	if err != nil || t.server != "" {
		return nil, false, err
	}
	list, err = env.mesh().Approvals(ctx, filter)
	env.warn(err)
	return list, true, nil
}

// printApproval writes the block of one question.
func printApproval(w io.Writer, st style, a *belay.Approval, now time.Time) {
	fmt.Fprintf(w, "%s  %s\n", a.ID, st.paint(bold, oneLine(a.Question.Title)))
	for i, line := range strings.Split(a.Question.Text, "\n") {
		name := ""
		if i == 0 {
			name = "asks"
		}
		field(w, st, name, oneLine(line))
	}
	answers := a.Question.Primary
	if a.Question.Secondary != "" {
		answers = strings.TrimPrefix(answers+" / "+a.Question.Secondary, " / ")
	}
	if answers != "" {
		field(w, st, "answers", oneLine(answers))
	}
	field(w, st, "run", a.Run.ID.String()+"  "+title(a.Run.Name, a.Run.Kind, a.Run.Server))
	if a.Run.Owner != "" {
		field(w, st, "owner", oneLine(a.Run.Owner))
	}
	text := moment(a.Asked, now)
	if a.Decision == nil && a.Expires.After(now) {
		text += ", open for " + short(a.Expires.Sub(now)) + " more"
	}
	field(w, st, "asked", text)
	if d := a.Decision; d != nil {
		text := string(d.Choice)
		if d.By != "" {
			text += " by " + d.By
		}
		if d.Reason != "" {
			text += ": " + d.Reason
		}
		field(w, st, "answer", st.paint(good, oneLine(text)))
	}
}

// decideFlags are what both answers take.
type decideFlags struct {
	ID     string `arg:"" name:"id" help:"The question's id, or a beginning of it that fits no other."`
	Reason string `short:"r" placeholder:"TEXT" help:"Say why; the run is told."`
	JSON   bool   `name:"json" help:"Print the approval as JSON."`

	remoteFlags
}

type approveCmd struct{ decideFlags }

// Run approves.
func (c *approveCmd) Run(env *Env) error { return c.decide(env, belay.ChoiceApproved) }

type declineCmd struct{ decideFlags }

// Run declines.
func (c *declineCmd) Run(env *Env) error { return c.decide(env, belay.ChoiceDeclined) }

func (c *decideFlags) decide(env *Env, choice belay.Choice) error {
	at, err := c.openServer(env)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	own, asked, err := c.own(ctx, env, belay.Filter{})
	if err != nil {
		return err
	}
	id, err := c.find(ctx, at, own, asked)
	if err != nil {
		return at.explain(err)
	}
	d := belay.Decision{Choice: choice, Reason: c.Reason}
	var a belay.Approval
	mine := slices.ContainsFunc(own, func(one belay.Approval) bool { return one.ID == id })
	if mine {
		d.By = userName()
		a, err = env.mesh().Decide(ctx, id, d)
	} else {
		a, err = at.client.Decide(ctx, id, d)
	}
	switch {
	case mine && err != nil && ctx.Err() == nil:
		return exitErrorf(ExitFailed, "%v", err)
	case ctx.Err() != nil:
		return exitWith(ExitStopped)
	case err != nil:
		return at.explain(err)
	case c.JSON:
		return printObject(env.Stdout, a)
	}
	printApproval(env.Stdout, styleOf(env.Stdout, env.Getenv), &a, time.Now())
	return nil
}

// find is the question that was meant: an id, or a beginning of an open one's.
func (c *decideFlags) find(ctx context.Context, at *house, own []belay.Approval, asked bool) (id belay.ApprovalID, err error) {
	typed := strings.ToLower(strings.TrimSpace(c.ID))
	if id.UnmarshalText([]byte(typed)) == nil && !id.IsZero() {
		return id, nil // also one that is not open any more: the server says what became of it
	}
	list, err := at.client.Approvals(ctx, belay.Filter{})
	if err != nil && len(own) == 0 && (!asked || !errors.Is(err, syscall.ECONNREFUSED)) {
		return id, err
	}
	list = append(list, own...)
	var hits []belay.ApprovalID
	for i := range list {
		text := list[i].ID.String()
		_, digits, _ := strings.Cut(text, "_")
		if len(typed) >= shortestPrefix && (strings.HasPrefix(text, typed) || strings.HasPrefix(digits, typed)) {
			hits = append(hits, list[i].ID)
		}
	}
	slices.SortFunc(hits, func(a, b belay.ApprovalID) int { return bytes.Compare(a[:], b[:]) })
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return id, exitErrorf(ExitNothing, "no open question has the id %.64q (see \"belay approvals\")", c.ID)
	}
	return id, exitErrorf(ExitUsage, "%.64q fits %d questions; give more of the id", c.ID, len(hits))
}
