//go:build linux || darwin || freebsd || netbsd || openbsd

package ledger

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// enforced says that permission bits mean something here.
const enforced = true

func ownerOf(info fs.FileInfo) (int, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// lockFile belongs to the open file, so that a second ledger in this very
// process is refused too.
func lockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
