package proc

import (
	"bytes"
	"strings"
)

// programMax bounds what is read of a command line: a path or two at its
// beginning are what it is asked for.
const programMax = 4 << 10

// Program is what a process runs: the path of its executable, "" where that
// cannot be learnt, and its arguments, argv[0] first, nil for one that is gone.
// The executable is the kernel's word, where there is one; the arguments are
// the process's own. Together they are at most 4 KiB.
func Program(pid int) (exe string, argv []string) {
	b := bytes.TrimSuffix(rawCmdline(pid, programMax), []byte{0})
	if len(b) > 0 {
		argv = strings.Split(string(b), "\x00")
	}
	return executable(pid), argv
}
