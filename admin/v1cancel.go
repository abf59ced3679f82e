package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belayhq/belay"
)

// workKinds is what a Stop selects where it names neither runs nor kinds, and
// what the latch stops. A session is what work hangs below, not work: stopping it
// takes a client's server away for good.
var workKinds = []belay.Kind{belay.KindTurn, belay.KindCall, belay.KindTask, belay.KindScript, belay.KindProcess}

// how says how a Stop is to be carried out.
type how struct {
	Reason   string  `json:"reason,omitempty" maxLength:"1000" doc:"kept without control characters"`
	Escalate bool    `json:"escalate,omitempty" doc:"runs that are being stopped take their next step now"`
	Force    bool    `json:"force,omitempty" doc:"straight to the kill"`
	DryRun   bool    `json:"dry_run,omitempty" doc:"change nothing; say what would happen"`
	Wait     float64 `json:"wait,omitempty" minimum:"0" maximum:"30" doc:"seconds to wait for final verdicts"`
}

type cancelRunIn struct {
	ID   string `path:"id" maxLength:"64"`
	Body *how
}

// cancelRunsIn repeats how: huma does not look into embedded types that are not
// exported.
type cancelRunsIn struct {
	Body struct {
		Reason   string  `json:"reason,omitempty" maxLength:"1000" doc:"kept without control characters"`
		Escalate bool    `json:"escalate,omitempty" doc:"runs that are being stopped take their next step now"`
		Force    bool    `json:"force,omitempty" doc:"straight to the kill"`
		DryRun   bool    `json:"dry_run,omitempty" doc:"change nothing; say what would happen"`
		Wait     float64 `json:"wait,omitempty" minimum:"0" maximum:"30" doc:"seconds to wait for final verdicts"`

		All    bool              `json:"all,omitempty" doc:"required where nothing else selects"`
		IDs    []string          `json:"ids,omitempty" maxItems:"1000"`
		Under  string            `json:"under,omitempty" maxLength:"64" doc:"this run and what lies below it"`
		Labels map[string]string `json:"labels,omitempty" doc:"all of these"`
		Kinds  []string          `json:"kinds,omitempty" maxItems:"16" doc:"any of these; default: all but sessions, unless ids or under name them"`
		Owner  string            `json:"owner,omitempty" maxLength:"256"`
		Server string            `json:"server,omitempty" maxLength:"256"`

		States    []string `json:"states,omitempty" maxItems:"16" enum:"active,ended,all,waiting,running,stopping,stopped,unconfirmed,pending,completed,failed,cancelled,declined,lost" doc:"any of these, of work or outcome"`
		RequestID string   `json:"request_id,omitempty" maxLength:"256" doc:"the text of the protocol's id"`
		OlderThan float64  `json:"older_than,omitempty" minimum:"0" doc:"seconds since the run began, at least"`
		NewerThan float64  `json:"newer_than,omitempty" minimum:"0" doc:"seconds since the run began, at most"`
	}
}

type cancelOut struct {
	Status   int
	Location string `header:"Location" doc:"where the receipts are while they are not final"`
	Retry    string `header:"Retry-After" doc:"seconds after which to look there"`
	Body     cancelDone
}

type cancelDone struct {
	Stop    belay.StopID         `json:"stop" doc:"the act; its receipts are found by it"`
	Final   bool                 `json:"final" doc:"no verdict below can change any more"`
	Results []belay.CancelResult `json:"results" nullable:"false" doc:"each run that was matched or lies below one, oldest first"`
	Stored  *bool                `json:"stored,omitempty" doc:"whether every final receipt below will be found after a crash; absent: there was nothing to store"`
}

// later describes the answer to a Stop whose verdict may still change.
func later() map[string]*huma.Response {
	return map[string]*huma.Response{"202": {Description: "Stopped; a verdict may still change, and is found at Location"}}
}

func (a *API) registerCancels(api huma.API) {
	operation(a, api, cancelling, huma.Operation{
		OperationID: "cancel-run", Method: http.MethodPost, Path: "/v1/runs/{id}/cancel", Tags: []string{"cancel"},
		Summary:     "Stop a run and everything below it",
		Description: "200 when every verdict is final, 202 with a Location while one may still change, 409 when the run had ended by itself.",
		Errors:      []int{404, 409}, Responses: later(),
	}, a.cancelRun)
	operation(a, api, cancelling, huma.Operation{
		OperationID: "cancel-runs", Method: http.MethodPost, Path: "/v1/cancel", Tags: []string{"cancel"},
		Summary:     "Stop every run that is selected, each with everything below it",
		Description: "What is given narrows the selection. all: true is required where nothing does, and refused where something does.",
		Responses:   later(),
	}, a.cancelRuns)
}

func (a *API) cancelRun(ctx context.Context, in *cancelRunIn) (*cancelOut, error) {
	g, within, err := a.guestOf(ctx, toCancel)
	if err != nil {
		return nil, err
	}
	d, err := a.find(ctx, in.ID, within)
	if err != nil {
		return nil, err
	}
	ended := problemOf(fmt.Errorf("%w: there is nothing to stop", belay.ErrEnded))
	if d.Over() && d.Outcome != belay.Cancelled {
		return nil, ended
	}
	h := how{}
	if in.Body != nil {
		h = *in.Body
	}
	out, err := a.stopRuns(ctx, g, within, belay.Filter{IDs: []belay.RunID{d.ID}}, h, causeFor(g, d.Owner))
	if err != nil {
		return nil, err
	}
	switch r := resultOf(out.Body.Results, d.ID); {
	case r == nil && d.Outcome == belay.Cancelled: // only the history knows it; a repeat changes nothing
		out.Body.Results = []belay.CancelResult{{Run: d.Info, Receipt: d.Receipt}}
		out.Body.Stored = a.storeResults(ctx, out.Body.Results)
	case r == nil: // it left the Control in between, and so had ended
		return nil, ended
	case !h.DryRun && !r.Affected && r.Run.Outcome != belay.Cancelled:
		return nil, ended
	case r.Affected && r.Run.Cancellation != nil && r.Run.Cancellation.Stop == out.Body.Stop:
		a.broadcast(ctx, Notice{RequestID: RequestText(&r.Run), Reason: r.Run.Cancellation.Reason, Run: d.ID, Owner: d.Owner}, &r.Run)
	}
	if out.Location != "" {
		out.Location = "/v1/receipts/" + d.ID.String()
	}
	return out, nil
}

func (a *API) cancelRuns(ctx context.Context, in *cancelRunsIn) (*cancelOut, error) {
	g, within, err := a.guestOf(ctx, toCancel)
	if err != nil {
		return nil, err
	}
	if len(insideOf(g)) > 0 {
		return nil, newProblem(http.StatusForbidden, "from inside a run one stops single runs, by their ids")
	}
	b := &in.Body
	f, err := runFilter{Owner: b.Owner, Server: b.Server, Kind: b.Kinds, Under: b.Under}.filter()
	if err != nil {
		return nil, problemOf(err)
	}
	f.Labels = b.Labels
	for _, text := range b.IDs {
		id, err := belay.ParseRunID(text)
		if err != nil {
			return nil, problemOf(fmt.Errorf("%w: ids holds something that is no run id", belay.ErrBadRequest))
		}
		f.IDs = append(f.IDs, id)
	}
	pick := picker{states: b.States, older: b.OlderThan, newer: b.NewerThan, request: b.RequestID}
	narrow := len(f.IDs) > 0 || b.Under != "" || len(b.Labels) > 0 || len(b.Kinds) > 0 || b.Owner != "" || b.Server != "" || pick.picks()
	if narrow == b.All {
		// A typing error in a filter must not stop the whole house.
		return nil, problemOf(fmt.Errorf("%w: say which runs, or all: true, and not both", belay.ErrBadRequest))
	}
	if len(f.Kinds) == 0 && len(f.IDs) == 0 && f.Under.IsZero() {
		f.Kinds = workKinds
	}
	if pick.picks() {
		if f.IDs, err = a.picked(ctx, within, f, pick); err != nil {
			return nil, problemOf(err)
		}
		if len(f.IDs) == 0 { // which would select all
			return &cancelOut{Status: http.StatusOK, Body: cancelDone{Stop: belay.NewStopID(), Final: true, Results: []belay.CancelResult{}}}, nil
		}
	}
	return a.stopRuns(ctx, g, within, f, how{b.Reason, b.Escalate, b.Force, b.DryRun, b.Wait}, a.causeOf(ctx, g, within, f))
}

// causeOf is the cause of a Stop of all that is selected: that of their owner if
// there is nobody else's among them. A run that comes in meanwhile changes
// nothing: who may stop everything is an operator in any case.
func (a *API) causeOf(ctx context.Context, g *guest, within reach, f belay.Filter) belay.Cause {
	if !within.all || f.Owner == g.Name() {
		return belay.CauseUser
	}
	runs, err := a.o.Control.List(ctx, f)
	if err != nil || len(runs) == 0 {
		return belay.CauseOperator
	}
	for n := range runs {
		if causeFor(g, runs[n].Owner) == belay.CauseOperator {
			return belay.CauseOperator
		}
	}
	return belay.CauseUser
}

// picked resolves what a [belay.Filter] cannot say to the runs that fit now.
// Between this and the Stop one may end, which then changes nothing; none can
// come in.
func (a *API) picked(ctx context.Context, within reach, f belay.Filter, p picker) ([]belay.RunID, error) {
	f, ok := within.narrow(f)
	if !ok {
		return nil, nil
	}
	if len(f.IDs) == 0 {
		f.Ended = p.past()
	}
	var runs []belay.Info
	var err error
	if p.request != "" {
		runs, err = a.byRequest(ctx, p.request, within, p.past())
	} else {
		runs, err = a.o.Control.List(ctx, f)
	}
	if err != nil && len(runs) == 0 {
		return nil, err
	}
	now := time.Now()
	var ids []belay.RunID
	for n := range runs {
		if i := &runs[n]; within.sees(i) && f.Match(i) && p.selects(i, now) && (f.Under.IsZero() || a.isBelow(ctx, i.ID, f.Under)) {
			ids = append(ids, i.ID)
		}
	}
	return ids, nil
}

// asked says for the log what a Stop was of, and what came of a single run's
// (ORC-43). The runs of a selection are found by the Stop's id.
func asked(f *belay.Filter, dry bool, results []belay.CancelResult) (attrs []slog.Attr) {
	if dry {
		attrs = append(attrs, slog.Bool("dry_run", true))
	}
	if len(f.IDs) != 1 {
		said := *f
		said.IDs = f.IDs[:min(len(f.IDs), 10)] // there may be a hundred thousand
		return append(attrs, slog.String("selection", belay.CleanReason(string(compact(said)))))
	}
	attrs = append(attrs, slog.String("run", f.IDs[0].String()))
	if r := resultOf(results, f.IDs[0]); r != nil {
		attrs = append(attrs, slog.Bool("affected", r.Affected))
		if v := finalVerdict(r.Receipt); v != nil {
			attrs = append(attrs, slog.String("verdict", string(*v)))
		}
	}
	return attrs
}

// stopRuns carries out a Stop of /v1 and writes it down.
func (a *API) stopRuns(ctx context.Context, g *guest, within reach, f belay.Filter, h how, cause belay.Cause) (*cancelOut, error) {
	c := belay.Cancellation{
		Stop: belay.NewStopID(), Cause: cause, By: nameOf(g), Via: viaREST, At: time.Now(),
		Reason: belay.CleanReason(h.Reason),
	}
	results, err := a.order(ctx, belay.CancelRequest{
		Filter: f, Cancellation: c, Escalate: h.Escalate || h.Force, Now: h.Force, DryRun: h.DryRun,
		Wait: time.Duration(h.Wait * float64(time.Second)),
	}, within)
	a.o.Logger.LogAttrs(ctx, slog.LevelInfo, "cancel", append([]slog.Attr{
		slog.String("principal", c.By), slog.String("via", viaREST), slog.String("address", g.from),
		slog.String("stop", c.Stop.String()), slog.String("reason", c.Reason), slog.Int("runs", len(results)), slog.Any("error", err),
	}, asked(&f, h.DryRun, results)...)...)
	if err != nil && len(results) == 0 {
		return nil, problemOf(err)
	}
	out := &cancelOut{Status: http.StatusOK, Body: cancelDone{
		Stop: c.Stop, Final: settledAll(results), Results: append([]belay.CancelResult{}, results...),
		Stored: a.storeResults(ctx, results),
	}}
	if !out.Body.Final {
		out.Status, out.Location, out.Retry = http.StatusAccepted, "/v1/receipts?stop="+c.Stop.String(), "1"
	}
	return out, nil
}
