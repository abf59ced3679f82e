package local

import (
	"context"
	"slices"

	"github.com/belayhq/belay"
)

// list answers with the runs in lines of maxBatch.
func (s *Server) list(ctx context.Context, w *wire, f belay.Filter) error {
	runs, err := s.control.List(ctx, f)
	for batch := range slices.Chunk(runs, maxBatch) {
		if sendErr := w.send(answer{Runs: batch}); sendErr != nil {
			return sendErr
		}
	}
	return err
}

// cancel carries a Stop out at once and then reports until every verdict is
// final or the time to wait is over.
func (s *Server) cancel(ctx context.Context, w *wire, p peer, req belay.CancelRequest) error {
	req, err := s.authorize(ctx, p, req)
	if err != nil || req.Filter.IDs != nil && len(req.Filter.IDs) == 0 {
		return err
	}
	wait := req.Wait
	req.Wait = 0
	// The asker may hang up while this runs; what was asked for is done.
	results, err := s.control.Cancel(context.WithoutCancel(ctx), req)
	pending := make(map[belay.RunID]belay.CancelResult)
	for _, r := range results {
		if sendErr := w.send(answer{Result: &r}); sendErr != nil {
			return sendErr
		}
		if !req.DryRun && !settled(&r) {
			pending[r.Run.ID] = r
		}
	}
	if err != nil || wait == 0 || len(pending) == 0 {
		return err
	}
	return s.follow(ctx, w, pending, wait)
}

// watch sends events until the asker hangs up or the server closes.
func (s *Server) watch(ctx context.Context, w *wire, f belay.Filter) error {
	done, err := s.last()
	if err != nil {
		return err
	}
	defer done()
	ctx, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(s.ctx, func() { end(context.Cause(s.ctx)) })()
	defer end(errHungUp)
	for e, err := range s.control.Watch(ctx, f) {
		a := answer{Event: &e}
		if err != nil {
			a = answer{Error: faultOf(err)}
		}
		if w.send(a) != nil {
			break // the watcher is gone, or too slow to be served
		}
	}
	return nil
}
