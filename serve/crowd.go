package serve

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// maxConns bounds the connections of one server: each costs some 10 KiB and a
// descriptor before anybody has said who they are.
const maxConns = 16_384

// crowd bounds how many connections are open, and how many of them one address
// holds: whoever opens them without end takes half of the places, and none of the
// descriptors that Belay needs to start tools, to write receipts and to be stopped
// by its own user. What is over the bound is closed at once.
type crowd struct {
	most int // in all; each address has half of it

	mu  sync.Mutex
	all int
	of  map[netip.Addr]int
}

// newCrowd takes at most three of four descriptors.
func newCrowd() *crowd {
	most := maxConns
	if n := descriptors(); n > 0 {
		most = min(most, n/4*3)
	}
	return &crowd{most: max(most, 64), of: map[netip.Addr]int{}}
}

// state is the ConnState of an [http.Server].
func (c *crowd) state(conn net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		if !c.enter(home(conn)) {
			_ = conn.Close() // its goroutine finds that out, and says that it is closed
		}
	case http.StateClosed, http.StateHijacked:
		c.leave(home(conn))
	}
}

// enter counts a connection, and reports whether there is room for it.
func (c *crowd) enter(from netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	c.of[from]++
	return c.all <= c.most && (!from.IsValid() || c.of[from] <= c.most/2)
}

func (c *crowd) leave(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[from]--; c.of[from] == 0 {
		delete(c.of, from)
	}
}

// home is whose places a connection takes: of its address, or where that is one of
// IPv6 of its network, since whoever has one of those has all; invalid for what
// comes from a unix socket, which is nobody but this user.
func home(conn net.Conn) netip.Addr {
	const network = 64
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() || ip.IsLoopback() {
		return ip
	}
	p, err := ip.Prefix(network)
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr()
}
