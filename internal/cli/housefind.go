package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin/client"
)

// known lists the runs among which typed ids are looked up. A server may remember
// very many, so that only those are asked for that could be meant.
func (p *house) known(ctx context.Context, typed ...string) ([]belay.Info, error) {
	if p.client == nil {
		return p.List(ctx, belay.Filter{Ended: true})
	}
	var list []belay.Info
	for _, one := range typed {
		hits, err := p.beginning(ctx, prefixOf(one))
		list = append(list, hits...)
		if err != nil {
			return list, p.explained(err)
		}
	}
	return list, nil
}

// beginning lists a few runs of a server whose id begins like this: more than one
// is all that needs to be known.
func (p *house) beginning(ctx context.Context, prefix string) (list []belay.Info, err error) {
	const enough = 10
	before, ok := lastOf(prefix)
	if !ok {
		return nil, nil // find says what is wrong with it
	}
	for i, failed := range p.client.Runs(ctx, client.Query{States: []string{"all"}, Before: before, Page: enough}) {
		switch {
		case failed != nil:
			err = failed
			continue
		case len(i.ID.String()) < len(prefix) || i.ID.String()[:len(prefix)] != prefix || len(list) == enough:
			return list, err
		}
		list = append(list, i)
	}
	return list, err
}

// inFlight lists the runs that have this text as their protocol's id and are
// not over.
func (p *house) inFlight(ctx context.Context, request string) (list []belay.Info, err error) {
	keep := func(i *belay.Info) {
		if requestText(i) == request && !i.Over() { // an old server may not know how to select them
			list = append(list, *i)
		}
	}
	if p.client == nil {
		all, err := p.List(ctx, belay.Filter{})
		for i := range all {
			keep(&all[i])
		}
		return list, err
	}
	for i, failed := range p.client.Runs(ctx, client.Query{RequestID: request}) {
		if failed != nil {
			err = failed
			continue
		}
		keep(&i)
	}
	slices.Reverse(list)
	return list, p.explained(err)
}

// requestText is the text of a run's protocol id: of 7 and "7" the same.
func requestText(i *belay.Info) string {
	var text string
	if json.Unmarshal([]byte(i.Address), &text) == nil {
		return text
	}
	return i.Address
}

// byRequest turns a protocol's id into the run that has it: one, or an error. A
// server may take note of one that nobody has yet; noted says so.
func (p *house) byRequest(ctx context.Context, env *Env, request, reason string, dry bool) (info belay.Info, noted bool, err error) {
	hits, err := p.inFlight(ctx, request)
	switch {
	case len(hits) == 1 && err != nil:
		// There may be another with the same id, and the wrong one must not be stopped.
		return info, false, exitErrorf(ExitFailed, "not everybody could be asked who has the id %.64q: %w", request, err)
	case len(hits) == 1:
		return hits[0], false, nil
	case len(hits) > 1:
		return info, false, several(request, hits)
	case err != nil:
		return info, false, err
	case p.client == nil || dry:
		return info, false, exitErrorf(ExitNothing, "%w in flight has the id %.64q", belay.ErrNotFound, request)
	}
	// It may come at this moment; then the server's own look-up finds it, or
	// takes care that it does not start.
	got, err := p.client.CancelByRequest(ctx, request, reason)
	var e *client.Error
	switch {
	case errors.As(err, &e) && len(e.Candidates) > 0:
		var list []belay.Info
		for _, c := range e.Candidates {
			list = append(list, belay.Info{ID: c.Run, Name: c.Name, Kind: belay.KindCall})
		}
		return info, false, several(request, list)
	case errors.Is(err, belay.ErrForbidden), errors.Is(err, belay.ErrUnsupported):
		return info, false, exitErrorf(ExitNothing, "%w in flight has the id %.64q", belay.ErrNotFound, request)
	case err != nil:
		return info, false, p.explain(err)
	case got.Run.IsZero() && got.Pending:
		env.Warnf("nobody has the id %.64q yet; a call of yours that comes with it will not start", request)
		return info, true, nil
	case got.Run.IsZero():
		return info, false, exitErrorf(ExitNothing, "%w in flight has the id %.64q", belay.ErrNotFound, request)
	}
	d, err := p.Get(ctx, got.Run)
	return d.Info, false, p.explain(err)
}

// lookUp finds the run: among those that are remembered, else in the ledger, which
// is the user's own where ledger is empty.
func (p *house) lookUp(ctx context.Context, env *Env, typed, ledger string) (d belay.Detail, err error) {
	known, err := p.known(ctx, typed)
	if p.client != nil && err != nil && len(known) == 0 {
		return d, err
	}
	env.warn(err)
	info, err := find(known, typed)
	if p.client == nil && errors.Is(err, belay.ErrNotFound) {
		if d, kept := env.recorded(ctx, typed, ledger); kept == nil {
			return d, nil
		} else if !errors.Is(kept, belay.ErrNotFound) {
			return d, kept
		}
	}
	if err != nil {
		return d, err
	}
	if d, err = p.Get(ctx, info.ID); err != nil {
		return d, p.explain(flatten(err)[0]) // the others were told with the list
	}
	return d, nil
}
