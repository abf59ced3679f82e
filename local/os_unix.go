//go:build unix

package local

import (
	"errors"
	"io/fs"
	"syscall"
)

// tempDir is the last resort for sockets: the same for every process of the
// machine, whatever its environment.
func tempDir() string { return "/tmp" }

// ownerOf is the uid that a file belongs to, where there are uids.
func ownerOf(info fs.FileInfo) (uid int, known bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// alive reports whether a process with this pid exists.
func alive(pid int) bool {
	return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
