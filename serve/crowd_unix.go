//go:build unix

package serve

import "syscall"

// descriptors is how many files this process may have open; 0: nobody knows.
func descriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	const enough = 1 << 30                 // also where there is no bound
	return int(min(uint64(l.Cur), enough)) //nolint:unconvert // signed on some systems
}
