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

type latchOut struct{ Body LatchState }

type engageIn struct {
	Body *struct {
		Reason string  `json:"reason,omitempty" maxLength:"1000"`
		Keep   bool    `json:"keep,omitempty" doc:"refuse new calls, but let the runs in flight go on"`
		Force  bool    `json:"force,omitempty" doc:"straight to the kill"`
		Wait   float64 `json:"wait,omitempty" minimum:"0" maximum:"30" doc:"seconds to wait for final verdicts"`
	}
}

type engageOut struct {
	Status   int
	Location string `header:"Location" doc:"where the receipts are while they are not final"`
	Retry    string `header:"Retry-After" doc:"seconds after which to look there"`
	Body     struct {
		Latch   LatchState  `json:"latch"`
		Stored  *bool       `json:"stored,omitempty" doc:"only false: the latch could not be written down, and a restart lifts it; engage it again when that is mended"`
		Stopped *cancelDone `json:"stopped,omitempty" doc:"what became of the runs in flight"`
	}
}

type liftIn struct {
	Reason string `query:"reason" maxLength:"1000"`
}

func (a *API) registerLatch(api huma.API) {
	operation(a, api, nil, huma.Operation{
		OperationID: "get-latch", Method: http.MethodGet, Path: "/v1/latch", Tags: []string{"latch"},
		Summary: "Whether new calls are refused, and who said so", Errors: []int{501},
	}, func(ctx context.Context, _ *struct{}) (*latchOut, error) {
		if a.o.Latch == nil {
			return nil, noLatch()
		}
		s, err := a.o.Latch.State(ctx)
		if err != nil {
			return nil, problemOf(err)
		}
		return &latchOut{s}, nil
	})
	operation(a, api, []string{PermLatchSet, PermSystemConfig}, huma.Operation{
		OperationID: "engage-latch", Method: http.MethodPost, Path: "/v1/latch", Tags: []string{"latch"},
		Summary:     "Refuse new calls and stop every run",
		Description: "Sessions stay, so that clients find their servers again; what is at work below them is stopped.",
		Errors:      []int{501}, Responses: later(),
	}, a.engage)
	operation(a, api, []string{PermLatchLift, PermSystemConfig}, huma.Operation{
		OperationID: "lift-latch", Method: http.MethodDelete, Path: "/v1/latch", Tags: []string{"latch"},
		Summary: "Let new calls in again", Errors: []int{501, 503}, DefaultStatus: http.StatusOK,
	}, func(ctx context.Context, in *liftIn) (*latchOut, error) {
		g, err := a.mayTurn(ctx, PermLatchLift)
		if err != nil {
			return nil, err
		}
		s, err := a.o.Latch.Lift(context.WithoutCancel(ctx), nameOf(g), belay.CleanReason(in.Reason))
		said := "latch lifted"
		if err != nil {
			said = "the latch stays engaged"
		}
		a.o.Logger.LogAttrs(ctx, slog.LevelWarn, said,
			slog.String("principal", nameOf(g)), slog.String("address", g.from), slog.String("reason", belay.CleanReason(in.Reason)), slog.Any("error", err))
		switch {
		case err != nil && s.Engaged: // why is in the log, for it names files
			return nil, retryLater(newProblem(http.StatusServiceUnavailable,
				"the latch stays engaged: that it is lifted could not be written down, and a restart would engage it again; the server's log says why"))
		case err != nil:
			return nil, problemOf(err)
		}
		return &latchOut{s}, nil
	})
}

func noLatch() error {
	return problemOf(fmt.Errorf("%w: this server has no latch", belay.ErrUnsupported))
}

// mayTurn returns who asks, if they may turn the latch.
func (a *API) mayTurn(ctx context.Context, permission string) (*guest, error) {
	g, err := outsider(ctx, permission, PermSystemConfig)
	switch {
	case err != nil:
		return nil, err
	case a.o.Latch == nil:
		return nil, noLatch()
	}
	return g, nil
}

// latched is the refusal of new work while the latch is engaged: 503, since it
// is the house that is closed and not the caller who may not; nil while it is
// lifted.
func (a *API) latched(ctx context.Context) error {
	if a.o.Latch == nil {
		return nil
	}
	s, err := a.o.Latch.State(ctx)
	switch {
	case err != nil:
		a.o.Logger.ErrorContext(ctx, "the latch cannot be read", "error", err)
		return retryLater(newProblem(http.StatusServiceUnavailable, "whether new work is let in cannot be found out at present"))
	case !s.Engaged:
		return nil
	}
	why := ""
	if s.Reason != "" {
		why = ": " + s.Reason
	}
	p := newProblem(http.StatusServiceUnavailable, fmt.Sprintf("all work was stopped by %s at %s%s; nothing new starts until the latch is lifted",
		s.By, s.At.UTC().Format(time.RFC3339), why))
	p.Type = "urn:belay:error:latched"
	return retryLater(p)
}

// engage refuses new calls first and stops those in flight then, so that none
// slips in between. A latch that refuses and could not be written down stops
// them all the same: that is what it was engaged for.
func (a *API) engage(ctx context.Context, in *engageIn) (*engageOut, error) {
	g, err := a.mayTurn(ctx, PermLatchSet)
	if err != nil {
		return nil, err
	}
	var h how
	keep := false
	if b := in.Body; b != nil {
		h, keep = how{Reason: b.Reason, Force: b.Force, Wait: b.Wait}, b.Keep
	}
	out := &engageOut{Status: http.StatusOK}
	out.Body.Latch, err = a.o.Latch.Engage(context.WithoutCancel(ctx), nameOf(g), belay.CleanReason(h.Reason))
	a.o.Logger.LogAttrs(ctx, slog.LevelWarn, "latch engaged",
		slog.String("principal", nameOf(g)), slog.String("address", g.from), slog.String("reason", belay.CleanReason(h.Reason)), slog.Any("error", err))
	switch {
	case err != nil && !out.Body.Latch.Engaged:
		return nil, problemOf(err)
	case err != nil:
		out.Body.Stored = new(bool)
	}
	if keep {
		return out, nil
	}
	done, err := a.stopRuns(ctx, g, reach{all: true}, belay.Filter{Kinds: workKinds}, h, belay.CauseOperator)
	if err != nil {
		return nil, err
	}
	out.Status, out.Location, out.Retry, out.Body.Stopped = done.Status, done.Location, done.Retry, &done.Body
	return out, nil
}
