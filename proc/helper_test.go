//go:build linux

package proc

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/calm"
)

// The test binary, executed again with helperEnv set, plays another program.
const helperEnv = "PROC_TEST_HELPER"

// helper runs the role and reports whether there was one.
func helper() bool {
	switch os.Getenv(helperEnv) {
	case "":
		return false
	case "owner":
		ownerRole()
	}
	return true
}

// ownerRole is a Belay of its own: it starts one scenario and waits to be
// killed, or closes the tree on SIGTERM as Belay does.
func ownerRole() {
	mode, _ := strconv.Atoi(os.Args[3])
	os.Unsetenv(helperEnv)
	tree, err := Start(context.Background(), scenarioConfig(os.Args[1], os.Args[2], CgroupMode(mode)))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	term := make(chan os.Signal, 1)
	notifyTerm(term)
	fmt.Println("started", tree.GuardianPID())
	<-term
	tree.Close(context.Background())
}

// workScript is the witness: it writes its pid, then grows a file.
const workScript = `echo $$ >> "$1/pids"
while :; do echo x >> "$1/grow"; sleep 0.02; done
`

// respawnScript is a pair of processes of which each starts the other anew,
// in a session of its own, and which do not listen to SIGTERM.
const respawnScript = `
import os, signal, sys, time
d = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def alive(pid):
    try: os.waitpid(pid, os.WNOHANG)
    except OSError: pass
    try: os.kill(pid, 0)
    except OSError: return False
    return True
def run(other):
    with open(d + '/pids', 'a') as f: f.write('%d\n' % os.getpid())
    while True:
        if not other or not alive(other):
            me, other = os.getpid(), os.fork()
            if other == 0:
                os.setsid()
                run(me)
        time.sleep(0.001)
run(0)
`

// treeScript forks 200 processes, some deaf, some in sessions of their own,
// some without a living parent.
const treeScript = `
import os, signal, sys, time
d, n = sys.argv[1], 200
fd = os.open(d + '/pids', os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
def node(i):
    if i % 3 == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for c in (2 * i, 2 * i + 1):
        if c <= n and os.fork() == 0:
            if c % 5 == 0: os.setsid()
            node(c)
    os.write(fd, b'%d\n' % os.getpid())
    if i % 7 == 0 and i > 1:
        os._exit(0)
    while True: time.sleep(60)
node(1)
`

// scenarios are the trees that have to be stopped, and how many pids each
// writes before it is ready.
var scenarios = []struct {
	name string
	pids int
	argv func(d string) []string
}{
	{"plain", 1, shell(`exec sh "$D/work" "$D"`)},
	{"deaf", 2, shell(`trap '' TERM INT HUP; sh "$D/work" "$D" & exec sh "$D/work" "$D"`)},
	{"setsid", 2, shell(`setsid sh "$D/work" "$D" & exec sh "$D/work" "$D"`)},
	{"doublefork", 3, shell(`(sh "$D/work" "$D" &); (setsid sh "$D/work" "$D" &); exec sh "$D/work" "$D"`)},
	{"envi", 3, shell(`(env -i setsid sh "$D/work" "$D" &); env -i sh "$D/work" "$D" & exec sh "$D/work" "$D"`)},
	{"respawn", 2, func(d string) []string { return []string{"python3", filepath.Join(d, "respawn"), d} }},
	{"forks200", 200, func(d string) []string { return []string{"python3", filepath.Join(d, "forks"), d} }},
}

func shell(script string) func(string) []string {
	return func(d string) []string {
		return []string{"sh", "-c", "D='" + d + "'; " + script}
	}
}

// newDir makes a directory with the scripts in it. Its unique name is in the
// command line of every process of a scenario.
func newDir(t testing.TB) string {
	t.Helper()
	d := t.TempDir()
	for name, text := range map[string]string{"work": workScript, "respawn": respawnScript, "forks": treeScript} {
		if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, pid := range mentioning(d) {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Errorf("left behind: pid %d %q", pid, cmdline(pid, 200))
		}
	})
	return d
}

func scenarioConfig(name, d string, mode CgroupMode) Config {
	for _, s := range scenarios {
		if s.name == name {
			argv := s.argv(d)
			return Config{Path: argv[0], Args: argv[1:], Label: "run_" + name, Cgroup: mode}
		}
	}
	panic("no scenario " + name)
}

func scenarioPids(name string) int {
	for _, s := range scenarios {
		if s.name == name {
			return s.pids
		}
	}
	return 0
}

// startTree starts a command and closes it, and P's ends, when the test ends.
func startTree(t testing.TB, cfg Config) *Tree {
	t.Helper()
	tree, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTree(t, tree) })
	return tree
}

func closeTree(t testing.TB, tree *Tree) Report {
	t.Helper()
	r, err := tree.Close(context.Background())
	if err != nil {
		t.Errorf("close: %v", err)
	}
	for _, f := range []*os.File{tree.Stdin(), tree.Stdout(), tree.Stderr()} {
		if f != nil {
			f.Close()
		}
	}
	return r
}

func startScenario(t testing.TB, name, d string, mode CgroupMode) *Tree {
	t.Helper()
	tree := startTree(t, scenarioConfig(name, d, mode))
	waitPids(t, d, scenarioPids(name))
	return tree
}

// pidsOf returns what the witnesses in d have written.
func pidsOf(d string) (pids []int) {
	b, _ := os.ReadFile(filepath.Join(d, "pids"))
	for s := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(s); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func waitPids(t testing.TB, d string, n int) []int {
	t.Helper()
	eventually(t, 20*time.Second, fmt.Sprintf("%d pids in %s", n, d), func() bool { return len(pidsOf(d)) >= n })
	return pidsOf(d)
}

// eventually polls a condition until a deadline.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", limit, what)
		}
	}
}

// exists reports whether a pid is in the table at all, as a zombie too.
func exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

// living reports whether a pid is a live process.
func living(pid int) bool {
	p, ok := readProc(pid)
	return ok && p.live()
}

// mentioning returns the live processes with d in their command line.
func mentioning(d string) (pids []int) {
	v, err := readTable()
	if err != nil {
		return nil
	}
	for _, p := range v.procs {
		if p.PID != os.Getpid() && p.live() && strings.Contains(cmdline(p.PID, 4096), d) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func size(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

// mustBeDead checks every witness: no pid in the table, no command line that
// names the directory, the file no longer growing.
func mustBeDead(t testing.TB, d string) {
	t.Helper()
	for _, pid := range pidsOf(d) {
		if living(pid) {
			t.Errorf("pid %d lives: %q", pid, cmdline(pid, 200))
		}
	}
	for _, pid := range mentioning(d) {
		t.Errorf("pid %d lives: %q", pid, cmdline(pid, 200))
	}
	before := size(filepath.Join(d, "grow"))
	time.Sleep(60 * time.Millisecond) // three of the witness's own periods
	if after := size(filepath.Join(d, "grow")); after != before {
		t.Errorf("the file grew from %d to %d bytes after the stop", before, after)
	}
}

// commander is a leader that does what is written to its stdin: a shell.
type commander struct {
	*Tree
	t   testing.TB
	out *bufio.Reader
}

func startCommander(t testing.TB, cfg Config) *commander {
	t.Helper()
	cfg.Path = "sh"
	tree := startTree(t, cfg)
	return &commander{tree, t, bufio.NewReader(tree.Stdout())}
}

// do runs shell text in the leader and returns the one line it prints.
func (c *commander) do(text string) string {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.Stdin(), text); err != nil {
		c.t.Fatal(err)
	}
	out, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// spawn starts something in the background and returns its pid.
func (c *commander) spawn(command string) int {
	c.t.Helper()
	pid, err := strconv.Atoi(c.do(command + " >/dev/null 2>&1 & echo $!"))
	if err != nil {
		c.t.Fatal(err)
	}
	return pid
}

// stopwatch measures a stretch of time and how calm the machine was meanwhile.
type stopwatch struct {
	begun time.Time
	sky   *calm.Watch
}

func startWatch(t testing.TB) *stopwatch { return &stopwatch{time.Now(), calm.Start(t)} }

// within fails unless at most limit passed, the weather apart.
func (w *stopwatch) within(t testing.TB, limit time.Duration, what string) {
	t.Helper()
	took := time.Since(w.begun)
	w.sky.Within(t, took, limit, what)
	w.sky.Stop()
	t.Logf("%s after %v", what, took)
}
