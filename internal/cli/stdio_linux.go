package cli

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// waitable gives the commands that carry messages their stdin and stdout in a
// form for which the runtime's poller can wait, so that neither a thread nor
// the runtime's watch over threads is busy with them. Only a descriptor in
// non-blocking mode can be waited for, and that mode belongs to everybody who
// shares the open file:
//
//   - a pipe is opened a second time, which makes an open file of our own;
//   - a socket, the pipe of clients that run on node, is changed, unless stderr
//     is the same one: the server has that, too. Close changes it back;
//   - anything else stays as it is: a terminal is shared with the shell.
//
// /dev/null takes the place of what was taken, so that nothing printed by
// mistake gets between messages. both says that both could be had.
func waitable(env *Env) (both bool) {
	in, err1 := takeOver(env.Stdin, os.Stdin, unix.Stdin, unix.O_RDONLY)
	out, err2 := takeOver(env.Stdout, os.Stdout, unix.Stdout, unix.O_WRONLY)
	if err1 == nil {
		env.Stdin = in
	}
	if err2 == nil {
		env.Stdout = out
	}
	return err1 == nil && err2 == nil
}

// taken is a descriptor whose mode we may have to change back.
type taken struct {
	*os.File
	shared bool
}

// Close closes the descriptor, in the mode that its other holders know.
func (t *taken) Close() error {
	if raw, err := t.SyscallConn(); t.shared && err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetNonblock(int(fd), false) })
	}
	return t.File.Close()
}

// takeOver takes a standard descriptor, if that is what have is.
func takeOver(have any, std *os.File, fd, mode int) (*taken, error) {
	if have != any(std) {
		return nil, os.ErrInvalid
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	t := &taken{}
	var got int
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		got, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), mode|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	case unix.S_IFSOCK:
		if sameFile(&st, unix.Stderr) {
			return nil, os.ErrInvalid
		}
		t.shared = true
		if got, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			err = unix.SetNonblock(got, true)
		}
	default:
		return nil, os.ErrInvalid
	}
	if err != nil {
		return nil, err
	}
	if null, err := unix.Open("/dev/null", mode|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup3(null, fd, 0) // the original closes here
		_ = unix.Close(null)
	}
	t.File = os.NewFile(uintptr(got), std.Name())
	return t, nil
}

// sameFile reports whether fd is the same open pipe or socket as st.
func sameFile(st *unix.Stat_t, fd int) bool {
	var other unix.Stat_t
	return unix.Fstat(fd, &other) == nil && other.Dev == st.Dev && other.Ino == st.Ino
}
