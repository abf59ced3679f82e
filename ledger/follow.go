package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belayhq/belay"
)

// Follow records what happens to the runs of c from now on, and what c still
// remembers, until the ledger is closed. A ledger follows one Control; a second
// is refused with [belay.ErrBadRequest].
func (l *Ledger) Follow(c belay.Control) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case l.control != nil:
		return fmt.Errorf("%w: the ledger follows somebody already", belay.ErrBadRequest)
	}
	l.control = c
	// Before the catching up, so that nothing falls between.
	events := belay.Follow(l.life, c, belay.Filter{Ended: true}, func() { ring(l.resync) })
	l.following.Go(func() {
		for e, err := range events {
			l.notice(&e, err)
		}
	})
	ring(l.resync)
	l.following.Go(func() { l.catchUpWhenAsked(c) })
	return nil
}

// rest waits; false if the ledger is closed meanwhile.
func (l *Ledger) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.life.Done():
		return false
	}
}

// notice takes one event. It is quick, for a slow watcher loses events.
func (l *Ledger) notice(e *belay.Event, err error) {
	if err != nil {
		ring(l.resync)
		l.opts.Log.Warn("the ledger could not follow all runs", "error", err)
		return
	}
	if e.Lost > 0 {
		l.count(func(s *Stats) { s.Missed += e.Lost })
		ring(l.resync)
	}
	if worthNoting(e) || l.queue.waits(e.Run.ID) {
		receipt := e.Receipt
		if receipt != nil && !receipt.Final {
			receipt = nil // steps on the way are the tree's
		}
		l.queue.put(&entry{info: e.Run, receipt: receipt})
	}
}

// worthNoting reports whether the event says something that is to be found after
// a restart.
func worthNoting(e *belay.Event) bool {
	switch e.Type {
	case belay.EventRegistered, belay.EventCancelled, belay.EventFinal, belay.EventEnded:
		return true
	case belay.EventStep:
		return e.Receipt != nil && e.Receipt.Final // evidence that came late
	}
	return e.Run.Outcome.Terminal()
}

// catchUpWhenAsked asks the tree for what was missed, at most once a second and
// when there is room for the answer.
func (l *Ledger) catchUpWhenAsked(c belay.Control) {
	for {
		select {
		case <-l.life.Done():
			return
		case <-l.resync:
		}
		err := l.catchUp(l.life, c)
		switch {
		case err == nil || l.life.Err() != nil:
		case errors.Is(err, ErrDamaged):
			return // nothing will be written any more
		case errors.Is(err, ErrNotStored): // was logged when it began
			ring(l.resync)
		default:
			l.opts.Log.Warn("the ledger could not catch up with the runs; it will try again", "error", err)
			ring(l.resync)
		}
		if !l.rest(time.Second) {
			return
		}
	}
}

// catchUp records everything that c remembers. What the ledger has as in
// flight and c does not know any more has ended unseen.
func (l *Ledger) catchUp(ctx context.Context, c belay.Control) error {
	if err := l.Flush(ctx); err != nil {
		return err
	}
	open, err := l.openRuns(ctx)
	if err != nil {
		return err
	}
	list, err := c.List(ctx, belay.Filter{Ended: true})
	for i := range list {
		delete(open, list[i].ID)
		if err := l.takeOver(ctx, c, &list[i]); err != nil {
			return err
		}
	}
	if err != nil { // the others' runs may be among those that we do not see
		return fmt.Errorf("list the runs: %w", err)
	}
	l.count(func(s *Stats) { s.Resyncs++ })
	return l.do(ctx, func(ctx context.Context) error { return l.buryUnseen(ctx, open) })
}

// takeOver records one run that was listed, with its receipt if it has one.
func (l *Ledger) takeOver(ctx context.Context, c belay.Control, i *belay.Info) error {
	e := &entry{info: *i}
	if i.Cancellation != nil {
		if d, err := c.Get(ctx, i.ID); err == nil {
			e.info = d.Info
			if d.Receipt != nil && d.Receipt.Final {
				e.receipt = d.Receipt
			}
		}
	}
	for !l.queue.roomy() {
		t := time.NewTimer(l.opts.Batch)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
	l.queue.put(e)
	return nil
}

// openRuns is what the file has as in flight.
func (l *Ledger) openRuns(ctx context.Context) (map[belay.RunID]bool, error) {
	rows, err := l.readers.QueryContext(ctx, "SELECT id FROM runs WHERE over = 0")
	if err != nil {
		return nil, sick(l.path, err)
	}
	defer rows.Close()
	open := map[belay.RunID]bool{}
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, sick(l.path, err)
		}
		if len(id) == len(belay.RunID{}) {
			open[belay.RunID(id)] = true
		}
	}
	return open, rows.Err()
}

// buryUnseen ends runs that nobody knows any more.
func (l *Ledger) buryUnseen(ctx context.Context, open map[belay.RunID]bool) error {
	if len(open) == 0 {
		return nil
	}
	var unseen int64
	err := inTx(ctx, l.conn, func() error {
		for id := range open {
			res, err := l.conn.ExecContext(ctx, `UPDATE runs SET outcome = CASE outcome WHEN 'pending' THEN 'lost' ELSE outcome END,
				work = 'unconfirmed', over = 1, ended = ?, note = ? WHERE id = ? AND over = 0`, time.Now().UnixNano(), noteUnseen, id[:])
			if err != nil {
				return err
			}
			n, _ := res.RowsAffected()
			unseen += n
		}
		return nil
	})
	if err == nil {
		l.count(func(s *Stats) { s.Unseen += uint64(unseen) })
	}
	return err
}
