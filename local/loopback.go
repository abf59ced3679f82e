package local

import "net/netip"

// Ends are the two ends of a TCP connection, as the process that accepted it
// sees them.
type Ends struct {
	Peer  netip.AddrPort // the other process
	Local netip.AddrPort // this one
}

// Holders are the processes that hold the other end of a TCP connection that
// begins and ends on this machine.
type Holders struct {
	// Known is false where this cannot be found out: on other systems than
	// Linux, and for a connection that is not, or no longer, in the kernel's
	// table. Nobody is named then.
	Known bool
	UID   int   // the user who made the connection
	Pids  []int // of this user's processes; none: it is another user's, or nobody holds it any more
}

// KnowsHolders says whether [HoldersOf] can find out anything on this system.
const KnowsHolders = knowsHolders

// HoldersOf finds out who holds the other end of a connection (DESIGN 11, 10: an
// agent with its user's token is still an agent). It reads the tables of /proc,
// which takes milliseconds: ask once for a connection. A descriptor may be handed
// on later; whoever was asked about then is not asked about again.
func HoldersOf(e Ends) Holders {
	e.Peer = netip.AddrPortFrom(e.Peer.Addr().Unmap().WithZone(""), e.Peer.Port())
	e.Local = netip.AddrPortFrom(e.Local.Addr().Unmap().WithZone(""), e.Local.Port())
	return holdersOf(e)
}
