package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/belayhq/belay"
)

// stopLimit bounds how long a cancel may take to be accepted, which is apart
// from waiting for its verdict.
const stopLimit = 10 * time.Second

var errStopLimit = errors.New("the cancel was not accepted in time")

// asker is who asks for a Stop, how far they may go, and by which door.
type asker struct {
	who    Principal
	within reach
	via    string
	from   string // network address, for the log
}

// word says what became of a cancel by name.
type word int

const (
	unknown   word = iota // nobody knows the name; see effect.waits
	stopped               // cancelled, now or before
	over                  // it had ended by itself
	several               // the name fits several runs: nothing was done
	stored                // written down for the run's node
	notSaved              // could not be recorded: nothing was done
	otherName             // an Idempotency-Key was used again for another name
)

// effect is what came of a cancel by name.
type effect struct {
	word     word
	run      belay.Info // with stopped, over, stored
	affected bool
	receipt  *belay.Receipt // with stopped: as it stands
	stored   *bool          // whether that was written down; nil: nothing was to be
	waits    bool           // with unknown: a tombstone was made
	many     []belay.Info   // with several
	err      error          // with notSaved
}

// cancel resolves a name and stops its run (ORC-77), and writes down who did it
// (ORC-43).
func (a *API) cancel(ctx context.Context, by asker, o *cancelOrder) effect {
	e := a.resolveAndStop(ctx, by, o)
	reason := ""
	if o.reason != nil {
		reason = belay.CleanReason(*o.reason)
	}
	verdict := ""
	if v := finalVerdict(e.receipt); v != nil {
		verdict = string(*v)
	}
	a.o.Logger.LogAttrs(ctx, slog.LevelInfo, "cancel",
		slog.String("principal", nameOf(by.who)), slog.String("via", by.via), slog.String("address", by.from),
		slog.String("id", belay.CleanReason(o.id)), slog.String("run", e.run.ID.String()), slog.String("reason", reason),
		slog.String("result", e.word.String()), slog.Bool("affected", e.affected), slog.String("verdict", verdict))
	return e
}

func (w word) String() string {
	return [...]string{"unknown", "cancelled", "ended", "ambiguous", "queued", "not recorded", "key used for another id"}[w]
}

func (a *API) resolveAndStop(ctx context.Context, by asker, o *cancelOrder) effect {
	c := belay.Cancellation{
		Stop: belay.NewStopID(), Cause: belay.CauseOperator, By: nameOf(by.who), Via: by.via, At: time.Now(),
	}
	if o.reason != nil {
		c.Reason = belay.CleanReason(*o.reason)
	}
	m, waits, early := a.name(ctx, by, o, c)
	switch {
	case early != nil:
		return *early
	case m.many != nil:
		return effect{word: several, many: m.many}
	case m.one == nil && o.direct:
		return effect{word: unknown}
	case m.one == nil:
		a.broadcast(ctx, Notice{RequestID: o.id, Reason: c.Reason, Owner: by.who.Name()}, nil)
		return effect{word: unknown, waits: waits}
	}
	c.Cause = causeFor(by.who, m.one.Owner)
	return a.stop(ctx, by, o, c, m)
}

// name resolves the name of an order; with an Idempotency-Key only the first
// time. The effect, if there is one, is the end of it.
func (a *API) name(ctx context.Context, by asker, o *cancelOrder, c belay.Cancellation) (match, bool, *effect) {
	if o.key == "" {
		return a.firstName(ctx, by, o, c)
	}
	entry, unlock := a.memory.first(by.who.Name(), o.key)
	defer unlock()
	switch {
	case !entry.done:
		m, waits, early := a.firstName(ctx, by, o, c)
		if early == nil && m.many == nil {
			entry.done, entry.name, entry.asked = true, o.id, waits
			if m.one != nil {
				entry.run = m.one.ID
			}
		}
		return m, waits, early
	case entry.name != o.id:
		return match{}, false, &effect{word: otherName}
	case entry.run.IsZero():
		// The first request has told everybody whom there was to tell.
		return match{}, false, &effect{word: unknown, waits: entry.asked && time.Since(entry.since) < earlyTTL}
	}
	d, err := a.get(ctx, entry.run, by.within)
	switch {
	case errors.Is(err, belay.ErrNotFound):
		return match{}, false, &effect{word: unknown}
	case err != nil:
		return match{}, false, &effect{word: notSaved, err: err}
	}
	return match{one: d, past: d.Over()}, false, nil
}

// firstName resolves a name that nothing is remembered about. A name that
// nobody knows becomes a tombstone (ORC-79).
func (a *API) firstName(ctx context.Context, by asker, o *cancelOrder, c belay.Cancellation) (_ match, waits bool, _ *effect) {
	m, err := a.resolve(ctx, o.id, by.within, !o.direct)
	if err != nil {
		return m, false, &effect{word: notSaved, err: err}
	}
	if _, err := belay.ParseRunID(o.id); m.one != nil || m.many != nil || a.o.Early == nil || o.direct || err == nil {
		return m, false, nil
	}
	c.Cause = belay.CauseUser // it can only ever hit a call of the caller's own
	if !a.o.Early.Put(by.who.Name(), o.id, c) {
		return m, false, nil
	}
	// The call may have arrived between the look-up and the mark.
	m, err = a.resolve(ctx, o.id, by.within, true)
	if m.one == nil && m.many == nil {
		return m, true, nil
	}
	a.o.Early.Take(by.who.Name(), o.id)
	if err != nil {
		return m, false, &effect{word: notSaved, err: err}
	}
	return m, false, nil
}

// stop stops the run that a name was resolved to.
func (a *API) stop(ctx context.Context, by asker, o *cancelOrder, c belay.Cancellation, m match) effect {
	d := m.one
	mine := d.Outcome == belay.Cancelled
	switch {
	case (m.past || d.Over()) && !mine:
		return effect{word: over, run: d.Info}
	case d.Over() && !o.escalate:
		return effect{word: stopped, run: d.Info, receipt: d.Receipt}
	}
	results, err := a.order(ctx, belay.CancelRequest{
		Filter: belay.Filter{IDs: []belay.RunID{d.ID}}, Cancellation: c, Escalate: o.escalate, Wait: o.wait,
	}, by.within)
	r := resultOf(results, d.ID)
	if r == nil {
		return a.notStopped(ctx, by, d, err)
	}
	if r.Affected && r.Run.Cancellation != nil && r.Run.Cancellation.Stop == c.Stop {
		a.broadcast(ctx, Notice{RequestID: o.id, Reason: c.Reason, Run: d.ID, Owner: d.Owner}, &r.Run)
	}
	if !r.Affected && r.Run.Outcome != belay.Cancelled {
		return effect{word: over, run: r.Run}
	}
	return effect{word: stopped, run: r.Run, affected: r.Affected, receipt: r.Receipt}
}

// notStopped says why a run that was found is not among the results.
func (a *API) notStopped(ctx context.Context, by asker, d *belay.Detail, err error) effect {
	if q, ok := errors.AsType[Queued](err); ok && q.Queued() {
		return effect{word: stored, run: d.Info}
	}
	if err != nil && !errors.Is(err, belay.ErrNotFound) {
		return effect{word: notSaved, run: d.Info, err: err}
	}
	// It was forgotten in between, or left the reach.
	now, err := a.get(ctx, d.ID, by.within)
	switch {
	case err != nil:
		return effect{word: unknown}
	case now.Outcome == belay.Cancelled:
		return effect{word: stopped, run: now.Info, receipt: now.Receipt}
	}
	return effect{word: over, run: now.Info}
}

// order carries out a Stop within a reach. It does not depend on the client's
// connection; only the wait for the verdict does, which is a second request with
// the same identity and therefore stops nothing more.
func (a *API) order(ctx context.Context, req belay.CancelRequest, within reach) ([]belay.CancelResult, error) {
	var ok bool
	if req.Filter, ok = within.narrow(req.Filter); !ok {
		return nil, nil
	}
	wait := req.Wait
	req.Wait = 0
	limited, end := context.WithTimeoutCause(context.WithoutCancel(ctx), stopLimit, errStopLimit)
	defer end()
	results, err := a.o.Control.Cancel(limited, req)
	if wait == 0 || req.DryRun || settledAll(results) {
		return results, err
	}
	// Runs that ended meanwhile left the filter, so that they are named.
	req.Filter = belay.Filter{Owner: req.Filter.Owner}
	affected := make(map[belay.RunID]bool, len(results))
	for _, r := range results {
		req.Filter.IDs = append(req.Filter.IDs, r.Run.ID)
		affected[r.Run.ID] = r.Affected
	}
	req.Wait, req.Escalate, req.Now = wait, false, false
	final, failed := a.o.Control.Cancel(ctx, req)
	if failed != nil || len(final) < len(results) {
		return results, err // as it stood before the wait
	}
	for i := range final {
		final[i].Affected = affected[final[i].Run.ID]
	}
	return final, err
}

// settledAll reports whether no verdict can change any more.
func settledAll(results []belay.CancelResult) bool {
	for _, r := range results {
		if r.Receipt != nil && !r.Receipt.Final {
			return false
		}
	}
	return true
}

func resultOf(results []belay.CancelResult, id belay.RunID) *belay.CancelResult {
	for i := range results {
		if results[i].Run.ID == id {
			return &results[i]
		}
	}
	return nil
}

// newAsker is who asks by this request.
func newAsker(p Principal, within reach, via string, r *http.Request) asker {
	return asker{who: p, within: within, via: via, from: r.RemoteAddr}
}
