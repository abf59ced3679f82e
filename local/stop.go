package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Stop is [Mesh.Cancel] with a listener: each, if it is not nil, gets every
// result as it comes, one call at a time, and the same run's again when there
// is more to say; a receipt that is Final is a run's last word.
//
// The subtree is resolved across processes: runs below a matched one are
// stopped where they are, at the same time, by the same act ([belay.StopID]),
// with cause parent. Runs whose process went away during the request are in
// the results with verdict unreachable unless more was known, and in the
// error. When ctx ends, the waiting ends, and what is known is returned with
// the cause; the Stop goes on.
func (m *Mesh) Stop(ctx context.Context, req belay.CancelRequest, each func(belay.CancelResult)) ([]belay.CancelResult, error) {
	c := &req.Cancellation
	if c.Stop.IsZero() {
		c.Stop = belay.NewStopID()
	}
	if c.At.IsZero() {
		c.At = time.Now()
	}
	list, err := m.collect(ctx, belay.Filter{Ended: true})
	parts := divide(list, &req)
	o := outcome{results: make(map[belay.RunID]belay.CancelResult), each: each}
	errs := make([]error, len(parts), len(parts)+1)
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, p := range parts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = m.stopPart(ctx, p, &o)
		})
	}
	wg.Wait()
	errs = append(errs, err)
	if ctx.Err() != nil {
		errs = []error{context.Cause(ctx)} // each part broke off for this one reason
	}
	return o.sorted(), errors.Join(errs...)
}

// part is what one process has to do for a Stop.
type part struct {
	socket string
	req    belay.CancelRequest
	runs   []held // of the request; what lies below them in the same process is the process's matter
}

// maxPart keeps a request below the bound of a line.
const maxPart = 50_000

// divide cuts a Stop into one request for the matched runs of each process,
// and one for the runs of each process that hang below a matched run of
// another.
func divide(list []held, req *belay.CancelRequest) []*part {
	type key struct {
		socket string
		top    belay.RunID
	}
	var parts []*part
	index := make(map[key]*part)
	add := func(r *held, top belay.RunID) {
		k := key{r.socket, top}
		p := index[k]
		// A process can apply most filters by itself, and then also hits what
		// began since it was asked; the rest is spelled out in ids.
		whole := top.IsZero() && req.Filter.Under.IsZero() && req.Filter.Limit == 0
		if p == nil || !whole && len(p.runs) == maxPart {
			p = &part{socket: r.socket, req: *req}
			if !whole {
				p.req.Filter = belay.Filter{}
			}
			if !top.IsZero() {
				p.req.Cancellation.Cause, p.req.Cancellation.Origin = belay.CauseParent, top
			}
			index[k] = p
			parts = append(parts, p)
		}
		p.runs = append(p.runs, *r)
		if !whole {
			p.req.Filter.IDs = append(p.req.Filter.IDs, r.ID)
		}
	}
	f := newForest(list)
	tops := make(map[belay.RunID]bool)
	limit := req.Filter.Limit
	for i := range list {
		r := &list[i]
		if !req.Filter.Match(&r.Info) || !f.under(r.ID, req.Filter.Under) {
			continue
		}
		if limit > 0 && len(tops) == limit {
			break
		}
		tops[r.ID] = true
		add(r, belay.RunID{})
	}
	f.below(tops, func(r *held, top belay.RunID) {
		if above := f.runs[r.Parent]; above != nil && above.socket == r.socket {
			return // stopped by its own process together with the run above it
		}
		add(r, top)
	})
	return parts
}

// outcome collects the results of all parts.
type outcome struct {
	mu      sync.Mutex
	results map[belay.RunID]belay.CancelResult
	each    func(belay.CancelResult)
}

func (o *outcome) add(r belay.CancelResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// A run may be reached twice, as matched and as a descendant; only the
	// first of both changed something.
	if before, ok := o.results[r.Run.ID]; ok {
		r.Affected = r.Affected || before.Affected
	}
	o.results[r.Run.ID] = r
	if o.each != nil {
		o.each(r)
	}
}

func (o *outcome) get(id belay.RunID) (belay.CancelResult, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.results[id]
	return r, ok
}

func (o *outcome) sorted() []belay.CancelResult {
	list := make([]belay.CancelResult, 0, len(o.results))
	for _, r := range o.results {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b belay.CancelResult) int { return byAge(&a.Run, &b.Run) })
	return list
}

// stopPart carries one part out and sees to it that each of its runs has a
// result.
func (m *Mesh) stopPart(ctx context.Context, p *part, o *outcome) error {
	heard := make(map[belay.RunID]bool)
	r, err := m.ask(ctx, p.socket, &request{Op: opCancel, Cancel: &p.req}, func(a *answer) {
		if a.Result == nil {
			return
		}
		if a.Result.Run.Pid == 0 {
			a.Result.Run.Pid = p.runs[0].Pid
		}
		heard[a.Result.Run.ID] = true
		o.add(*a.Result)
	})
	if errors.Is(err, errStale) {
		err = &SocketError{Socket: p.socket, Pid: p.runs[0].Pid, Err: errGone}
	}
	switch {
	case err == nil && r.err != nil:
		return fmt.Errorf("the Belay process %d: %w", p.runs[0].Pid, r.err)
	case err == nil || ctx.Err() != nil:
		return err
	}
	for _, run := range p.runs {
		heard[run.ID] = true
	}
	for id := range heard {
		o.abandon(p, id, err)
	}
	return err
}

// abandon says of a run what can be said when its process broke off.
func (o *outcome) abandon(p *part, id belay.RunID, why error) {
	r, known := o.get(id)
	if known && (p.req.DryRun || settled(&r)) {
		return // its last word was heard
	}
	if !known {
		i := slices.IndexFunc(p.runs, func(h held) bool { return h.ID == id })
		r = belay.CancelResult{Run: p.runs[i].Info}
	}
	if p.req.DryRun {
		r.Plan = &belay.Plan{Tell: "not known: " + why.Error()}
		o.add(r)
		return
	}
	receipt := belay.Receipt{
		Run: id, Kind: r.Run.Kind, Name: r.Run.Name, Server: r.Run.Server,
		Cancellation: &p.req.Cancellation, Outcome: r.Run.Outcome, Work: r.Run.Work, Verdict: belay.Unreachable,
		Steps: []belay.Step{{At: p.req.Cancellation.At, Step: belay.StepRequested}},
	}
	if r.Receipt != nil {
		receipt = *r.Receipt
	}
	now := time.Now()
	receipt.Steps = append(slices.Clone(receipt.Steps), belay.Step{At: now, Step: belay.StepGaveUp, Error: why.Error()})
	receipt.Work, receipt.Final, receipt.Ended = belay.Unconfirmed, true, now
	r.Run.Work, r.Run.Verdict = belay.Unconfirmed, receipt.Verdict
	if errors.Is(why, errGone) && r.Run.Outcome == belay.Pending {
		r.Run.Outcome, receipt.Outcome = belay.Lost, belay.Lost
	}
	r.Receipt = &receipt
	o.add(r)
}
