package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/belayhq/belay/jsonrpc"
)

// Errors of [Listen], beside those of the system.
var (
	ErrInUse       = errors.New("the address is in use")
	ErrNotLoopback = errors.New("the address is not this machine's loopback, and nobody is authenticated")
	ErrSocketPlace = errors.New("a socket cannot be made there")
)

// ListenOptions say where to listen.
type ListenOptions struct {
	// Address is HOST:PORT, or "unix:/path" of a socket.
	Address string
	// Open allows addresses of other interfaces than loopback: somebody
	// authenticates every request.
	Open bool
	// TLS, with a certificate, encrypts; nil: HTTP in the clear. A unix socket
	// takes none: what passes there does not leave the machine.
	TLS *tls.Config
}

// unixPrefix is what the address of a unix socket begins with.
const unixPrefix = "unix:"

// Listen listens. Addresses that other machines reach are refused before
// anything is bound, unless o.Open: without authentication everybody who reaches
// the port could start tools here (DESIGN section 8).
//
// A unix socket has mode 0600 and lies in a directory that only this user can
// write to. One that nobody answers at is replaced, one that is in use is
// [ErrInUse]; it is removed when the listener is closed.
func Listen(ctx context.Context, o ListenOptions) (net.Listener, error) {
	if path, ok := strings.CutPrefix(o.Address, unixPrefix); ok {
		if o.TLS != nil {
			return nil, fmt.Errorf("%w: %s: TLS is of no use on a unix socket; take tls out of belay.yaml, or listen on HOST:PORT", ErrSocketPlace, path)
		}
		return listenUnix(ctx, path)
	}
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address; write 127.0.0.1:7474, or unix:/path/to/socket", o.Address)
	}
	near := loopback(host)
	if !near && !o.Open {
		return nil, notLoopback(o.Address, port)
	}
	var lc net.ListenConfig
	if !near {
		watchPeers(&lc)
	}
	l, err := lc.Listen(ctx, "tcp", o.Address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: %s; is another belay serve running? End it, or choose another port with --listen %s (0: any free one)", ErrInUse, o.Address, net.JoinHostPort(host, "PORT"))
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s: %w", o.Address, err)
	}
	l = quickListener{l}
	if o.TLS != nil {
		l = tls.NewListener(l, withProtocols(o.TLS))
	}
	return l, nil
}

// notLoopback says what to write into belay.yaml before an address is bound that
// others reach.
func notLoopback(address, port string) error {
	return fmt.Errorf(`%w: %q would let everybody who reaches the port start tools here. Listen on 127.0.0.1:%s and let others in by ssh -L, or say in belay.yaml who may come in:

    listen: %q
    tls:
      cert: /etc/belay/cert.pem
      key: /etc/belay/key.pem
    auth:
      tokens:
        - name: alice
          hash: "sha256:…"   # printed by: belay token new alice
          roles: [user]`, ErrNotLoopback, address, port, address)
}

// Half-open connections, whose peer is gone without a word, are noticed by what
// this machine's own kernel asks them: first after quietPeer, and given up when
// nothing has come back for deadPeer. Without that a call whose caller has lost
// power would go on for hours.
const (
	quietPeer = 15 * time.Second
	askPeer   = 5 * time.Second
	deadPeer  = 30 * time.Second
)

// watchPeers sets that up for every connection of a listener.
func watchPeers(lc *net.ListenConfig) {
	lc.KeepAliveConfig = net.KeepAliveConfig{
		Enable: true, Idle: quietPeer, Interval: askPeer, Count: int((deadPeer - quietPeer) / askPeer),
	}
	lc.Control = limitUnacknowledged
}

// withProtocols offers HTTP/2 and HTTP/1.1, unless the configuration says what
// to offer.
func withProtocols(c *tls.Config) *tls.Config {
	if len(c.NextProtos) > 0 {
		return c
	}
	c = c.Clone()
	c.NextProtos = []string{"h2", "http/1.1"}
	return c
}

// quickListener accepts connections whose system calls are cheap.
type quickListener struct{ net.Listener }

// Accept implements [net.Listener].
func (l quickListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return jsonrpc.Quick(c), nil
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
