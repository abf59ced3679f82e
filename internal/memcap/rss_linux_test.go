package memcap_test

import (
	"os"
	"syscall"
)

// rss is the most memory that an ended process had.
func rss(s *os.ProcessState) int64 {
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss << 10
	}
	return 0
}

// switches is how often this process has been given a processor after it had waited.
func switches() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Nvcsw
}
