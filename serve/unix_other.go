//go:build !unix

package serve

import (
	"context"
	"fmt"
	"net"
)

// listenUnix: who may connect to a socket there is not known, so there is none.
func listenUnix(_ context.Context, path string) (net.Listener, error) {
	return nil, fmt.Errorf("%w: %s: this system has no unix sockets whose owner can be told; listen on 127.0.0.1:7474", ErrSocketPlace, path)
}
