//go:build unix

package adopt

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ownership says why a file is not this user's to replace, or is empty.
func ownership(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return ""
	case int(st.Uid) != os.Geteuid():
		return fmt.Sprintf("it belongs to another user (uid %d)", st.Uid)
	case st.Nlink > 1:
		return fmt.Sprintf("it has %d hard links, which replacing it would part", st.Nlink)
	}
	return ""
}

// keepOwner gives a new file the owner of the one that it replaces.
func keepOwner(f *os.File, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	have, err := f.Stat()
	if err != nil {
		return err
	}
	if now, ok := have.Sys().(*syscall.Stat_t); ok && now.Uid == st.Uid && now.Gid == st.Gid {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
