package belay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Get implements [Control].
func (t *Tree) Get(_ context.Context, id RunID) (Detail, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.runLocked(id)
	if err != nil {
		return Detail{}, err
	}
	return Detail{Info: r.infoLocked(), Receipt: r.receiptLocked()}, nil
}

// Cancel implements [Control]. The runs that match and all below them are
// stopped in one moment.
func (t *Tree) Cancel(ctx context.Context, req CancelRequest) ([]CancelResult, error) {
	c := req.Cancellation
	if err := c.complete(time.Now()); err != nil {
		return nil, fmt.Errorf("cancel: %w", err)
	}
	pick := func() []*Run { return t.matchLocked(&req.Filter) }
	if req.DryRun {
		return t.plan(ctx, pick), nil
	}
	all, _ := t.stopAll(&order{cause: &c, escalate: req.Escalate, now: req.Now}, pick)
	slices.SortFunc(all, byAge)
	t.await(ctx, all, req.Wait)
	results := make([]CancelResult, len(all))
	for i, r := range all {
		results[i] = r.result(c.Stop)
	}
	return results, nil
}

func (t *Tree) lookupLocked(ids []RunID, match func(*Run) bool) []*Run {
	var found []*Run
	for _, id := range ids {
		if r := t.runs[id]; r != nil && match(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, byAge)
	return slices.Compact(found)
}

func byAge(a, b *Run) int { return cmp.Compare(a.nr, b.nr) }

// underLocked reports whether r is the run id or lies below it. A run that is
// linked knows its ancestors even when the tree has forgotten some of them;
// one that was unlinked knows the id of the one above.
func (t *Tree) underLocked(r *Run, id RunID) bool {
	for !id.IsZero() && r.id != id {
		above := r.parent
		if above == nil {
			if r.spec.ParentID == id {
				return true
			}
			if r.spec.ParentID.IsZero() {
				return false
			}
			above = t.runs[r.spec.ParentID]
		}
		if above == nil {
			return false
		}
		r = above
	}
	return true
}

// result tells how the run stands for one Stop.
func (r *Run) result(act StopID) CancelResult {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	return CancelResult{
		Run:      r.infoLocked(),
		Affected: r.stop != nil && r.stop.knows(act),
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
var errWaited = errors.New("the time to wait for receipts is over")

// plan says what a Stop of the picked runs would do, and does nothing.
func (t *Tree) plan(ctx context.Context, pick func() []*Run) []CancelResult {
	t.mu.Lock()
	var all []*Run
	for _, root := range pick() {
		all = root.subtreeLocked(all)
	}
	slices.SortFunc(all, byAge)
	all = slices.Compact(all)
	t.mu.Unlock()
	results := make([]CancelResult, len(all))
	for i, r := range all {
		results[i] = r.plan(ctx)
	}
	return results
}

func (r *Run) plan(ctx context.Context) CancelResult {
	r.tree.mu.Lock()
	info, stopper := r.infoLocked(), r.spec.Stopper
	over := r.place == forgotten || r.place == remembered && (r.stop == nil || r.stop.over)
	r.tree.mu.Unlock()
	var plan Plan
	switch planner, ok := stopper.(Planner); {
	case over:
		plan = Plan{Tell: "nobody: it is over"}
	case info.Work == Waiting:
		plan = Plan{Tell: "nobody: it would not be started", Force: "none"}
	case ok:
		plan = planner.Plan(ctx)
	case stopper != nil:
		plan = Plan{Tell: "its stopper would be told", Force: "as its ladder says"}
		if !forceful(stopper) {
			plan.Force = "none"
		}
	default:
		plan = Plan{Tell: "its context would be ended", Force: "none"}
	}
	return CancelResult{Run: info, Plan: &plan}
}
