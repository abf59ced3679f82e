package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// terminalSize is the size of a terminal; not ok if f is none.
func terminalSize(f *os.File) (columns, rows int, ok bool) {
	var info windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info); err != nil {
		return 0, 0, false
	}
	return int(info.Window.Right-info.Window.Left) + 1, int(info.Window.Bottom-info.Window.Top) + 1, true
}
