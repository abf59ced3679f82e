package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Memory is how much memory the leader has now, in bytes, without its children: its
// resident set. 0 when it has ended, and where that is not known.
func (t *Tree) Memory() int64 {
	select {
	case <-t.done: // the number may be another's
		return 0
	default:
	}
	var buf [256]byte
	n := readSmall(fmt.Sprintf("/proc/%d/statm", t.leader.PID), buf[:])
	if n < 0 {
		return 0
	}
	fields := bytes.Fields(buf[:n])
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
