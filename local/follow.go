package local

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// settled reports whether nothing more will be said about the run of a result
// unless somebody presses again: a run whose force is held back is settled too.
func settled(r *belay.CancelResult) bool {
	if r.Receipt == nil {
		return r.Run.Over()
	}
	return r.Receipt.Final && r.Run.Outcome.Terminal()
}

// follower waits for the receipts of one Stop.
type follower struct {
	control belay.Control
	wake    chan struct{} // capacity 1: done is not empty

	mu      sync.Mutex // guards the fields below
	pending map[belay.RunID]belay.CancelResult
	done    []belay.CancelResult // settled, and not sent yet
}

// follow sends the result of each pending run again when it is final, and of
// the rest, as it stands, when the time is over. A negative wait has no end.
func (s *Server) follow(ctx context.Context, w *wire, pending map[belay.RunID]belay.CancelResult, wait time.Duration) error {
	f := &follower{control: s.control, pending: pending, wake: make(chan struct{}, 1)}
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { f.watch(ctx) })
	defer watching.Wait()
	defer end(errHungUp)

	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	// A watcher may begin too late and may lose events, so that now and then
	// everything pending is looked at: soon at first, then once a second.
	pause := 5 * time.Millisecond
	sweep := time.NewTimer(pause)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil // nobody is listening any more
		case <-f.wake:
		case <-sweep.C:
			f.lookAtAll(ctx, false)
			pause = min(pause*2, time.Second)
			sweep.Reset(pause)
		case <-over:
			f.lookAtAll(ctx, true)
		}
		done, left := f.take()
		for i := range done {
			if err := w.send(answer{Result: &done[i]}); err != nil {
				return err
			}
		}
		if left == 0 {
			return nil
		}
	}
}

// watch notes receipts as they become final. It never waits for the asker, so
// that few events are lost.
func (f *follower) watch(ctx context.Context) {
	for e, err := range f.control.Watch(ctx, belay.Filter{Ended: true}) {
		if err == nil && (e.Type == belay.EventFinal || e.Type == belay.EventEnded) {
			f.note(e.Run, e.Receipt, false)
		}
	}
}

// note takes how a run stands; what is settled, or is not to be waited for any
// longer, is handed over to be sent.
func (f *follower) note(run belay.Info, receipt *belay.Receipt, last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, waited := f.pending[run.ID]
	if !waited {
		return
	}
	r.Run = run
	if receipt != nil {
		r.Receipt = receipt
	}
	if !settled(&r) && !last {
		f.pending[run.ID] = r
		return
	}
	delete(f.pending, run.ID)
	f.done = append(f.done, r)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *follower) take() (done []belay.CancelResult, left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	done, f.done = f.done, nil
	return done, len(f.pending)
}

// lookAtAll asks for every pending run. One that was forgotten meanwhile stays
// as it was last seen.
func (f *follower) lookAtAll(ctx context.Context, last bool) {
	f.mu.Lock()
	ids := make([]belay.RunID, 0, len(f.pending))
	for id := range f.pending {
		ids = append(ids, id)
	}
	f.mu.Unlock()
	for _, id := range ids {
		switch d, err := f.control.Get(ctx, id); {
		case err == nil:
			f.note(d.Info, d.Receipt, last)
		case errors.Is(err, belay.ErrNotFound) || last:
			f.mu.Lock()
			r, waited := f.pending[id]
			f.mu.Unlock()
			if waited {
				f.note(r.Run, r.Receipt, true)
			}
		}
	}
}
