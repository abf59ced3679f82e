package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Now returns the present moment on the clock of process births, which is the
// wall clock here.
func Now() Stamp { return Stamp(time.Now().UnixNano()) }

// Time converts the stamp to wall clock time.
func (s Stamp) Time() time.Time { return time.Unix(0, int64(s)) }

// selfID names this process.
var selfID = sync.OnceValue(func() ID {
	var created, exited, kernel, user windows.Filetime
	_ = windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user)
	return ID{os.Getpid(), Stamp(created.Nanoseconds())}
})

// Main returns at once: the kernel's job object is the guardian here.
func Main() {}

// GuardianLabel returns false: there are no guardian processes here.
func GuardianLabel(int) (label string, ok bool) { return "", false }

// InTree returns nothing here: who lies in whose job is not told to others.
// Callers that take rights away from such peers must not rely on it.
func InTree(int) (labels []string) { return nil }

// Unseen is a label that InTree gives on other systems.
const Unseen = "a process that is gone"

// Proven reports whether the guarantees of this package are proven by tests
// on this operating system.
func Proven() bool { return false }

// Guarantees says in one sentence what holds on this operating system.
func Guarantees() string {
	return "windows/" + runtime.GOARCH + ": a job object holds the tree and ends it, also when Belay is killed; " +
		"a soft stop reaches console programs only; not proven by tests on this system"
}

// job is a job object that dies with its last handle, which is ours: whatever
// ends this process ends the tree. Children are born in it and cannot leave.
type job struct{ handle windows.Handle }

func newJob() (job, error) {
	h, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return job{}, err
	}
	j := job{h}
	if err := j.killOnClose(true); err != nil {
		j.close()
		return job{}, err
	}
	return j, nil
}

// killOnClose is switched off before a job is left to spared processes.
func (j job) killOnClose(on bool) error {
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	if on {
		info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	}
	_, err := windows.SetInformationJobObject(j.handle, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	return err
}

func (j job) close() { _ = windows.CloseHandle(j.handle) }

// pidsMax bounds the members that are looked at in one job.
const pidsMax = 16384

// pids returns the processes in the job.
func (j job) pids() (map[int]bool, error) {
	var list struct {
		Assigned, Listed uint32
		IDs              [pidsMax]uintptr
	}
	err := windows.QueryInformationJobObject(j.handle, windows.JobObjectBasicProcessIdList,
		uintptr(unsafe.Pointer(&list)), uint32(unsafe.Sizeof(list)), nil)
	if err != nil && !errors.Is(err, windows.ERROR_MORE_DATA) {
		return nil, err
	}
	out := make(map[int]bool)
	for _, id := range list.IDs[:min(list.Listed, pidsMax)] {
		out[int(id)] = true
	}
	return out, nil
}

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, times in 100 ns.
type accounting struct {
	TotalUser, TotalKernel, PeriodUser, PeriodKernel int64
	PageFaults, Total, Active, Terminated            uint32
}

func (j job) accounting() (a accounting, err error) {
	err = windows.QueryInformationJobObject(j.handle, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&a)), uint32(unsafe.Sizeof(a)), nil)
	return a, err
}

// table lists the processes with these pids.
func table(pids map[int]bool) (*view, error) {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(snap)
	entry := windows.ProcessEntry32{}
	entry.Size = uint32(unsafe.Sizeof(entry))
	var procs []Process
	for err = windows.Process32First(snap, &entry); err == nil; err = windows.Process32Next(snap, &entry) {
		pid := int(entry.ProcessID)
		if !pids[pid] {
			continue
		}
		p := Process{PID: pid, PPID: int(entry.ParentProcessID), Comm: windows.UTF16ToString(entry.ExeFile[:]), State: "R", threads: 1}
		if times(&p) {
			procs = append(procs, p)
		}
	}
	return newView(procs), nil
}

// times fills birth and processor time; false when the process has ended.
func times(p *Process) bool {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE, false, uint32(p.PID))
	if err != nil {
		// Not ours to ask, but a member of the job: it lives.
		return errors.Is(err, windows.ERROR_ACCESS_DENIED)
	}
	defer windows.CloseHandle(h)
	if s, err := windows.WaitForSingleObject(h, 0); err == nil && s == windows.WAIT_OBJECT_0 {
		return false
	}
	var created, exited, kernel, user windows.Filetime
	if windows.GetProcessTimes(h, &created, &exited, &kernel, &user) != nil {
		return false
	}
	p.Start = Stamp(created.Nanoseconds())
	p.Born = p.Start.Time()
	p.CPU = ticks100(kernel) + ticks100(user)
	return true
}

// ticks100 reads a Filetime that is a span of 100 ns units, not a date.
func ticks100(f windows.Filetime) time.Duration {
	return time.Duration(int64(f.HighDateTime)<<32|int64(f.LowDateTime)) * 100
}

// alive reports whether exactly this process exists.
func alive(id ID) bool {
	p := Process{PID: id.PID}
	return times(&p) && p.Start == id.Born
}

// terminateID ends exactly this process: the handle pins it, its birth proves
// it.
func terminateID(id ID) error {
	h, err := windows.OpenProcess(windows.PROCESS_TERMINATE|windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(id.PID))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return err
	}
	if Stamp(created.Nanoseconds()) != id.Born {
		return ErrExited
	}
	return windows.TerminateProcess(h, 1)
}

// cmdline asks for the command line of a process, "" where that is refused.
func cmdline(pid, max int) string {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return ""
	}
	defer windows.CloseHandle(h)
	buf := make([]uint64, cmdlineMax/4) // aligned for the structure it begins with
	err = windows.NtQueryInformationProcess(h, windows.ProcessCommandLineInformation,
		unsafe.Pointer(&buf[0]), uint32(len(buf)*8), nil)
	if err != nil {
		return ""
	}
	s := (*windows.NTUnicodeString)(unsafe.Pointer(&buf[0])).String()
	return s[:min(len(s), max)]
}

func describe(p *Process) {
	if p.Command = cmdline(p.PID, commandMax); p.Command == "" {
		p.Command = "[" + p.Comm + "]"
	}
}

// resume starts the only thread of a process that was created suspended, so
// that it could be put into its job before its first instruction.
func resume(pid int) error {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snap)
	entry := windows.ThreadEntry32{}
	entry.Size = uint32(unsafe.Sizeof(entry))
	for err = windows.Thread32First(snap, &entry); err == nil; err = windows.Thread32Next(snap, &entry) {
		if int(entry.OwnerProcessID) != pid {
			continue
		}
		h, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(h)
		return errors.Join(err, windows.CloseHandle(h))
	}
	return fmt.Errorf("thread of pid %d: %w", pid, err)
}

// ruleName is what SpareRule.Comm is compared with: the name of the program
// file without its extension.
func ruleName(exe string) string {
	if i := strings.LastIndexByte(exe, '.'); i > 0 {
		return exe[:i]
	}
	return exe
}

// breakGroup sends CTRL_BREAK to the console group that the leader was made
// the head of. Programs without a console do not get it.
func breakGroup(leader ID) error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(leader.PID))
}

// exitOf translates how a process has ended.
func exitOf(s *os.ProcessState) Exit {
	if s == nil {
		return Exit{Code: -1, Unknown: true}
	}
	return Exit{Code: s.ExitCode()}
}
