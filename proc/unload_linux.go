package proc

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Unload gives back the pages of this program's own code and constants. A program
// touches most of what it holds only while it starts; what is needed again is
// mapped again from the page cache, a page at a time. It is for a process that is
// about to wait for long: Belay stands before every server, twice.
func Unload() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		var perms string
		line := lines.Text()
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perms); err != nil || !strings.HasSuffix(line, " "+self) || perms[1] == 'w' {
			continue // what was written to is in memory alone
		}
		// By its number: the range is the kernel's own word for a mapping of this
		// program, and no pointer of ours.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	}
}
