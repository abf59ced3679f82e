//go:build linux

package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// output runs a command to its end and returns what it printed.
func output(t *testing.T, cfg Config) (string, Exit) {
	t.Helper()
	tree := startTree(t, cfg)
	b, err := io.ReadAll(tree.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
	return string(b), tree.Exit()
}

// Bad input: each gets one clear error that names what and says what to do.
func TestStartErrors(t *testing.T) {
	d := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(d, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "echo", 0o644)
	noLoader := write("interp", "#!/no/such/interpreter\n", 0o755)
	garbage := write("garbage", "\x01\x02 no program", 0o755)
	huge := strings.Repeat("x", 200<<10)
	for _, c := range []struct {
		name string
		cfg  Config
		want error
		says string
	}{
		{"empty", Config{}, ErrNotFound, "no command"},
		{"not in PATH", Config{Path: "no-such-program-here"}, ErrNotFound, "PATH"},
		{"PATH of Env counts", Config{Path: "sh", Env: []string{"PATH=/nowhere"}}, ErrNotFound, "/nowhere"},
		{"no such path", Config{Path: "/no/such/program"}, ErrNotFound, "/no/such/program"},
		{"below a file", Config{Path: plain + "/x"}, ErrNotFound, "does not exist"},
		{"not executable", Config{Path: plain}, ErrNotExecutable, "chmod"},
		{"directory", Config{Path: d + "/"}, ErrNotExecutable, "directory"},
		{"interpreter", Config{Path: noLoader}, ErrNotFound, "interpreter"},
		{"format", Config{Path: garbage}, ErrNotExecutable, "neither"},
		{"no such dir", Config{Path: "true", Dir: "/no/such/dir"}, ErrStart, "working directory"},
		{"dir is a file", Config{Path: "true", Dir: plain}, ErrStart, "not a directory"},
		{"NUL", Config{Path: "true", Args: []string{"a\x00b"}}, ErrStart, "NUL"},
		{"marker", Config{Path: "true", Marker: "novalue"}, ErrStart, "marker"},
		{"too long", Config{Path: "true", Args: []string{huge}}, ErrStart, "too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree, err := Start(context.Background(), c.cfg)
			if tree != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.want, c.says)
			}
		})
	}
	if left := cgroupsOf(os.Getpid()); len(left) > 0 {
		t.Errorf("cgroups left: %v", left)
	}
}

// Arguments, environment and directory arrive exactly, whatever bytes they
// hold, and nothing of the guardian's own environment leaks.
func TestLeaderGetsExactlyItsOwn(t *testing.T) {
	d := t.TempDir()
	args := []string{"-c", `printf '%s|' "$@"; pwd; tr '\0' '\n' < /proc/self/environ`, "sh", "", "two words", "\xff\xfe", "\n"}
	out, x := output(t, Config{Path: "sh", Args: args, Env: []string{"PATH=/bin:/usr/bin", "ODD=\xff=\xfe", "EMPTY=", "M=old"}, Dir: d, Marker: "M=new"})
	if x.Code != 0 {
		t.Errorf("exit %v", x)
	}
	head, env, _ := strings.Cut(out, "\n|"+d+"\n")
	if head != "|two words|\xff\xfe|" {
		t.Errorf("arguments %q", head)
	}
	got := strings.Split(strings.TrimSpace(env), "\n")
	// The shell adds PWD for what it starts.
	got = slices.DeleteFunc(got, func(e string) bool { return strings.HasPrefix(e, "PWD=") || strings.HasPrefix(e, "_=") })
	slices.Sort(got)
	want := []string{"EMPTY=", "M=new", "ODD=\xff=\xfe", "PATH=/bin:/usr/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
}

// Without Env the leader gets P's environment and the default marker.
func TestDefaultEnvAndMarker(t *testing.T) {
	t.Setenv("PROC_TEST_SEEN", "yes")
	out, _ := output(t, Config{Path: "env"})
	if !strings.Contains(out, "PROC_TEST_SEEN=yes\n") || !strings.Contains(out, "BELAY_TREE=") {
		t.Errorf("environment %q", out)
	}
	if strings.Contains(out, "GOGC=off") && os.Getenv("GOGC") == "" {
		t.Error("the guardian's environment leaked")
	}
}

// The leader holds its three descriptors and nothing else: neither the control
// socket nor anything of P.
func TestLeaderHoldsOnlyStdio(t *testing.T) {
	out, _ := output(t, Config{Path: "sh", Args: []string{"-c", "ls -l /proc/$$/fd"}})
	var fds []string
	for l := range strings.SplitSeq(out, "\n") {
		if f := strings.Fields(l); len(f) > 8 {
			fds = append(fds, f[8])
		}
	}
	if !slices.Equal(fds, []string{"0", "1", "2"}) {
		t.Errorf("descriptors %v", fds)
	}
}

// Files that were given are used as they are and stay open here.
func TestInheritedFiles(t *testing.T) {
	in, err := os.CreateTemp(t.TempDir(), "in")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	in.WriteString("from a file")
	in.Seek(0, 0)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tree := startTree(t, Config{Path: "cat", Stdin: in, Stdout: w})
	if tree.Stdin() != nil || tree.Stdout() != nil || tree.Stderr() == nil {
		t.Error("pipes were made for given files, or none for Stderr")
	}
	waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
	if _, err := w.WriteString("!"); err != nil {
		t.Errorf("the given file was closed: %v", err)
	}
	w.Close()
	if b, _ := io.ReadAll(r); string(b) != "from a file!" {
		t.Errorf("got %q", b)
	}
}

// A group of its own, or the caller's for a program at a terminal.
func TestProcessGroup(t *testing.T) {
	for _, fg := range []bool{false, true} {
		tree := startTree(t, Config{Path: "sleep", Args: []string{"1000"}, Foreground: fg})
		p, ok := readProc(tree.PID())
		if !ok || fg != (p.PGID == unix.Getpgrp()) || !fg && p.PGID != p.PID {
			t.Errorf("foreground %v: group %d", fg, p.PGID)
		}
		g, _ := readProc(tree.GuardianPID())
		if g.PGID != g.PID {
			t.Error("the guardian is in somebody's group")
		}
		if err := tree.SignalGroup(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
		if x := tree.Exit(); x.Signal != syscall.SIGTERM || x.String() != "signal: terminated" {
			t.Errorf("exit %v", x)
		}
	}
}

// A tool that dies at once is a tree like any other: started, ended, gone.
func TestDiesAtOnce(t *testing.T) {
	for range 20 {
		tree := startTree(t, Config{Path: "sh", Args: []string{"-c", "exit 3"}})
		waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
		if x := tree.Exit(); x.Code != 3 || x.Signal != 0 || x.Unknown || x.String() != "exit code 3" {
			t.Errorf("exit %v", x)
		}
		if list, err := tree.List(); err != nil || len(list) != 0 {
			t.Errorf("list %v, %v", list, err)
		}
		if err := tree.Signal(0); !errors.Is(err, ErrExited) {
			t.Errorf("signal: %v", err)
		}
		if r, err := tree.Terminate(context.Background(), Selection{}, 0); err != nil || !r.Gone {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// A context that ends during the start leaves nothing.
func TestStartCancelled(t *testing.T) {
	d := newDir(t)
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := Start(ctx, Config{Path: "sleep", Args: []string{"1000"}}); !errors.Is(err, why) || !errors.Is(err, ErrStart) {
		t.Errorf("err %v", err)
	}
	for delay := range 8 {
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Duration(delay)*500*time.Microsecond, func() { cancel(why) })
		tree, err := Start(ctx, Config{Path: "sh", Args: []string{d + "/work", d}})
		if tree != nil {
			closeTree(t, tree)
		} else if !errors.Is(err, why) {
			t.Errorf("err %v", err)
		}
	}
	mustBeDead(t, d)
	if left := cgroupsOf(os.Getpid()); len(left) > 0 {
		t.Errorf("cgroups left: %v", left)
	}
}

// The list shows the leader with its true birth and what it costs.
func TestListAndCPU(t *testing.T) {
	for _, m := range modes {
		before := time.Now()
		tree := startTree(t, Config{Path: "sh", Args: []string{"-c", "while :; do :; done"}, Cgroup: m.mode})
		eventually(t, 10*time.Second, "CPU grows", func() bool { return tree.CPU() > 100*time.Millisecond })
		list, err := tree.List()
		if err != nil || len(list) != 1 {
			t.Fatalf("list %v, %v", list, err)
		}
		p := list[0]
		if p.PID != tree.PID() || p.Start != tree.StartTime() || p.Comm != "sh" || p.UID != os.Getuid() ||
			!strings.Contains(p.Command, "while :") || p.PPID != tree.GuardianPID() || p.CPU == 0 {
			t.Errorf("%+v", p)
		}
		if age := p.Born.Sub(before); age < -50*time.Millisecond || age > 500*time.Millisecond {
			t.Errorf("born %v after the start", age)
		}
		if d := p.Start.Time().Sub(p.Born).Abs(); d > 5*time.Millisecond {
			t.Errorf("stamp and time differ by %v", d)
		}
		last := tree.CPU()
		closeTree(t, tree)
		if tree.CPU() < last {
			t.Error("CPU went back")
		}
	}
}

// What children have used counts after they have ended.
func TestCPUOfTheDead(t *testing.T) {
	tree := startTree(t, Config{Path: "sh", Args: []string{"-c", `(setsid python3 -c "
import time
while time.process_time() < 0.2: pass
" &); exec sleep 1000`}, Cgroup: CgroupOff})
	eventually(t, 10*time.Second, "CPU of a child counts", func() bool { return tree.CPU() >= 190*time.Millisecond })
	eventually(t, 10*time.Second, "child ended", func() bool { l, _ := tree.List(); return len(l) == 1 })
	if got := tree.CPU(); got < 190*time.Millisecond {
		t.Errorf("CPU %v", got)
	}
}
