package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/belayhq/belay"
)

// Bounds of waiting for verdicts.
const (
	maxWait   = 30 * time.Second       // what a server waits in one request
	firstWait = 250 * time.Millisecond // with a listener, who wants to know soon whom to wait for
	fastPoll  = 100 * time.Millisecond
	slowPoll  = time.Second
	maxNamed  = 1000 // ids in one request
)

// order is the body of a cancel. The server says who cancels, by which door and
// when; it takes none of that from us.
type order struct {
	Reason   string            `json:"reason,omitempty"`
	Escalate bool              `json:"escalate,omitempty"`
	Force    bool              `json:"force,omitempty"`
	DryRun   bool              `json:"dry_run,omitempty"`
	Wait     float64           `json:"wait,omitempty"`
	All      bool              `json:"all,omitempty"`
	IDs      []belay.RunID     `json:"ids,omitempty"`
	Under    belay.RunID       `json:"under,omitzero"`
	Labels   map[string]string `json:"labels,omitempty"`
	Kinds    []belay.Kind      `json:"kinds,omitempty"`
	Owner    string            `json:"owner,omitempty"`
	Server   string            `json:"server,omitempty"`
}

// outcome is the answer to a cancel.
type outcome struct {
	Stop    belay.StopID         `json:"stop"`
	Final   bool                 `json:"final"`
	Stored  *bool                `json:"stored"`
	Results []belay.CancelResult `json:"results"`
}

// ErrNotStored says that a Stop was carried out, but that the server could not
// write every receipt down: what was returned may not be found after a crash. It
// stands beside the results.
var ErrNotStored = errors.New("the Stop was carried out, but the server could not store every receipt")

// note keeps that a receipt could not be stored.
func (o *outcome) note(stored *bool) {
	if stored != nil && !*stored {
		o.Stored = stored
	}
}

// kept is nil if everything that had to be stored was.
func (o *outcome) kept() error {
	if o.Stored != nil && !*o.Stored {
		return ErrNotStored
	}
	return nil
}

// Cancel implements [belay.Control]. Of the request's Cancellation only the
// reason goes to the server, which knows by itself who asks, and mints the id of
// the Stop. Filter.Limit is not possible. When ctx ends, the waiting ends with
// the results as they stood, and the Stop goes on.
func (c *Client) Cancel(ctx context.Context, req belay.CancelRequest) ([]belay.CancelResult, error) {
	return c.stop(ctx, req, maxWait, nil)
}

// Stop is [Client.Cancel] with a listener: each gets every result as it comes,
// one call at a time, and the same run's again when there is more to say; a
// receipt that is Final is a run's last word.
func (c *Client) Stop(ctx context.Context, req belay.CancelRequest, each func(belay.CancelResult)) ([]belay.CancelResult, error) {
	return c.stop(ctx, req, firstWait, each)
}

func (c *Client) stop(ctx context.Context, req belay.CancelRequest, first time.Duration, each func(belay.CancelResult)) ([]belay.CancelResult, error) {
	o, err := orderOf(&req)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if req.Wait != 0 && !req.DryRun {
		o.Wait = first.Seconds()
		if req.Wait > 0 {
			o.Wait = min(first, req.Wait).Seconds()
		}
	}
	out, err := c.give(ctx, o)
	if err != nil {
		return nil, err
	}
	if req.DryRun {
		req.Wait = 0
	}
	err = c.await(ctx, begun, req.Wait, &out, each)
	return out.Results, err
}

// await gives the results to each and then waits for those that are not final,
// so long since begun.
func (c *Client) await(ctx context.Context, begun time.Time, wait time.Duration, out *outcome, each func(belay.CancelResult)) error {
	if each == nil {
		each = func(belay.CancelResult) {}
	}
	for _, r := range out.Results {
		each(r)
	}
	if out.Final || wait == 0 {
		return out.kept()
	}
	if wait > 0 {
		limited, end := context.WithDeadlineCause(ctx, begun.Add(wait), errWaited)
		defer end()
		ctx = limited
	}
	err := c.follow(ctx, out, each)
	if err == nil || errors.Is(err, errWaited) {
		return out.kept() // verdicts that are not final say so themselves
	}
	return err
}

// settled reports whether no verdict can change any more.
func settled(results []belay.CancelResult) bool {
	return !slices.ContainsFunc(results, func(r belay.CancelResult) bool { return r.Receipt != nil && !r.Receipt.Final })
}

// give sends the order. One run alone has a door of its own, by which connected
// sessions hear of its cancel; what it refuses because there is nothing to stop
// is no error here.
func (c *Client) give(ctx context.Context, o *order) (out outcome, err error) {
	if len(o.IDs) != 1 || !o.Under.IsZero() || len(o.Labels)+len(o.Kinds) > 0 || o.Owner+o.Server != "" {
		err = c.do(ctx, call{method: http.MethodPost, path: "/v1/cancel", body: o}, &out)
		return out, err
	}
	id := o.IDs[0]
	how := order{Reason: o.Reason, Escalate: o.Escalate, Force: o.Force, DryRun: o.DryRun, Wait: o.Wait}
	err = c.do(ctx, call{method: http.MethodPost, path: "/v1/runs/" + id.String() + "/cancel", body: how}, &out)
	out.Final = out.Final || err != nil
	switch {
	case errors.Is(err, belay.ErrNotFound):
		return out, nil
	case errors.Is(err, belay.ErrEnded):
		d, err := c.Get(ctx, id)
		if errors.Is(err, belay.ErrNotFound) {
			return out, nil
		}
		out.Results = []belay.CancelResult{{Run: d.Info, Receipt: d.Receipt}}
		return out, err
	}
	return out, err
}

func orderOf(req *belay.CancelRequest) (*order, error) {
	f := &req.Filter
	switch {
	case f.Limit > 0:
		return nil, bad("a cancel over REST cannot be limited to %d runs; name them by their ids", f.Limit)
	case len(f.IDs) > maxNamed:
		return nil, bad("%d ids in one cancel, at most %d are taken", len(f.IDs), maxNamed)
	}
	o := &order{
		Reason: belay.CleanReason(req.Cancellation.Reason), Escalate: req.Escalate, Force: req.Now, DryRun: req.DryRun,
		IDs: f.IDs, Under: f.Under, Labels: f.Labels, Kinds: f.Kinds, Owner: f.Owner, Server: f.Server,
	}
	o.Reason = cutRunes(o.Reason, 1000)
	o.All = len(f.IDs) == 0 && f.Under.IsZero() && len(f.Labels) == 0 && len(f.Kinds) == 0 && f.Owner == "" && f.Server == ""
	return o, nil
}

// cutRunes keeps a text within a server's bound: a Stop must not fail because
// somebody gave many reasons.
func cutRunes(s string, limit int) string {
	n := 0
	for at := range s {
		if n++; n > limit {
			return s[:at]
		}
	}
	return s
}

// errWaited ends the wait of a request that said how long.
var errWaited = errors.New("the time to wait is over")

// follow asks for the receipts that are not final until all are, and puts them
// into the results.
func (c *Client) follow(ctx context.Context, out *outcome, each func(belay.CancelResult)) error {
	open := make([]*belay.CancelResult, 0, len(out.Results))
	for i := range out.Results {
		open = append(open, &out.Results[i])
	}
	timer := time.NewTimer(fastPoll)
	defer timer.Stop()
	for wait := fastPoll; ; wait = min(wait*2, slowPoll) {
		var err error
		if open, err = c.look(ctx, out, open, each); err != nil || len(open) == 0 {
			return err
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look asks for each receipt once and returns those that are still open. A run
// that the server has forgotten keeps the receipt that was seen last. A final one
// is asked for by its run, which is when the server makes sure that it is on disk.
func (c *Client) look(ctx context.Context, out *outcome, list []*belay.CancelResult, each func(belay.CancelResult)) (open []*belay.CancelResult, err error) {
	together, err := c.receiptsOf(ctx, out.Stop, list)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.Receipt == nil || r.Receipt.Final {
			continue
		}
		if known := together[r.Run.ID]; known != nil && !known.Final {
			r.Receipt = known
			open = append(open, r)
			continue
		}
		t, err := c.tree(ctx, r.Run.ID)
		switch {
		case errors.Is(err, belay.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		case t.Run.Receipt == nil:
			open = append(open, r)
			continue
		}
		out.note(t.Stored)
		if r.Run, r.Receipt = t.Run.Info, t.Run.Receipt; r.Receipt.Final {
			each(*r)
		} else {
			open = append(open, r)
		}
	}
	return open, nil
}

// receiptsOf asks for the receipts of one act at once, where there are many; nil
// for a few. Runs that were being stopped before have receipts of that earlier
// act, and are not among them.
func (c *Client) receiptsOf(ctx context.Context, stop belay.StopID, list []*belay.CancelResult) (map[belay.RunID]*belay.Receipt, error) {
	if len(list) <= fewIDs || stop.IsZero() {
		return nil, nil //nolint:nilnil // nothing was asked
	}
	found := make(map[belay.RunID]*belay.Receipt, len(list))
	for r, err := range c.Receipts(ctx, ReceiptQuery{Stop: stop}) {
		if err != nil && !errors.Is(err, ErrIncomplete) {
			return nil, err
		}
		if err == nil {
			found[r.Run] = r
		}
	}
	return found, nil
}

// ByRequest is what became of a cancel by a protocol's id.
type ByRequest struct {
	Status   string        `json:"status"`   // cancelled, or queued: nobody knows the id, or the run's node is away
	Run      belay.RunID   `json:"run"`      // zero: nobody knows the id
	Affected bool          `json:"affected"` // this Stop changed something
	Pending  bool          `json:"pending"`  // a call with this id will not start when it comes, or the run's node is told when it is back
	Outcome  belay.Outcome `json:"outcome"`  // of a run that had ended by itself
	Work     belay.Work    `json:"work"`
	Verdict  belay.Verdict `json:"verdict"` // empty while it is not final
}

// CancelByRequest stops the run that a protocol's own id names (the text of the
// JSON-RPC id, say), by the Orchestrate family. An id that fits several runs
// stops none of them and is an [*Error] with Candidates that wraps
// [belay.ErrAmbiguous]. The family may need a permission of its own.
func (c *Client) CancelByRequest(ctx context.Context, id, reason string) (ByRequest, error) {
	body := struct {
		RequestID string  `json:"requestId"`
		Reason    *string `json:"reason,omitempty"`
	}{RequestID: id}
	if reason = cutRunes(belay.CleanReason(reason), 1000); reason != "" {
		body.Reason = &reason
	}
	var out ByRequest
	err := c.do(ctx, call{method: http.MethodPost, path: "/v1/cancellation/cancel", body: body}, &out)
	return out, err
}
