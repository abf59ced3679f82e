package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Reader reads a ledger and never writes. A [Ledger] is one; [OpenReader] makes
// one for a file that another process writes, or nobody. All methods are safe
// for concurrent use.
type Reader struct {
	path    string
	readers *sql.DB // of a ledger that this process writes; nil: each look opens the file anew
	log     *slog.Logger
	closed  atomic.Bool
}

// OpenReader opens the ledger at path for reading, beside a process that writes
// it or without one. It makes no file and changes none; the one exception is a
// crashed writer's file whose -shm was taken away, which SQLite makes again. A
// file that is not there, or in which nothing was ever written, is an error that
// matches [fs.ErrNotExist]; otherwise it fails as [Open] does, and with
// [ErrOlder] for a file of an older Belay, since only a writer may change it. Of
// the options only Log is used. A process that writes the file reads by its
// [Ledger] and not by this: SQLite's locks belong to a process.
func OpenReader(path string, o Options) (*Reader, error) {
	if err := approve(path); err != nil {
		return nil, err
	}
	r := &Reader{path: path, log: o.withDefaults().Log}
	err := r.look(context.Background(), func(db *sql.DB) error {
		version, err := inspect(context.Background(), db, path)
		switch {
		case err != nil:
			return err
		case version == 0:
			return fmt.Errorf("open the ledger: %s has nothing in it yet: %w", path, fs.ErrNotExist)
		case version < len(steps()):
			return fmt.Errorf("%w: %s has version %d, this Belay reads %d; start Belay with this ledger once", ErrOlder, path, version, len(steps()))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// approve refuses what [Open] would refuse, and a file that is not there.
func approve(path string) error {
	if path == "" {
		return errNoPath
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the ledger's directory: %w", err)
	}
	if err := trust(dir, info, 0o022); err != nil {
		return err
	}
	for _, name := range []string{path + "-wal", path + "-shm", path} {
		if _, err := inspectFile(name); err != nil && (name == path || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// Close ends the reader: further calls fail with [ErrClosed], those under way
// come to their end.
func (r *Reader) Close() error {
	r.closed.Store(true)
	return nil
}

// Check reads the whole file and returns [ErrDamaged] if it is not sound. It
// does not hold up writing.
func (r *Reader) Check(ctx context.Context) error {
	return r.look(ctx, func(db *sql.DB) error { return check(ctx, db, r.path) })
}

// lookAgain is how often a look is repeated because somebody began to write
// the file meanwhile.
const lookAgain = 10

// look gives f a connection to the file. It may call f again from the
// beginning.
//
// A file that no process has open is read as it stands ("immutable"), for
// otherwise SQLite would put its log and its index beside it. That is right only
// as long as nobody writes, and so it is looked at before and after.
func (r *Reader) look(ctx context.Context, f func(*sql.DB) error) error {
	switch {
	case r.closed.Load():
		return ErrClosed
	case r.readers != nil:
		return f(r.readers)
	}
	for range lookAgain {
		before, err := stand(r.path)
		if err != nil {
			return err
		}
		db, err := dialReader(r.path, !before.written)
		if err != nil {
			return err
		}
		err = errors.Join(f(db), db.Close())
		if before.written || ctx.Err() != nil {
			return err
		}
		if after, gone := stand(r.path); gone == nil && after == before {
			return err
		}
		r.log.DebugContext(ctx, "the ledger was written while it was read; reading again", "ledger", r.path)
	}
	return fmt.Errorf("read the ledger %s: it is opened and closed all the time; try again", r.path)
}

// standing is how a file stands. As long as it is the same and not written,
// nobody wrote.
type standing struct {
	written bool // a process has it open, or died with it
	size    int64
	changed time.Time
}

func stand(path string) (s standing, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return s, fmt.Errorf("open the ledger: %w", err)
	}
	s.size, s.changed = info.Size(), info.ModTime()
	_, noIndex := os.Stat(path + "-shm")
	log, noLog := os.Stat(path + "-wal")
	s.written = noIndex == nil || noLog == nil && log.Size() > 0
	return s, nil
}
