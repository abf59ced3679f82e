package proc

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the present moment on the clock of process births, which is the
// wall clock here.
func Now() Stamp { return Stamp(time.Now().UnixNano()) }

// Time converts the stamp to wall clock time.
func (s Stamp) Time() time.Time { return time.Unix(0, int64(s)) }

// States of <sys/proc.h>, as letters like those of Linux.
var darwinStates = map[int8]string{1: "R", 2: "R", 3: "S", 4: "T", 5: "Z"}

// readTable reads the whole process table in one call.
func readTable() (*view, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	procs := make([]Process, 0, len(list))
	for i := range list {
		procs = append(procs, fromKinfo(&list[i]))
	}
	return newView(procs), nil
}

func fromKinfo(k *unix.KinfoProc) Process {
	name, _, _ := bytes.Cut(k.Proc.P_comm[:], []byte{0})
	born := k.Proc.P_starttime
	p := Process{
		PID:     int(k.Proc.P_pid),
		PPID:    int(k.Eproc.Ppid),
		PGID:    int(k.Eproc.Pgid),
		UID:     int(k.Eproc.Ucred.Uid),
		Comm:    string(name),
		State:   darwinStates[k.Proc.P_stat],
		Start:   Stamp(born.Sec)*Stamp(time.Second) + Stamp(born.Usec)*Stamp(time.Microsecond),
		threads: 1,
	}
	p.Born = p.Start.Time()
	p.SID, _ = unix.Getsid(p.PID)
	return p
}

// readProc reads one process; false when it is gone.
func readProc(pid int) (Process, bool) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return Process{}, false
	}
	return fromKinfo(k), true
}

// rawCmdline returns the arguments, each ended by NUL. The kernel's block
// starts with their count and the path of the program, padded with NULs.
func rawCmdline(pid, max int) []byte {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return nil
	}
	count := int(binary.NativeEndian.Uint32(b))
	_, b, _ = bytes.Cut(b[4:], []byte{0})
	b = bytes.TrimLeft(b, "\x00")
	end := 0
	for range count {
		n := bytes.IndexByte(b[end:], 0)
		if n < 0 {
			end = len(b)
			break
		}
		end += n + 1
	}
	return b[:min(end, max)]
}

// describe fills the fields that cost a call of their own.
func describe(p *Process) {
	if p.Command = cmdline(p.PID, commandMax); p.Command == "" {
		p.Command = "[" + p.Comm + "]"
	}
}

// alive reports whether exactly this process exists and is no zombie.
func alive(id ID) bool {
	p, ok := readProc(id.PID)
	return ok && p.Start == id.Born && p.live()
}

// signalID sends a signal to this process if its start time still agrees.
// There is no pidfd here: between the look and the signal lie microseconds in
// which the pid could change hands.
func signalID(id ID, sig unix.Signal) error {
	if p, ok := readProc(id.PID); !ok || p.Start != id.Born || !p.live() {
		return unix.ESRCH
	}
	return unix.Kill(id.PID, sig)
}

// scopes: there are no systemd units here.
func scopes(int) []string { return nil }

// cpuTimes asks ps for the processor time of all processes, since the table
// does not hold it.
func cpuTimes() map[int]time.Duration {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, os.ErrDeadlineExceeded)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/bin/ps", "-axo", "pid=,time=").Output()
	if err != nil {
		return nil
	}
	times := make(map[int]time.Duration)
	for _, line := range strings.Split(string(out), "\n") {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		if pid, err := strconv.Atoi(f[0]); err == nil {
			times[pid] = parsePsTime(f[1])
		}
	}
	return times
}

// parsePsTime reads [hours:]minutes:seconds.hundredths.
func parsePsTime(s string) (d time.Duration) {
	for _, part := range strings.Split(s, ":") {
		sec, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return 0
		}
		d = 60*d + time.Duration(sec*float64(time.Second))
	}
	return d
}
