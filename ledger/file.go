package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// prepare makes the directory, and refuses one that is not safe: others
// could read receipts there, or give us a file of theirs.
func prepare(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the ledger's directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the ledger's directory: %w", err)
	}
	if err := trust(dir, info, 0o022); err != nil {
		return err
	}
	for _, name := range []string{path + "-wal", path + "-shm", path + ".lock", path} {
		if err := trustFile(name); err != nil {
			return err
		}
	}
	return nil
}

// touch makes the file, here and not by SQLite, so that no umask widens it. What
// SQLite puts beside it gets the same mode. It needs the lock: a process that
// closes any file takes away the locks that SQLite has on it.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	return f.Close()
}

// trustFile refuses a file that is not safe, and takes away what others may do
// with it. One that is not there is fine.
func trustFile(name string) error {
	info, err := inspectFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if enforced && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(name, 0o600); err != nil {
			return fmt.Errorf("make the ledger private: %w", err)
		}
	}
	return nil
}

// inspectFile refuses a file that is not safe, and changes nothing.
func inspectFile(name string) (fs.FileInfo, error) {
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("look at the ledger: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is not a regular file (%s)", ErrRefused, name, info.Mode().Type())
	}
	return info, trust(name, info, 0)
}

// trust refuses what belongs to somebody else or what others may change.
func trust(name string, info fs.FileInfo, forbidden fs.FileMode) error {
	if uid, ok := ownerOf(info); ok && uid != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d, this process is user %d; give another path", ErrRefused, name, uid, os.Geteuid())
	}
	if enforced && info.Mode().Perm()&forbidden != 0 {
		return fmt.Errorf("%w: others may write to %s (%s); chmod go-w it or give another path", ErrRefused, name, info.Mode().Perm())
	}
	return nil
}

// lock makes this process the only writer of the file. It is a file beside the
// ledger, since a lock on the ledger itself would get into SQLite's way.
func lock(path string) (*os.File, error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the ledger: %w", err)
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		holder := "another process"
		if text, readErr := os.ReadFile(name); readErr == nil && len(text) > 0 && len(text) < 32 {
			holder = "process " + string(text)
		}
		return nil, fmt.Errorf("%w: %s is held by %s (%w); give each Belay a file of its own", ErrLocked, path, holder, err)
	}
	// For people only; the lock is what counts.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d", os.Getpid())
	}
	return f, nil
}
