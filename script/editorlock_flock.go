//go:build darwin || linux || freebsd || netbsd || openbsd || dragonfly

package script

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// lockWait is how long one change of a file waits for those of other workers. Each is
// over in moments; the lock of one that is killed goes with it.
const lockWait = 5 * time.Second

// lock keeps other workers that have the same folder from changing files. The lock is
// on the folder itself, so that nothing is written for it.
func (e *Editor) lock() (unlock func(), err error) {
	dir, err := e.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("lock the editor's folder: %w", plain(err))
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(time.Millisecond) {
		switch err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return func() { _ = dir.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			_ = dir.Close()
			return func() {}, nil // a file system that does not lock folders, as over a network: the last look has to do
		case time.Now().After(end):
			_ = dir.Close()
			return nil, fmt.Errorf("lock the editor's folder: %w", err)
		}
	}
}
