package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Bounds of the writing goroutine's steps.
const (
	batchMax  = 4096                   // runs in one transaction
	retryMin  = 50 * time.Millisecond  // after a failure, when somebody waits
	retryMax  = 2 * time.Second        // after a failure, when nobody does
	trimEvery = time.Minute            // between looks at the bounds
	trimAgain = 100 * time.Millisecond // while there is more to delete
)

// job is something that must be done by the writing goroutine.
type job struct {
	ctx  context.Context
	run  func(context.Context) error
	done chan error // capacity 1
}

// do runs f on the writing goroutine, after what is queued was written.
func (l *Ledger) do(ctx context.Context, f func(context.Context) error) error {
	j := job{ctx: ctx, run: f, done: make(chan error, 1)}
	select {
	case l.jobs <- j:
	case <-l.closing:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("wait for the ledger: %w", context.Cause(ctx))
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the ledger: %w", context.Cause(ctx))
	}
}

// write is the writing goroutine: the only user of the connection that writes.
func (l *Ledger) write() {
	defer close(l.written)
	trim := time.NewTimer(trimEvery)
	defer trim.Stop()
	for {
		select {
		case <-l.queue.bell:
			l.gather()
			if l.drain(1) {
				break
			}
			l.pause()
		case j := <-l.jobs:
			l.drain(1 << 62)
			j.done <- j.run(j.ctx)
		case <-trim.C:
			more, err := l.trimStep(context.Background())
			if err != nil && l.trouble() == nil { // else it was said already
				l.opts.Log.Error("the ledger could not be trimmed", "ledger", l.path, "error", err)
			}
			if trim.Reset(trimEvery); more && err == nil {
				trim.Reset(trimAgain)
			}
		case <-l.closing:
			return
		}
	}
}

// gather lets records come together, unless somebody waits for one.
func (l *Ledger) gather() {
	t := time.NewTimer(l.opts.Batch)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.queue.haste:
	case <-l.closing:
	}
}

// pause is the time between two tries to write.
func (l *Ledger) pause() {
	t := time.NewTimer(retryMax)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.closing:
	case <-l.queue.haste:
		time.Sleep(retryMin) // a full disk is not asked a thousand times a second
		ring(l.queue.bell)
	case j := <-l.jobs:
		l.drain(1)
		j.done <- j.run(j.ctx)
	}
}

// drain writes up to so many batches; false if that failed.
func (l *Ledger) drain(batches int) bool {
	for range batches {
		batch := l.queue.next(batchMax)
		if len(batch) == 0 {
			return true
		}
		err := l.broken
		if err == nil {
			err = l.commit(context.Background(), batch)
		}
		if err != nil {
			l.fail(batch, err)
			return false
		}
		l.succeed(batch)
	}
	if n, _ := l.queue.look(); n > 0 {
		ring(l.queue.bell)
	}
	return true
}

// commit writes a batch as one transaction. A record that the file refuses is
// told so and does not hold up the others.
func (l *Ledger) commit(ctx context.Context, batch []*entry) error {
	return inTx(ctx, l.conn, func() error {
		w, err := l.statements(ctx)
		if err != nil {
			return err
		}
		for _, e := range batch {
			e.refused = w.record(ctx, e)
			if e.refused != nil && !errors.Is(e.refused, ErrNotStored) {
				return fmt.Errorf("record %s: %w", e.info.ID, e.refused)
			}
		}
		return nil
	})
}

func (l *Ledger) succeed(batch []*entry) {
	var refused uint64
	for _, e := range batch {
		if e.refused != nil {
			refused++
		}
	}
	var recovered error
	l.count(func(s *Stats) {
		s.Batches++
		s.Written += uint64(len(batch)) - refused
		s.Refused += refused
		s.LastSync = time.Now()
		recovered, s.Trouble = s.Trouble, nil
	})
	for _, e := range batch {
		e.tell(e.refused)
	}
	if recovered != nil {
		l.opts.Log.Info("the ledger is written again", "ledger", l.path, "after", recovered)
	}
	if l.queue.fellBehind() {
		ring(l.resync)
	}
}

// fail keeps a batch for another try, tells who waits, and logs the first
// failure of a row. A damaged file gets no other try: nothing is written on top
// of damage.
func (l *Ledger) fail(batch []*entry, err error) {
	if damaged(err) && l.broken == nil {
		err = damage(l.path, err)
		l.broken = err
	}
	var first, hopeless bool
	l.count(func(s *Stats) {
		hopeless = damaged(err)
		first = s.Trouble == nil
		s.Failed++
		s.Trouble = err
		if hopeless {
			s.Dropped += uint64(len(batch))
		}
	})
	for _, e := range batch {
		e.tell(fmt.Errorf("%w: %w", ErrNotStored, err))
	}
	if !hopeless {
		l.queue.back(batch)
	}
	if first {
		l.opts.Log.Error("the ledger cannot be written; Belay goes on, records wait and are lost when the queue is full",
			"ledger", l.path, "error", err)
	}
}

// bytes is the size of the file and its log.
func (l *Ledger) bytes() int64 {
	var sum int64
	for _, name := range []string{l.path, l.path + "-wal"} {
		if info, err := os.Stat(name); err == nil {
			sum += info.Size()
		}
	}
	return sum
}
