package proc

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// executable is the path that the program was started by: the kernel's block of
// arguments begins with it, behind their count.
func executable(pid int) string {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return ""
	}
	path, _, _ := bytes.Cut(b[4:], []byte{0})
	return string(path)
}
