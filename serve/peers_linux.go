package serve

import (
	"os"
	"syscall"
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
