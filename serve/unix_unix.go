//go:build unix

package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// The longest path that fits every system's socket address, and the longest of a
// directory in which the hidden one has room.
const (
	maxSocketPath = 103
	maxSocketDir  = maxSocketPath - len("/.b0123456789/s")
)

// listenUnix makes the socket under a name that nobody knows, in a directory of
// its own, and moves it to its place when its mode is right: at no moment is
// there one that others may connect to, and one that is replaced is replaced in
// one step. Two that start at once are kept apart by a lock on the directory.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if !filepath.IsAbs(path) || len(path) > maxSocketPath || len(dir) > maxSocketDir {
		return nil, fmt.Errorf("%w: %q is not an absolute path of at most %d bytes in a directory of at most %d; write unix:/path/to/socket", ErrSocketPlace, path, maxSocketPath, maxSocketDir)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // which unlocks it
	if err := makeWay(ctx, path); err != nil {
		return nil, err
	}
	hidden, err := os.MkdirTemp(dir, ".b")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSocketPlace, err)
	}
	defer os.RemoveAll(hidden)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", filepath.Join(hidden, "s"))
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	u := l.(*net.UnixListener) //nolint:forcetypeassert // that is what it is for "unix"
	u.SetUnlinkOnClose(false)
	s := &socket{UnixListener: u, path: path}
	if err := s.install(filepath.Join(hidden, "s")); err != nil {
		_ = u.Close()
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	return s, nil
}

// lockDir checks that nobody else could have prepared the directory, or could
// put another socket into the place of ours, and locks it against others that
// start.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; make the directory first: mkdir -m 0700 %s", ErrSocketPlace, err, dir)
	}
	info, err := f.Stat()
	if err == nil {
		err = private(info)
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrSocketPlace, dir, err)
	}
	return f, nil
}

func private(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return errors.New("it is not a directory")
	case !ok || int(st.Uid) != os.Getuid():
		return errors.New("it belongs to another user; a socket has to lie in a directory of yours")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to it (mode %04o); chmod go-w, or use a directory of its own", info.Mode().Perm())
	}
	return nil
}

// dialWait bounds the question whether somebody answers at a socket.
const dialWait = 2 * time.Second

// makeWay refuses a path at which somebody answers, or that is no socket. What
// is left is replaced.
func makeWay(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrSocketPlace, err)
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%w: %s is there and is no socket; remove it, or choose another path", ErrSocketPlace, path)
	}
	d := net.Dialer{Timeout: dialWait}
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
	} else if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil // its process is gone
	}
	return fmt.Errorf("%w: %s; is another belay serve running? End it, or choose another path", ErrInUse, path)
}

// socket is the listener of a unix socket, which removes its file.
type socket struct {
	*net.UnixListener
	path string
	file fs.FileInfo
	once sync.Once
	err  error
}

// install gives the socket its mode and its name.
func (s *socket) install(from string) error {
	if err := os.Chmod(from, 0o600); err != nil {
		return err
	}
	var err error
	if s.file, err = os.Lstat(from); err != nil {
		return err
	}
	return os.Rename(from, s.path)
}

// Addr implements [net.Listener]: where it is, not where it was made.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close implements [net.Listener]. A file that somebody else has put there
// meanwhile is left alone.
func (s *socket) Close() error {
	s.once.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
			_ = os.Remove(s.path)
		}
		s.err = s.UnixListener.Close()
	})
	return s.err
}
