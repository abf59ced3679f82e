package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Ledger is one file of ended runs and receipts. Make one with [Open] and end it
// with [Ledger.Close]. All methods are safe for concurrent use.
type Ledger struct {
	Reader
	opts  Options
	queue *queue

	writer *sql.DB
	conn   *sql.Conn   // of writer; used by the writing goroutine alone once Open has returned
	stmts  *statements // of conn, as which it is used; nil: none yet
	broken error       // the file was found damaged; as conn
	held   *os.File    // the lock

	jobs    chan job      // for the writing goroutine
	closing chan struct{} // closed when no job is taken any more
	written chan struct{} // closed when the writing goroutine has returned

	following sync.WaitGroup
	life      context.Context // ends when Close begins; of everything that follows
	end       context.CancelCauseFunc
	resync    chan struct{} // capacity 1: events were missed

	mu      sync.Mutex // guards the fields below
	closed  bool
	control belay.Control // that is followed; nil: none yet
	stats   Stats
	erased  map[string]time.Time // principals, with the time of their erasure
	done    error                // what Close returned
}

// Open opens the ledger at path, makes it if there is none, brings an older one
// to the present form, and marks the runs that were in flight as lost. It fails
// with [ErrLocked], [ErrRefused], [ErrDamaged] or [ErrNewer]; then nothing in
// the file was changed.
func Open(path string, o Options) (*Ledger, error) {
	if path == "" {
		return nil, errNoPath
	}
	if err := prepare(path); err != nil {
		return nil, err
	}
	held, err := lock(path)
	if err != nil {
		return nil, err
	}
	l := &Ledger{
		Reader: Reader{path: path}, opts: o.withDefaults(), held: held,
		jobs: make(chan job), closing: make(chan struct{}), written: make(chan struct{}),
		resync: make(chan struct{}, 1), erased: map[string]time.Time{},
	}
	l.queue = newQueue(l.opts.Queue)
	l.life, l.end = context.WithCancelCause(context.Background())
	if err := l.open(context.Background()); err != nil {
		_ = l.release() // the first error is the one to tell
		return nil, err
	}
	go l.write()
	return l, nil
}

func (l *Ledger) open(ctx context.Context) (err error) {
	if err = touch(l.path); err != nil {
		return err
	}
	version, err := examine(ctx, l.path)
	if err != nil {
		return err
	}
	if l.writer, err = dialWriter(l.path); err != nil {
		return err
	}
	if l.conn, err = l.writer.Conn(ctx); err != nil {
		return sick(l.path, err)
	}
	if err = migrate(ctx, l.conn, version, len(steps())); err != nil {
		return sick(l.path, err)
	}
	if err = l.buryLost(ctx); err != nil {
		return sick(l.path, err)
	}
	l.readers, err = dialReaders(l.path)
	return err
}

// Notes of the ledger's own on a run.
const (
	noteDied   = "the process that held it ended before it did"
	noteUnseen = "its end was not seen by the ledger"
)

// Commit writes runs and their receipts down and returns when they are on disk:
// nil means that they will be found after any crash. It fails with
// [ErrNotStored], or with the cause of ctx; then they may be stored or not.
func (l *Ledger) Commit(ctx context.Context, runs ...belay.Detail) error {
	waiting := make([]chan error, 0, len(runs))
	for i := range runs {
		c := make(chan error, 1)
		if !l.queue.put(&entry{info: runs[i].Info, receipt: runs[i].Receipt, waiters: []chan error{c}}) {
			return fmt.Errorf("%w: %w", ErrNotStored, ErrClosed)
		}
		waiting = append(waiting, c)
	}
	var errs []error
	for i, run := range runs {
		select {
		case err := <-waiting[i]:
			if err != nil {
				errs = append(errs, fmt.Errorf("commit %s: %w", run.ID, err))
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for the ledger: %w", context.Cause(ctx))
		}
	}
	return errors.Join(errs...)
}

// Flush returns when everything that was noticed before the call is on disk.
func (l *Ledger) Flush(ctx context.Context) error {
	return l.do(ctx, func(context.Context) error { return l.trouble() })
}

// Stats is what happened since the ledger was opened.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	s := l.stats
	l.mu.Unlock()
	s.Bytes = l.bytes()
	var full uint64
	s.Queued, full = l.queue.look()
	s.Dropped += full
	return s
}

// Close takes over what the followed tree still has to say, writes what is
// queued and closes the file. When ctx ends before that, what is left is given
// up and counted in the error. It may be called more than once.
func (l *Ledger) Close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	control := l.control
	l.mu.Unlock()
	if !first {
		<-l.written
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.done
	}
	l.end(ErrClosed)
	l.following.Wait()
	var err error
	if control != nil {
		err = l.catchUp(ctx, control)
	}
	l.queue.close()
	err = errors.Join(err, l.do(ctx, func(context.Context) error { return l.trouble() }))
	close(l.closing)
	<-l.written
	if n, _ := l.queue.look(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d runs", ErrNotStored, n))
	}
	l.queue.abandon(ErrClosed)
	err = errors.Join(err, l.release())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = err
	return err
}

// release closes what is open, the lock last.
func (l *Ledger) release() error {
	var errs []error
	l.end(ErrClosed)
	l.Reader.closed.Store(true)
	if l.readers != nil {
		errs = append(errs, l.readers.Close())
	}
	if l.stmts != nil {
		l.stmts.close()
	}
	if l.conn != nil {
		errs = append(errs, l.conn.Close())
	}
	if l.writer != nil {
		errs = append(errs, l.writer.Close())
	}
	return errors.Join(append(errs, l.held.Close())...)
}

// count changes the stats.
func (l *Ledger) count(f func(*Stats)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.stats)
}

func (l *Ledger) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stats.Trouble != nil {
		return fmt.Errorf("%w: %w", ErrNotStored, l.stats.Trouble)
	}
	return nil
}
