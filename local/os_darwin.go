package local

import (
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// peerOf says which process is at the other end of a connection.
func peerOf(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	p := peer{known: true}
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		var cred *unix.Xucred
		if cred, credErr = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); credErr != nil {
			return
		}
		p.uid = int(cred.Uid)
		p.pid, credErr = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	}); err != nil {
		return peer{}, err
	}
	if credErr != nil {
		return peer{}, os.NewSyscallError("getsockopt", credErr)
	}
	return p, nil
}

// startTime is when a process started; zero if that cannot be had.
func startTime(pid int) time.Time {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return time.Time{}
	}
	tv := info.Proc.P_starttime
	return time.Unix(tv.Sec, int64(tv.Usec)*1000)
}

func throughDir(*os.File, string) (string, bool) { return "", false }
