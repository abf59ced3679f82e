package node

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"

	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/local"
)

// link is one connection: whether it comes from inside a run's process tree is
// found out once, when somebody first asks, since it takes milliseconds.
type link struct {
	once    sync.Once
	ends    local.Ends
	inside  []string
	foreign bool // another user of this machine holds the other end, not root
}

type linkKey struct{}

// Who speaks where no run can be named.
const (
	somebody = "a process that is gone"    // before it could be looked at
	stranger = "a process of another user" // with this user's own token
)

// remember puts what is known of a connection where its requests find it.
func (s *Server) remember(ctx context.Context, c net.Conn) context.Context {
	if u, ok := c.(*net.UnixConn); ok {
		return auth.WithPeer(ctx, s.peer(u))
	}
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return ctx
	}
	own, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, linkKey{}, &link{ends: local.Ends{Peer: peer, Local: own}})
}

// peer is who is at the other end of a unix socket. Where the system names the
// user and not the process, nobody can be found inside of anything.
func (s *Server) peer(c *net.UnixConn) auth.Peer {
	p, err := local.PeerOf(c)
	if err != nil {
		return auth.Peer{}
	}
	who := auth.Peer{UID: p.UID, Known: p.Known}
	if s.o.InTree != nil && p.PID > 0 {
		who.Inside = s.o.InTree(p.PID) // which does not take one that is gone for somebody outside
	}
	return who
}

// linkOf is the connection of a request, looked at; nil: there is nothing to be
// seen of it.
func (s *Server) linkOf(r *http.Request) *link {
	l, ok := r.Context().Value(linkKey{}).(*link)
	if !ok || s.o.InTree == nil || !local.KnowsHolders {
		return nil
	}
	l.once.Do(func() { s.look(l) })
	return l
}

// look finds the runs of whoever holds the other end, innermost first. Somebody
// has sent the request that is being answered, so that a connection of this user
// that nobody holds is one whose sender did not want to be seen.
func (s *Server) look(l *link) {
	if !onThisMachine(l.ends) {
		return
	}
	h := local.HoldersOf(l.ends)
	switch {
	case !h.Known:
		l.inside = []string{somebody}
	case h.UID != os.Getuid():
		l.foreign = h.UID != 0 // root can do without us whatever it likes
	case len(h.Pids) == 0:
		l.inside = []string{somebody}
	}
	for _, pid := range h.Pids {
		l.inside = append(l.inside, s.o.InTree(pid)...)
	}
}

// onThisMachine reports whether a connection begins here: over loopback, or from
// one of this machine's own addresses, by which a tool reaches a server that
// listens to others just as well. Where that cannot be found out, it does.
func onThisMachine(e local.Ends) bool {
	peer := e.Peer.Addr().Unmap().WithZone("")
	if peer.IsLoopback() || peer == e.Local.Addr().Unmap().WithZone("") {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range own {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == peer {
			return true
		}
	}
	return false
}

// overLoopback reports whether a request came from this machine.
func overLoopback(r *http.Request) bool {
	if _, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); unix {
		return true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}
