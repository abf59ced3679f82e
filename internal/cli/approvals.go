package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/belayhq/belay"
)

type approvalsCmd struct {
	List    approvalsListCmd `cmd:"" default:"withargs" help:"List what waits for an answer (what \"belay approvals\" does)."`
	Preview previewCmd       `cmd:"" help:"See what would happen, where a question offers that."`
	Approve approveCmd       `cmd:"" help:"Let it go on."`
	Decline declineCmd       `cmd:"" help:"Do not let it go on."`
}

// Help implements kong.HelpProvider.
func (*approvalsCmd) Help() string {
	return `Some runs ask a person before they go on, and wait. Without --server they are those of your own processes, and of the
belay serve of this machine. A process that was started by the program which asks answers nothing.

Examples:

    belay approvals
    belay approvals preview 01k4x2m7
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
	ctx, stop := interruptible()
	defer stop()
	open, err := c.everywhere(ctx, env, belay.Filter{Owner: c.Owner, Server: c.Of, Labels: labels})
	list := make([]belay.Approval, len(open))
	for i := range open {
		list[i] = open[i].Approval
	}
	switch {
	case ctx.Err() != nil:
		return exitWith(ExitStopped)
	case err != nil && len(list) == 0:
		return err
	}
	env.warn(err)
	switch {
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

// open is a question with the server that has it; nil: one of the user's own
// processes, by its socket.
type open struct {
	belay.Approval
	at *house
}

// everywhere lists the open questions: of the server that was named, else of the
// user's own processes and of every belay serve of this user on this machine. An
// error is of a server that could not be asked; without one named there need be none.
func (f *remoteFlags) everywhere(ctx context.Context, env *Env, filter belay.Filter) (all []open, err error) {
	t, err := f.target(env)
	if err != nil {
		return nil, err
	}
	houses, err := f.houses(ctx, env)
	if err != nil {
		return nil, err
	}
	if t.server == "" {
		own, err := env.mesh().Approvals(ctx, filter)
		env.warn(err)
		for i := range own {
			all = append(all, open{own[i], nil})
		}
	}
	var failed error
	for _, at := range houses {
		list, err := at.client.Approvals(ctx, filter)
		for i := range list {
			all = append(all, open{list[i], at})
		}
		if err != nil && failed == nil && (t.server != "" || !errors.Is(err, syscall.ECONNREFUSED)) {
			failed = at.explain(err)
		}
	}
	return all, failed
}

// houses are the servers to ask.
func (f *remoteFlags) houses(ctx context.Context, env *Env) ([]*house, error) {
	at, err := f.openServer(env)
	if err != nil {
		return nil, err
	}
	houses := []*house{at}
	if t, err := f.target(env); err != nil || t.server != "" {
		return houses, err
	}
	processes, _ := env.mesh().Processes(ctx) // who does not greet has nothing to say
	for i := range processes {
		address, is := strings.CutPrefix(processes[i].Fronts, "serve ")
		host, port, err := net.SplitHostPort(address)
		if !is || err != nil {
			continue
		}
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		server := "http://" + net.JoinHostPort(host, port)
		if server == at.server || !isNear(server) {
			continue
		}
		if other, err := env.dial(target{server: server, token: f.Token, tokenFile: f.TokenFile}); err == nil {
			houses = append(houses, other)
		}
	}
	return houses, nil
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
	if a.Question.Preview != "" && a.Decision == nil {
		field(w, st, "preview", oneLine(a.Question.Preview)+`  (belay approvals preview ID)`)
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

// questionFlags name one question.
type questionFlags struct {
	ID string `arg:"" name:"id" help:"The question's id, or a beginning of it that fits no other."`

	remoteFlags
}

// decideFlags are what both answers take.
type decideFlags struct {
	questionFlags

	Reason string `short:"r" placeholder:"TEXT" help:"Say why; the run is told."`
	JSON   bool   `name:"json" help:"Print the approval as JSON."`
}

type approveCmd struct{ decideFlags }

// Run approves.
func (c *approveCmd) Run(env *Env) error { return c.decide(env, belay.ChoiceApproved) }

type declineCmd struct{ decideFlags }

// Run declines.
func (c *declineCmd) Run(env *Env) error { return c.decide(env, belay.ChoiceDeclined) }

func (c *decideFlags) decide(env *Env, choice belay.Choice) error {
	ctx, stop := interruptible()
	defer stop()
	id, at, err := c.find(ctx, env)
	if err != nil {
		return err
	}
	d := belay.Decision{Choice: choice, Reason: c.Reason}
	var a belay.Approval
	if at == nil {
		d.By = userName()
		a, err = env.mesh().Decide(ctx, id, d)
	} else {
		a, err = at.client.Decide(ctx, id, d)
	}
	switch {
	case err != nil:
		return refused(ctx, at, err)
	case c.JSON:
		return printObject(env.Stdout, a)
	}
	printApproval(env.Stdout, styleOf(env.Stdout, env.Getenv), &a, time.Now())
	return nil
}

// refused is why a question could not be answered, or looked at.
func refused(ctx context.Context, at *house, err error) error {
	switch {
	case ctx.Err() != nil:
		return exitWith(ExitStopped)
	case at == nil:
		return exitErrorf(ExitFailed, "%v", err)
	}
	return at.explain(err)
}

// find is the question that was meant, by its id or a beginning of an open one's,
// and where it is.
func (c *questionFlags) find(ctx context.Context, env *Env) (id belay.ApprovalID, at *house, err error) {
	typed := strings.ToLower(strings.TrimSpace(c.ID))
	whole := id.UnmarshalText([]byte(typed)) == nil && !id.IsZero()
	list, err := c.everywhere(ctx, env, belay.Filter{})
	var hits []open
	for i := range list {
		text := list[i].ID.String()
		_, digits, _ := strings.Cut(text, "_")
		if whole && list[i].ID == id || !whole && len(typed) >= shortestPrefix && (strings.HasPrefix(text, typed) || strings.HasPrefix(digits, typed)) {
			hits = append(hits, list[i])
		}
	}
	switch {
	case len(hits) == 1:
		return hits[0].ID, hits[0].at, nil
	case len(hits) > 1:
		return id, nil, exitErrorf(ExitUsage, "%.64q fits %d questions; give more of the id", c.ID, len(hits))
	case err != nil:
		return id, nil, err
	case whole: // one that is not open any more: the server says what became of it
		houses, err := c.houses(ctx, env)
		if err != nil {
			return id, nil, err
		}
		for _, at := range houses {
			if _, err := at.client.Approvals(ctx, belay.Filter{Limit: 1}); !errors.Is(err, syscall.ECONNREFUSED) {
				return id, at, nil
			}
		}
	}
	return id, nil, exitErrorf(ExitNothing, "no open question has the id %.64q (see \"belay approvals\")", c.ID)
}
