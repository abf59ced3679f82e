//go:build unix

package jsonrpc

import (
	"io"
	"syscall"
	"time"
)

// file is a descriptor that can be used without package os between, in practice
// an *os.File.
type file interface {
	Fd() uintptr
	syscall.Conn
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// A direct reads or writes a file, one goroutine at a time. It exists because
// the usual way of package os announces each system call to the Go scheduler,
// since it might block. In a process that was idle until the message came that
// wakes the scheduler's monitor thread, for every message and both ways: more
// work than to pass the message on. The attempts here never block, by a flag of
// the file (see waits) or of the call, so nobody has to know of them.
type direct struct {
	raw    syscall.RawConn
	socket bool
	try    func(fd uintptr) bool // read or write as a method value, made once
	src    io.Reader             // of a reader: where read errors come from
	b      []byte
	n      int
}

// newDirect returns a direct for a file that the runtime's poller watches,
// which is therefore in non-blocking mode; else nil. The mode of an inherited
// descriptor may be shared with other processes and is not ours to change.
func newDirect(f any, deadline func(file) error) *direct {
	conn, ok := f.(file)
	if !ok || deadline(conn) != nil { // the poller is what makes deadlines
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{raw: raw}
	_ = raw.Control(func(fd uintptr) { d.socket = isSocket(fd) })
	return d
}

// writeNow returns how to write to dst without waiting: a function that makes
// one attempt and returns how many bytes were taken. Whatever fails, 0
// included, is for the writing goroutine to try again and to report.
func writeNow(dst io.Writer) func(b []byte) int {
	d := newDirect(dst, func(f file) error { return f.SetWriteDeadline(time.Time{}) })
	if d == nil {
		return nil
	}
	d.try = d.write
	return func(b []byte) int {
		d.b, d.n = b, 0
		_ = d.raw.Write(d.try)
		d.b = nil
		return d.n
	}
}

func (d *direct) write(fd uintptr) bool {
	for {
		n, err := writeFD(fd, d.b, d.socket)
		if err == syscall.EINTR {
			continue
		}
		d.n = max(n, 0)
		return true // never wait
	}
}

// readDirect returns src itself or a faster way to read it.
func readDirect(src io.Reader) io.Reader {
	d := newDirect(src, func(f file) error { return f.SetReadDeadline(time.Time{}) })
	if d == nil {
		return src
	}
	d.src, d.try = src, d.read
	return d
}

// Read implements io.Reader. Ends and errors are found out once more by src.
func (d *direct) Read(b []byte) (int, error) {
	d.b, d.n = b, 0
	err := d.raw.Read(d.try)
	d.b = nil
	if err != nil || d.n <= 0 {
		return d.src.Read(b)
	}
	return d.n, nil
}

func (d *direct) read(fd uintptr) bool {
	for {
		n, err := readFD(fd, d.b, d.socket)
		switch err {
		case nil:
			d.n = n
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false // wait in the poller
		}
		return true
	}
}
