package local

import (
	"slices"

	"github.com/belayhq/belay"
)

// forest is the runs of many processes as one tree, by their parents.
type forest struct {
	runs     map[belay.RunID]*held
	children map[belay.RunID][]*held
}

func newForest(list []held) *forest {
	f := &forest{runs: make(map[belay.RunID]*held, len(list)), children: make(map[belay.RunID][]*held)}
	for i := range list {
		r := &list[i]
		f.runs[r.ID] = r
		if !r.Parent.IsZero() {
			f.children[r.Parent] = append(f.children[r.Parent], r)
		}
	}
	return f
}

// under reports whether a run is the run top or lies below it; every run does
// when top is zero.
func (f *forest) under(id, top belay.RunID) bool {
	if top.IsZero() {
		return true
	}
	for depth := 0; depth < maxDepth && !id.IsZero(); depth++ {
		if id == top {
			return true
		}
		r := f.runs[id]
		if r == nil {
			return false
		}
		id = r.Parent
	}
	return false
}

// below calls visit for each run below top, with the nearest of the runs above
// it that is in tops. Runs that are tops themselves are not visited.
func (f *forest) below(tops map[belay.RunID]bool, visit func(r *held, top belay.RunID)) {
	seen := make(map[belay.RunID]bool)
	for top := range tops {
		queue := f.children[top]
		for len(queue) > 0 {
			r := queue[0]
			queue = queue[1:]
			if tops[r.ID] || seen[r.ID] { // below a top of its own, or in a ring
				continue
			}
			seen[r.ID] = true
			visit(r, top)
			queue = append(slices.Clip(queue), f.children[r.ID]...)
		}
	}
}
