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
	once   sync.Once
	ends   local.Ends
	inside []string
}

type linkKey struct{}

// somebody stands for a process that was gone before it could be looked at.
const somebody = "a process that is gone"

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
		who.Inside = s.o.InTree(p.PID)
	}
	return who
}

// insideOf names the runs from within which the request was sent, innermost
// first.
func (s *Server) insideOf(r *http.Request) []string {
	l, ok := r.Context().Value(linkKey{}).(*link)
	if !ok || s.o.InTree == nil {
		return nil
	}
	l.once.Do(func() { l.inside = s.look(l.ends) })
	return l.inside
}

// look finds the runs of whoever holds the other end. Somebody has sent the
// request that is being answered, so that a connection of this user that nobody
// holds is one whose sender did not want to be seen.
func (s *Server) look(e local.Ends) []string {
	if !e.Peer.Addr().Unmap().IsLoopback() {
		return nil
	}
	h := local.HoldersOf(e)
	switch {
	case !local.KnowsHolders:
		return nil
	case !h.Known:
		return []string{somebody}
	case h.UID != os.Getuid():
		return nil
	case len(h.Pids) == 0:
		return []string{somebody}
	}
	var inside []string
	for _, pid := range h.Pids {
		inside = append(inside, s.o.InTree(pid)...)
	}
	return inside
}

// overLoopback reports whether a request came from this machine.
func overLoopback(r *http.Request) bool {
	if _, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); unix {
		return true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}
