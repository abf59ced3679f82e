//go:build linux || darwin

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lineReader reads lines from a terminal, and takes nothing from it while nobody wants
// a line: what is typed ahead belongs to whoever reads next, the shell say.
type lineReader struct{ from *os.File }

// next is the next line; [io.EOF] if there is none, the cause of ctx if it ends.
func (r *lineReader) next(ctx context.Context) (string, error) {
	woken, wake, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer woken.Close()
	stop := context.AfterFunc(ctx, func() { _ = wake.Close() }) // which the poll feels
	defer func() {
		if stop() {
			_ = wake.Close()
		}
	}()
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(r.from.Fd()), Events: unix.POLLIN}, {Fd: int32(woken.Fd()), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR), ctx.Err() != nil, err == nil && fds[0].Revents == 0:
			continue
		case err != nil:
			return "", err
		}
		line := make([]byte, 4<<10) // a terminal gives one line at a time, and no longer ones
		n, err := r.from.Read(line)
		if err != nil || n == 0 {
			return "", io.EOF
		}
		line, _, _ = bytes.Cut(line[:n], []byte("\n"))
		return string(line), nil
	}
	return "", context.Cause(ctx)
}
