package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belayhq/belay"
)

type listApprovalsIn struct {
	Owner  string   `query:"owner" maxLength:"256"`
	Server string   `query:"server" maxLength:"256"`
	Kind   []string `query:"kind,explode" maxItems:"16" doc:"any of these"`
	Label  []string `query:"label,explode" maxItems:"32" doc:"key=value; all of these"`
	Under  string   `query:"under" maxLength:"64" doc:"of this run and what lies below it"`
}

type listApprovalsOut struct{ Body approvalList }

type approvalList struct {
	Approvals  []belay.Approval `json:"approvals" nullable:"false" doc:"open questions, oldest first"`
	Incomplete bool             `json:"incomplete,omitempty" doc:"not everybody who holds runs could be asked"`
}

type decideIn struct {
	ID   string `path:"id" maxLength:"64"`
	Body struct {
		Decision string `json:"decision" enum:"approve,decline,dismiss"`
		Reason   string `json:"reason,omitempty" maxLength:"1000" doc:"kept without control characters"`
	}
}

type decideOut struct{ Body belay.Approval }

func (a *API) registerApprovals(api huma.API) {
	operation(a, api, []string{PermApprove}, huma.Operation{
		OperationID: "list-approvals", Method: http.MethodGet, Path: "/v1/approvals", Tags: []string{"approvals"},
		Summary:     "What waits for a person's answer",
		Description: "Of the runs that one may see; it takes tools.approve besides.",
		Errors:      []int{501},
	}, a.listApprovals)
	operation(a, api, []string{PermApprove}, huma.Operation{
		OperationID: "decide", Method: http.MethodPost, Path: "/v1/approvals/{id}", Tags: []string{"approvals"},
		Summary:     "Approve, decline or dismiss",
		Description: "Once: 409 when it was decided before. Never from inside a run: no agent approves for itself.",
		Errors:      []int{404, 409, 501},
	}, a.decide)
}

// approver is who asks, if they may answer questions of the runs in the reach.
func (a *API) approver(ctx context.Context) (*guest, reach, error) {
	if _, err := outsider(ctx, PermApprove); err != nil {
		return nil, reach{}, err
	}
	if a.o.Approvals == nil {
		return nil, reach{}, problemOf(fmt.Errorf("%w: nothing here waits for approvals", belay.ErrUnsupported))
	}
	return a.guestOf(ctx, toRead)
}

func (a *API) listApprovals(ctx context.Context, in *listApprovalsIn) (*listApprovalsOut, error) {
	_, within, err := a.approver(ctx)
	if err != nil {
		return nil, err
	}
	f, err := runFilter{in.Owner, in.Server, in.Kind, in.Label, in.Under}.filter()
	if err != nil {
		return nil, problemOf(err)
	}
	out := &listApprovalsOut{approvalList{Approvals: []belay.Approval{}}}
	f, ok := within.narrow(f)
	if !ok {
		return out, nil
	}
	open, err := a.o.Approvals.Approvals(ctx, f)
	if err != nil && len(open) == 0 {
		return nil, problemOf(err)
	}
	out.Body.Incomplete = err != nil
	for i := range open {
		if within.sees(&open[i].Run) {
			out.Body.Approvals = append(out.Body.Approvals, open[i])
		}
	}
	return out, nil
}

// choices are the decisions as a person gives them.
var choices = map[string]belay.Choice{
	"approve": belay.ChoiceApproved, "decline": belay.ChoiceDeclined, "dismiss": belay.ChoiceDismissed,
}

func (a *API) decide(ctx context.Context, in *decideIn) (*decideOut, error) {
	g, id, err := a.question(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	d := belay.Decision{Choice: choices[in.Body.Decision], By: nameOf(g), Via: viaREST, Reason: belay.CleanReason(in.Body.Reason)}
	done, err := a.o.Approvals.Decide(context.WithoutCancel(ctx), id, d)
	a.o.Logger.LogAttrs(ctx, slog.LevelInfo, "approval decided",
		slog.String("principal", d.By), slog.String("address", g.from), slog.String("approval", id.String()),
		slog.String("run", done.Run.ID.String()), slog.String("choice", string(d.Choice)), slog.String("reason", d.Reason), slog.Any("error", err))
	switch {
	case errors.Is(err, belay.ErrDecided):
		p := newProblem(http.StatusConflict, "it was decided before")
		if first := done.Decision; first != nil {
			p.Detail = fmt.Sprintf("it was decided before: %s by %s", first.Choice, orNobody(first.By))
		}
		p.Type = "urn:belay:error:decided"
		return nil, p
	case errors.Is(err, belay.ErrNotFound):
		return nil, problemOf(belay.ErrNotFound)
	case err != nil:
		return nil, problemOf(err)
	}
	return &decideOut{done}, nil
}

// question is who asks about which question, if they may answer it.
func (a *API) question(ctx context.Context, text string) (*guest, belay.ApprovalID, error) {
	g, within, err := a.approver(ctx)
	if err != nil {
		return nil, belay.ApprovalID{}, err
	}
	id, err := belay.ParseApprovalID(text)
	if err != nil || !a.asked(ctx, id, within) {
		return nil, belay.ApprovalID{}, problemOf(belay.ErrNotFound)
	}
	return g, id, nil
}

// asked reports whether the question belongs to a run within the reach. One that
// was decided is not listed any more; Decide knows it, so that whoever sees all
// runs is told how it was decided.
func (a *API) asked(ctx context.Context, id belay.ApprovalID, within reach) bool {
	if within.all {
		return true
	}
	f, ok := within.narrow(belay.Filter{})
	if !ok {
		return false
	}
	open, _ := a.o.Approvals.Approvals(ctx, f)
	for i := range open {
		if open[i].ID == id {
			return within.sees(&open[i].Run)
		}
	}
	return false
}

func orNobody(by string) string {
	if by == "" {
		return "nobody"
	}
	return by
}
