//go:build unix

package belay

import (
	"syscall"
	"time"
)

// processorTime is what the process has used so far, which says more than the
// clock on a machine that others use too.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
