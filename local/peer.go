package local

import (
	"fmt"
	"net"
	"os"

	"github.com/belayhq/belay"
)

// peer is the process at the other end of a connection, as the kernel names it.
type peer struct {
	pid   int // 0 when it lives where we cannot see it
	uid   int
	known bool // false where the system does not say

	inside []string // the runs in whose process trees it lies, innermost first
	gone   bool     // it was dead when that was looked up
}

// checkPeer refuses a peer of another user. Root is another user too: what it
// may do it can do without us.
func checkPeer(c *net.UnixConn) (peer, error) {
	p, err := peerOf(c)
	if err != nil {
		return peer{}, fmt.Errorf("cannot tell who is at the other end: %w", err)
	}
	if p.known && p.uid != os.Getuid() {
		return peer{}, fmt.Errorf("%w: the process at the other end belongs to uid %d, this is uid %d", belay.ErrForbidden, p.uid, os.Getuid())
	}
	return p, nil
}

// Peer is the process at the other end of a unix socket, as the kernel wrote it
// down when the connection was made.
type Peer struct {
	PID   int // 0 when it lives where we cannot see it
	UID   int
	Known bool // false where the system does not say
}

// PeerOf says who connected.
func PeerOf(c *net.UnixConn) (Peer, error) {
	p, err := peerOf(c)
	return Peer{PID: p.pid, UID: p.uid, Known: p.known}, err
}
