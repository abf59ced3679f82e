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

type previewIn struct {
	ID string `path:"id" maxLength:"64"`
}

type previewOut struct{ Body previewText }

type previewText struct {
	Text string `json:"text" doc:"what there is to see; empty: nothing"`
}

// registerPreview is a POST: it has the asker run something, now.
func (a *API) registerPreview(api huma.API) {
	operation(a, api, []string{PermApprove}, huma.Operation{
		OperationID: "preview", Method: http.MethodPost, Path: "/v1/approvals/{id}/preview", Tags: []string{"approvals"},
		Summary: "See what would happen",
		Description: "Of an open question that offers one (question.preview is its label); it decides nothing. The answer takes as long as the " +
			"asker needs to show something, at most 30 s. Whoever may decide may look.",
		Errors: []int{404, 409, 501, 502},
	}, a.preview)
}

func (a *API) preview(ctx context.Context, in *previewIn) (*previewOut, error) {
	g, id, err := a.question(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	shows, ok := a.o.Approvals.(belay.Previewer)
	if !ok {
		return nil, problemOf(fmt.Errorf("%w: nothing here shows previews", belay.ErrUnsupported))
	}
	text, err := shows.Preview(ctx, id)
	a.o.Logger.LogAttrs(ctx, slog.LevelInfo, "preview shown", slog.String("principal", nameOf(g)),
		slog.String("address", g.from), slog.String("approval", id.String()), slog.Int("bytes", len(text)), slog.Any("error", err))
	switch {
	case errors.Is(err, belay.ErrNotFound):
		return nil, problemOf(belay.ErrNotFound)
	case err != nil:
		return nil, problemOf(err)
	}
	return &previewOut{previewText{text}}, nil
}
