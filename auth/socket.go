package auth

import (
	"context"
	"fmt"
	"os"
)

// Peer is the process at the other end of a unix socket, as the kernel names
// it.
type Peer struct {
	UID    int
	Known  bool     // false where the system does not say; then nobody is let in by it
	Inside []string // the runs in whose process trees it lies, innermost first
}

type peerKey struct{}

// WithPeer is a context that says who is at the other end of a connection. It
// is for the ConnContext of a server on a unix socket: nothing in a request
// can put it there.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// insideOf is the runs from within which the other end speaks.
func insideOf(ctx context.Context) []string {
	peer, _ := ctx.Value(peerKey{}).(Peer)
	return peer.Inside
}

// bySocket lets the user of this process in, and nobody else: root can do
// without us whatever it likes. That one who speaks from inside a run is
// confined (DESIGN 11, 10) is seen to where all credentials meet.
func (a *Authenticator) bySocket(ctx context.Context) (p Principal, found bool, err error) {
	peer, ok := ctx.Value(peerKey{}).(Peer)
	switch {
	case !ok || !a.cfg.Socket:
		return Principal{}, false, nil
	case !peer.Known:
		return Principal{}, false, fmt.Errorf("%w, as far as the system says", ErrPeer)
	case peer.UID != os.Getuid():
		return Principal{}, false, fmt.Errorf("%w: uid %d, this is uid %d", ErrPeer, peer.UID, os.Getuid())
	default:
		return a.socket, true, nil
	}
}
