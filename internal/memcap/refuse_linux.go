package memcap

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// refuse has the kernel refuse data beyond what the process has now and limit.
// RLIMIT_DATA counts private writable memory, which is what the Go runtime
// allocates (since Linux 4.7); RLIMIT_AS would count what it only reserves. What is
// there already is added: a build with the race detector has terabytes of it. A
// kernel that says no leaves the watch alone at work.
func refuse(limit int64) {
	have, ok := data()
	if !ok {
		return
	}
	var now syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_DATA, &now) != nil {
		return
	}
	want := uint64(have + shadow*limit)
	if now.Cur < want { // it is stricter already
		return
	}
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: want, Max: min(now.Max, want)})
}

// data is how much private writable memory the process has.
func data() (int64, bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	_, after, found := bytes.Cut(status, []byte("\nVmData:"))
	if !found {
		return 0, false
	}
	number, _, found := bytes.Cut(bytes.TrimSpace(after), []byte(" kB"))
	if !found {
		return 0, false
	}
	kib, err := strconv.ParseInt(string(number), 10, 64)
	return kib << 10, err == nil
}
