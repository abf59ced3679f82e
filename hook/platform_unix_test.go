//go:build unix

package hook

import (
	"os/exec"
	"syscall"
)

// leaveSession puts a child where no signal to a group reaches it.
func leaveSession(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func dead(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }
