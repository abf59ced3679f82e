package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// tcpPair returns the two ends of a connection, the first of them quick.
func tcpPair(t *testing.T) (quick, plain net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return quicken(a), b
}

// TestQuickPasses proves that both ways carry everything, also what no socket
// takes at once.
func TestQuickPasses(t *testing.T) {
	a, b := tcpPair(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	for _, way := range []struct{ from, to net.Conn }{{a, b}, {b, a}} {
		failed := make(chan error, 1)
		go func() {
			n, err := way.from.Write(want)
			if err == nil && n != len(want) {
				err = io.ErrShortWrite
			}
			failed <- err
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(way.to, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v, equal: %v", err, bytes.Equal(got, want))
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
}

// TestQuickEnds proves that ends, deadlines and a Close are those of package net.
func TestQuickEnds(t *testing.T) {
	a, b := tcpPair(t)
	buf := make([]byte, 8)
	_ = a.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := a.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("read deadline:", err)
	}
	_ = a.SetDeadline(time.Time{})
	big := make([]byte, 64<<20)
	_ = a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := a.Write(big); !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == len(big) {
		t.Error("write deadline:", n, err)
	}
	go func() { // ends with the connection
		_, _ = io.Copy(io.Discard, b)
	}()
	done := make(chan error, 1)
	go func() {
		_, err := a.Read(buf)
		done <- err
	}()
	time.Sleep(5 * time.Millisecond) // most times the Read waits by then
	_ = a.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error("close:", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Error("write after close:", err)
	}

	c, d := tcpPair(t)
	_ = d.Close()
	if _, err := c.Read(buf); err != io.EOF {
		t.Error("end:", err)
	}
	if n, err := c.Write(nil); n != 0 || err != nil {
		t.Error("nothing:", n, err)
	}
}
