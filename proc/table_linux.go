package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tick is the unit of times in /proc/<pid>/stat: USER_HZ, which is 100 in the
// user-space ABI of all architectures, whatever the kernel's own HZ.
const tick = 10 * time.Millisecond

// Now returns the present moment on the clock of process births.
func Now() Stamp {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists on every kernel that Go runs on. The call is raw
	// since it is made for every tool call and never blocks: announced to the
	// scheduler it would wake its monitor thread in a process that was idle.
	_, _, _ = unix.RawSyscall( //nolint:dogsled // nothing can fail
		unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	return Stamp(ts.Nano())
}

// Time converts the stamp to wall clock time, as the clock is set now.
func (s Stamp) Time() time.Time {
	return time.Now().Add(time.Duration(s - Now()))
}

// readTable reads the whole process table.
func readTable() (*view, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return nil, err
	}
	now, boot := time.Now(), Now()
	procs := make([]Process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := readEntry(pid)
		if err != nil {
			if isGone(err) {
				continue
			}
			// Out of descriptors, perhaps. A table with gaps would prove
			// that processes are dead which are not.
			return nil, err
		}
		p.Born = now.Add(time.Duration(p.Start - boot))
		procs = append(procs, p)
	}
	v := newView(procs)
	// A parent that ended between the reading of its child and its own leaves
	// a gap in the chain: ask those children again for their new parent.
	for i := range v.procs {
		p := &v.procs[i]
		if _, ok := v.at[p.PPID]; ok || p.PPID == 0 {
			continue
		}
		if again, ok := readProc(p.PID); ok && again.Start == p.Start {
			p.PPID = again.PPID
		}
	}
	return v, nil
}

// readProc reads one process; false when it is gone, or cannot be read.
func readProc(pid int) (Process, bool) {
	p, err := readEntry(pid)
	return p, err == nil
}

// readEntry reads one process; isGone tells whether an error means that there
// is none.
func readEntry(pid int) (Process, error) {
	var buf [1024]byte
	n, err := readFile("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return Process{}, err
	}
	p, ok := parseStat(buf[:n])
	if !ok {
		return Process{}, unix.EIO
	}
	return p, nil
}

// isGone: ENOENT when the entry cannot be opened any more, ESRCH when the
// process ended between opening and reading.
func isGone(err error) bool { return err == unix.ENOENT || err == unix.ESRCH }

// readSmall is readFile for those who only need to know that it failed: -1.
func readSmall(path string, buf []byte) int {
	n, err := readFile(path, buf)
	if err != nil {
		return -1
	}
	return n
}

// readFile fills buf from a file of /proc in one read, without the cost of an
// os.File.
func readFile(path string, buf []byte) (int, error) {
	var fd int
	var err error
	for {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		return max(n, 0), err
	}
}

// parseStat reads the line of /proc/<pid>/stat (proc(5)). The name is in
// parentheses and may itself hold parentheses and spaces, so the last one
// counts. It is called for every process of the machine each time the table is
// read, so it only looks at the fields that it wants.
func parseStat(b []byte) (Process, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 2 || end < open {
		return Process{}, false
	}
	pid, err := strconv.Atoi(string(b[:open-1]))
	if err != nil {
		return Process{}, false
	}
	p := Process{PID: pid, Comm: string(b[open+1 : end])}
	rest := bytes.TrimLeft(b[end+1:], " ")
	for field := 3; field <= 22; field++ { // from the state to the start time
		word, after, _ := bytes.Cut(rest, []byte{' '})
		if len(word) == 0 {
			return Process{}, false
		}
		rest = after
		if field == 3 {
			p.State = string(word)
			continue
		}
		if field > 6 && field < 14 || field == 18 || field == 19 || field == 21 {
			continue
		}
		n, _ := strconv.ParseInt(string(word), 10, 64)
		switch field {
		case 4:
			p.PPID = int(n)
		case 5:
			p.PGID = int(n)
		case 6:
			p.SID = int(n)
		case 14, 15:
			p.CPU += time.Duration(n) * tick
		case 16, 17:
			p.childCPU += time.Duration(n) * tick
		case 20:
			p.threads = int(n)
		case 22:
			p.Start = Stamp(n) * bornUnit
		}
	}
	return p, true
}

// rawCmdline returns the arguments, each ended by NUL, at most limit bytes; nil
// for a process that is gone or has none.
func rawCmdline(pid, limit int) []byte {
	buf := make([]byte, limit)
	n := readSmall("/proc/"+strconv.Itoa(pid)+"/cmdline", buf)
	if n <= 0 {
		return nil
	}
	return buf[:n]
}

// describe fills the fields that cost a read of their own.
func describe(p *Process) {
	p.Command = cmdline(p.PID, commandMax)
	if p.Command == "" {
		p.Command = "[" + p.Comm + "]"
	}
	var st unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(p.PID), &st) == nil {
		p.UID = int(st.Uid)
	}
}

// hasEnv reports whether the process was started with that name=value.
func hasEnv(pid int, entry string) bool {
	if entry == "" {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for e := range bytes.SplitSeq(b, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}

// alive reports whether exactly this process exists and is no zombie. What
// cannot be read counts as alive: death is to be proven.
func alive(id ID) bool {
	p, err := readEntry(id.PID)
	if err != nil {
		return !isGone(err)
	}
	return p.Start == id.Born && p.live()
}

// signalID sends a signal to exactly this process. The pidfd pins whoever has
// the pid now; the start time read after it proves that this is the one meant
// (if the pid changed hands in between, the pidfd's process is dead and the
// signal goes nowhere). Returns ESRCH when it is gone or a zombie.
func signalID(id ID, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err == unix.ESRCH {
		return err
	}
	if err == nil {
		defer unix.Close(fd)
	}
	p, rerr := readEntry(id.PID)
	switch {
	case rerr != nil && !isGone(rerr):
		return rerr
	case rerr != nil, p.Start != id.Born, !p.live():
		return unix.ESRCH
	case err != nil:
		// Kernels before 5.3, a seccomp filter that knows no pidfd, or no
		// descriptor left: the gap between look and kill is then
		// microseconds, not nothing.
		return unix.Kill(id.PID, sig)
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// scopes returns the systemd units (*.scope, *.service) in the cgroup paths of
// a process: of the v2 hierarchy and of systemd's own v1 one, since only these
// two are moved by a person or a service manager on purpose.
func scopes(pid int) []string {
	var buf [4096]byte
	n := readSmall("/proc/"+strconv.Itoa(pid)+"/cgroup", buf[:])
	if n <= 0 {
		return nil
	}
	var out []string
	for line := range strings.SplitSeq(string(buf[:n]), "\n") {
		part := strings.SplitN(line, ":", 3)
		if len(part) != 3 || part[1] != "name=systemd" && (part[0] != "0" || part[1] != "") {
			continue
		}
		for c := range strings.SplitSeq(part[2], "/") {
			if strings.HasSuffix(c, ".scope") || strings.HasSuffix(c, ".service") {
				out = append(out, c)
			}
		}
	}
	return out
}
