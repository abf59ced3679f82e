package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belayhq/belay"
)

// storeLimit bounds how long an answer waits for the disk.
const storeLimit = 5 * time.Second

var errStoreLimit = errors.New("the receipts were not stored in time")

// store has final receipts written down before an answer shows them: what a
// waiting client was told is found after a crash (DESIGN 12). It returns nil if
// there is nothing to store or nowhere to store it, and false if it did not
// succeed. The cancel stands in any case, and the client learns of it.
func (a *API) store(ctx context.Context, runs ...belay.Detail) *bool {
	var final []belay.Detail
	for _, d := range runs {
		if d.Receipt != nil && d.Receipt.Final {
			final = append(final, d)
		}
	}
	if a.o.Commit == nil || len(final) == 0 {
		return nil
	}
	err := a.commit(ctx, final)
	if err != nil {
		a.o.Logger.ErrorContext(ctx, "receipts that a client is shown are not stored", "runs", len(final), "run", final[0].ID, "error", err)
	}
	stored := err == nil
	return &stored
}

// commit calls the door; whatever it does wrong is an error.
func (a *API) commit(ctx context.Context, final []belay.Detail) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("storing panicked: %v", v)
		}
	}()
	// The client may go away; the receipt is to be stored all the same.
	ctx, end := context.WithTimeoutCause(context.WithoutCancel(ctx), storeLimit, errStoreLimit)
	defer end()
	return a.o.Commit(ctx, final...)
}

// storeResults is store for what a Stop returned.
func (a *API) storeResults(ctx context.Context, results []belay.CancelResult) *bool {
	if a.o.Commit == nil {
		return nil
	}
	runs := make([]belay.Detail, 0, len(results))
	for _, r := range results {
		runs = append(runs, belay.Detail{Info: r.Run, Receipt: r.Receipt})
	}
	return a.store(ctx, runs...)
}
