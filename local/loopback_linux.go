package local

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

const knowsHolders = true

func holdersOf(e Ends) Holders {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		if uid, inode, ok := findSocket(table, e); ok {
			h := Holders{Known: true, UID: uid}
			if uid == os.Getuid() {
				h.Pids = holding(inode)
			}
			return h
		}
	}
	return Holders{}
}

// findSocket looks for the peer's socket in one of the kernel's tables. One
// that is closed has no inode any more.
func findSocket(table string, e Ends) (uid int, inode string, ok bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, "", false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode …
		fields := strings.Fields(lines.Text())
		const needed = 10
		if len(fields) < needed || !sameEnd(fields[1], e.Peer) || !sameEnd(fields[2], e.Local) {
			continue
		}
		uid, err := strconv.Atoi(fields[7])
		if err != nil || fields[9] == "0" {
			return 0, "", false
		}
		return uid, fields[9], true
	}
	return 0, "", false
}

// littleEndian says how this machine writes 32 bits.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// sameEnd compares an address as the table writes it: in hexadecimal, each 32
// bits in the machine's own order.
func sameEnd(text string, want netip.AddrPort) bool {
	addr, port, ok := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || uint16(n) != want.Port() {
		return false
	}
	raw, err := hex.DecodeString(addr)
	if err != nil || len(raw)%4 != 0 {
		return false
	}
	for i := 0; littleEndian && i < len(raw); i += 4 {
		raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
	}
	got, ok := netip.AddrFromSlice(raw)
	return ok && got.Unmap() == want.Addr()
}

// reading is one look at the sockets of all processes of this user. It costs
// milliseconds, and more the more is open, so that whoever asks while one is going
// on shares the next with all others who do: no flood of connections keeps more
// than one processor at it.
type reading struct {
	once sync.Once
	held map[string][]int // by inode: the processes that have the socket open
}

var readings struct {
	one  sync.Mutex // held while /proc is read
	mu   sync.Mutex // guards next
	next *reading   // that has not begun; nil: nobody has asked for one
}

// holding lists this user's processes that have the socket open. What it says
// was seen after it was called.
func holding(inode string) []int {
	readings.mu.Lock()
	r := readings.next
	if r == nil {
		r = &reading{}
		readings.next = r
	}
	readings.mu.Unlock()
	r.once.Do(func() {
		readings.one.Lock()
		defer readings.one.Unlock()
		readings.mu.Lock()
		readings.next = nil // who asks from here on is not answered by this one
		readings.mu.Unlock()
		r.held = openSockets()
	})
	return r.held[inode]
}

// openSockets are all sockets of this user's processes but this one.
func openSockets() map[string][]int {
	held := map[string][]int{}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return held
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", p.Name(), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // somebody else's, or gone
		}
		for _, fd := range fds {
			to, err := os.Readlink(filepath.Join(dir, fd.Name()))
			if err != nil {
				continue
			}
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				inode = strings.TrimSuffix(inode, "]")
				if pids := held[inode]; len(pids) == 0 || pids[len(pids)-1] != pid {
					held[inode] = append(pids, pid)
				}
			}
		}
	}
	return held
}
