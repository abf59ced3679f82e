//go:build linux

package proc

import (
	"bufio"
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
)

// owner is a second Belay, which can be killed.
type owner struct {
	cmd      *exec.Cmd
	guardian int
}

func startOwner(t *testing.T, scenario, d string, mode CgroupMode) *owner {
	t.Helper()
	subreaperOnce.Do(func() { _ = becomeSubreaper() })
	o := &owner{cmd: exec.Command("/proc/self/exe", scenario, d, strconv.Itoa(int(mode)))}
	o.cmd.Env = append(os.Environ(), helperEnv+"=owner", "GORACE=atexit_sleep_ms=0")
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, err := fmt.Sscanf(line, "started %d", &o.guardian); err != nil {
		t.Fatalf("owner said %q", line)
	}
	waitPids(t, d, scenarioPids(scenario))
	t.Cleanup(func() {
		o.cmd.Process.Kill()
		o.cmd.Wait()
		// The guardian of a dead owner ends up below this process, which is
		// a subreaper, too.
		eventually(t, 20*time.Second, "guardian ended", func() bool {
			syscall.Wait4(o.guardian, nil, syscall.WNOHANG, nil)
			return !exists(o.guardian)
		})
	})
	return o
}

func cgroupsOf(pid int) []string {
	list, _ := filepath.Glob(filepath.Join(cgroupHome(), cgroupPrefix+strconv.Itoa(pid)+"-*"))
	return list
}

// DESIGN 6: kill -9 of Belay leaves nothing behind after one second.
func TestOwnerKilled(t *testing.T) {
	each(t, func(t *testing.T, scenario string, mode CgroupMode) {
		d := newDir(t)
		o := startOwner(t, scenario, d, mode)
		watch := startWatch(t)
		o.cmd.Process.Kill()
		o.cmd.Wait()
		eventually(t, 10*time.Second, "nothing left", func() bool { return noneLiving(pidsOf(d)) })
		watch.within(t, time.Second, "dead")
		mustBeDead(t, d)
		eventually(t, 20*time.Second, "guardian ended", func() bool { return !living(o.guardian) })
		if left := cgroupsOf(o.cmd.Process.Pid); len(left) > 0 {
			t.Errorf("cgroups left: %v", left)
		}
	})
}

// DESIGN 12: SIGTERM of Belay, which closes its trees: none left after 1 s.
func TestOwnerTerminated(t *testing.T) {
	each(t, func(t *testing.T, scenario string, mode CgroupMode) {
		d := newDir(t)
		o := startOwner(t, scenario, d, mode)
		watch := startWatch(t)
		o.cmd.Process.Signal(syscall.SIGTERM)
		o.cmd.Wait()
		watch.within(t, time.Second, "ended")
		mustBeDead(t, d)
		if exists(o.guardian) {
			t.Error("the guardian is left")
		}
	})
}

func noneLiving(pids []int) bool {
	return !slices.ContainsFunc(pids, living)
}

// DESIGN 11.7: a guardian's death is noticed within 100 ms, and P ends the
// tree in its place, the stopped processes too.
func TestGuardianKilled(t *testing.T) {
	each(t, func(t *testing.T, scenario string, mode CgroupMode) {
		d := newDir(t)
		tree := startScenario(t, scenario, d, mode)
		syscall.Kill(tree.PID(), syscall.SIGSTOP)
		watch := startWatch(t)
		begun := time.Now()
		syscall.Kill(tree.GuardianPID(), syscall.SIGKILL)
		eventually(t, 20*time.Second, "noticed", func() bool { return tree.Err() != nil })
		watch.within(t, 100*time.Millisecond, "noticed")
		if !errors.Is(tree.Err(), ErrGuardianLost) {
			t.Errorf("err %v", tree.Err())
		}
		waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
		t.Logf("gone after %v", time.Since(begun))
		mustBeDead(t, d)
		waitClosed(t, tree.Done(), 0, "Done")
		if x := tree.Exit(); x.Signal != syscall.SIGKILL {
			t.Errorf("exit %v", x)
		}
		for _, pid := range pidsOf(d) {
			if exists(pid) {
				t.Errorf("pid %d is left as a zombie", pid)
			}
		}
		if r, err := tree.Close(context.Background()); err != nil || !r.Gone || !r.TakenOver {
			t.Errorf("close: gone %v taken over %v, %v", r.Gone, r.TakenOver, err)
		}
	})
}

// The loss of one guardian must not touch other trees, nor P's other children.
func TestGuardianKilledHarmsNobodyElse(t *testing.T) {
	d1, d2 := newDir(t), newDir(t)
	other := startScenario(t, "setsid", d2, CgroupOff)
	own := exec.Command("sleep", "1000")
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { own.Process.Kill(); own.Wait() }()
	tree := startScenario(t, "envi", d1, CgroupOff)
	syscall.Kill(tree.GuardianPID(), syscall.SIGKILL)
	waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
	mustBeDead(t, d1)
	for _, pid := range append(pidsOf(d2), own.Process.Pid, other.GuardianPID()) {
		if !living(pid) {
			t.Errorf("pid %d is dead", pid)
		}
	}
}

// A Kill that runs while the guardian dies still means the tree.
func TestKillWhileGuardianDies(t *testing.T) {
	for range 10 {
		d := newDir(t)
		tree := startScenario(t, "doublefork", d, CgroupOff)
		go syscall.Kill(tree.GuardianPID(), syscall.SIGKILL)
		if _, err := tree.Kill(context.Background(), Selection{}); err != nil {
			t.Fatal(err)
		}
		waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
		mustBeDead(t, d)
	}
}

// Signals for everybody (a service manager's SIGTERM) do not end a guardian,
// and what it ignores is not ignored by the tool.
func TestGuardianIgnoresSignalsLeaderDoesNot(t *testing.T) {
	tree := startTree(t, Config{Path: "sleep", Args: []string{"1000"}})
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		syscall.Kill(tree.GuardianPID(), sig)
	}
	ignored := func(pid int) string {
		for l := range strings.SplitSeq(readBounded(fmt.Sprintf("/proc/%d/status", pid), 1<<16), "\n") {
			if v, ok := strings.CutPrefix(l, "SigIgn:"); ok {
				return strings.TrimSpace(v)
			}
		}
		return "?"
	}
	if got, own := ignored(tree.PID()), ignored(os.Getpid()); got != own {
		t.Errorf("leader ignores %s, this process %s", got, own)
	}
	if !living(tree.GuardianPID()) {
		t.Error("the guardian died of a signal")
	}
}

// DESIGN 11.10: a peer inside a run's tree is recognised, whatever it did.
func TestInTree(t *testing.T) {
	d := newDir(t)
	tree := startTree(t, Config{Path: "sh", Args: []string{"-c", `(env -i setsid sh "$1/work" "$1" >/dev/null 2>&1 &); exec sleep 1000`, "sh", d}, Label: "run_01 with space"})
	pid := waitPids(t, d, 1)[0]
	for _, p := range []int{pid, tree.PID()} {
		if labels := InTree(p); len(labels) == 0 || labels[0] != "run_01 with space" {
			t.Errorf("InTree(%d) = %q", p, labels)
		}
	}
	if label, ok := GuardianLabel(tree.GuardianPID()); !ok || label != "run_01 with space" {
		t.Errorf("label %q, %v", label, ok)
	}
	if _, ok := GuardianLabel(tree.PID()); ok {
		t.Error("the leader passes as a guardian")
	}
	if labels := InTree(os.Getppid()); len(labels) > 0 && labels[0] == "run_01 with space" {
		t.Errorf("a process outside is in %q", labels)
	}
}

// DESIGN 9: a guardian is small and sleeps.
func TestGuardianIsLight(t *testing.T) {
	tree := startTree(t, Config{Path: "sleep", Args: []string{"1000"}})
	time.Sleep(300 * time.Millisecond) // let it settle; idleness is what is measured
	before := switches(t, tree.GuardianPID())
	time.Sleep(700 * time.Millisecond)
	woken := switches(t, tree.GuardianPID()) - before
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", tree.GuardianPID()))
	for l := range strings.SplitSeq(string(b), "\n") {
		for _, k := range []string{"Rss:", "Pss:", "Pss_Anon:"} {
			if strings.HasPrefix(l, k) {
				t.Log(l)
			}
		}
	}
	p, _ := readProc(tree.GuardianPID())
	t.Logf("%d threads, %v processor time, woken %d times in 0.7 s", p.threads, p.CPU, woken)
	if woken > 2 {
		t.Errorf("an idle guardian woke up %d times in 0.7 s", woken)
	}
}

// switches counts the context switches of all threads of a process.
func switches(t *testing.T, pid int) (n int) {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for l := range strings.SplitSeq(string(b), "\n") {
			if k, v, ok := strings.Cut(l, ":"); ok && strings.HasSuffix(k, "ctxt_switches") {
				i, _ := strconv.Atoi(strings.TrimSpace(v))
				n += i
			}
		}
	}
	return n
}

// A guardian started by hand does nothing and leaves.
func TestGuardianByHand(t *testing.T) {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: guardianArgs("x")}
	begun := time.Now()
	if err := cmd.Run(); err == nil {
		t.Error("exit code 0")
	}
	if time.Since(begun) > 5*time.Second {
		t.Error("it hung")
	}
}

// DESIGN 11.10: a process that does not stay to be looked at is not taken for one
// outside of the trees: neither one that is gone, nor one whose parents end while
// they are read.
func TestInTreeOfThoseWhoHide(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if labels := InTree(gone.Process.Pid); len(labels) != 1 || labels[0] != Unseen {
		t.Errorf("gone: %q", labels)
	}
	d := newDir(t)
	// Below the tree, a chain of shells whose middle ends all the time; its last one
	// writes its pid.
	startTree(t, Config{Path: "sh", Args: []string{"-c", `
		chain() { if [ "$1" = 0 ]; then sh -c 'echo $$ >>"$0/p"; exec sleep 0.02' "$2"; else (chain $(($1-1)) "$2" & sleep 0.00$1); fi; }
		while :; do chain 4 "$1"; done`, "sh", d}, Label: "run_01"})
	looked := 0
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
		b, _ := os.ReadFile(d + "/p")
		lines := strings.Fields(string(b))
		if len(lines) == 0 {
			continue
		}
		pid, err := strconv.Atoi(lines[len(lines)-1])
		if err != nil {
			continue
		}
		if labels := InTree(pid); len(labels) == 0 || labels[0] != "run_01" && labels[0] != Unseen {
			t.Fatalf("%q after %d looks", labels, looked)
		}
		looked++
	}
	if looked == 0 {
		t.Fatal("nobody was looked at")
	}
}
