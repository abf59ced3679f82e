package cli

import (
	"context"
	"slices"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin/client"
)

// The states that a run can be asked for by: what its work does, or what its
// caller was told.
var (
	workStates = []string{"waiting", "running", "stopping", "stopped", "unconfirmed"}
	outcomes   = []string{"pending", "completed", "failed", "cancelled", "declined", "lost"}
	kinds      = []string{"session", "turn", "call", "task", "script", "process"}
)

// check refuses words that nothing can have.
func (c *psCmd) check() error {
	for _, s := range c.State {
		if !slices.Contains(workStates, s) && !slices.Contains(outcomes, s) {
			return usagef("--state %.32q is none of %v and %v", s, workStates, outcomes)
		}
	}
	for _, k := range c.Kind {
		if !slices.Contains(kinds, k) {
			return usagef("--kind %.32q is none of %v", k, kinds)
		}
	}
	if c.Limit < 0 {
		return usagef("--limit %d: want a number, or 0 for all", c.Limit)
	}
	return nil
}

// filtered reports whether more than everything in flight was asked for.
func (c *psCmd) filtered() bool {
	return len(c.State)+len(c.Kind)+len(c.Label) > 0 || c.Owner != "" || c.Of != ""
}

// filter selects what a Control can.
func (c *psCmd) filter() belay.Filter {
	f := belay.Filter{Ended: c.All || c.past(), Owner: c.Owner, Server: c.Of, Labels: c.labels}
	for _, k := range c.Kind {
		f.Kinds = append(f.Kinds, belay.Kind(k))
	}
	return f
}

// past reports whether one of the states is that of runs which may be over.
func (c *psCmd) past() bool {
	return slices.ContainsFunc(c.State, func(s string) bool {
		return s == "stopped" || s == "unconfirmed" || slices.Contains(outcomes, s) && s != "pending"
	})
}

// keeps reports whether the run is in one of the wanted states.
func (c *psCmd) keeps(i *belay.Info) bool {
	return len(c.State) == 0 || slices.Contains(c.State, string(i.Work)) || slices.Contains(c.State, string(i.Outcome))
}

// list is the runs that were asked for, oldest first.
func (c *psCmd) list(ctx context.Context) ([]belay.Info, error) {
	if c.at.client == nil {
		runs, err := c.at.List(ctx, c.filter())
		return slices.DeleteFunc(runs, func(i belay.Info) bool { return !c.keeps(&i) }), err
	}
	f := c.filter()
	q := client.Query{Owner: f.Owner, Server: f.Server, Kinds: f.Kinds, Labels: f.Labels, States: c.State}
	if len(q.States) == 0 && c.All {
		q.States = []string{"all"}
	}
	if c.Limit > 0 {
		q.Page = c.Limit // no more is fetched than shown; a page has at most 1,000
	}
	var runs []belay.Info
	var err error
	for i, failed := range c.at.client.Runs(ctx, q) {
		if failed != nil {
			err = failed
			continue
		}
		if !c.keeps(&i) {
			continue
		}
		if runs = append(runs, i); len(runs) == c.Limit {
			break
		}
	}
	slices.Reverse(runs)
	return runs, c.at.explained(err)
}
