package serve

import (
	"net"
	"syscall"
	"testing"
)

// TestDeadPeersAreNoticed: connections of listeners that other machines reach
// are asked whether anybody is there, and given up in half a minute; those over
// loopback, where a peer cannot vanish without a word, are not.
func TestDeadPeersAreNoticed(t *testing.T) {
	for address, want := range map[string][4]int{
		"0.0.0.0:0": {30_000, 15, 5, 3}, // TCP_USER_TIMEOUT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT
	} {
		l, err := Listen(t.Context(), ListenOptions{Address: address, Open: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", portOf(l.Addr()))); err == nil {
				defer c.Close()
				_, _ = c.Read(make([]byte, 1))
			}
		}()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var got [4]int
		if err := raw.Control(func(fd uintptr) {
			for i, name := range []int{tcpUserTimeout, syscall.TCP_KEEPIDLE, syscall.TCP_KEEPINTVL, syscall.TCP_KEEPCNT} {
				got[i], _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, name)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
		c.Close()
	}
}

func portOf(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}
