package calm

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// runnable reads how many tasks of the whole machine want to run now, the
// reader among them.
func runnable() int {
	b, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if len(f) < 4 {
		return 0
	}
	now, _, _ := strings.Cut(f[3], "/")
	n, _ := strconv.Atoi(now)
	return n
}

// stolen is for how long, since the machine started, the hypervisor ran others
// in place of each core, or every task waited for the disk.
func stolen() time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go supports
	var sum time.Duration
	b, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(b), "\n")
	if f := strings.Fields(first); len(f) > 8 && f[0] == "cpu" {
		n, _ := strconv.ParseInt(f[8], 10, 64)
		sum += time.Duration(n) * tick / time.Duration(runtime.NumCPU())
	}
	b, _ = os.ReadFile("/proc/pressure/io") // absent from older kernels
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "full "); ok {
			_, total, _ := strings.Cut(strings.TrimSpace(rest), "total=")
			n, _ := strconv.ParseInt(total, 10, 64)
			sum += time.Duration(n) * time.Microsecond
		}
	}
	return sum
}
