package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/belayhq/belay"
)

var _ belay.Previewer = (*Mesh)(nil)

// preview has the asker of a question show what would happen. It runs something, and
// is for a decision: whoever may not decide does not look.
func (s *Server) preview(ctx context.Context, w *wire, p peer, id belay.ApprovalID) error {
	shows, ok := s.opts.Approvals.(belay.Previewer)
	if !ok || id.IsZero() {
		return fmt.Errorf("%w: there is no question %s here", belay.ErrNotFound, id)
	}
	if err := s.mayDecide(p); err != nil {
		return err
	}
	text, err := shows.Preview(ctx, id)
	if err != nil {
		return err
	}
	return w.send(answer{Preview: &text})
}

// Preview implements [belay.Previewer]: in the process that asks.
func (m *Mesh) Preview(ctx context.Context, id belay.ApprovalID) (string, error) {
	replies, err := m.askAll(ctx, &request{Op: opPreview, Approval: id})
	for _, r := range replies {
		for _, a := range r.answers {
			if a.Preview != nil {
				return *a.Preview, nil
			}
		}
		if r.err != nil && !errors.Is(r.err, belay.ErrNotFound) && !errors.Is(r.err, belay.ErrBadRequest) { // one of an older version knows none
			return "", r.err
		}
	}
	return "", errors.Join(fmt.Errorf("preview: %w: no Belay process asks %s", belay.ErrNotFound, id), err)
}
