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

// holding lists this user's processes that have the socket open.
func holding(inode string) (pids []int) {
	want := "socket:[" + inode + "]"
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
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
			if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == want {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
