package local

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/belayhq/belay"
)

// A process of another user is refused by the server, whoever opened the door.
func TestOtherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir := privateDir(t)
	s, _ := serve(t, Options{Dir: dir})
	must(t, os.Chmod(dir, 0o755), os.Chmod(s.Path(), 0o777))
	c, err := dialAs(t, 12345, s.Path())
	must(t, err)
	w := newWire(c)
	_, err = w.greeted(context.Background())
	_ = c.Close()
	if !errors.Is(err, belay.ErrForbidden) {
		t.Errorf("greeting for another uid: %v, want ErrForbidden", err)
	}
}

// dialAs connects with another effective uid; the kernel notes it then.
func dialAs(t *testing.T, uid int, path string) (*net.UnixConn, error) {
	t.Helper()
	type result struct {
		c   *net.UnixConn
		err error
	}
	out := make(chan result)
	go func() {
		// The thread is changed for good, so it must die with the goroutine.
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			out <- result{nil, errno}
			return
		}
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		out <- result{c, err}
	}()
	r := <-out
	return r.c, r.err
}
