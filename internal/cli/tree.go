package cli

import (
	"context"
	"slices"
	"time"

	"github.com/belayhq/belay"
)

// treeTable draws the runs below one another. A run whose parent is not among
// them stands at the top.
func treeTable(runs []belay.Info, now time.Time) *table {
	t := &table{columns: []column{
		{head: "RUNS", min: 24}, {head: "STATE"}, {head: "AGE"}, {head: "PID"}, {head: "RUN"}, {head: "OWNER", min: 6}, {head: "STOPPED BY", min: 10},
	}}
	children := make(map[belay.RunID][]*belay.Info)
	listed := make(map[belay.RunID]bool, len(runs))
	for i := range runs {
		listed[runs[i].ID] = true
	}
	var tops []*belay.Info
	for i := range runs {
		if r := &runs[i]; listed[r.Parent] && r.Parent != r.ID {
			children[r.Parent] = append(children[r.Parent], r)
		} else {
			tops = append(tops, r)
		}
	}
	d := drawer{table: t, children: children, now: now, drawn: make(map[belay.RunID]bool)}
	for _, r := range tops {
		d.draw(r, "", "", 0)
	}
	for i := range runs { // what hangs in a ring; parents come from other processes
		if !d.drawn[runs[i].ID] {
			d.draw(&runs[i], "", "", 0)
		}
	}
	hideOwners(t, runs)
	return t
}

// rooted adds the runs that are over and have something below them that is not: a
// stopped turn, say, whose tool is still being stopped. Without it that would stand
// at the top, as nobody's.
func (c *psCmd) rooted(ctx context.Context, runs []belay.Info) []belay.Info {
	listed := make(map[belay.RunID]bool, len(runs))
	for i := range runs {
		listed[runs[i].ID] = true
	}
	orphan := func(i belay.Info) bool { return !i.Parent.IsZero() && !listed[i.Parent] }
	if !slices.ContainsFunc(runs, orphan) {
		return runs
	}
	ended, _ := c.at.List(ctx, belay.Filter{Ended: true}) // who did not answer was named before
	all := make(map[belay.RunID]*belay.Info, len(ended))
	for i := range ended {
		all[ended[i].ID] = &ended[i]
	}
	for _, r := range slices.Clone(runs) {
		for up := all[r.Parent]; up != nil && !listed[up.ID]; up = all[up.Parent] {
			listed[up.ID] = true
			runs = append(runs, *up)
		}
	}
	slices.SortStableFunc(runs, func(a, b belay.Info) int { return a.Started.Compare(b.Started) })
	return runs
}

type drawer struct {
	table    *table
	children map[belay.RunID][]*belay.Info
	now      time.Time
	drawn    map[belay.RunID]bool
}

// draw adds a run, with branch before its name, and what hangs below it, with
// stem before theirs.
func (d *drawer) draw(r *belay.Info, branch, stem string, depth int) {
	const deepest = 100
	if d.drawn[r.ID] {
		return
	}
	d.drawn[r.ID] = true
	state, tone := stateOf(r)
	d.table.add(cell{branch + title(r.Name, r.Kind, r.Server), plain}, cell{state, tone}, cell{age(r, d.now), plain},
		cell{pidText(r), faint}, cell{r.ID.String(), plain}, cell{oneLine(r.Owner), plain}, cell{stoppedBy(r.Cancellation), plain})
	if r.Held != "" {
		d.table.note(stem + heldText(r.Held))
	}
	kids := d.children[r.ID]
	for i, kid := range kids {
		branch, below := "├─ ", "│  "
		if i == len(kids)-1 {
			branch, below = "└─ ", "   "
		}
		if depth >= deepest {
			branch, below = "", "" // no terminal is as wide
		}
		d.draw(kid, stem+branch, stem+below, depth+1)
	}
}
