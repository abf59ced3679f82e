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
