//go:build linux || darwin

package proc

// Descends reports whether a process is below another one, or is that one. One that is
// gone, or whose parents end faster than they can be read, counts as below: whoever
// does not stay to be looked at is not taken for somebody else.
func Descends(pid, of int) bool {
	for range 1000 { // no real chain is longer; a race could make a circle
		if pid == of {
			return true
		}
		p, ok := readProc(pid)
		switch {
		case !ok:
			return true
		case p.PPID <= 1:
			return p.PPID == of
		}
		pid = p.PPID
	}
	return true
}
