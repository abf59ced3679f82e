package proc

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of what is looked at and said, so that a tree with a hundred thousand
// sockets costs no more than a large one.
const (
	fdsPerProcess = 4096
	fdsPerTree    = 16384
	connsMax      = 50
	netFileMax    = 4 << 20
)

// daemonSockets are the names by which container daemons are reached. A tree
// that holds a connection to one may have work running that no local kill ends
// (DESIGN 11.4).
var daemonSockets = []string{
	"docker.sock", "podman.sock", "containerd.sock", "containerd.sock.ttrpc",
	"crio.sock", "buildkitd.sock", "dockershim.sock", "cri-dockerd.sock",
}

func isDaemonSocket(path string) bool {
	return slices.Contains(daemonSockets, filepath.Base(path))
}

// HeldDaemon returns the socket paths of container daemons (docker, podman,
// containerd, cri-o) that the tree is connected to now, sorted, without
// duplicates. Ask before a kill: afterwards there is nothing to see. Spared
// processes are left out, as they go on.
func (t *Tree) HeldDaemon() []string { return heldDaemon(t.connected()) }

// Connections is HeldDaemon and RemoteConns for some processes of a tree alone,
// of which those that are gone hold nothing.
func Connections(of []ID) (daemons, remote []string) {
	var members []Process
	for _, id := range of {
		if p, ok := readProc(id.PID); ok && p.Start == id.Born {
			members = append(members, p)
		}
	}
	return heldDaemon(members), remoteConns(members)
}

func heldDaemon(members []Process) []string {
	if len(members) == 0 {
		return nil
	}
	sockets := socketInodes(members)
	if len(sockets) == 0 {
		return nil
	}
	var held []string
	for inode, peer := range unixPeers() {
		if sockets[inode] && isDaemonSocket(peer) {
			held = append(held, peer)
		}
	}
	slices.Sort(held)
	return slices.Compact(held)
}

// RemoteConns returns the remote ends (address:port) of established TCP
// connections of the tree that leave this machine, sorted, without
// duplicates, at most 50. It names where work may go on, and proves nothing.
func (t *Tree) RemoteConns() []string { return remoteConns(t.connected()) }

func remoteConns(members []Process) []string {
	sockets := socketInodes(members)
	if len(sockets) == 0 {
		return nil
	}
	var conns []string
	seen := make(map[string]bool) // network namespaces
	for _, p := range members {
		base := "/proc/" + strconv.Itoa(p.PID)
		ns, err := os.Readlink(base + "/ns/net")
		if err != nil || seen[ns] {
			continue
		}
		seen[ns] = true
		for _, file := range []string{"/net/tcp", "/net/tcp6"} {
			conns = append(conns, establishedIn(readBounded(base+file, netFileMax), sockets)...)
		}
	}
	slices.Sort(conns)
	conns = slices.Compact(conns)
	return conns[:min(len(conns), connsMax)]
}

// connected returns the processes whose connections count.
func (t *Tree) connected() (out []Process) {
	if t.eng.over() {
		return nil
	}
	members, _, err := t.eng.all()
	if err != nil {
		return nil
	}
	for _, p := range members {
		if p.Spare == "" {
			out = append(out, p)
		}
	}
	return out
}

// socketInodes returns the sockets that the processes have open.
func socketInodes(members []Process) map[uint64]bool {
	out := make(map[uint64]bool)
	budget := fdsPerTree
	for _, p := range members {
		dir, err := os.Open("/proc/" + strconv.Itoa(p.PID) + "/fd")
		if err != nil {
			continue
		}
		names, _ := dir.Readdirnames(min(fdsPerProcess, budget))
		for _, name := range names {
			target, err := os.Readlink(filepath.Join(dir.Name(), name))
			if err != nil {
				continue
			}
			if s, ok := strings.CutPrefix(target, "socket:["); ok {
				if inode, err := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 64); err == nil {
					out[inode] = true
				}
			}
		}
		dir.Close()
		if budget -= len(names); budget <= 0 {
			break
		}
	}
	return out
}

func readBounded(path string, limit int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var b strings.Builder
	buf := make([]byte, 32<<10)
	for b.Len() < limit {
		n, err := f.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			break
		}
	}
	return b.String()
}

// establishedIn reads a /proc/net/tcp table (proc_net_tcp(5)).
func establishedIn(table string, sockets map[uint64]bool) (out []string) {
	const established = "01"
	for i, line := range strings.Split(table, "\n") {
		f := strings.Fields(line)
		if i == 0 || len(f) < 10 || f[3] != established {
			continue
		}
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if err != nil || !sockets[inode] {
			continue
		}
		if a, ok := parseEndpoint(f[2]); ok && !a.Addr().IsLoopback() {
			out = append(out, a.String())
		}
	}
	return out
}

// parseEndpoint reads "0100007F:0050": 32-bit words in the byte order of the
// machine, the port in plain hexadecimal.
func parseEndpoint(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	if !ok {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(port, 16, 16)
	raw, err2 := hex.DecodeString(host)
	if err != nil || err2 != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), ok
}

// Constants of sock_diag(7) for unix sockets, which x/sys does not have.
const (
	sockDiagByFamily = 20
	unixShowName     = 1
	unixShowPeer     = 4
	unixDiagName     = 0
	unixDiagPeer     = 2
	nlHeader         = 16
	unixDiagMsg      = 16
	diagMax          = 100_000 // sockets looked at
)

// unixPeers maps the inode of each connected unix socket to the path of its
// other end. A client's own socket has no name; /proc/net/unix does not say who
// is connected to whom, so the kernel is asked by netlink. Where it cannot be
// asked (no unix_diag module, another namespace) the map is empty.
func unixPeers() map[uint64]string {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	// The kernel answers a dump at once; a limit all the same.
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	if unix.Sendto(fd, diagRequest(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return nil
	}
	names, peers := make(map[uint64]string), make(map[uint64]uint64)
	buf := make([]byte, 64<<10)
	for done := false; !done && len(peers) < diagMax; {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		done = readDiag(buf[:n], names, peers)
	}
	out := make(map[uint64]string)
	for inode, peer := range peers {
		if name := names[peer]; name != "" {
			out[inode] = name
		}
	}
	return out
}

// diagRequest asks for all unix sockets with their names and peers.
func diagRequest() []byte {
	b := make([]byte, nlHeader+24)
	le := binary.NativeEndian
	le.PutUint32(b[0:], uint32(len(b)))
	le.PutUint16(b[4:], sockDiagByFamily)
	le.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[nlHeader] = unix.AF_UNIX
	le.PutUint32(b[nlHeader+4:], 0xffffffff) // every state
	le.PutUint32(b[nlHeader+12:], unixShowName|unixShowPeer)
	return b
}

// readDiag reads one datagram of answers; true at the end of the dump.
func readDiag(b []byte, names map[uint64]string, peers map[uint64]uint64) (done bool) {
	le := binary.NativeEndian
	for len(b) >= nlHeader {
		size := int(le.Uint32(b))
		if size < nlHeader || size > len(b) {
			return true
		}
		kind := le.Uint16(b[4:])
		if kind != sockDiagByFamily {
			return true // NLMSG_DONE or NLMSG_ERROR
		}
		if size >= nlHeader+unixDiagMsg {
			inode := uint64(le.Uint32(b[nlHeader+4:]))
			for a := b[nlHeader+unixDiagMsg : size]; len(a) >= 4; {
				n := int(le.Uint16(a))
				if n < 4 || n > len(a) {
					break
				}
				switch value := a[4:n]; le.Uint16(a[2:]) {
				case unixDiagName:
					names[inode] = strings.TrimRight(string(value), "\x00")
				case unixDiagPeer:
					if len(value) >= 4 {
						peers[inode] = uint64(le.Uint32(value))
					}
				}
				a = a[min(align4(n), len(a)):]
			}
		}
		b = b[min(align4(size), len(b)):]
	}
	return false
}

func align4(n int) int { return (n + 3) &^ 3 }
