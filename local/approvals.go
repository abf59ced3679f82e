package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belayhq/belay"
)

// What waits for a person's answer in a process that has no other door to it. Who may
// list runs may list it; who lies inside a run's process tree, or below what
// [Options.Barred] names, answers nothing: no agent approves for itself
// (DESIGN 11, 10).

var _ belay.Approvals = (*Mesh)(nil)

// approvals answers with the open questions.
func (s *Server) approvals(ctx context.Context, w *wire, f belay.Filter) error {
	if s.opts.Approvals == nil {
		return nil
	}
	open, err := s.opts.Approvals.Approvals(ctx, f)
	for batch := range slices.Chunk(open, maxAsked) {
		if sendErr := w.send(answer{Approvals: batch}); sendErr != nil {
			return sendErr
		}
	}
	return err
}

// decide answers a question for a person.
func (s *Server) decide(ctx context.Context, w *wire, p peer, req *request) error {
	if s.opts.Approvals == nil || req.Decision == nil || req.Approval.IsZero() {
		return fmt.Errorf("%w: there is no question %s here", belay.ErrNotFound, req.Approval)
	}
	if err := s.mayDecide(p); err != nil {
		return err
	}
	d := *req.Decision
	d.Via = "local"
	done, err := s.opts.Approvals.Decide(context.WithoutCancel(ctx), req.Approval, d)
	if done.ID.IsZero() {
		return err
	}
	if sendErr := w.send(answer{Approvals: []belay.Approval{done}}); sendErr != nil {
		return sendErr
	}
	return err
}

// mayDecide refuses who may be an agent.
func (s *Server) mayDecide(p peer) error {
	switch {
	case p.gone, s.opts.InTree == nil, p.pid == 0:
		return fmt.Errorf("%w: it cannot be told who answers (pid %d)", belay.ErrForbidden, p.pid)
	case len(p.inside) > 0:
		return fmt.Errorf("%w: pid %d runs inside %s, and no agent approves for itself", belay.ErrForbidden, p.pid, strings.Join(p.inside, ", "))
	case s.opts.Barred != nil && s.opts.Barred(p.pid):
		return fmt.Errorf("%w: pid %d was started by the program that asks, and no agent approves for itself; answer from another terminal", belay.ErrForbidden, p.pid)
	}
	return nil
}

// Approvals implements [belay.Approvals]: the open questions of every process, oldest
// first. Filter.Under and Filter.Limit are not for more than one process.
func (m *Mesh) Approvals(ctx context.Context, f belay.Filter) ([]belay.Approval, error) {
	f.Under, f.Limit = belay.RunID{}, 0
	replies, err := m.askAll(ctx, &request{Op: opApprovals, Filter: f})
	errs := []error{err}
	var list []belay.Approval
	for _, r := range replies {
		if r.err != nil && !errors.Is(r.err, belay.ErrBadRequest) { // one of an older version knows none
			errs = append(errs, fmt.Errorf("the Belay process %d: %w", r.from.Pid, r.err))
		}
		for _, a := range r.answers {
			for _, one := range a.Approvals {
				if one.Run.Pid == 0 {
					one.Run.Pid = r.from.Pid
				}
				list = append(list, one)
			}
		}
	}
	slices.SortFunc(list, func(a, b belay.Approval) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return list, errors.Join(errs...)
}

// Decide implements [belay.Approvals]: in the process that asks.
func (m *Mesh) Decide(ctx context.Context, id belay.ApprovalID, d belay.Decision) (belay.Approval, error) {
	replies, err := m.askAll(ctx, &request{Op: opDecide, Approval: id, Decision: &d})
	errs := []error{fmt.Errorf("decide: %w: no Belay process asks %s", belay.ErrNotFound, id)}
	for _, r := range replies {
		for _, a := range r.answers {
			if len(a.Approvals) == 1 {
				return a.Approvals[0], r.err
			}
		}
		if r.err != nil && !errors.Is(r.err, belay.ErrNotFound) && !errors.Is(r.err, belay.ErrBadRequest) {
			return belay.Approval{}, r.err
		}
	}
	return belay.Approval{}, errors.Join(append(errs, err)...)
}
