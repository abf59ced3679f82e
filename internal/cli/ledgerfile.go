package cli

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/ledger"
)

// openLedger opens this user's ledger for reading, also while belay serve writes
// it. Without one both results are nil: nothing was ever kept. path is another
// file than the usual one; then it must be there.
func (e *Env) openLedger(path string) (*ledger.Reader, error) {
	given := path != ""
	if !given {
		path = config.LedgerPath(e.Getenv)
	}
	if path == "" {
		return nil, nil //nolint:nilnil // a user without a home has none
	}
	r, err := ledger.OpenReader(path, ledger.Options{})
	switch {
	case errors.Is(err, fs.ErrNotExist) && !given:
		return nil, nil //nolint:nilnil // there is none yet
	case err != nil:
		return nil, exitErrorf(ExitFailed, "%w", err)
	}
	return r, nil
}

// recorded finds a run of a ledger (empty: this user's) by a beginning of its id.
func (e *Env) recorded(ctx context.Context, typed, ledger string) (belay.Detail, error) {
	var none belay.Detail
	r, err := e.openLedger(ledger)
	switch {
	case err != nil:
		return none, err
	case r == nil:
		return none, belay.ErrNotFound
	}
	defer func() { _ = r.Close() }() // a reader has nothing to lose
	hits, err := beginningIn(ctx, r, prefixOf(typed))
	if err != nil {
		return none, err
	}
	info, err := find(hits, typed)
	if err != nil {
		return none, err
	}
	rec, err := r.Get(ctx, info.ID)
	return rec.Detail(), err
}

// beginningIn lists a few runs of a ledger whose id begins like this.
func beginningIn(ctx context.Context, r *ledger.Reader, prefix string) (list []belay.Info, err error) {
	const enough = 10
	before, ok := lastOf(prefix)
	if !ok {
		return nil, nil
	}
	page, err := r.List(ctx, ledger.Query{Behind: before, Limit: enough})
	for _, entry := range page.Runs {
		if strings.HasPrefix(entry.ID.String(), prefix) {
			list = append(list, entry.Info)
		}
	}
	return list, err
}
