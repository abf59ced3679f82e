package proc

import (
	"math"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeGuardian makes this process the parent of all orphans below it and
// gives it a name that ps shows: it was executed as /proc/self/exe.
func becomeGuardian() error {
	// Not by os.WriteFile, which would set up the runtime's poller.
	if fd, err := unix.Open("/proc/self/comm", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Write(fd, []byte(guardianName))
		_ = unix.Close(fd)
	}
	// The leader gets its three descriptors and nothing that P happened to
	// inherit from whoever started it.
	if unix.CloseRange(fdStderr+1, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) != nil {
		// Kernels before 5.11: the usual ones.
		for fd := fdStderr + 1; fd < 256; fd++ {
			syscall.CloseOnExec(fd)
		}
	}
	return becomeSubreaper()
}

func becomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// guardianExe is this very program, also when its file was replaced.
func guardianExe() (string, error) { return "/proc/self/exe", nil }

// forkInto starts the leader inside a cgroup, before its first instruction.
func forkInto(dir, path string, args []string, attr *syscall.ProcAttr) (int, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	in := *attr
	sys := *attr.Sys
	sys.UseCgroupFD, sys.CgroupFD = true, fd
	in.Sys = &sys
	return syscall.ForkExec(path, args, &in)
}

// wait4Any reaps one child of any kind, those made by clone without SIGCHLD
// included.
func wait4Any(ws *syscall.WaitStatus) (int, error) {
	return syscall.Wait4(-1, ws, unix.WALL, nil)
}

// awaitStrays has nothing to do where no process can leave the guardian.
func awaitStrays(ID) {}

// tracker knows which processes belong to a tree under a living guardian.
type tracker struct{ guardian int }

func newTracker(guardian, _ ID) *tracker { return &tracker{guardian.PID} }

// pids is exact: nothing can leave a subreaper's descendants.
func (t *tracker) pids(v *view) map[int]bool { return v.below(t.guardian) }

// Proven reports whether the guarantees of this package are proven by tests
// on this operating system.
func Proven() bool { return true }

// Guarantees says in one sentence what holds on this operating system.
func Guarantees() string {
	return "linux/" + runtime.GOARCH + ": a stopped tree leaves no process behind, also when Belay or a guardian is killed (proven by tests)"
}
