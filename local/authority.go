package local

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/belayhq/belay"
)

// maxDepth bounds every walk up a run tree: parents come from other processes
// and could form a ring.
const maxDepth = 1000

// authorize holds the rule of local authority (DESIGN 11, 10): a peer inside
// the process tree of a run may stop only that run and what lies below it. It
// returns the request as it may be carried out; an empty list of ids means
// that nothing matched. Everything that was asked for is permitted, or nothing is.
func (s *Server) authorize(ctx context.Context, p peer, req belay.CancelRequest) (belay.CancelRequest, error) {
	// A process that we cannot see (pid 0) lives in a pid namespace that is
	// not below ours, so it is no descendant of anything started here.
	labels := p.inside
	switch {
	case req.DryRun:
		return req, nil // changes nothing
	case p.gone:
		// A connection that outlived its maker may have been handed on, and
		// nobody can say any more where the maker stood.
		return req, fmt.Errorf("%w: the process that opened this connection (pid %d) is gone, so it cannot be told whether it may stop anything", belay.ErrForbidden, p.pid)
	case len(labels) == 0:
		return req, nil
	}
	ctx = context.WithoutCancel(ctx) // what was asked for is done, whoever still listens
	matched, err := s.control.List(ctx, req.Filter)
	if err != nil {
		return req, err
	}
	all, err := s.everything(ctx)
	if err != nil {
		return req, err
	}
	req.Filter = belay.Filter{IDs: []belay.RunID{}}
	for _, run := range matched {
		above := s.ancestry(all, run.ID)
		inside := slices.ContainsFunc(above, func(id belay.RunID) bool { return slices.Contains(labels, id.String()) })
		if !inside {
			return req, fmt.Errorf("%w: pid %d runs inside %s and may stop only that run and what lies below it, not %s",
				belay.ErrForbidden, p.pid, strings.Join(labels, ", "), run.ID)
		}
		req.Filter.IDs = append(req.Filter.IDs, run.ID)
	}
	// The receipt is to show that no person pressed this.
	req.Cancellation.By = strings.TrimSpace(req.Cancellation.By + " (inside " + labels[0] + ")")
	return req, nil
}

// everything is every run of this process, by id.
func (s *Server) everything(ctx context.Context) (map[belay.RunID]belay.Info, error) {
	list, err := s.control.List(ctx, belay.Filter{Ended: true})
	if err != nil {
		return nil, err
	}
	all := make(map[belay.RunID]belay.Info, len(list))
	for _, i := range list {
		all[i.ID] = i
	}
	return all, nil
}

// above is the run and every run above it, across processes as far as is known
// here. An unknown run is [belay.ErrNotFound].
func (s *Server) above(ctx context.Context, id belay.RunID) ([]belay.RunID, error) {
	if _, err := s.control.Get(ctx, id); err != nil {
		return nil, err
	}
	all, err := s.everything(ctx)
	if err != nil {
		return nil, err
	}
	return s.ancestry(all, id), nil
}

// ancestry walks up from id: through this process's runs, and from the run of our
// own ticket on through what our parent told us when we attached.
func (s *Server) ancestry(all map[belay.RunID]belay.Info, id belay.RunID) []belay.RunID {
	var path []belay.RunID
	for len(path) < maxDepth && !id.IsZero() {
		path = append(path, id)
		i, ours := all[id]
		if !ours {
			break
		}
		id = i.Parent
	}
	if p := s.opts.Parent; p != nil && len(path) > 0 && path[len(path)-1] == p.Run() {
		path = append(path, p.Above()...)
	}
	return path
}
