//go:build unix

package jsonrpc

import (
	"io"
	"syscall"
	"time"
)

// direct writes to a file or socket without ever waiting. One goroutine uses it
// at a time.
type direct struct {
	raw syscall.RawConn
	try func(fd uintptr) bool // method value of attempt, made once
	b   []byte
	n   int
}

// newDirect returns how to write to dst without waiting: a function that makes
// one attempt and returns how many bytes were taken. Whatever fails, 0
// included, is for the writing goroutine to try again and to report. It is nil
// unless the runtime's poller watches the destination, since only then it is in
// non-blocking mode; the mode of an inherited descriptor may be shared with
// other processes and is not ours to change.
func newDirect(dst io.Writer) func(b []byte) int {
	conn, ok := dst.(interface {
		syscall.Conn
		SetWriteDeadline(time.Time) error
	})
	if !ok || conn.SetWriteDeadline(time.Time{}) != nil { // no deadlines without the poller
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{raw: raw}
	d.try = d.attempt
	return d.write
}

func (d *direct) write(b []byte) int {
	d.b, d.n = b, 0
	_ = d.raw.Write(d.try)
	d.b = nil
	return d.n
}

func (d *direct) attempt(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), d.b)
		if err == syscall.EINTR {
			continue
		}
		d.n = max(n, 0)
		return true // never wait
	}
}
