//go:build unix

package jsonrpc

import (
	"net"
	"sync"
)

// quicken makes a TCP connection a quick one.
func quicken(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	q := &quick{TCPConn: tcp}
	q.in = direct{raw: raw, socket: true, src: tcp}
	q.in.try = q.in.read
	q.out = direct{raw: raw, socket: true}
	q.out.try = q.out.write
	return q
}

// quick is a TCP connection.
type quick struct {
	*net.TCPConn
	reading, writing sync.Mutex // as in package net, readers wait for each other, and so do writers
	in, out          direct
}

// Read implements net.Conn.
func (q *quick) Read(b []byte) (int, error) {
	q.reading.Lock()
	defer q.reading.Unlock()
	return q.in.Read(b)
}

// Write implements net.Conn. What the socket does not take at once, and every
// error, is package net's.
func (q *quick) Write(b []byte) (int, error) {
	q.writing.Lock()
	defer q.writing.Unlock()
	q.out.b, q.out.n = b, 0
	_ = q.out.raw.Write(q.out.try)
	q.out.b = nil
	n := q.out.n
	if n == len(b) && n > 0 {
		return n, nil
	}
	more, err := q.TCPConn.Write(b[n:])
	return n + more, err
}
