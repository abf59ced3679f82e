//go:build !unix

package jsonrpc

import "net"

func quicken(c net.Conn) net.Conn { return c }
