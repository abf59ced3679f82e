package proc

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// awaitNotice waits by a pidfd, which the runtime's poller watches without a
// thread. done is false where that does not work.
func awaitNotice(ctx context.Context, id ID) (done bool, err error) {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH):
		return true, nil
	case err != nil:
		return false, nil
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if !alive(id) { // the descriptor may be of whoever has the pid now
		return true, nil
	}
	conn, err := f.SyscallConn()
	if err != nil || f.SetReadDeadline(time.Time{}) != nil {
		return false, nil // not watched by the poller
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	looked := false
	err = conn.Read(func(uintptr) bool {
		if looked {
			return true // the poller has called: it is dead
		}
		looked = true
		return !alive(id)
	})
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	}
	return false, nil
}
