package cli

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin/client"
	"github.com/belayhq/belay/ledger"
)

// served are the receipts of a server.
func (p *house) served(ctx context.Context, q *receiptQuery) iter.Seq2[*belay.Receipt, error] {
	return func(yield func(*belay.Receipt, error) bool) {
		all := p.client.Receipts(ctx, client.ReceiptQuery{Owner: q.owner, Server: q.of, Labels: q.labels, Since: q.since})
		for r, err := range all {
			if errors.Is(err, client.ErrIncomplete) {
				err = &partialError{err}
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// kept are the receipts of this user: what the running processes remember, which
// is not in the ledger yet or never will be, and then what the ledger holds.
func (p *house) kept(ctx context.Context, env *Env, q *receiptQuery) iter.Seq2[*belay.Receipt, error] {
	return func(yield func(*belay.Receipt, error) bool) {
		seen := make(map[belay.RunID]bool)
		give := func(r *belay.Receipt) bool {
			if !q.wants(r) || seen[r.Run] {
				return true
			}
			seen[r.Run] = true
			return yield(r, nil)
		}
		if q.ledger == "" {
			for _, r := range p.remembered(ctx, q, yield) {
				if !give(r) {
					return
				}
			}
		}
		r, err := env.openLedger(q.ledger)
		if err != nil || r == nil {
			if err != nil {
				yield(nil, err)
			}
			return
		}
		defer func() { _ = r.Close() }() // a reader has nothing to lose
		for rec, err := range r.Receipts(ctx, ledger.Query{Owner: q.owner, Server: q.of, Labels: q.labels}) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !give(rec.Receipt) {
				return
			}
		}
	}
}

// remembered are the receipts that the processes of this user hold, the newest
// runs first. Those that cannot be asked are an error that ends nothing.
func (p *house) remembered(ctx context.Context, q *receiptQuery, yield func(*belay.Receipt, error) bool) (list []*belay.Receipt) {
	runs, err := p.List(ctx, belay.Filter{Ended: true, Owner: q.owner, Server: q.of, Labels: q.labels})
	if err != nil && !yield(nil, &partialError{err}) {
		return nil
	}
	slices.SortFunc(runs, func(a, b belay.Info) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	for i := range runs {
		if runs[i].Cancellation == nil || runs[i].Cancellation.At.Before(q.since) {
			continue
		}
		if d, err := p.Get(ctx, runs[i].ID); err == nil {
			list = append(list, d.Receipt)
		}
	}
	return list
}
