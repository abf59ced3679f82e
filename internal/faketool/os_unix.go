//go:build unix

package faketool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// detach puts the command into a session of its own, out of reach of every
// signal to the group.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// termSignals are the polite requests to end, which a deaf fake ignores.
var termSignals = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}

// alive asks with signal 0, and takes a zombie for dead where /proc can tell.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err) || !haveProc()
	}
	_, after, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte{' '})
	return !ok || (after[0] != 'Z' && after[0] != 'X')
}

func haveProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// crash ends this process the way a segmentation fault would.
func crash() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
