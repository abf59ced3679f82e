package jsonrpc

import "net"

// Quick returns a connection on which what can be read or written at once is,
// without the Go scheduler being told of a system call; see direct. Everything
// else about it is as before. Other connections than TCP are returned as they are.
//
// Under the race detector all are: it learns from package net that what was
// done before a write is seen after the read at the other end, and would
// report races where there are none.
func Quick(c net.Conn) net.Conn {
	if underRace {
		return c
	}
	return quicken(c)
}
