package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belayhq/belay"
)

type whoamiOut struct{ Body whoami }

type whoami struct {
	Name        string   `json:"name" doc:"what the owner of one's runs says"`
	Permissions []string `json:"permissions" nullable:"false"`
	Inside      []string `json:"inside" nullable:"false" doc:"the runs from within which one speaks, innermost first; then one stops single runs below them and nothing else"`
}

type eraseIn struct {
	Name string `path:"name" minLength:"1" maxLength:"256"`
}

type eraseOut struct{ Body erased }

type erased struct {
	Principal string `json:"principal"`
	Erased    any    `json:"erased" doc:"what was done, in the words of whoever remembers"`
}

func (a *API) registerPrincipals(api huma.API) {
	operation(a, api, nil, huma.Operation{
		OperationID: "whoami", Method: http.MethodGet, Path: "/v1/whoami", Tags: []string{"principals"},
		Summary: "Who one is here, and what one may do",
	}, func(ctx context.Context, _ *struct{}) (*whoamiOut, error) {
		g, err := guestIn(ctx)
		if err != nil {
			return nil, err
		}
		out := whoami{Name: g.Name(), Permissions: []string{}, Inside: append([]string{}, insideOf(g)...)}
		for _, p := range permissions {
			if g.May(p) {
				out.Permissions = append(out.Permissions, p)
			}
		}
		return &whoamiOut{out}, nil
	})
	operation(a, api, []string{PermSystemConfig}, huma.Operation{
		OperationID: "erase-principal", Method: http.MethodDelete, Path: "/v1/principals/{name}", Tags: []string{"principals"},
		Summary:     "Remove a principal from what is remembered",
		Description: "Its runs and receipts, and its name from those of others; what is in flight goes on, and what has ended is gone at once. It cannot be undone. The principal's credentials are not touched.",
		Errors:      []int{501}, DefaultStatus: http.StatusOK,
	}, a.erase)
}

func (a *API) erase(ctx context.Context, in *eraseIn) (*eraseOut, error) {
	g, err := outsider(ctx, PermSystemConfig)
	if err != nil {
		return nil, err
	}
	if a.o.Erase == nil {
		return nil, problemOf(fmt.Errorf("%w: this server remembers nothing that could be erased", belay.ErrUnsupported))
	}
	// Half an erasure would be worse than one that nobody waits for any more.
	done, err := a.o.Erase(context.WithoutCancel(ctx), in.Name)
	a.feed.forget(in.Name)
	// Not whom: the log would remember what was to be forgotten.
	a.o.Logger.LogAttrs(ctx, slog.LevelWarn, "principal erased",
		slog.String("principal", nameOf(g)), slog.String("address", g.from), slog.Any("error", err))
	if err != nil {
		return nil, problemOf(err)
	}
	return &eraseOut{erased{Principal: in.Name, Erased: done}}, nil
}
