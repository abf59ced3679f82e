//go:build linux

package supervise

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/proc"
)

// quick is a ladder that a test can wait for.
var quick = belay.Ladder{Grace: 100 * time.Millisecond, KillAfter: 300 * time.Millisecond}

// start starts a command and closes its tree with the test.
func start(t *testing.T, argv ...string) *Tree {
	t.Helper()
	tree, err := Start(t.Context(), proc.Config{Path: argv[0], Args: argv[1:], Stderr: os.Stderr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = tree.Close(context.Background())
		_ = tree.Stdout().Close()
	})
	return tree
}

func witness(t *testing.T) *faketool.Witness {
	t.Helper()
	return faketool.NewWitness(filepath.Join(t.TempDir(), "witness"))
}

// tick is the command line of a fake that ticks under a key.
func tick(w *faketool.Witness, key string, more ...string) []string {
	return faketool.Command(append([]string{"tick", "-witness=" + w.Path, "-key=" + key}, more...)...)
}

// named makes this test binary available under another program's name.
func named(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	return link
}

func waitFor(t *testing.T, w *faketool.Witness, key, name string) faketool.Event {
	t.Helper()
	e, err := w.WaitFor(key, name, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// run registers a run that the stopper stops.
func run(t *testing.T, l belay.Ladder, s belay.Stopper) *belay.Run {
	t.Helper()
	tree := belay.NewTree(belay.Options{})
	t.Cleanup(func() { _ = tree.Close(context.Background()) })
	r, err := tree.Register(belay.Spec{Kind: belay.KindProcess, Name: "test", Stopper: s, Ladder: l})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// stop stops the run and returns its final receipt.
func stop(t *testing.T, r *belay.Run) *belay.Receipt {
	t.Helper()
	r.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	return final(t, r)
}

func final(t *testing.T, r *belay.Run) *belay.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	receipt, err := r.Wait(ctx)
	if err != nil {
		t.Fatalf("no final receipt: %v (%+v)", err, receipt)
	}
	return receipt
}

func steps(r *belay.Receipt) []belay.Means {
	var list []belay.Means
	for _, s := range r.Steps {
		list = append(list, s.Step)
	}
	return list
}

// TestWholeTree: a deaf tool that forks in every way is gone, and the receipt
// is confirmed with scope local-tree.
func TestWholeTree(t *testing.T) {
	for _, fork := range []string{"child", "setsid", "daemon", "envi", "respawn", "termproof"} {
		t.Run(fork, func(t *testing.T) {
			w := witness(t)
			tree := start(t, tick(w, "k", "-deaf-term", "-fork="+fork)...)
			waitFor(t, w, "k/"+fork, "tick")
			receipt := stop(t, run(t, quick, tree.Stopper(Options{Half: 50 * time.Millisecond, KillAfter: quick.KillAfter, Tell: tree.Interrupt})))
			if receipt.Verdict != belay.Confirmed || receipt.Scope != belay.ScopeLocalTree || !receipt.OK() {
				t.Errorf("receipt: %s, scope %s, %v", receipt.Verdict, receipt.Scope, steps(receipt))
			}
			if left := faketool.WaitDead(append(w.Pids("k"), w.Pids("k/")...), 0); len(left) > 0 {
				t.Errorf("alive after a confirmed stop: %v", left)
			}
			if n := slices.Index(steps(receipt), belay.StepKill); n < 0 {
				t.Errorf("a deaf tool was not killed: %v", steps(receipt))
			}
		})
	}
}

// TestListening: a tool that ends on SIGTERM is not killed, and its end is
// said once.
func TestListening(t *testing.T) {
	w := witness(t)
	tree := start(t, tick(w, "k", "-clean=100ms")...)
	waitFor(t, w, "k", "tick")
	l := belay.Ladder{Grace: 100 * time.Millisecond, KillAfter: 5 * time.Second}
	receipt := stop(t, run(t, l, tree.Stopper(Options{})))
	waitFor(t, w, "k", "cleaned")
	ends := 0
	for _, s := range receipt.Steps {
		if s.Evidence != nil {
			ends++
		}
	}
	if receipt.Verdict != belay.Confirmed || ends != 1 || slices.Contains(steps(receipt), belay.StepKill) {
		t.Errorf("receipt: %s, %v", receipt.Verdict, steps(receipt))
	}
}

// TestAwait: an end that comes by itself after the Stop is evidence too.
func TestAwait(t *testing.T) {
	w := witness(t)
	tree := start(t, tick(w, "k")...)
	waitFor(t, w, "k", "tick")
	s := tree.Stopper(Options{Tell: tree.Interrupt})
	r := run(t, belay.Ladder{Grace: 10 * time.Second}, s)
	r.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	if e := s.Seen(tree.Await(t.Context(), Whole())); e == nil || e.Kind != belay.SeenProcessGone {
		t.Fatalf("Await returned %+v", e)
	} else {
		r.Observe(*e)
	}
	if receipt := final(t, r); receipt.Verdict != belay.Confirmed || receipt.Took() > 5*time.Second {
		t.Errorf("receipt: %s after %v", receipt.Verdict, receipt.Took())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	deaf := start(t, tick(w, "deaf", "-deaf-term")...)
	if e := deaf.Await(ctx, Whole()); e != nil {
		t.Errorf("Await of a living tree said %+v", e)
	}
}

// TestRelayIsNeverConfirmed proves DESIGN 11, 4 for the command itself and for
// one that is found inside the tree.
func TestRelayIsNeverConfirmed(t *testing.T) {
	w := witness(t)
	t.Run("command", func(t *testing.T) {
		docker := named(t, "docker")
		tree := start(t, append([]string{docker}, append(tick(w, "d")[1:], "-n=100000", "run")...)...)
		waitFor(t, w, "d", "tick")
		checkRemote(t, stop(t, run(t, quick, tree.Stopper(Options{}))))
	})
	t.Run("inside", func(t *testing.T) {
		ssh := named(t, "ssh")
		line := fmt.Sprintf("%s & wait", strings.Join(append([]string{ssh}, tick(w, "s")[1:]...), " "))
		tree := start(t, "sh", "-c", line)
		waitFor(t, w, "s", "tick")
		checkRemote(t, stop(t, run(t, quick, tree.Stopper(Options{}))))
	})
}

// TestDaemonConnection: a tree that held a connection to a container daemon.
func TestDaemonConnection(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := l.Accept()
		accepted <- conn
	}()
	self, _ := os.Executable()
	tree := start(t, self, holdMarker, socket)
	if line, err := bufio.NewReader(tree.Stdout()).ReadString('\n'); err != nil || line != "connected\n" {
		t.Fatalf("the client said %q, %v", line, err)
	}
	defer (<-accepted).Close()
	receipt := stop(t, run(t, quick, tree.Stopper(Options{})))
	checkRemote(t, receipt)
	if last := receipt.Steps[len(receipt.Steps)-1]; !strings.Contains(last.Detail, "docker.sock") {
		t.Errorf("the receipt does not name the socket: %q", last.Detail)
	}
}

func checkRemote(t *testing.T, receipt *belay.Receipt) {
	t.Helper()
	if receipt.Verdict != belay.Signalled || receipt.Scope != belay.ScopeRemote || receipt.Work != belay.Unconfirmed || receipt.OK() {
		t.Errorf("receipt: %s, scope %s, work %s; want signalled, remote, unconfirmed", receipt.Verdict, receipt.Scope, receipt.Work)
	}
	if last := receipt.Steps[len(receipt.Steps)-1]; !strings.HasPrefix(last.Detail, "local process dead, remote effect unknown") {
		t.Errorf("the receipt ends with %q", last.Detail)
	}
}

// TestSlowCleanUp proves DESIGN 11, 7: a version control tool gets the time it
// needs, whether it is the command or was found inside the tree, and a person's
// second Stop does not wait for it.
func TestSlowCleanUp(t *testing.T) {
	w := witness(t)
	git := named(t, "git")
	command := func(key string) []string { return append([]string{git}, tick(w, key, "-clean=1200ms")[1:]...) }
	t.Run("command", func(t *testing.T) {
		argv := command("a")
		tree := start(t, argv...)
		waitFor(t, w, "a", "tick")
		l, why := Ladder(quick, &peers.Facts{}, argv)
		if l.KillAfter != SlowKillAfter || why == "" {
			t.Errorf("Ladder = %+v, %q", l, why)
		}
		receipt := stop(t, run(t, l, tree.Stopper(Options{KillAfter: l.KillAfter})))
		if receipt.Verdict != belay.Confirmed || w.Count("a", "cleaned") != 1 {
			t.Errorf("receipt: %s, %v; cleaned up: %d", receipt.Verdict, steps(receipt), w.Count("a", "cleaned"))
		}
	})
	t.Run("inside", func(t *testing.T) {
		script := job(t, strings.Join(command("b"), " ")+" & wait")
		tree := start(t, script)
		waitFor(t, w, "b", "tick")
		l, why := Ladder(quick, &peers.Facts{}, []string{script})
		if l.KillAfter != quick.KillAfter || why != "" {
			t.Errorf("Ladder = %+v, %q", l, why)
		}
		receipt := stop(t, run(t, l, tree.Stopper(Options{KillAfter: l.KillAfter, Half: -1})))
		if receipt.Verdict != belay.Confirmed || w.Count("b", "cleaned") != 1 {
			t.Errorf("receipt: %s, %v; cleaned up: %d", receipt.Verdict, steps(receipt), w.Count("b", "cleaned"))
		}
	})
	// pressed stops the tool and presses again when at says so: nobody waits then.
	pressed := func(t *testing.T, key string, l belay.Ladder, tree *Tree, at func(*belay.Run)) {
		t.Helper()
		s := tree.Stopper(Options{KillAfter: l.KillAfter, Half: -1})
		bt := belay.NewTree(belay.Options{})
		defer bt.Close(context.Background())
		r, err := bt.Register(belay.Spec{Kind: belay.KindProcess, Name: key, Stopper: s, Ladder: l})
		if err != nil {
			t.Fatal(err)
		}
		press := func() {
			_, err := bt.Cancel(t.Context(), belay.CancelRequest{
				Filter: belay.Filter{IDs: []belay.RunID{r.ID()}}, Escalate: true,
				Cancellation: belay.Cancellation{Cause: belay.CauseUser},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		press()
		waitFor(t, w, key, "sigterm")
		at(r)
		press()
		if receipt := final(t, r); receipt.Verdict != belay.Confirmed || receipt.Took() > 5*time.Second || w.Count(key, "cleaned") != 0 {
			t.Errorf("receipt: %s after %v, %v", receipt.Verdict, receipt.Took(), steps(receipt))
		}
	}
	t.Run("pressed", func(t *testing.T) {
		argv := append([]string{git}, tick(w, "c", "-clean=20s")[1:]...)
		tree := start(t, argv...)
		waitFor(t, w, "c", "tick")
		l, _ := Ladder(quick, &peers.Facts{}, argv)
		pressed(t, "c", l, tree, func(*belay.Run) {})
	})
	t.Run("pressed while the kill waits", func(t *testing.T) {
		argv := append([]string{git}, tick(w, "d", "-clean=20s")[1:]...)
		tree := start(t, "sh", job(t, strings.Join(argv, " ")+" & wait"))
		waitFor(t, w, "d", "tick")
		pressed(t, "d", quick, tree, func(r *belay.Run) {
			for !slices.ContainsFunc(r.Receipt().Steps, func(s belay.Step) bool { return s.Step == belay.StepKill }) {
				time.Sleep(10 * time.Millisecond)
			}
		})
	})
}

// job is a script with a command that no command line shows.
func job(t *testing.T, command string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+command+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// server is a leader that starts what it is told to on its stdin.
func server(t *testing.T) (tree *Tree, do func(argv []string)) {
	t.Helper()
	tree = start(t, "sh", "-c", `while read -r line; do $line </dev/null >/dev/null & done`)
	return tree, func(argv []string) {
		if _, err := fmt.Fprintln(tree.Stdin(), strings.Join(argv, " ")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSince: only what a call has started is ended; the server and what earlier
// calls left stay (case c).
func TestSince(t *testing.T) {
	w := witness(t)
	tree, do := server(t)
	do(tick(w, "earlier"))
	waitFor(t, w, "earlier", "tick")
	time.Sleep(20 * time.Millisecond) // births are told apart by 10 ms
	since := proc.Now()
	time.Sleep(20 * time.Millisecond)
	do(tick(w, "call", "-deaf-term", "-fork=daemon"))
	waitFor(t, w, "call/daemon", "tick")
	if born := tree.Born(since); len(born) != 2 {
		t.Errorf("born since: %+v", born)
	}
	e, err := tree.Kill(t.Context(), Since(since))
	if err != nil {
		t.Fatal(err)
	}
	if e.Kind != belay.SeenSurvivors || len(e.Survivors) != 0 {
		t.Errorf("evidence: %+v; the end of children proves nothing about the server", e)
	}
	if left := faketool.WaitDead(append(w.Pids("call"), w.Pids("call/")...), 0); len(left) > 0 {
		t.Errorf("alive: %v", left)
	}
	if !faketool.Alive(tree.PID()) || !w.StillTicking("earlier", time.Second) {
		t.Error("the server or an earlier call's process was harmed")
	}
	if born := tree.Born(since); len(born) != 0 {
		t.Errorf("still born since: %+v", born)
	}
	if e := tree.Await(t.Context(), Since(since)); e == nil {
		t.Error("Await does not see that nobody is left")
	}
}

// TestExcept: the server is ended with the children of the stopped call, and a
// dev server that an earlier call started lives on and is listed (case b).
func TestExcept(t *testing.T) {
	w := witness(t)
	tree, do := server(t)
	from := proc.Now()
	time.Sleep(20 * time.Millisecond)
	do(tick(w, "devserver", "-fork=child"))
	waitFor(t, w, "devserver/child", "tick")
	time.Sleep(20 * time.Millisecond)
	until := proc.Now()
	time.Sleep(20 * time.Millisecond)
	do(tick(w, "call", "-deaf-term"))
	waitFor(t, w, "call", "tick")

	sel := Except(from, until)
	s := tree.Stopper(Options{Select: sel, Half: 20 * time.Millisecond})
	plan := s.Plan(t.Context())
	if len(plan.Kill) != 2 || len(plan.Spared) != 2 || plan.Force == "" {
		t.Errorf("plan: %+v", plan)
	}
	receipt := stop(t, run(t, quick, s))
	if receipt.Verdict != belay.Confirmed || len(receipt.Spared) != 2 {
		t.Errorf("receipt: %s, spared %+v", receipt.Verdict, receipt.Spared)
	}
	for _, p := range receipt.Spared {
		if p.Why != proc.WhyEarlier || p.PID == 0 || p.Born.IsZero() {
			t.Errorf("spared: %+v", p)
		}
	}
	if left := faketool.WaitDead(append(w.Pids("call"), tree.PID()), 0); len(left) > 0 {
		t.Errorf("alive: %v", left)
	}
	if !w.StillTicking("devserver", time.Second) || !w.StillTicking("devserver/child", time.Second) {
		t.Error("the earlier call's dev server was harmed")
	}
}

// TestSpareRules: a known shared program started by the tool is spared and
// named, and the run is confirmed all the same.
func TestSpareRules(t *testing.T) {
	w := witness(t)
	agent := named(t, "ssh-agent")
	line := strings.Join(append([]string{agent}, tick(w, "agent")[1:]...), " ") + " & " + strings.Join(tick(w, "job"), " ") + " & wait"
	tree := start(t, "sh", "-c", line)
	waitFor(t, w, "agent", "tick")
	waitFor(t, w, "job", "tick")
	receipt := stop(t, run(t, quick, tree.Stopper(Options{Half: -1})))
	if receipt.Verdict != belay.Confirmed || len(receipt.Spared) != 1 || receipt.Spared[0].Why != "ssh-agent" {
		t.Errorf("receipt: %s, spared %+v", receipt.Verdict, receipt.Spared)
	}
	if left := faketool.WaitDead(w.Pids("job"), 0); len(left) > 0 || !w.StillTicking("agent", time.Second) {
		t.Errorf("job alive %v, or the agent was harmed", left)
	}
	for _, pid := range w.Pids("agent") { // spared means ours to clean up
		p, _ := os.FindProcess(pid)
		_ = p.Kill()
	}
}

// TestMeter proves DESIGN 12, signs of life: above 5 % of a core over 500 ms.
func TestMeter(t *testing.T) {
	t0 := time.Unix(100, 0)
	var m Meter
	for i, c := range []struct {
		after, used     time.Duration
		alive, measured bool
	}{
		{0, time.Second, false, false},
		{100 * time.Millisecond, 2 * time.Second, false, false}, // too early
		{500 * time.Millisecond, time.Second + 25*time.Millisecond, false, true},
		{time.Second, time.Second + 60*time.Millisecond, true, true},
		{11 * time.Second, time.Second + 460*time.Millisecond, false, true},
	} {
		alive, measured := m.Sample(t0.Add(c.after), c.used)
		if alive != c.alive || measured != c.measured {
			t.Errorf("sample %d: alive %v, measured %v; want %v, %v", i, alive, measured, c.alive, c.measured)
		}
	}
}

// TestMeterOnTrees: a busy tree shows life, a sleeping one none.
func TestMeterOnTrees(t *testing.T) {
	w := witness(t)
	busy, idle := start(t, tick(w, "busy", "-busy", "-ms=50")...), start(t, "sleep", "60")
	waitFor(t, w, "busy", "tick")
	var mb, mi Meter
	mb.Sample(time.Now(), busy.CPU())
	mi.Sample(time.Now(), idle.CPU())
	time.Sleep(LifeWindow + 20*time.Millisecond) // the time is what is measured
	if alive, measured := mb.Sample(time.Now(), busy.CPU()); !alive || !measured {
		t.Errorf("busy tree: alive %v, measured %v", alive, measured)
	}
	if alive, measured := mi.Sample(time.Now(), idle.CPU()); alive || !measured {
		t.Errorf("idle tree: alive %v, measured %v", alive, measured)
	}
}
