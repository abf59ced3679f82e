//go:build linux

package proc

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func notifyTerm(c chan os.Signal) { signal.Notify(c, syscall.SIGTERM) }

var modes = []struct {
	name string
	mode CgroupMode
}{{"cgroup", CgroupAuto}, {"sweep", CgroupOff}}

// each runs a test for every kind of tree, with a cgroup and without.
func each(t *testing.T, test func(t *testing.T, scenario string, mode CgroupMode)) {
	for _, s := range scenarios {
		for _, m := range modes {
			t.Run(s.name+"/"+m.name, func(t *testing.T) { test(t, s.name, m.mode) })
		}
	}
}

// needCgroup fails on the machines that the tests are made for (Linux, root,
// cgroup v2 mounted) and skips where no cgroup can be made.
func needCgroup(t testing.TB) {
	t.Helper()
	if cgroupHome() == "" || os.Geteuid() != 0 {
		t.Skip("needs root and a cgroup v2 mount")
	}
}

// DESIGN 1.4, 6: a kill leaves nothing of a tree, whatever it does to escape.
func TestKillLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, scenario string, mode CgroupMode) {
		if mode == CgroupAuto {
			needCgroup(t)
		}
		d := newDir(t)
		tree := startScenario(t, scenario, d, mode)
		begun := time.Now()
		r, err := tree.Kill(context.Background(), Selection{})
		took := time.Since(begun)
		if err != nil || !r.Gone || len(r.Survivors) > 0 {
			t.Fatalf("kill: gone %v, %d survivors, %v", r.Gone, len(r.Survivors), err)
		}
		mustBeDead(t, d)
		want := MeansSweep
		if mode == CgroupAuto {
			want = MeansCgroup
		}
		if r.Means != want {
			t.Errorf("means %q, want %q", r.Means, want)
		}
		if len(r.Killed) < scenarioPids(scenario)-30 { // forks200 lets some end
			t.Errorf("report names %d killed", len(r.Killed))
		}
		waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
		for _, pid := range pidsOf(d) {
			if exists(pid) {
				t.Errorf("pid %d is left as a zombie", pid)
			}
		}
		if r, err := tree.Kill(context.Background(), Selection{}); err != nil || !r.Gone {
			t.Errorf("second kill: %+v, %v", r, err)
		}
		t.Logf("dead after %v by %s", took, r.Means)
	})
}

func waitClosed(t testing.TB, c <-chan struct{}, limit time.Duration, what string) {
	t.Helper()
	select {
	case <-c:
		return
	default:
	}
	select {
	case <-c:
	case <-time.After(limit):
		t.Fatalf("%s not closed after %v", what, limit)
	}
}

// DESIGN 12: Belay's own end: SIGTERM to all, SIGKILL after 0.5 s, nothing
// left after one second.
func TestCloseWithinASecond(t *testing.T) {
	each(t, func(t *testing.T, scenario string, mode CgroupMode) {
		d := newDir(t)
		tree := startScenario(t, scenario, d, mode)
		watch := startWatch(t)
		r := closeTree(t, tree)
		watch.within(t, time.Second, "closed")
		if !r.Gone {
			t.Errorf("%d survivors", len(r.Survivors))
		}
		mustBeDead(t, d)
		waitClosed(t, tree.Gone(), 0, "Gone")
		if exists(tree.GuardianPID()) {
			t.Error("the guardian is left")
		}
		if dir := tree.Cgroup(); dir != "" {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("cgroup %s is left", dir)
			}
		}
	})
}

// DESIGN 11.7: the leader is told first, the others half later.
func TestTerminateTellsTheLeaderFirst(t *testing.T) {
	d := newDir(t)
	// The leader notes when it was told and stays; so does its helper.
	c := startCommander(t, Config{})
	c.do(`trap 'date +%s%N > ` + d + `/leader; trap "" TERM' TERM; echo ok`)
	helper := c.spawn(`sh -c "trap 'date +%s%N > ` + d + `/helper; exit' TERM; echo > ` + d + `/ready; while :; do sleep 0.01; done"`)
	eventually(t, 20*time.Second, "helper ready", func() bool { return size(d+"/ready") > 0 })
	c.do("(while :; do sleep 0.01; done) & echo ok") // deaf: inherited nothing, but never asked to report
	const half = 150 * time.Millisecond
	enough := errors.New("seen enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		// Bounded, so that a helper that is never told fails the test below.
		for end := time.Now().Add(20 * time.Second); size(d+"/helper") == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		cancel(enough)
	})
	// The leader reads its stdin: keep it running past the end of file.
	c.Stdin().WriteString("while :; do sleep 0.01; done\n")
	begun := time.Duration(time.Now().UnixNano())
	r, err := c.Terminate(ctx, Selection{}, half)
	if !errors.Is(err, ErrSurvivors) || !errors.Is(err, enough) || r.Gone {
		t.Fatalf("terminate: gone %v, %v", r.Gone, err)
	}
	if len(r.Signalled) < 3 || r.Signalled[0].PID != c.PID() {
		t.Errorf("signalled %+v", r.Signalled)
	}
	eventually(t, 20*time.Second, "helper ended", func() bool { return !living(helper) })
	leader, told := stamp(t, d+"/leader"), stamp(t, d+"/helper")
	if told-begun < half || leader == 0 {
		t.Errorf("the leader was told after %v, the helper after %v, want %v", leader-begun, told-begun, half)
	}
	if !living(c.PID()) || len(r.Survivors) == 0 {
		t.Error("the deaf leader is not named as a survivor")
	}
	if _, err := c.Kill(context.Background(), Selection{}); err != nil {
		t.Error(err)
	}
	if x := c.Exit(); x.Signal != syscall.SIGKILL {
		t.Errorf("exit %v", x)
	}
}

func stamp(t *testing.T, path string) time.Duration {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(b)) + "ns")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A polite tool ends by Terminate alone, and at once.
func TestTerminatePolite(t *testing.T) {
	d := newDir(t)
	tree := startScenario(t, "doublefork", d, CgroupAuto)
	watch := startWatch(t)
	r, err := tree.Terminate(context.Background(), Selection{}, time.Minute)
	if err != nil || !r.Gone || r.Means != MeansSignal || len(r.Signalled) < 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	watch.within(t, 500*time.Millisecond, "without a leader, whom there is nobody to wait for, ended")
	mustBeDead(t, d)
	if x := tree.Exit(); x.Signal != syscall.SIGTERM || x.Code != -1 {
		t.Errorf("exit %v", x)
	}
}

// A stopped process acts on SIGTERM, because it is woken.
func TestTerminateWakesTheStopped(t *testing.T) {
	tree := startTree(t, Config{Path: "sleep", Args: []string{"1000"}})
	if err := tree.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Second, "stopped", func() bool { p, _ := readProc(tree.PID()); return p.State == "T" })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if r, err := tree.Terminate(ctx, Selection{}, 0); err != nil || !r.Gone {
		t.Errorf("%+v, %v", r, err)
	}
}

// The ways to stop may be used all at once, many times, at any moment.
func TestConcurrentStops(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			for range 5 {
				d := newDir(t)
				tree := startScenario(t, "respawn", d, m.mode)
				var wg sync.WaitGroup
				for i := range 12 {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
						defer cancel()
						switch i % 4 {
						case 0:
							_, _ = tree.Terminate(ctx, Selection{}, 20*time.Millisecond)
						case 1:
							if r, err := tree.Kill(ctx, Selection{}); err != nil || !r.Gone {
								t.Errorf("kill: %v", err)
							}
						case 2:
							if r, err := tree.Close(ctx); err != nil || !r.Gone {
								t.Errorf("close: %v", err)
							}
						case 3:
							_, _ = tree.Kill(ctx, Selection{OnlySince: tree.StartTime()})
							_, _ = tree.List()
							tree.Plan(Selection{})
							tree.CPU()
							_ = tree.SignalGroup(syscall.SIGCONT)
						}
					})
				}
				wg.Wait()
				mustBeDead(t, d)
				waitClosed(t, tree.Gone(), 0, "Gone")
			}
		})
	}
}

// A tool that ends by itself while children live: Done, but still owned.
func TestLeaderEndsFirst(t *testing.T) {
	d := newDir(t)
	tree := startTree(t, Config{Path: "sh", Args: []string{"-c", `(setsid sh "$1/work" "$1" >/dev/null 2>&1 &); exit 7`, "sh", d}})
	waitClosed(t, tree.Done(), 20*time.Second, "Done")
	if x := tree.Exit(); x.Code != 7 || x.Signal != 0 {
		t.Errorf("exit %v", x)
	}
	pid := waitPids(t, d, 1)[0]
	select {
	case <-tree.Gone():
		t.Fatal("Gone although a child lives")
	default:
	}
	if err := tree.Signal(syscall.SIGTERM); !errors.Is(err, ErrExited) {
		t.Errorf("signal to a dead leader: %v", err)
	}
	list, err := tree.List()
	if err != nil || len(list) == 0 {
		t.Fatalf("list %v, %v", list, err)
	}
	if labels := InTree(pid); len(labels) != 1 || labels[0] != "" {
		t.Errorf("InTree(%d) = %q", pid, labels)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	// The shell's last sleep ends by itself.
	waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
	mustBeDead(t, d)
}

// STYLE 18, DESIGN 1.5: what cannot be seen is not called dead. With no
// descriptor left /proc cannot be read, and Kill must not say Gone.
func TestBlindIsNotGone(t *testing.T) {
	tree := startTree(t, Config{Path: "sh", Args: []string{"-c", "trap '' TERM; while :; do sleep 0.01; done"}, Cgroup: CgroupOff})
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	restored := false
	restore := func() {
		if !restored {
			restored = true
			syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
		}
	}
	defer restore()
	for _, stop := range []func(context.Context) (Report, error){
		func(ctx context.Context) (Report, error) { return tree.Kill(ctx, Selection{}) },
		func(ctx context.Context) (Report, error) { return tree.Terminate(ctx, Selection{}, 0) },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		r, err := stop(ctx)
		cancel()
		if r.Gone || !errors.Is(err, ErrSurvivors) || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("gone %v, %v", r.Gone, err)
		}
	}
	restore()
	if r, err := tree.Kill(context.Background(), Selection{}); err != nil || !r.Gone {
		t.Errorf("with descriptors again: %v", err)
	}
}

// A Kill whose context is already done still strikes, and says what it saw.
func TestKillWithDoneContext(t *testing.T) {
	for _, m := range modes {
		tree := startTree(t, Config{Path: "sleep", Args: []string{"1000"}, Cgroup: m.mode})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, _ = tree.Kill(ctx, Selection{})
		waitClosed(t, tree.Gone(), 20*time.Second, "Gone")
	}
}
