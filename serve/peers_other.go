//go:build !linux

package serve

import "syscall"

// limitUnacknowledged: the system's own retransmission limit has to do.
func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }
