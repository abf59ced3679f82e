//go:build unix

package auth

import (
	"io/fs"
	"syscall"
)

// ownerOf is the uid that a file belongs to, where there are uids.
func ownerOf(info fs.FileInfo) (uid int, known bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
