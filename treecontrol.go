package belay

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// List implements [Control].
func (t *Tree) List(_ context.Context, f Filter) ([]Info, error) {
	runs := t.match(f)
	list := make([]Info, len(runs))
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, r := range runs {
		list[i] = r.infoLocked()
	}
	return list, nil
}

// match returns the runs that pass the filter, oldest first.
func (t *Tree) match(f Filter) []*Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trimLocked(time.Now())
	var list []*Run
	consider := func(r *Run) {
		i := r.infoLocked()
		if f.Match(&i) && t.underLocked(r, f.Under) {
			list = append(list, r)
		}
	}
	if len(f.IDs) > 0 {
		for _, id := range f.IDs {
			if r := t.runs[id]; r != nil && !slices.Contains(list, r) {
				consider(r)
			}
		}
	} else {
		for _, r := range t.runs {
			consider(r)
		}
	}
	slices.SortFunc(list, byAge)
	if f.Limit > 0 && len(list) > f.Limit {
		list = list[:f.Limit]
	}
	return list
}

func byAge(a, b *Run) int { return slices.Compare(a.id[:], b.id[:]) }

// Get implements [Control].
func (t *Tree) Get(_ context.Context, id RunID) (Detail, error) {
	r, err := t.Run(id)
	if err != nil {
		return Detail{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return Detail{Info: r.infoLocked(), Receipt: r.receiptLocked()}, nil
}

// Cancel implements [Control].
func (t *Tree) Cancel(ctx context.Context, req CancelRequest) ([]CancelResult, error) {
	c := req.Cancellation
	if err := c.complete(time.Now()); err != nil {
		return nil, fmt.Errorf("cancel: %w", err)
	}
	roots := t.match(req.Filter)
	all := t.withSubtrees(roots)
	if req.DryRun {
		return t.plan(ctx, all), nil
	}
	for _, r := range roots {
		t.stopRun(r, c, req.Escalate, req.Now)
	}
	t.await(ctx, all, req.Wait)
	results := make([]CancelResult, len(all))
	for i, r := range all {
		results[i] = r.result(c.Stop)
	}
	return results, nil
}

func (t *Tree) withSubtrees(roots []*Run) []*Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*Run
	seen := make(map[*Run]bool)
	for _, root := range roots {
		for _, r := range root.subtreeLocked() {
			if !seen[r] {
				seen[r] = true
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, byAge)
	return all
}

// result tells how the run stands for one Stop.
func (r *Run) result(act StopID) CancelResult {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	return CancelResult{
		Run:      r.infoLocked(),
		Affected: r.stop != nil && slices.Contains(r.stop.acts, act),
		Receipt:  r.receiptLocked(),
	}
}

// await waits for final verdicts: not at all (0), for a time, or to the end.
func (t *Tree) await(ctx context.Context, runs []*Run, wait time.Duration) {
	if wait == 0 {
		return
	}
	if wait > 0 {
		limited, end := context.WithTimeoutCause(ctx, wait, errWaited)
		defer end()
		ctx = limited
	}
	for _, r := range runs {
		if r.Cancellation() == nil {
			continue // was over before
		}
		if _, err := r.Wait(ctx); err != nil {
			return
		}
	}
}

// errWaited ends the wait for receipts, never a run.
var errWaited = fmt.Errorf("the time to wait for receipts is over")

func (t *Tree) plan(ctx context.Context, runs []*Run) []CancelResult {
	results := make([]CancelResult, len(runs))
	for i, r := range runs {
		t.mu.Lock()
		results[i].Run = r.infoLocked()
		stopper := r.spec.Stopper
		over := r.work == Stopped
		t.mu.Unlock()
		switch p, ok := stopper.(Planner); {
		case over:
			results[i].Plan = &Plan{Tell: "nobody: it is over"}
		case ok:
			plan := p.Plan(ctx)
			results[i].Plan = &plan
		default:
			results[i].Plan = &Plan{Tell: "its context would be ended", Force: "none"}
		}
	}
	return results
}
