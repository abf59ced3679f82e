package serve

import (
	"net"
	"os"
	"syscall"

	"github.com/belayhq/belay/auth"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 18

// limitUnacknowledged bounds how long bytes that the peer does not acknowledge
// are sent again. Keep-alive does not ask while there are such bytes. Connections
// inherit it from their listener.
func limitUnacknowledged(_, _ string, c syscall.RawConn) error {
	var setErr error
	if err := c.Control(func(fd uintptr) {
		setErr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(deadPeer.Milliseconds()))
	}); err != nil {
		return err
	}
	return os.NewSyscallError("setsockopt", setErr)
}

// peerOf is who connected, as the kernel wrote it down then.
func peerOf(c *net.UnixConn) auth.Peer {
	raw, err := c.SyscallConn()
	if err != nil {
		return auth.Peer{}
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return auth.Peer{}
	}
	return auth.Peer{UID: int(cred.Uid), Known: true}
}
