package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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

// settled reports whether nothing more will be said about the run of a result
// unless somebody presses again: a run whose force is held back is settled too.
func settled(r *belay.CancelResult) bool {
	if r.Receipt == nil {
		return r.Run.Over()
	}
	return r.Receipt.Final && r.Run.Outcome.Terminal()
}

// follow sends the result of each pending run again when it is final, and of
// the rest, as it stands, when the time is over. A negative wait has no end.
func (s *Server) follow(ctx context.Context, w *wire, pending map[belay.RunID]belay.CancelResult, wait time.Duration) error {
	ctx, end := context.WithCancelCause(ctx)
	woken := make(chan belay.RunID, 64)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for e, err := range s.control.Watch(ctx, belay.Filter{Ended: true}) {
			if err != nil || e.Type != belay.EventFinal && e.Type != belay.EventEnded {
				continue
			}
			select {
			case woken <- e.Run.ID:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { end(errHungUp); <-watching }()

	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	// A watcher may begin too late and may lose events, so that now and then
	// everything pending is looked at: soon at first, then once a second.
	pause := 5 * time.Millisecond
	sweep := time.NewTimer(pause)
	defer sweep.Stop()
	for len(pending) > 0 {
		var err error
		select {
		case <-ctx.Done():
			return nil // nobody is listening any more
		case id := <-woken:
			err = s.look(ctx, w, pending, id, false)
		case <-sweep.C:
			err = s.lookAtAll(ctx, w, pending, false)
			pause = min(pause*2, time.Second)
			sweep.Reset(pause)
		case <-beat.C:
			err = w.send(answer{Beat: true})
		case <-over:
			return s.lookAtAll(ctx, w, pending, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) lookAtAll(ctx context.Context, w *wire, pending map[belay.RunID]belay.CancelResult, last bool) error {
	for id := range pending {
		if err := s.look(ctx, w, pending, id, last); err != nil {
			return err
		}
	}
	return nil
}

// look sends the result of a run if it is final, or in any case if it is the
// last look.
func (s *Server) look(ctx context.Context, w *wire, pending map[belay.RunID]belay.CancelResult, id belay.RunID, last bool) error {
	r, waited := pending[id]
	if !waited {
		return nil
	}
	d, err := s.control.Get(ctx, id)
	if errors.Is(err, belay.ErrNotFound) { // forgotten meanwhile: the last word stands
		delete(pending, id)
		return nil
	}
	if err != nil {
		return err
	}
	r.Run, r.Receipt = d.Info, d.Receipt
	done := settled(&r)
	if !done && !last {
		return nil
	}
	delete(pending, id)
	return w.send(answer{Result: &r})
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
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		s.beat(ctx, w, end)
	}()
	defer func() { end(errHungUp); <-beats }()
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

// beat shows that the process lives, until ctx ends or nobody takes it.
func (s *Server) beat(ctx context.Context, w *wire, end context.CancelCauseFunc) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	// The first beat tells the asker that from now on events are sent.
	for {
		if err := w.send(answer{Beat: true}); err != nil {
			end(errHungUp)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// attach holds a child below the run of its ticket: every Stop of that run, or
// of one above it, is passed on until the child hangs up or the server closes.
// A child that does not read is not waited for longer than writeTime.
func (s *Server) attach(ctx context.Context, w *wire, text string) error {
	if s.attacher == nil {
		return fmt.Errorf("%w: nothing can be attached to this process", belay.ErrUnsupported)
	}
	id, err := s.key.admit(text)
	if err != nil {
		return err
	}
	done, err := s.last()
	if err != nil {
		return err
	}
	defer done()
	above, err := s.above(ctx, id)
	if err != nil {
		return err
	}
	ready := make(chan struct{}) // closed when the child knows that it is attached
	detach, err := s.attacher.Attach(id, func(req belay.CancelRequest) {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
		req.Filter, req.Wait, req.DryRun = belay.Filter{}, 0, false
		req.Cancellation.Cause = belay.CauseParent
		if req.Cancellation.Origin.IsZero() {
			req.Cancellation.Origin = id
		}
		if err := w.send(answer{Stop: &req}); err != nil {
			s.log.Warn("local socket: a child could not be told to stop", "run", id, "error", err)
		}
	})
	if err != nil {
		return fmt.Errorf("attach below %s: %w", id, err)
	}
	defer detach()
	if err := w.send(answer{Attached: &attached{Runs: above}}); err != nil {
		return err
	}
	close(ready)
	select {
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return nil
}
