package ledger

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"

	"github.com/belayhq/belay"
)

// Sentinel errors; every error that callers branch on wraps one of them, or one
// of package belay.
var (
	// ErrLocked reports that another process writes this file.
	ErrLocked = errors.New("the ledger is in use by another process")
	// ErrDamaged reports a file that is not, or no longer, a sound ledger.
	ErrDamaged = errors.New("the ledger is damaged")
	// ErrNewer reports a file that a newer Belay has written.
	ErrNewer = errors.New("the ledger was written by a newer Belay")
	// ErrOlder reports a file that an older Belay has written and none may change
	// now, because it is only read.
	ErrOlder = errors.New("the ledger was written by an older Belay")
	// ErrRefused reports a file or directory that cannot be trusted.
	ErrRefused = errors.New("the ledger's place is not safe")
	// ErrNotStored reports a record that could not be written.
	ErrNotStored = errors.New("not stored in the ledger")
	// ErrErased reports a record of a principal that was erased meanwhile.
	ErrErased = fmt.Errorf("%w: the principal was erased", ErrNotStored)
	// ErrTaken reports a second run with an id that another run has (ORC-68).
	ErrTaken = fmt.Errorf("%w: another run has this id", ErrNotStored)
	// ErrBadCursor reports a cursor that no list has given out.
	ErrBadCursor = fmt.Errorf("%w: not a cursor of the ledger", belay.ErrBadRequest)
	// ErrClosed reports a ledger that was closed.
	ErrClosed = fmt.Errorf("the ledger is %w", belay.ErrClosed)
)

var errNoPath = fmt.Errorf("open the ledger: %w: no path", belay.ErrBadRequest)

// SQLite's primary result codes that mean something to us.
const (
	codeCorrupt    = 11
	codeConstraint = 19
	codeNotADB     = 26
)

// code is SQLite's primary result code of err; 0 if it has none.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func damaged(err error) bool {
	c := code(err)
	return c == codeCorrupt || c == codeNotADB || errors.Is(err, ErrDamaged)
}

// damage is the error for a file that cannot be used, with what to do about it.
func damage(path string, what any) error {
	return fmt.Errorf("%w: %s: %v. Nothing was changed in it. Stop Belay, keep the file for a look (mv %[2]s %[2]s.damaged, and the same for %[2]s-wal and %[2]s-shm if they exist) and start again: a new ledger is made", ErrDamaged, path, what)
}
