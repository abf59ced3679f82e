package serve

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/belayhq/belay/auth"
)

// limitUnacknowledged: the system's own retransmission limit has to do.
func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }

// peerOf is who connected, as the kernel wrote it down then.
func peerOf(c *net.UnixConn) auth.Peer {
	raw, err := c.SyscallConn()
	if err != nil {
		return auth.Peer{}
	}
	var cred *unix.Xucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); err != nil || credErr != nil {
		return auth.Peer{}
	}
	return auth.Peer{UID: int(cred.Uid), Known: true}
}
