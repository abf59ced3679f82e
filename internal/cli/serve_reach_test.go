package cli

import (
	"net"
	"testing"
)

// TestReachable: what was bound decides whether a reload may leave nobody
// configured, whatever the files say by then (DESIGN 8).
func TestReachable(t *testing.T) {
	for _, c := range []struct {
		addr net.Addr
		want bool
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, false},
		{&net.TCPAddr{IP: net.IPv6loopback}, false},
		{&net.UnixAddr{Name: "/run/belay.sock", Net: "unix"}, false},
		{&net.TCPAddr{IP: net.IPv4zero}, true},
		{&net.TCPAddr{IP: net.IPv6unspecified}, true},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, true},
	} {
		if got := (&server{addr: c.addr}).reachable(); got != c.want {
			t.Errorf("%v: %v", c.addr, got)
		}
	}
}
