package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupPrefix begins the name of every cgroup made here:
// belay-<pid>-<birth>-<number>, so that a later start can tell whose it was.
const cgroupPrefix = "belay-"

var cgroupSeq atomic.Int64

// cgroup is the child cgroup of one tree. Methods may be called concurrently.
type cgroup struct{ dir string }

// cgroupHome finds the directory in which this process may make child
// cgroups: its own place in the v2 hierarchy, by mountinfo. "" where there is
// none. It is asked once for each start, not remembered: a process can be
// moved.
func cgroupHome() string {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	own := ""
	for line := range strings.SplitSeq(string(self), "\n") {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			own = path
		}
	}
	if own == "" || strings.HasSuffix(own, " (deleted)") {
		return ""
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(mounts), "\n") {
		root, point, ok := cgroupMount(line)
		if !ok {
			continue
		}
		rel := own
		if root != "/" {
			// The mount shows only a part of the hierarchy (a container).
			if rel, ok = strings.CutPrefix(own, root); !ok {
				continue
			}
		}
		return filepath.Join(point, rel)
	}
	return ""
}

// cgroupMount reads one line of mountinfo (proc(5)); ok for a cgroup2 mount.
func cgroupMount(line string) (root, point string, ok bool) {
	before, after, found := strings.Cut(line, " - ")
	f := strings.Fields(before)
	if !found || len(f) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
		return "", "", false
	}
	return unescapeMount(f[3]), unescapeMount(f[4]), true
}

// unescapeMount undoes the kernel's octal escapes of blanks.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// sweepOnce removes what dead processes left, once in the life of this one.
var sweepOnce sync.Once

// newCgroup makes a cgroup for one tree, or says why there is none.
func newCgroup() (*cgroup, error) {
	home := cgroupHome()
	if home == "" {
		return nil, errors.New("no cgroup v2 mount with a place for this process")
	}
	sweepOnce.Do(func() { removeAbandoned(home) })
	self := selfID()
	name := fmt.Sprintf("%s%d-%d-%d", cgroupPrefix, self.PID, self.Born/bornUnit, cgroupSeq.Add(1))
	c := &cgroup{dir: filepath.Join(home, name)}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, err
	}
	// cgroup.kill exists since Linux 5.14; without it the sweep does as well.
	if err := unix.Access(c.file("cgroup.kill"), unix.W_OK); err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

// removeAbandoned removes empty cgroups whose maker is dead. One that still
// holds processes is refused by the kernel and stays.
func removeAbandoned(home string) {
	list, err := os.ReadDir(home)
	if err != nil {
		return
	}
	for _, e := range list {
		var pid int
		var born, n int64
		if c, _ := fmt.Sscanf(e.Name(), cgroupPrefix+"%d-%d-%d", &pid, &born, &n); c != 3 {
			continue
		}
		if !alive(ID{pid, Stamp(born) * bornUnit}) {
			(&cgroup{dir: filepath.Join(home, e.Name())}).remove()
		}
	}
}

func (c *cgroup) file(name string) string { return filepath.Join(c.dir, name) }

// write sets a control file in one write, as the kernel wants it.
func (c *cgroup) write(name, value string) error {
	f, err := os.OpenFile(c.file(name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// pids returns the processes in the cgroup and in those that the tool made
// below it.
func (c *cgroup) pids() map[int]bool {
	out := make(map[int]bool)
	c.walk(func(dir string) {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return
		}
		for s := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(s); err == nil && pid > 0 {
				out[pid] = true
			}
		}
	})
	return out
}

// walk visits the cgroup and everything below, children first.
func (c *cgroup) walk(visit func(dir string)) {
	var down func(dir string, depth int)
	down = func(dir string, depth int) {
		if list, err := os.ReadDir(dir); err == nil && depth < 32 {
			for _, e := range list {
				if e.IsDir() {
					down(filepath.Join(dir, e.Name()), depth+1)
				}
			}
		}
		visit(dir)
	}
	down(c.dir, 0)
}

// event reads one value of cgroup.events ("populated", "frozen").
func (c *cgroup) event(key string) (string, bool) {
	var buf [256]byte
	n := readSmall(c.file("cgroup.events"), buf[:])
	if n < 0 {
		return "", false
	}
	for line := range strings.SplitSeq(string(buf[:n]), "\n") {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			return v, true
		}
	}
	return "", false
}

// await polls an event for a short time. The kernel could notify by POLLPRI,
// but freezing and dying take well below a millisecond in nearly all cases,
// less than a poll set-up with its own races.
func (c *cgroup) await(key, want string, limit time.Duration) {
	for end := time.Now().Add(limit); ; time.Sleep(200 * time.Microsecond) {
		got, ok := c.event(key)
		if !ok || got == want || time.Now().After(end) {
			return
		}
	}
}

// usage is the processor time that the cgroup has used since it was made.
func (c *cgroup) usage() (time.Duration, bool) {
	var buf [1024]byte
	n := readSmall(c.file("cpu.stat"), buf[:])
	if n < 0 {
		return 0, false
	}
	for line := range strings.SplitSeq(string(buf[:n]), "\n") {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(v, 10, 64)
			return time.Duration(us) * time.Microsecond, err == nil
		}
	}
	return 0, false
}

// bound limits the memory of all that is inside, where the cgroup has that
// controller: one that was delegated without it has no such files.
func (c *cgroup) bound(memory int64) {
	if memory <= 0 || c.write("memory.max", strconv.FormatInt(memory, 10)) != nil {
		return
	}
	_ = c.write("memory.swap.max", "0")  // what is swapped out is not bounded else
	_ = c.write("memory.oom.group", "1") // half a tool is none
}

// starved reports whether the kernel ended processes inside that had too much
// memory.
func (c *cgroup) starved() bool {
	if c == nil {
		return false
	}
	var buf [512]byte
	n := readSmall(c.file("memory.events"), buf[:])
	if n < 0 {
		return false
	}
	for line := range strings.SplitSeq(string(buf[:n]), "\n") {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok && v != "0" {
			return true
		}
	}
	return false
}

// thaw undoes a freeze whose maker may have died in the middle of a strike.
func (c *cgroup) thaw() {
	if c != nil {
		_ = c.write("cgroup.freeze", "0")
	}
}

// evacuate moves what is left directly inside (spared processes) to the parent,
// where they would have been without Belay, so that the cgroup can be removed.
// Cgroups that the tool made below keep theirs.
func (c *cgroup) evacuate() {
	b, err := os.ReadFile(c.file("cgroup.procs"))
	if err != nil {
		return
	}
	parent := &cgroup{dir: filepath.Dir(c.dir)}
	for pid := range strings.FieldsSeq(string(b)) {
		_ = parent.write("cgroup.procs", pid)
	}
}

// remove deletes the cgroup and those below it; it stays while a process is
// inside, and is then found by removeAbandoned.
func (c *cgroup) remove() {
	if c == nil {
		return
	}
	c.walk(func(dir string) { _ = unix.Rmdir(dir) })
}
