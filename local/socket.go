package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belayhq/belay"
)

const (
	suffix = ".sock"

	// maxSocketPath is the longest path that fits every system's socket
	// address (104 bytes on darwin, 108 on Linux, one for the final zero).
	maxSocketPath = 103

	// bootSlack is how far a computed start time of a process may be off.
	bootSlack = 2 * time.Second
)

// listenAt binds a socket for this process in dir: <pid>.sock, or
// <pid>-<n>.sock while that name is taken by a living process of another pid
// namespace.
func listenAt(ctx context.Context, dir string) (*net.UnixListener, string, error) {
	const attempts = 16
	for n := range attempts {
		name := strconv.Itoa(os.Getpid())
		if n > 0 {
			name += "-" + strconv.Itoa(n)
		}
		path := filepath.Join(dir, name+suffix)
		l, err := bind(path)
		if errors.Is(err, syscall.EADDRINUSE) && removeStale(ctx, path, true) {
			l, err = bind(path)
		}
		switch {
		case err == nil:
			return l, path, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, "", fmt.Errorf("listen on %s: %w", path, err)
		}
	}
	return nil, "", fmt.Errorf("listen in %s: %w: %d sockets with this pid are in use", dir, belay.ErrTooMany, attempts)
}

func bind(path string) (*net.UnixListener, error) {
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// The name it was bound by may be a short-lived one; Server.Close removes
	// the real one.
	l.SetUnlinkOnClose(false)
	return l, nil
}

// dial connects to the socket at path. A full queue is waited for.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	addr := &net.UnixAddr{Name: short, Net: "unix"}
	for {
		c, err := d.DialUnix(ctx, "unix", nil, addr)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// shorten gives a socket path that fits a socket address. done must be called
// when the address has been used.
func shorten(path string) (short string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	tooLong := fmt.Errorf("%w: socket path %q is %d bytes long, at most %d are possible here; set %s to a shorter directory",
		belay.ErrBadRequest, path, len(path), maxSocketPath, EnvDir)
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	if short, ok := throughDir(dir, filepath.Base(path)); ok && len(short) <= maxSocketPath {
		return short, func() { _ = dir.Close() }, nil
	}
	_ = dir.Close()
	return "", nil, tooLong
}

// removeStale removes a socket that nobody will ever answer at again: it
// refuses connections, and its process is dead or the pid was given to a
// process that started after the socket was made. self says that the pid is
// our own, which did not make it.
func removeStale(ctx context.Context, path string, self bool) bool {
	before, err := os.Lstat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if uid, known := ownerOf(before); known && uid != os.Getuid() || before.Mode()&fs.ModeSocket == 0 {
		return false
	}
	if c, err := dial(ctx, path); err == nil {
		_ = c.Close()
		return false
	} else if !refused(err) {
		return false
	}
	if pid := socketPid(path); !self && alive(pid) {
		born := startTime(pid)
		if born.IsZero() || born.Before(before.ModTime().Add(bootSlack)) {
			return false // perhaps between bind and listen
		}
	}
	now, err := os.Lstat(path)
	if err != nil || !os.SameFile(before, now) {
		return false // somebody else was here in the meantime
	}
	return os.Remove(path) == nil
}

func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED)
}

// socketPid is the pid that a socket's name tells, or 0.
func socketPid(path string) int {
	name, ok := strings.CutSuffix(filepath.Base(path), suffix)
	name, _, _ = strings.Cut(name, "-")
	pid, err := strconv.Atoi(name)
	if !ok || err != nil || pid <= 0 {
		return 0
	}
	return pid
}
