package local

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// peerOf says which process is at the other end of a connection. The kernel
// recorded it when the connection was made.
func peerOf(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return peer{}, err
	}
	if credErr != nil {
		return peer{}, os.NewSyscallError("getsockopt", credErr)
	}
	return peer{pid: int(cred.Pid), uid: int(cred.Uid), known: true}, nil
}

// startTime is when a process started, to a hundredth of a second; zero if
// that cannot be had.
func startTime(pid int) time.Time {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}
	}
	// The command name may hold anything, blanks and brackets too; the
	// fields are counted from behind the last bracket.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const startTicks = 22 - 3 // the first field behind the name is number 3
	boot := bootTime()
	if len(fields) <= startTicks || boot.IsZero() {
		return time.Time{}
	}
	ticks, err := strconv.ParseInt(string(fields[startTicks]), 10, 64)
	if err != nil {
		return time.Time{}
	}
	const userHZ = 100 // what the kernel shows to programs, on every architecture Go runs on
	return boot.Add(time.Duration(ticks) * (time.Second / userHZ))
}

var bootTime = sync.OnceValue(func() time.Time {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range bytes.Lines(stat) {
		if rest, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			s, err := strconv.ParseInt(string(bytes.TrimSpace(rest)), 10, 64)
			if err == nil {
				return time.Unix(s, 0)
			}
		}
	}
	return time.Time{}
})

// throughDir names a file in an open directory by a path short enough for any
// socket address.
func throughDir(dir *os.File, name string) (string, bool) {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name), true
}
