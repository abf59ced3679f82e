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
}

// filter is the selection in the domain's form. An error wraps
// [belay.ErrBadRequest].
func (q runFilter) filter() (belay.Filter, error) {
	f := belay.Filter{Owner: q.Owner, Server: q.Server}
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

	State  string  `query:"state" enum:"active,ended,all,waiting,running,stopping,stopped,unconfirmed" default:"active"`
	MinAge float64 `query:"min_age" minimum:"0" doc:"seconds since the run began, at least"`
	MaxAge float64 `query:"max_age" minimum:"0" doc:"seconds since the run began, at most; 0: any"`
}

// selects reports whether a run is of the wanted state and age.
func (in *listRunsIn) selects(i *belay.Info, now time.Time) bool {
	age := now.Sub(i.Started).Seconds()
	if age < in.MinAge || in.MaxAge > 0 && age > in.MaxAge {
		return false
	}
	switch in.State {
	case "all":
		return true
	case "active":
		return !i.Over()
	case "ended":
		return i.Over()
	}
	return string(i.Work) == in.State
}

// past reports whether runs that are over are wanted.
func (in *listRunsIn) past() bool {
	return in.State == "all" || in.State == "ended" || in.State == "stopped" || in.State == "unconfirmed"
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

type runTree struct {
	Run   belay.Detail `json:"run"`
	Below []belay.Info `json:"below" nullable:"false" doc:"the runs below it, oldest first"`
}

func (a *API) registerRuns(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "list-runs", Method: http.MethodGet, Path: "/v1/runs", Tags: []string{"runs"},
		Summary: "List runs, newest first", Errors: []int{400, 401, 403},
	}, a.listRuns)
	huma.Register(api, huma.Operation{
		OperationID: "get-run", Method: http.MethodGet, Path: "/v1/runs/{id}", Tags: []string{"runs"},
		Summary: "One run with its receipt and its subtree", Errors: []int{401, 403, 404},
	}, a.getRun)
}

func (a *API) listRuns(ctx context.Context, in *listRunsIn) (*listRunsOut, error) {
	_, within, err := guestOf(ctx, toRead)
	if err != nil {
		return nil, err
	}
	f, err := runFilter{in.Owner, in.Server, in.Kind, in.Label}.filter()
	if err != nil {
		return nil, problemOf(err)
	}
	behind, err := before(in.Cursor)
	if err != nil {
		return nil, problemOf(err)
	}
	f.Ended = in.past()
	now := time.Now()
	keep := func(i *belay.Info) bool { return in.selects(i, now) }
	runs, incomplete, err := a.collect(ctx, within, f, HistoryQuery{Before: behind, Limit: in.Limit + 1}, keep)
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
	q.Filter = belay.Filter{Owner: f.Owner, Server: f.Server, Kinds: f.Kinds, Labels: f.Labels}
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
	_, within, err := guestOf(ctx, toRead)
	if err != nil {
		return nil, err
	}
	d, err := a.find(ctx, in.ID, within)
	if err != nil {
		return nil, err
	}
	f, _ := within.narrow(belay.Filter{Under: d.ID, Ended: true})
	below, err := a.o.Control.List(ctx, f)
	if err != nil {
		a.o.Logger.WarnContext(ctx, "not all runs could be listed", "error", err)
	}
	below = slices.DeleteFunc(slices.Clone(below), func(i belay.Info) bool { return i.ID == d.ID || !within.sees(&i) })
	return &runOut{runTree{Run: *d, Below: append([]belay.Info{}, below...)}}, nil
}
