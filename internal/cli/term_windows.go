package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// terminalWidth is the number of columns of a terminal; not ok if f is none.
func terminalWidth(f *os.File) (width int, ok bool) {
	var info windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info); err != nil {
		return 0, false
	}
	return int(info.Window.Right-info.Window.Left) + 1, true
}
