package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

func brief(key string, n int) string {
	return fmt.Sprintf(`{"key":%q,"n":%d,"ms":10}`, key, n)
}

// Issue, MCP-G36: stopping one of two calls in one session never touches the
// other: force waits for it, a new call waits meanwhile and goes to the fresh
// process, and the call that was let through has done all of its work.
func TestForceWaitsForOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	before := r.state()
	r.start("1", "tick", tickForever("deaf", `"deaf":true`))
	r.start("2", "tick", brief("other", 120))
	r.ok(r.Cancel("1", "enough"))
	r.until("the ladder waits", 5*time.Second, func() bool { return draining(r.s) })
	r.ok(r.Call("3", "echo", `{"new":3}`, ""))
	run := r.run("3")
	if i := run.Info(); i.Work != belay.Waiting {
		t.Errorf("the new call is %s while the process is drained, want waiting", i.Work)
	}
	if m, err := r.Expect("2"); err != nil || m.Result == nil {
		t.Fatalf("the other call: %v %s", err, m.Raw)
	}
	if n := r.w.Count("other", "done"); n != 1 {
		t.Error("the other call was harmed")
	}
	if m, err := r.Expect("3"); err != nil || m.Text() != `{"new":3}` {
		t.Errorf("the call that waited: %v %s", err, m.Raw)
	}
	receipt := r.receipt("1")
	r.wantVerdict(receipt, belay.Confirmed, belay.ScopeLocalTree)
	done, _ := r.w.Last("other", "done")
	if last := r.w.LastTick("deaf"); !last.After(done.Time.Add(-50 * time.Millisecond)) {
		t.Errorf("the deaf tool stopped %v before the other was done", done.Time.Sub(last))
	}
	if after := r.state(); after.Pid == before.Pid || after.Start != 2 {
		t.Errorf("state %+v, want the second process", after)
	}
}

// draining reports whether force waits for other calls on a process.
func draining(s *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.all, func(u *upstream) bool { return u.drains > 0 })
}

// DESIGN 11.2: a drain that runs out names the runs that block it, the process
// is kept, and what waited goes on. A second Stop, when the other call is
// over, uses force.
func TestForceDrainRunsOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Drain = 300 * time.Millisecond })
	before := r.state()
	r.start("1", "tick", tickForever("deaf", `"deaf":true`))
	r.start("2", "tick", tickForever("other"))
	r.ok(r.Cancel("1", "enough"))
	r.until("the ladder waits", 5*time.Second, func() bool { return draining(r.s) })
	r.ok(r.Call("3", "echo", `{"new":3}`, ""))
	receipt := r.receipt("1")
	r.wantVerdict(receipt, belay.Signalled, "")
	if blocker := r.run("2").ID().String(); !strings.Contains(receipt.Held, blocker) {
		t.Errorf("held %q, which does not name %s", receipt.Held, blocker)
	}
	if _, err := r.Expect("3"); err != nil {
		t.Errorf("what waited for the drain: %v", err)
	}
	if after := r.state(); after.Pid != before.Pid {
		t.Error("the process was not kept")
	}
	if !r.works("other", time.Second) {
		t.Error("the other call was harmed")
	}
	r.ok(r.Cancel("2", "enough too"))
	if _, err := r.w.WaitFor("other", "stopped", 5*time.Second); err != nil {
		t.Error(err)
	}
	r.stop("1", false)
	r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
	r.echo()
	if r.works("deaf", 100*time.Millisecond) {
		t.Error("the deaf tool works on")
	}
}

// DESIGN 11.2: while a restart-safe server is drained, new calls go to a fresh
// process at once; the old one ends when its last call has, also if the drain
// ran out before.
func TestForceRestartSafe(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]time.Duration{"drained": time.Minute, "drain runs out": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.RestartSafe, c.Drain, c.Enforce = true, drain, EnforceAuto })
			before := r.state()
			r.start("1", "tick", tickForever("deaf", `"deaf":true`))
			r.start("2", "tick", brief("other", 200))
			r.ok(r.Cancel("1", "enough"))
			r.until("the ladder waits", 5*time.Second, func() bool { return draining(r.s) })
			if after := r.state(); after.Pid == before.Pid {
				t.Error("a new call went to the process that is drained")
			}
			if n := r.w.Count("other", "done"); n != 0 {
				t.Error("the new call was answered only after the other was done")
			}
			if m, err := r.Expect("2"); err != nil || m.Result == nil {
				t.Fatalf("the other call: %v %s", err, m.Raw)
			}
			r.until("the old process is gone", 10*time.Second, func() bool { return !faketool.Alive(before.Pid) })
			r.receipt("1")
			r.until("the evidence", 5*time.Second, func() bool { return r.run("1").Receipt().Verdict == belay.Confirmed })
			r.echo()
		})
	}
}

// Issue, MCP-G36: isolation call gives each tool call a process to itself. A
// stopped call's process dies and is never leased again, others are untouched,
// whatever enforce says.
func TestForceIsolationCall(t *testing.T) {
	t.Parallel()
	for _, enforce := range []Enforce{EnforceStrict, EnforceAuto, EnforceLenient} {
		t.Run(string(enforce), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.Isolation, c.Enforce = IsolationCall, enforce }, "-no-subscribe")
			r.start("1", "tick", tickForever("deaf", `"deaf":true`, `"fork":["setsid"]`))
			r.start("2", "tick", tickForever("other", `"deaf":true`))
			one, two := r.w.Pids("deaf")[0], r.w.Pids("other")[0]
			if one == two {
				t.Fatal("two calls share a process")
			}
			r.ok(r.Cancel("1", "enough"))
			receipt := r.receipt("1")
			r.wantVerdict(receipt, belay.Confirmed, belay.ScopeLocalTree)
			r.dead("deaf")
			r.dead("deaf/")
			if !r.works("other", time.Second) {
				t.Error("the other call was harmed")
			}
			for range 3 {
				if s := r.state(); s.Pid == one || s.Pid == two {
					t.Errorf("pid %d was leased again", s.Pid)
				}
			}
			r.ok(r.Cancel("2", "enough"))
			r.wantVerdict(r.receipt("2"), belay.Confirmed, belay.ScopeLocalTree)
		})
	}
}

// A call that obeys and answers leaves a process that is ended all the same
// and never leased again; what an earlier call left behind in it lives on.
func TestForceIsolationCallKeepsWhatWasLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Isolation = IsolationCall }, "-no-subscribe", "-reply=result")
	r.ask("devserver", `{"key":"dev"}`)
	r.seen("dev/setsid", "tick")
	dev := r.w.Pids("dev/setsid")[0]
	for i, args := range []string{tickForever("obeys"), tickForever("deaf", `"deaf":true`)} {
		// Births are told apart by 10 ms.
		time.Sleep(20 * time.Millisecond)
		id := fmt.Sprint(i + 1)
		key := []string{"obeys", "deaf"}[i]
		r.start(id, "tick", args)
		r.ok(r.Cancel(id, "enough"))
		r.receipt(id)
		r.dead(key)
	}
	if !faketool.Alive(dev) || !r.works("dev/setsid", time.Second) {
		t.Error("the dev server of an earlier call was harmed")
	}
}

// DESIGN 12: at most max_processes calls run with isolation call; further ones
// wait. One that is cancelled while it waits is never started; the next is
// started when there is room.
func TestForceMaxProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Isolation, c.MaxProcesses = IsolationCall, 2 }, "-no-subscribe")
	r.start("1", "tick", tickForever("one", `"deaf":true`))
	r.start("2", "tick", tickForever("two", `"deaf":true`))
	r.ok(r.Call("3", "tick", tickForever("three"), ""))
	r.ok(r.Call("4", "tick", brief("four", 5), ""))
	for _, id := range []string{"3", "4"} {
		if i := r.run(id).Info(); i.Work != belay.Waiting {
			t.Errorf("call %s is %s, want waiting", id, i.Work)
		}
	}
	r.ok(r.Cancel("3", "not needed"))
	receipt := r.receipt("3")
	r.wantVerdict(receipt, belay.Confirmed, belay.ScopeHandler)
	if last := receipt.Steps[len(receipt.Steps)-1]; last.Evidence == nil || last.Evidence.Kind != belay.SeenNotStarted {
		t.Errorf("no evidence that it was not started:\n%s", timeline(receipt))
	}
	r.silent("3")
	r.ok(r.Cancel("1", "enough"))
	if m, err := r.Expect("4"); err != nil || m.Result == nil {
		t.Errorf("the call that waited: %v %s", err, m.Raw)
	}
	if n := r.w.Count("three", "start"); n != 0 {
		t.Error("the call that was cancelled while it waited was started")
	}
	// primary, two workers, and one in the place of the stopped one
	if n := faketool.Starts(r.w.Path + ".starts"); n > 4 {
		t.Errorf("%d processes were started, 4 are enough", n)
	}
	r.ok(r.Cancel("2", "enough"))
	r.receipt("2")
}

// DESIGN 11.1: --now goes straight to the kill, but not while another call is
// in flight on the process.
func TestForceNow(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		inTime(t, slack, func() (from, to time.Time) {
			r := newRig(t, func(c *Config) { c.Enforce, c.Ladder = EnforceLenient, belay.Ladder{} }, "-deaf-term", "-stay")
			defer r.close()
			r.start("1", "tick", tickForever("k", `"deaf":true`))
			at := time.Now()
			r.stop("1", true)
			r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
			if m, err := r.Expect("1"); err != nil || m.Error == nil || m.Error.Code != belay.CodeCancelled {
				t.Errorf("the caller got %v %s", err, m.Raw)
			}
			r.echo()
			return at, r.w.LastTick("k")
		})
	})
	t.Run("beside another call", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil)
		r.start("1", "tick", tickForever("k", `"deaf":true`))
		r.start("2", "tick", brief("other", 80))
		r.stop("1", true)
		if m, err := r.Expect("2"); err != nil || m.Result == nil {
			t.Errorf("the other call: %v %s", err, m.Raw)
		}
		r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
		if r.w.Count("other", "done") != 1 {
			t.Error("the other call was harmed")
		}
	})
	t.Run("the moment it is dispatched", func(t *testing.T) {
		// The Stop is pressed while the call is on its way.
		t.Parallel()
		r := newRig(t, func(c *Config) { c.RestartSafe = true })
		for i := range 5 {
			id, key := fmt.Sprint(i), fmt.Sprintf("k%d", i)
			done := make(chan struct{})
			go func() { defer close(done); r.stop(id, true) }()
			r.ok(r.Call(id, "tick", tickForever(key, `"deaf":true`), ""))
			<-done
			r.wantVerdict(r.receipt(id), belay.Confirmed, r.receipt(id).Scope)
			if r.works(key, 50*time.Millisecond) {
				t.Errorf("%s works on", key)
			}
		}
	})
}

// DESIGN 8, dry-run: the plan names whom a Stop would tell and kill, and
// whom it would spare, and changes nothing.
func TestForcePlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.ask("devserver", `{"key":"dev"}`)
	r.seen("dev/setsid", "tick")
	time.Sleep(20 * time.Millisecond) // births are told apart by 10 ms
	r.start("1", "fork", tickForever("k", `"fork":["daemon"]`))
	r.seen("k/daemon", "tick")
	results, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter: belay.Filter{IDs: []belay.RunID{r.run("1").ID()}}, DryRun: true,
		Cancellation: belay.Cancellation{Cause: belay.CauseUser},
	})
	r.ok(err)
	plan := results[0].Plan
	if plan == nil || !strings.Contains(plan.Tell, "fake") || !strings.Contains(plan.Force, "SIGKILL after 600ms") {
		t.Fatalf("plan %+v", plan)
	}
	pids := func(list []belay.Process) (pids []int) {
		for _, p := range list {
			pids = append(pids, p.PID)
		}
		slices.Sort(pids)
		return pids
	}
	server, child, dev := r.w.Pids("server")[0], r.w.Pids("k/daemon")[0], r.w.Pids("dev/setsid")[0]
	want := []int{server, child}
	slices.Sort(want)
	if got := pids(plan.Kill); !slices.Equal(got, want) {
		t.Errorf("would kill %v, want the server and the call's child %v (plan %+v)", got, want, plan)
	}
	if got := pids(plan.Spared); !slices.Equal(got, []int{dev}) {
		t.Errorf("would spare %v, want the dev server %d", got, dev)
	}
	if r.run("1").Cancellation() != nil || !r.works("k", time.Second) || r.w.Count("k", "signal") != 0 {
		t.Error("the dry run changed something")
	}
}
