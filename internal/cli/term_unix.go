//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize is the size of a terminal; not ok if f is none.
func terminalSize(f *os.File) (columns, rows int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}
