package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belayhq/belay"
)

// runFilter selects runs in a query.
type runFilter struct {
	Owner  string
	Server string
	Kind   []string // any of these
	Label  []string // key=value; all of these
	Under  string   // a run's id; empty: anywhere
}

// filter is the selection in the domain's form. An error wraps
// [belay.ErrBadRequest].
func (q runFilter) filter() (belay.Filter, error) {
	f := belay.Filter{Owner: q.Owner, Server: q.Server}
	if q.Under != "" {
		var err error
		if f.Under, err = belay.ParseRunID(q.Under); err != nil {
			return f, fmt.Errorf("%w: under is no run id", belay.ErrBadRequest)
		}
	}
	for _, k := range q.Kind {
		f.Kinds = append(f.Kinds, belay.Kind(k))
	}
	for _, l := range q.Label {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return f, fmt.Errorf("%w: a label is given as key=value", belay.ErrBadRequest)
		}
		if f.Labels == nil {
			f.Labels = make(map[string]string)
		}
		f.Labels[k] = v
	}
	return f, nil
}

// before is the id that the page with this cursor begins behind; zero: at the
// newest.
func before(cursor string) (id belay.RunID, err error) {
	if cursor == "" {
		return id, nil
	}
	if id, err = belay.ParseRunID(cursor); err != nil {
		return id, fmt.Errorf("%w: the cursor is none that was given out", belay.ErrBadRequest)
	}
	return id, nil
}

// listRunsIn repeats what listReceiptsIn has too: huma does not look into
// embedded types that are not exported.
type listRunsIn struct {
	Owner  string   `query:"owner" maxLength:"256"`
	Server string   `query:"server" maxLength:"256"`
	Kind   []string `query:"kind,explode" maxItems:"16" doc:"any of these"`
	Label  []string `query:"label,explode" maxItems:"32" doc:"key=value; all of these"`
	Cursor string   `query:"cursor" maxLength:"64" doc:"next of the page before"`
	Limit  int      `query:"limit" minimum:"1" maximum:"1000" default:"100"`

	Under     string   `query:"under" maxLength:"64" doc:"this run and what lies below it"`
	State     []string `query:"state,explode" maxItems:"16" enum:"active,ended,all,waiting,running,stopping,stopped,unconfirmed,pending,completed,failed,cancelled,declined,lost" doc:"any of these, of work or outcome; default active"`
	RequestID string   `query:"request_id" maxLength:"256" doc:"the text of the protocol's id"`
	OlderThan float64  `query:"older_than" minimum:"0" doc:"seconds since the run began, at least"`
	NewerThan float64  `query:"newer_than" minimum:"0" doc:"seconds since the run began, at most; 0: any"`
}

// picker is what selects runs beside a [belay.Filter]; its zero value picks
// those that are not over.
type picker struct {
	states       []string
	older, newer float64 // seconds; 0: any
	request      string  // text of the protocol's id; empty: any
}

// picks reports whether anything is asked for.
func (p *picker) picks() bool {
	return len(p.states) > 0 || p.older > 0 || p.newer > 0 || p.request != ""
}

// selects reports whether a run is what is asked for.
func (p *picker) selects(i *belay.Info, now time.Time) bool {
	age := now.Sub(i.Started).Seconds()
	if age < p.older || p.newer > 0 && age > p.newer || p.request != "" && !isNamed(i, p.request) {
		return false
	}
	if len(p.states) == 0 {
		return !i.Over()
	}
	return slices.ContainsFunc(p.states, func(state string) bool {
		switch state {
		case "all":
			return true
		case "active":
			return !i.Over()
		case "ended":
			return i.Over()
		}
		return string(i.Work) == state || string(i.Outcome) == state
	})
}

// narrow has the filter select less, by age, and by states where all are of the
// work or all are outcomes, which spares the Control to show every run. What
// passes still has to be what selects wants.
func (p *picker) narrow(f *belay.Filter, now time.Time) {
	const slack = time.Millisecond // ages are counted in parts of seconds there
	if p.older > 0 {
		f.Until = now.Add(slack - ageOf(p.older))
	}
	if p.newer > 0 {
		f.Since = now.Add(-slack - ageOf(p.newer))
	}
	var works []belay.Work
	var ends []belay.Outcome
	for _, state := range p.states {
		switch state {
		case "waiting", "running", "stopping", "stopped", "unconfirmed":
			works = append(works, belay.Work(state))
		case "pending", "completed", "failed", "cancelled", "declined", "lost":
			ends = append(ends, belay.Outcome(state))
		case "ended": // no run is over before its outcome is known
			ends = append(ends, belay.Completed, belay.Failed, belay.Cancelled, belay.Declined, belay.Lost)
		default:
			return
		}
	}
	if len(ends) == 0 {
		f.Works = works
	} else if len(works) == 0 {
		f.Ends = ends
	}
}

// maxAge is more than any run has, and less than a duration can hold.
const maxAge = 100 * 365 * 24 * time.Hour

// ageOf is an age that somebody gave in seconds.
func ageOf(n float64) time.Duration {
	return time.Duration(min(n, maxAge.Seconds()) * float64(time.Second))
}

// past reports whether runs that are over are wanted.
func (p *picker) past() bool {
	return slices.ContainsFunc(p.states, func(state string) bool {
		switch belay.Work(state) {
		case "active", belay.Waiting, belay.Running, belay.Stopping:
			return false
		}
		return state != string(belay.Pending)
	})
}

type listRunsOut struct{ Body runList }

type runList struct {
	Runs       []belay.Info `json:"runs" nullable:"false"`
	Next       string       `json:"next,omitempty" doc:"cursor of the next page; absent: this is the last"`
	Incomplete bool         `json:"incomplete,omitempty" doc:"not everybody who holds runs could be asked"`
}

type runIn struct {
	ID string `path:"id" maxLength:"64"`
}

type runOut struct{ Body runTree }

// maxBelow bounds the subtree that is shown with a run.
const maxBelow = 1_000

type runTree struct {
	Run    belay.Detail `json:"run"`
	Below  []belay.Info `json:"below" nullable:"false" doc:"the runs below it, ended ones too, oldest first"`
	More   bool         `json:"more,omitempty" doc:"these are the newest 1,000; GET /v1/runs?under=ID&state=all pages through all"`
	Lease  *leaseView   `json:"lease,omitempty" doc:"of a run that the asker registered"`
	Stored *bool        `json:"stored,omitempty" doc:"whether the run's final receipt will be found after a crash; absent: there is none"`
}

func (a *API) registerRuns(api huma.API) {
	operation(a, api, reading, huma.Operation{
		OperationID: "list-runs", Method: http.MethodGet, Path: "/v1/runs", Tags: []string{"runs"},
		Summary: "List runs, newest first",
	}, a.listRuns)
	operation(a, api, reading, huma.Operation{
		OperationID: "get-run", Method: http.MethodGet, Path: "/v1/runs/{id}", Tags: []string{"runs"},
		Summary: "One run with its receipt and its subtree", Errors: []int{404},
	}, a.getRun)
}

// page is what a request for a page of runs asks for, as those who answer it
// need it: the selection, whose runs the asker may see, and the id that the page
// begins behind. An error is ready to be sent.
func (a *API) page(ctx context.Context, q *runFilter, cursor string) (f belay.Filter, within reach, behind belay.RunID, err error) {
	if _, within, err = a.guestOf(ctx, toRead); err != nil {
		return f, within, behind, err
	}
	if f, err = q.filter(); err == nil {
		behind, err = before(cursor)
	}
	if err != nil {
		err = problemOf(err)
	}
	return f, within, behind, err
}

func (a *API) listRuns(ctx context.Context, in *listRunsIn) (*listRunsOut, error) {
	f, within, behind, err := a.page(ctx, &runFilter{in.Owner, in.Server, in.Kind, in.Label, in.Under}, in.Cursor)
	if err != nil {
		return nil, err
	}
	p := picker{in.State, in.OlderThan, in.NewerThan, in.RequestID}
	now := time.Now()
	f.Ended = p.past()
	p.narrow(&f, now)
	keep := func(i *belay.Info) bool { return p.selects(i, now) }
	runs, incomplete, err := a.collect(ctx, within, f, HistoryQuery{Before: behind, Limit: in.Limit + 1, RequestID: in.RequestID}, keep)
	if err != nil {
		return nil, problemOf(err)
	}
	out := &listRunsOut{Body: runList{Incomplete: incomplete}}
	out.Body.Runs, out.Body.Next = cut(runs, in.Limit)
	return out, nil
}

// collect lists at most q.Limit runs within the reach that pass, newest id first
// and behind q.Before: those of the Control, and, where ended ones are wanted, those that
// only the history knows.
func (a *API) collect(ctx context.Context, within reach, f belay.Filter, q HistoryQuery, keep func(*belay.Info) bool) (runs []belay.Info, incomplete bool, err error) {
	f, ok := within.narrow(f)
	if !ok {
		return nil, false, nil
	}
	// Pointers: there may be a hundred thousand runs, and a page has a hundred.
	var picked []*belay.Info
	pick := func(i *belay.Info) bool {
		fits := (q.Before.IsZero() || byID(i.ID, q.Before) < 0) && within.sees(i) && keep(i)
		if fits {
			picked = append(picked, i)
		}
		return fits
	}
	if err := a.listBefore(ctx, f, q, func(i *belay.Info) bool { pick(i); return len(picked) < q.Limit }); err != nil {
		a.o.Logger.WarnContext(ctx, "not all runs could be listed", "error", err)
		incomplete = true
	}
	if f.Ended && a.o.History != nil {
		if err := a.remembered(ctx, f, q, pick); err != nil {
			return nil, false, err
		}
	}
	// Stable: of two with one id the Control's word stays.
	slices.SortStableFunc(picked, func(x, y *belay.Info) int { return byID(y.ID, x.ID) })
	picked = slices.CompactFunc(picked, func(x, y *belay.Info) bool { return x.ID == y.ID })
	for _, i := range picked[:min(len(picked), q.Limit)] {
		runs = append(runs, *i)
	}
	return runs, incomplete, nil
}

// listBefore gives runs of the Control to yield, roughly newest first, until it
// returns false. Without a [Pager] it gives all, since nothing is known of their
// order by id.
func (a *API) listBefore(ctx context.Context, f belay.Filter, q HistoryQuery, yield func(*belay.Info) bool) error {
	if q.RequestID != "" {
		known, err := a.byRequest(ctx, q.RequestID, reach{all: true, owner: f.Owner}, f.Ended)
		for n := range known {
			if i := &known[n]; f.Match(i) && (f.Under.IsZero() || a.isBelow(ctx, i.ID, f.Under)) {
				yield(i)
			}
		}
		return err
	}
	pager, ok := a.o.Control.(Pager)
	if !ok {
		known, err := a.o.Control.List(ctx, f)
		for n := range slices.Backward(known) {
			yield(&known[n])
		}
		return err
	}
	for before := q.Before; ; {
		part, err := pager.ListBefore(ctx, f, before, q.Limit)
		for n := range part {
			if before = part[n].ID; !yield(&part[n]) {
				return err
			}
		}
		if err != nil || len(part) < q.Limit {
			return err
		}
	}
}

// remembered gives the runs that the history holds to pick, newest first, until
// there are enough: what pick leaves out must not shorten a page, which would
// then look like the last.
func (a *API) remembered(ctx context.Context, f belay.Filter, q HistoryQuery, pick func(*belay.Info) bool) error {
	q.Filter = belay.Filter{Owner: f.Owner, Server: f.Server, Kinds: f.Kinds, Labels: f.Labels, Under: f.Under}
	for {
		old, err := a.o.History.Find(ctx, q)
		if err != nil {
			return err
		}
		enough := 0
		for n := range old {
			if pick(&old[n].Info) {
				enough++
			}
			q.Before = old[n].ID
		}
		// Enough of them alone: some may be among the Control's already.
		if len(old) < q.Limit || enough >= q.Limit {
			return nil
		}
	}
}

// byID orders run ids by age, oldest first.
func byID(x, y belay.RunID) int { return bytes.Compare(x[:], y[:]) }

// cut is the first page of the runs and the cursor of the next.
func cut(runs []belay.Info, limit int) ([]belay.Info, string) {
	if len(runs) <= limit {
		return append([]belay.Info{}, runs...), ""
	}
	return runs[:limit], runs[limit-1].ID.String()
}

// find returns the run that an operation names. One outside of the reach, or an
// id of another form, is not there.
func (a *API) find(ctx context.Context, id string, within reach) (*belay.Detail, error) {
	run, err := belay.ParseRunID(id)
	if err != nil {
		return nil, problemOf(belay.ErrNotFound)
	}
	d, err := a.get(ctx, run, within)
	if errors.Is(err, belay.ErrNotFound) {
		return nil, problemOf(belay.ErrNotFound)
	}
	if err != nil {
		return nil, problemOf(err)
	}
	return d, nil
}

func (a *API) getRun(ctx context.Context, in *runIn) (*runOut, error) {
	g, within, err := a.guestOf(ctx, toRead)
	if err != nil {
		return nil, err
	}
	d, err := a.find(ctx, in.ID, within)
	if err != nil {
		return nil, err
	}
	below, _, err := a.collect(ctx, within, belay.Filter{Under: d.ID, Ended: true}, HistoryQuery{Limit: maxBelow + 1},
		func(i *belay.Info) bool { return i.ID != d.ID })
	if err != nil {
		a.o.Logger.WarnContext(ctx, "not all runs could be listed", "error", err)
	}
	out := &runOut{runTree{Run: *d, More: len(below) > maxBelow, Stored: a.store(ctx, *d)}}
	out.Body.Below = append([]belay.Info{}, below[:min(len(below), maxBelow)]...)
	slices.Reverse(out.Body.Below)
	if a.o.Leases != nil {
		if s, err := a.o.Leases.Get(g.Name(), d.ID); err == nil {
			out.Body.Lease = viewOf(&s)
		}
	}
	return out, nil
}
