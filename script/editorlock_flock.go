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
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = dir.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(end) {
			_ = dir.Close()
			if errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.ENOLCK) {
				return func() {}, nil // a file system without locks: the last look has to do
			}
			return nil, fmt.Errorf("lock the editor's folder: %w", err)
		}
	}
}
