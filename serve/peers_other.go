//go:build !linux && !darwin

package serve

import (
	"net"
	"syscall"

	"github.com/belayhq/belay/auth"
)

func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }

// peerOf: the system does not say, so that nobody is let in by it.
func peerOf(*net.UnixConn) auth.Peer { return auth.Peer{} }
