package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belayhq/belay"
)

type listReceiptsIn struct {
	Owner  string   `query:"owner" maxLength:"256"`
	Server string   `query:"server" maxLength:"256"`
	Kind   []string `query:"kind,explode" maxItems:"16" doc:"any of these"`
	Label  []string `query:"label,explode" maxItems:"32" doc:"key=value; all of these"`
	Cursor string   `query:"cursor" maxLength:"64" doc:"next of the page before"`
	Limit  int      `query:"limit" minimum:"1" maximum:"1000" default:"100"`

	Under  string `query:"under" maxLength:"64" doc:"of this run and what lies below it"`
	Stop   string `query:"stop" maxLength:"64" doc:"only those of this act"`
	Format string `query:"format" enum:"json,csv,ndjson" doc:"csv and ndjson: all as a stream, without cursor and limit"`
}

type listReceiptsOut struct{ Body receiptList }

type receiptList struct {
	Receipts   []*belay.Receipt `json:"receipts" nullable:"false"`
	Next       string           `json:"next,omitempty" doc:"cursor of the next page; absent: this is the last"`
	Incomplete bool             `json:"incomplete,omitempty" doc:"not everybody who holds runs could be asked"`
}

type receiptOut struct{ Body ReceiptAnswer }

// ReceiptAnswer is a receipt as GET /v1/receipts/{id} shows it.
type ReceiptAnswer struct {
	belay.Receipt

	Stored *bool `json:"stored,omitempty" doc:"whether a final receipt will be found after a crash; absent: it is not final, or nothing is stored"`
}

func (a *API) registerReceipts(api huma.API) {
	operation(a, api, reading, huma.Operation{
		OperationID: "list-receipts", Method: http.MethodGet, Path: "/v1/receipts", Tags: []string{"receipts"},
		Summary:     "List receipts, those of the newest runs first",
		Description: "With format, or an Accept of text/csv or application/x-ndjson, all of them as a stream instead of pages; one that breaks off has failed.",
		Errors:      []int{501},
	}, a.listReceipts)
	operation(a, api, reading, huma.Operation{
		OperationID: "get-receipt", Method: http.MethodGet, Path: "/v1/receipts/{id}", Tags: []string{"receipts"},
		Summary: "The receipt of a run that was stopped", Errors: []int{404},
	}, a.getReceipt)
}

func (a *API) listReceipts(ctx context.Context, in *listReceiptsIn) (*listReceiptsOut, error) {
	f, within, behind, err := a.page(ctx, &runFilter{in.Owner, in.Server, in.Kind, in.Label, in.Under}, in.Cursor)
	if err != nil {
		return nil, err
	}
	var stop belay.StopID
	if err := stop.UnmarshalText([]byte(in.Stop)); err != nil {
		return nil, problemOf(fmt.Errorf("%w: stop is not the id of a Stop", belay.ErrBadRequest))
	}
	f.Ended = true
	keep := func(i *belay.Info) bool {
		return i.Cancellation != nil && (stop.IsZero() || i.Cancellation.Stop == stop)
	}
	q := HistoryQuery{Stop: stop, Stopped: true, Before: behind, Limit: in.Limit + 1}
	runs, incomplete, err := a.collect(ctx, within, f, q, keep)
	if err != nil {
		return nil, problemOf(err)
	}
	runs, next := cut(runs, in.Limit)
	out := &listReceiptsOut{receiptList{Receipts: []*belay.Receipt{}, Next: next, Incomplete: incomplete}}
	for _, i := range runs {
		if d, err := a.get(ctx, i.ID, within); err == nil && d.Receipt != nil {
			out.Body.Receipts = append(out.Body.Receipts, d.Receipt)
		}
	}
	return out, nil
}

func (a *API) getReceipt(ctx context.Context, in *runIn) (*receiptOut, error) {
	_, within, err := a.guestOf(ctx, toRead)
	if err != nil {
		return nil, err
	}
	d, err := a.find(ctx, in.ID, within)
	if err != nil {
		return nil, err
	}
	if d.Receipt == nil {
		return nil, problemOf(fmt.Errorf("%w was stopped: it has no receipt", belay.ErrNotFound))
	}
	return &receiptOut{ReceiptAnswer{*d.Receipt, a.store(ctx, *d)}}, nil
}
