//go:build linux || darwin

package cli

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// ctty is the controlling terminal of this process. A nil one is
// valid: there is none.
type ctty struct {
	file  *os.File
	modes *unix.Termios // as they were at the start; nil if unknown
}

// openTerminal returns nil where there is no controlling terminal. Where there
// is one the command stays in our process group, foreground or background:
// then the shell's job control, Ctrl-C and Ctrl-Z mean both of us alike, and
// nobody hangs on SIGTTIN or SIGTTOU that the other does not.
func openTerminal() *ctty {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &ctty{file: file}
	if modes, err := unix.IoctlGetTermios(int(file.Fd()), getModes); err == nil {
		t.modes = modes
	}
	return t
}

// restore undoes what a command that was killed did to the terminal's modes
// (no echo, raw input). In the background it is not ours to touch.
func (t *ctty) restore() {
	if t == nil || t.modes == nil {
		return
	}
	if group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return
	}
	_ = unix.IoctlSetTermios(int(t.file.Fd()), setModes, t.modes)
}

func (t *ctty) close() {
	if t != nil {
		_ = t.file.Close()
	}
}

// sendFence sends this process a signal that means nothing and arrives at the
// channel behind all that were sent before: signals are handed on in the order
// of their numbers, and SIGCONT has a higher one than those we listen to.
func sendFence(to chan os.Signal) bool {
	signal.Notify(to, unix.SIGCONT)
	return unix.Kill(unix.Getpid(), unix.SIGCONT) == nil
}

func isFence(sig os.Signal) bool { return sig == unix.SIGCONT }
