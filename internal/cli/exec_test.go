//go:build linux

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/local"
)

// place is a folder with a runtime directory of its own, in which commands run
// and leave their witness.
type place struct {
	t   *testing.T
	dir string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "belay") // short: sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &place{t, dir}
}

func (p *place) environ() []string {
	return append(os.Environ(), local.EnvDir+"="+filepath.Join(p.dir, "run"), local.EnvParent+"=", "GORACE=atexit_sleep_ms=0")
}

// belayCmd is the real program, ready to be started.
func (p *place) belayCmd(args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	p.t.Helper()
	path, err := exec.LookPath("belay") // put there by testscript.Main
	if err != nil {
		p.t.Fatal(err)
	}
	cmd = exec.Command(path, args...)
	cmd.Dir, cmd.Env = p.dir, p.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // away from the terminal of whoever runs the tests
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	// A buffer is copied from a pipe, which whoever escapes would keep open.
	cmd.WaitDelay = 5 * time.Second
	p.t.Cleanup(func() { // a test that failed half way
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, stderr
}

// witness is what the processes of a test wrote: their pids, one a line, each
// again every 20 ms as long as it lives.
func (p *place) witness() string { return filepath.Join(p.dir, "witness") }

// ticker is a shell program that is its own witness. how says how it starts:
// "" or with a word before it such as setsid.
const ticker = `while :; do echo $$ >> witness; sleep 0.02; done`

// wild is a deaf command with children that left the group and the session,
// by every way that a shell knows.
const wild = `trap "" INT TERM HUP
sh -c '` + ticker + `' &
setsid sh -c 'trap "" TERM; ` + ticker + `' &
(setsid sh -c '` + ticker + `' &)
env -i PATH="$PATH" setsid sh -c '` + ticker + `' &
` + ticker

func (p *place) pids() []int {
	data, _ := os.ReadFile(p.witness())
	var pids []int
	for line := range strings.Lines(string(data)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// waitPids waits until n processes have shown themselves.
func (p *place) waitPids(n int) []int {
	p.t.Helper()
	var pids []int
	p.until(fmt.Sprintf("%d processes in the witness", n), func() bool {
		pids = p.pids()
		return len(pids) >= n
	})
	return pids
}

func (p *place) until(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func living(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return true
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "Z")
	})
}

// dead fails the test unless all are dead by then.
func (p *place) dead(pids []int, by time.Time) {
	p.t.Helper()
	left := living(pids)
	for len(left) > 0 && time.Now().Before(by) {
		time.Sleep(2 * time.Millisecond)
		left = living(left)
	}
	if len(left) > 0 {
		p.t.Errorf("still alive: %v", left)
	}
}

func exitCodeOf(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var e *exec.ExitError
	if !errors.As(err, &e) {
		t.Fatalf("it did not run: %v", err)
	}
	return e.ExitCode()
}

// TestExecSignals: the Stop of a command in no terminal, by every signal that
// means one. SIGTERM and SIGHUP leave nothing after one second (DESIGN 12,
// Belay's own end), however wild the tree.
func TestExecSignals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal syscall.Signal
		within time.Duration
		cause  string
	}{
		{syscall.SIGTERM, time.Second, "Belay's own end"},
		{syscall.SIGHUP, time.Second, "its caller's leaving"},
		{syscall.SIGQUIT, time.Second, "SIGQUIT"},           // straight to the kill
		{syscall.SIGINT, 1500 * time.Millisecond, "Ctrl-C"}, // 400 ms of ladder; the rest is for a busy machine
	} {
		t.Run(c.signal.String(), func(t *testing.T) {
			p := newPlace(t)
			cmd, stderr := p.belayCmd("exec", "--grace", "200ms", "--kill-after", "200ms", "--", "sh", "-c", wild)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pids := p.waitPids(5)
			sent := time.Now()
			_ = cmd.Process.Signal(c.signal)
			p.dead(pids, sent.Add(c.within))
			if code := exitCodeOf(t, cmd.Wait()); code != ExitStopped {
				t.Errorf("exit code %d, want %d", code, ExitStopped)
			}
			if s := stderr.String(); !strings.Contains(s, "confirmed: every process of it was seen dead") || !strings.Contains(s, c.cause) {
				t.Errorf("the receipt is\n%s", s)
			}
		})
	}
}

// TestExecKilled: kill -9 of belay exec leaves nothing after one second.
func TestExecKilled(t *testing.T) {
	t.Parallel()
	for _, cgroup := range []string{"auto", "off"} {
		t.Run("cgroup "+cgroup, func(t *testing.T) {
			p := newPlace(t)
			cmd, _ := p.belayCmd("exec", "--cgroup", cgroup, "--", "sh", "-c", wild)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pids := p.waitPids(5)
			sent := time.Now()
			_ = cmd.Process.Kill()
			p.dead(pids, sent.Add(time.Second))
			_ = cmd.Wait()
		})
	}
}

// TestExecGuardianKilled: when somebody kills the guardian, the command is not
// left alone: it is killed too, and that is said (DESIGN 11, 7).
func TestExecGuardianKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	cmd, stderr := p.belayCmd("exec", "--", "sh", "-c", wild)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := p.waitPids(5)
	// Children are listed by the thread that started them.
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	killed := 0
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for field := range strings.FieldsSeq(string(children)) {
			guardian, _ := strconv.Atoi(field)
			_ = syscall.Kill(guardian, syscall.SIGKILL)
			killed++
		}
	}
	if killed != 1 {
		t.Fatalf("%d guardians", killed)
	}
	p.dead(pids, time.Now().Add(time.Second))
	if code := exitCodeOf(t, cmd.Wait()); code == 0 || !strings.Contains(stderr.String(), "guardian d") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

// TestExecSecondPress: a second Stop takes the next step at once, a third kills.
func TestExecSecondPress(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	cmd, stderr := p.belayCmd("exec", "--grace", "1m", "--kill-after", "1m", "--", "sh", "-c",
		`trap "echo INT >> told" INT; trap "echo TERM >> told" TERM; `+ticker)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := p.waitPids(1)
	press := func() { _ = cmd.Process.Signal(syscall.SIGINT) }
	press()
	p.until("SIGINT", func() bool { return p.read("told") == "INT\n" })
	press()
	p.until("SIGTERM", func() bool { return p.read("told") == "INT\nTERM\n" })
	sent := time.Now()
	press()
	p.dead(pids, sent.Add(2*time.Second))
	if code := exitCodeOf(t, cmd.Wait()); code != ExitStopped {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(stderr.String(), "escalated"); n != 2 {
		t.Errorf("%d escalations in\n%s", n, stderr)
	}
}

// TestExecLeavesNothing: what a command leaves in the background when it ends
// by itself is stopped, also when it is deaf.
func TestExecLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	cmd, stderr := p.belayCmd("exec", "--kill-after", "200ms", "--", "sh", "-c",
		`setsid sh -c 'trap "" TERM; `+ticker+`' & while [ ! -s witness ]; do sleep 0.02; done; exit 3`)
	code := exitCodeOf(t, cmd.Run())
	p.dead(p.pids(), time.Now())
	if code != 3 || !strings.Contains(stderr.String(), "which is stopped now: pid ") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

// TestExecPipe: the end of a pipe that ends by itself is not disturbed.
func TestExecPipe(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	cmd, stderr := p.belayCmd("exec", "--", "sh", "-c", `(sleep 0.03; echo whole > tail) & exit 0`)
	if code := exitCodeOf(t, cmd.Run()); code != 0 || stderr.Len() > 0 {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if b, _ := os.ReadFile(filepath.Join(p.dir, "tail")); string(b) != "whole\n" {
		t.Errorf("the tail is %q", b)
	}
}

// TestExecNested: the run tree spans processes; a Stop of the outer run stops
// the inner one, told by its own Belay (DESIGN 4, BELAY_PARENT).
func TestExecNested(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	cmd, stderr := p.belayCmd("exec", "--name", "outer", "--", "belay", "exec", "--name", "inner", "--", "sh", "-c", ticker)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := p.waitPids(1)
	mesh := local.NewMesh(local.MeshOptions{Dirs: []string{filepath.Join(p.dir, "run")}})
	runs := map[string]belay.Info{}
	p.until("both runs", func() bool {
		list, _ := mesh.List(context.Background(), belay.Filter{})
		for _, i := range list {
			runs[i.Name] = i
		}
		return len(runs) == 2
	})
	if runs["inner"].Parent != runs["outer"].ID || runs["inner"].Kind != belay.KindProcess {
		t.Errorf("inner %+v hangs not below outer %+v", runs["inner"], runs["outer"])
	}
	results, err := mesh.Cancel(context.Background(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{runs["outer"].ID}},
		Cancellation: belay.Cancellation{Cause: belay.CauseUser, Via: "test"},
		Wait:         -1, // no force at once: it could end the inner Belay before that has answered
	})
	p.dead(pids, time.Now())
	if code := exitCodeOf(t, cmd.Wait()); code != ExitStopped {
		t.Errorf("exit code %d, stderr %s", code, stderr)
	}
	for _, r := range results {
		if r.Receipt == nil || r.Receipt.Verdict != belay.Confirmed {
			t.Errorf("%s: %+v", r.Run.Name, r.Receipt)
		}
	}
	if len(results) != 2 || err != nil {
		t.Errorf("%d results, %v", len(results), err)
	}
}

// TestExecStoppedAbove: below a run that is being stopped nothing is started.
func TestExecStoppedAbove(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	// The shell outlives the Stop by its grace and then tries to start more.
	cmd, stderr := p.belayCmd("exec", "--grace", "5s", "--", "sh", "-c",
		`trap "" INT; `+`echo $$ >> witness; while [ ! -e stopped ]; do sleep 0.02; done; belay exec -- sh -c 'echo harm > harm'; echo $? > code`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.waitPids(1)
	_ = cmd.Process.Signal(syscall.SIGINT)
	p.until("the Stop", func() bool {
		mesh := local.NewMesh(local.MeshOptions{Dirs: []string{filepath.Join(p.dir, "run")}})
		list, _ := mesh.List(context.Background(), belay.Filter{})
		return len(list) == 1 && list[0].Work == belay.Stopping
	})
	if err := os.WriteFile(filepath.Join(p.dir, "stopped"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := os.Stat(filepath.Join(p.dir, "harm")); err == nil {
		t.Errorf("a command was started below a run that is being stopped\n%s", stderr)
	}
	if b, _ := os.ReadFile(filepath.Join(p.dir, "code")); strings.TrimSpace(string(b)) != "130" {
		t.Errorf("its exit code was %q\n%s", b, stderr)
	}
}

// read is what a file in the place holds; empty if it is not there.
func (p *place) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(p.dir, name))
	return string(b)
}
