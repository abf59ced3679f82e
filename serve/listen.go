package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/belayhq/belay/jsonrpc"
)

// Errors of [Listen], beside those of the system.
var (
	ErrInUse       = errors.New("the address is in use")
	ErrNotLoopback = errors.New("the address is not this machine's loopback")
)

// ListenOptions say where to listen.
type ListenOptions struct {
	// Address is HOST:PORT, or "unix:/path" of a socket.
	Address string
	// Open allows addresses of other interfaces than loopback: somebody
	// authenticates every request.
	Open bool
	// TLS, with a certificate, encrypts; nil: plain HTTP. Not on a unix socket.
	TLS *tls.Config
}

// Listen listens. Addresses that other machines reach are refused before anything is
// bound, unless o.Open: without authentication everybody who reaches the port
// could start tools here (DESIGN section 8).
func Listen(ctx context.Context, o ListenOptions) (net.Listener, error) {
	address := o.Address
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address; write 127.0.0.1:7474", address)
	}
	if !o.Open && !loopback(host) {
		return nil, fmt.Errorf("%w: %q would let other machines start tools here, and there is no authentication yet; listen on 127.0.0.1:%s, and let others in by ssh -L", ErrNotLoopback, address, port)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: %s; is another belay serve running? End it, or choose another port with --listen 127.0.0.1:PORT (0: any free one)", ErrInUse, address)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return quickListener{l}, nil
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

// Limits of the HTTP server. There is none on writing: a stream lives as long as
// its call.
const (
	headerWait = 10 * time.Second
	headerMax  = 64 << 10
	idleWait   = 2 * time.Minute
)

// Server is an HTTP server for the hub, with limits on what a caller may leave
// undone.
func (h *Hub) Server() *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerWait,
		MaxHeaderBytes:    headerMax,
		IdleTimeout:       idleWait,
		ErrorLog:          slog.NewLogLogger(h.o.Log.Handler(), slog.LevelDebug),
	}
}
