package proc

import (
	"strings"

	"golang.org/x/sys/windows"
)

// rawCmdline is the command line as others have it: each argument ended by NUL.
func rawCmdline(pid, limit int) []byte {
	args, err := windows.DecomposeCommandLine(cmdline(pid, limit))
	if err != nil || len(args) == 0 {
		return nil
	}
	return append([]byte(strings.Join(args, "\x00")), 0)
}

// executable is the path of the program.
func executable(pid int) string {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return ""
	}
	defer windows.CloseHandle(h)
	buf := make([]uint16, windows.MAX_LONG_PATH)
	size := uint32(len(buf))
	if windows.QueryFullProcessImageName(h, 0, &buf[0], &size) != nil {
		return ""
	}
	return windows.UTF16ToString(buf[:size])
}
