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
		Labels map[string]string `json:"labels,omitempty"`
		Kinds  []string          `json:"kinds,omitempty" maxItems:"16"`
		Owner  string            `json:"owner,omitempty" maxLength:"256"`
		Server string            `json:"server,omitempty" maxLength:"256"`
	}
}

type cancelOut struct {
	Status   int
	Location string `header:"Location" doc:"where the receipts are while they are not final"`
	Body     cancelDone
}

type cancelDone struct {
	Stop    belay.StopID         `json:"stop" doc:"the act; its receipts are found by it"`
	Final   bool                 `json:"final" doc:"no verdict below can change any more"`
	Results []belay.CancelResult `json:"results" nullable:"false" doc:"each run that was matched or lies below one, oldest first"`
}

func (a *API) registerCancels(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "cancel-run", Method: http.MethodPost, Path: "/v1/runs/{id}/cancel", Tags: []string{"cancel"},
		Summary:     "Stop a run and everything below it",
		Description: "200 when every verdict is final, 202 with a Location while one may still change, 409 when the run had ended by itself.",
		Errors:      []int{400, 401, 403, 404, 409, 422, 429}, MaxBodyBytes: maxBody,
		Responses: map[string]*huma.Response{"202": {Description: "Stopped; a verdict may still change"}},
	}, a.cancelRun)
	huma.Register(api, huma.Operation{
		OperationID: "cancel-runs", Method: http.MethodPost, Path: "/v1/cancel", Tags: []string{"cancel"},
		Summary: "Stop every run that is selected, each with everything below it",
		Errors:  []int{400, 401, 403, 422, 429}, MaxBodyBytes: maxBody,
		Responses: map[string]*huma.Response{"202": {Description: "Stopped; a verdict may still change"}},
	}, a.cancelRuns)
}

func (a *API) cancelRun(ctx context.Context, in *cancelRunIn) (*cancelOut, error) {
	g, within, err := guestOf(ctx, toCancel)
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
	case r == nil: // it left the Control in between, and so had ended
		return nil, ended
	case !h.DryRun && !r.Affected && r.Run.Outcome != belay.Cancelled:
		return nil, ended
	case r.Affected && r.Run.Cancellation != nil && r.Run.Cancellation.Stop == out.Body.Stop:
		a.broadcast(ctx, Notice{RequestID: RequestText(&r.Run), Reason: r.Run.Cancellation.Reason, Run: d.ID, Owner: d.Owner})
	}
	if out.Location != "" {
		out.Location = "/v1/receipts/" + d.ID.String()
	}
	return out, nil
}

func (a *API) cancelRuns(ctx context.Context, in *cancelRunsIn) (*cancelOut, error) {
	g, within, err := guestOf(ctx, toCancel)
	if err != nil {
		return nil, err
	}
	b := &in.Body
	f := belay.Filter{Labels: b.Labels, Owner: b.Owner, Server: b.Server}
	for _, k := range b.Kinds {
		f.Kinds = append(f.Kinds, belay.Kind(k))
	}
	for _, text := range b.IDs {
		id, err := belay.ParseRunID(text)
		if err != nil {
			return nil, problemOf(fmt.Errorf("%w: ids holds something that is no run id", belay.ErrBadRequest))
		}
		f.IDs = append(f.IDs, id)
	}
	if b.Under != "" {
		if f.Under, err = belay.ParseRunID(b.Under); err != nil {
			return nil, problemOf(fmt.Errorf("%w: under is no run id", belay.ErrBadRequest))
		}
	}
	narrow := len(f.IDs) > 0 || b.Under != "" || len(b.Labels) > 0 || len(b.Kinds) > 0 || b.Owner != "" || b.Server != ""
	if narrow == b.All {
		// A typing error in a filter must not stop the whole house.
		return nil, problemOf(fmt.Errorf("%w: say which runs, or all: true, and not both", belay.ErrBadRequest))
	}
	cause := belay.CauseOperator
	if !within.all || f.Owner == g.Name() {
		cause = belay.CauseUser
	}
	return a.stopRuns(ctx, g, within, f, how{b.Reason, b.Escalate, b.Force, b.DryRun, b.Wait}, cause)
}

// stopRuns carries out a Stop of /v1 and writes it down.
func (a *API) stopRuns(ctx context.Context, g *guest, within reach, f belay.Filter, h how, cause belay.Cause) (*cancelOut, error) {
	c := belay.Cancellation{
		Stop: belay.NewStopID(), Cause: cause, By: g.Name(), Via: viaREST, At: time.Now(),
		Reason: belay.CleanReason(h.Reason),
	}
	results, err := a.order(ctx, belay.CancelRequest{
		Filter: f, Cancellation: c, Escalate: h.Escalate || h.Force, Now: h.Force, DryRun: h.DryRun,
		Wait: time.Duration(h.Wait * float64(time.Second)),
	}, within)
	a.o.Logger.LogAttrs(ctx, slog.LevelInfo, "cancel",
		slog.String("principal", g.Name()), slog.String("via", viaREST), slog.String("address", g.from),
		slog.String("stop", c.Stop.String()), slog.String("reason", c.Reason), slog.Int("runs", len(results)), slog.Any("error", err))
	if err != nil && len(results) == 0 {
		return nil, problemOf(err)
	}
	out := &cancelOut{Status: http.StatusOK, Body: cancelDone{
		Stop: c.Stop, Final: settledAll(results), Results: append([]belay.CancelResult{}, results...),
	}}
	if !out.Body.Final {
		out.Status, out.Location = http.StatusAccepted, "/v1/receipts?stop="+c.Stop.String()
	}
	return out, nil
}
