package gateway

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	weather "github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

// TestAT34_BusyLoop: a script that never yields is interrupted at the end of the
// grace, within 60 ms, and what its onCancel hands back is on the receipt.
func TestAT34_BusyLoop(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, nil, "busy", "quick")
	n := 0
	weather.Within(t, shortLadder.Grace+60*time.Millisecond, func() (time.Time, time.Time) {
		n++
		id, k := string(rune('0'+n)), "k"+string(rune('0'+n))
		r.ok(r.Call(id, "busy", key(k), ""))
		r.seen(k, "tick")
		at := time.Now()
		r.ok(r.Cancel(id, "enough"))
		receipt := r.receipt(id)
		if receipt.Verdict != belay.Confirmed {
			t.Errorf("verdict %s\n%s", receipt.Verdict, timeline(receipt))
		}
		if receipt.Partial != "what the loop had" {
			t.Errorf("the receipt has %q\n%s", receipt.Partial, timeline(receipt))
		}
		if r.works(k, 50*time.Millisecond) {
			t.Error("it works on after its receipt")
		}
		r.silent(id)
		return at, r.w.LastTick(k)
	})
	if m := r.ask("quick", key("q")); m.Text() != "quick q" {
		t.Errorf("the next call: %s", m.Raw)
	}
}

// TestAT36_Builtin: what no interrupt reaches is killed with its worker, within the
// ladder's times + 50 ms; nothing else is harmed, and the next call works.
func TestAT36_Builtin(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, nil, "regex", "steps", "quick")
	r.ok(r.Call("900", "steps", key("other"), ""))
	r.seen("other", "tick")
	n := 0
	weather.Within(t, shortLadder.Grace+shortLadder.KillAfter+50*time.Millisecond, func() (time.Time, time.Time) {
		n++
		id, k := strconv.Itoa(n), "k"+strconv.Itoa(n)
		r.ok(r.Call(id, "regex", key(k), ""))
		r.seen(k, "tick")
		pid := r.w.Pids(k)[0]
		at := time.Now()
		r.ok(r.Cancel(id, "enough"))
		receipt := r.receipt(id)
		dead := time.Now()
		if faketool.Alive(pid) {
			t.Errorf("%d is alive after its receipt", pid)
		}
		r.wantVerdict(receipt, belay.Confirmed, belay.ScopeLocalTree)
		if !strings.Contains(timeline(receipt), "process_gone") || !strings.Contains(evidence(receipt), "1 killed") {
			t.Errorf("nothing says that it was killed\n%s\n%s", timeline(receipt), evidence(receipt))
		}
		return at, dead
	})
	if !r.works("other", 5*time.Second) {
		t.Error("another call was harmed")
	}
	if m := r.ask("quick", key("q")); m.Text() != "quick q" {
		t.Errorf("the next call: %s", m.Raw)
	}
	r.ok(r.Cancel("900", ""))
	r.receipt("900")
}

func evidence(receipt *belay.Receipt) string {
	var b strings.Builder
	for _, s := range receipt.Steps {
		if s.Evidence != nil {
			b.WriteString(string(s.Evidence.Kind) + ": " + s.Evidence.Detail + "\n")
		}
	}
	return b.String()
}

// TestSpares: a session holds one worker ready before anybody asks for it, and up to
// its bound one beside those that are at work; a clean call's is used again, a stopped
// one's never; all of them end with the session (AT-36).
func TestSpares(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, func(c *Config) { c.Spares = 2 }, "pid", "steps")
	r.spares(1)
	for i := range 3 {
		r.ask("pid", key("p"+string(rune('0'+i))))
	}
	r.spares(2) // the one that worked, and the one that was started beside it
	r.start2("1", "a")
	r.start2("2", "b")
	r.spares(0) // as many are at work as are kept ready
	a, b := r.w.Pids("a")[0], r.w.Pids("b")[0]
	if a == b {
		t.Error("two calls share a process")
	}
	if n := len(r.w.Pids("server")); n != 3 {
		t.Errorf("%d processes were started, want the primary one and two", n)
	}
	r.ok(r.Cancel("1", ""))
	r.wantConfirmed("1")
	r.until("the stopped call's worker is gone", 30*time.Second, func() bool { return !faketool.Alive(a) })
	for range 6 {
		r.ask("pid", key("after"))
	}
	for _, pid := range r.w.Pids("after") {
		if pid == a {
			t.Error("the worker of a stopped call was used again")
		}
	}
	r.ok(r.Cancel("2", ""))
	r.wantConfirmed("2")
	pids := r.w.Pids("server")
	r.close()
	if left := faketool.WaitDead(pids, time.Second); len(left) > 0 {
		t.Errorf("the session is over, and %v are alive", left)
	}
}

func (r *rig) start2(id, k string) {
	r.t.Helper()
	r.ok(r.Call(id, "steps", key(k), ""))
	r.seen(k, "tick")
}

func (r *rig) wantConfirmed(id string) *belay.Receipt {
	r.t.Helper()
	receipt := r.receipt(id)
	if receipt.Verdict != belay.Confirmed && receipt.Verdict != belay.Acknowledged {
		r.t.Errorf("verdict %s\n%s", receipt.Verdict, timeline(receipt))
	}
	return receipt
}

// TestAT88_AtOnce: of one tool a principal has so many calls at once, the stopped
// ones included until they are over; one more is told that the tool is busy. Other
// tools are not concerned, nor the same tool in the hands of another principal.
func TestAT88_AtOnce(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, func(c *Config) { c.AtOnce = 2 }, "steps", "regex", "quick")
	r.start2("1", "a")
	r.start2("2", "b")
	r.ok(r.Call("3", "steps", key("c"), ""))
	if m, err := r.Expect("3"); err != nil || m.Text() != "Error: the tool is busy." || !strings.Contains(m.Raw, `"isError":true`) {
		t.Errorf("%v %s", err, m.Raw)
	}
	if o := r.run("3").Info().Outcome; o != belay.Failed {
		t.Errorf("outcome %s", o)
	}
	if m := r.ask("quick", key("q")); m.Text() != "quick q" {
		t.Errorf("another tool: %s", m.Raw)
	}
	r.ok(r.Cancel("1", ""))
	r.wantConfirmed("1")
	r.start2("4", "d")
	if r.lines(" c tick ") != 0 {
		t.Error("the call that was refused was started")
	}
	for i, id := range []string{"5", "6"} {
		r.ok(r.Call(id, "regex", key("r"+id), ""))
		r.seen("r"+id, "tick")
		_ = i
	}
	r.ok(r.Cancel("5", ""))
	r.ok(r.Call("7", "regex", key("no"), ""))
	if m, err := r.Expect("7"); err != nil || m.Text() != "Error: the tool is busy." {
		t.Errorf("a stopped call that is at work has given its place away: %v %s", err, m.Raw)
	}
	r.wantConfirmed("5")
	for _, id := range []string{"2", "4", "6"} {
		r.ok(r.Cancel(id, ""))
		r.wantConfirmed(id)
	}
}

// TestOutOfMemory: a script that takes more memory than its worker may have ends
// with its worker: its caller is told so in words, the calls beside it go on, and
// the next call works. One that makes much garbage is left alone.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, isolation := range []Isolation{IsolationCall, IsolationShared} {
		for _, tool := range []string{"hoard", "giant"} {
			t.Run(string(isolation)+"/"+tool, func(t *testing.T) {
				t.Parallel()
				r := scriptRig(t, 64, func(c *Config) { c.Isolation = isolation }, tool, "steps", "quick")
				r.Timeout = 2 * time.Minute // a collector close to its bound needs a processor
				r.start2("1", "beside")
				beside := r.w.Pids("beside")[0]
				m := r.ask(tool, key("k"))
				if m.Text() != "Error: the tool ran out of memory." || !strings.Contains(m.Raw, `"isError":true`) {
					t.Fatalf("%s", m.Raw)
				}
				if n := r.lines(" k tick "); n == 0 {
					t.Error("it never ran")
				}
				if left := faketool.WaitDead(r.w.Pids("k"), 5*time.Second); len(left) > 0 {
					t.Errorf("the worker is alive: %v", left)
				}
				if isolation == IsolationCall {
					if !r.works("beside", 5*time.Second) || !faketool.Alive(beside) {
						t.Error("a call beside it was harmed")
					}
					r.ok(r.Cancel("1", ""))
					r.wantConfirmed("1")
				} else if m, err := r.Expect("1"); err != nil || m.Text() != "Error: the tool ran out of memory." {
					t.Errorf("the call that shared its worker: %v %s", err, m.Raw)
				}
				if m := r.ask("quick", key("q")); m.Text() != "quick q" {
					t.Errorf("the next call: %s", m.Raw)
				}
			})
		}
	}
}

// TestIdleMemory: a worker that has grown is not kept for another call.
func TestIdleMemory(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, func(c *Config) { c.IdleMemory = 1 }, "quick", "pid")
	r.ask("pid", key("k"))
	first := r.w.Pids("k")
	if left := faketool.WaitDead(first, 30*time.Second); len(left) > 0 {
		t.Errorf("it was kept: %v", left)
	}
	r.ask("pid", key("k"))
	if pids := r.w.Pids("k"); len(pids) != 2 {
		t.Errorf("two calls ran in %v", pids)
	}
}

// TestAT36_Shared: under isolation shared force waits for the worker's other calls.
// Meanwhile the receipt says that the work goes on and names the worker; when they
// are done the worker is ended, and the receipt says that (acceptance 15). New calls
// go to a fresh worker. It makes no difference whether one comes at all.
func TestAT36_Shared(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]bool{"no other call comes": false, "a call comes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := scriptRig(t, 0, func(cfg *Config) {
				cfg.Isolation, cfg.Enforce, cfg.Drain = IsolationShared, EnforceStrict, time.Second
			}, "regex", "steps", "pid")
			r.start2("1", "beside")
			r.ok(r.Call("2", "regex", key("k"), ""))
			r.seen("k", "tick")
			old := r.w.Pids("k")[0]
			if old != r.w.Pids("beside")[0] {
				t.Fatal("they do not share a worker")
			}
			r.ok(r.Cancel("2", "enough"))
			if call {
				r.ask("pid", key("new"))
				if r.w.Pids("new")[0] == old {
					t.Error("a new call went to the worker that is to be ended")
				}
			}
			r.until("the worker is named while force waits", 10*time.Second, func() bool {
				now := r.run("2").Receipt()
				return len(now.Survivors) == 1 && now.Survivors[0].PID == old && strings.Contains(evidence(now), r.run("1").ID().String())
			})
			receipt := r.receipt("2")
			r.until("the worker is named", 5*time.Second, func() bool { receipt = r.run("2").Receipt(); return len(receipt.Survivors) > 0 })
			if receipt.Verdict == belay.Confirmed || receipt.Survivors[0].PID != old || r.run("2").Info().Work != belay.Unconfirmed {
				t.Errorf("verdict %s, work %s, survivors %v, want %d\n%s", receipt.Verdict, r.run("2").Info().Work, receipt.Survivors, old, timeline(receipt))
			}
			if !r.works("beside", 5*time.Second) || !faketool.Alive(old) {
				t.Error("the call beside it was harmed")
			}
			r.ok(r.Cancel("1", ""))
			r.receipt("1")
			r.until("the old worker is gone", 30*time.Second, func() bool { return !faketool.Alive(old) })
			r.until("the receipt says so", 10*time.Second, func() bool { return r.run("2").Receipt().Verdict == belay.Confirmed })
			if s := r.run("2").Receipt().Survivors; len(s) > 0 {
				t.Errorf("confirmed, with survivors %v", s)
			}
			r.ask("pid", key("last"))
		})
	}
}

// TestLeaseBack: a worker is given back however its call was stopped, so that the
// next call gets one: by its own word (an acknowledgement, no answer), by force, and
// when its call is withdrawn.
func TestLeaseBack(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, func(c *Config) { c.MaxProcesses = 1 }, "steps", "regex", "quick")
	for i, tool := range []string{"steps", "regex", "steps", "steps"} {
		id, k := string(rune('1'+i)), "k"+string(rune('1'+i))
		r.ok(r.Call(id, tool, key(k), ""))
		r.ok(r.Call(id+"0", "quick", key("waits"), ""))
		r.seen(k, "tick")
		r.ok(r.Cancel(id, ""))
		r.wantConfirmed(id)
		if m, err := r.Expect(id + "0"); err != nil || m.Text() != "quick waits" {
			t.Fatalf("the call that waited for %s: %v %s", tool, err, m.Raw)
		}
	}
	r.until("one process is counted", 5*time.Second, func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return r.s.leased == len(r.s.idle)+r.s.coming
	})
}

// TestLeaseAgain: another worker is started for a call that waits, although the
// start that was meant for it failed while another call's worker lived, which then
// died: once, nobody would have, and the call had waited for ever.
func TestLeaseAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Isolation = IsolationCall }, "-no-subscribe", "-die-from=3")
	r.start("1", "tick", tickForever("k", `"deaf":true`)) // primary 1, worker 2
	r.ok(r.Call("2", "echo", `{"n":2}`, ""))              // worker 3 dies at once
	r.until("the start failed", 10*time.Second, func() bool {
		return strings.Contains(r.logs.String(), "could not be started")
	})
	r.ok(r.Cancel("1", ""))
	if m, err := r.Expect("2"); err != nil || m.Error == nil || !strings.Contains(m.Error.Message, "could not be started") {
		t.Errorf("want an answer, and that of another attempt: %v %s", err, m.Raw)
	}
	if n := faketool.Starts(r.w.Path + ".starts"); n != 4 {
		t.Errorf("%d starts, want one more than those that were seen", n)
	}
}

// TestSpareDies: a spare that dies by itself is not replaced on and on; the next call
// has one made.
func TestSpareDies(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, func(c *Config) { c.Spares = 1 }, "quick")
	r.spares(1)
	pids := r.w.Pids("server")
	for _, pid := range pids {
		r.s.mu.Lock()
		spare := r.s.idle[0].tree.PID() == pid
		r.s.mu.Unlock()
		if spare {
			p, err := os.FindProcess(pid)
			r.ok(err)
			r.ok(p.Kill())
			break
		}
	}
	r.spares(0)
	if n := len(r.w.Pids("server")); n != 2 {
		t.Errorf("%d processes were started, want 2: nobody has called anything", n)
	}
	if m := r.ask("quick", key("q")); m.Text() != "quick q" {
		t.Errorf("%s", m.Raw)
	}
	r.spares(1)
}

// TestSparesRest: when nobody has called anything for a while, one spare is left.
func TestSparesRest(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, func(c *Config) { c.Spares = 4 }, "calm")
	for i := range 4 {
		r.ok(r.Call(strconv.Itoa(i), "calm", `{"key":"k","n":20}`, ""))
	}
	for i := range 4 {
		if m, err := r.Expect(strconv.Itoa(i)); err != nil || m.Text() != "calm to the end" {
			t.Fatalf("%v %s", err, m.Raw)
		}
	}
	r.spares(4)
	r.s.mu.Lock()
	r.s.lean.Reset(0)
	r.s.mu.Unlock()
	r.spares(1)
	r.until("the others are gone", 10*time.Second, func() bool { return r.live() == 2 }) // the primary, one spare
}

// TestSparesClose: the end of a session ends the workers that are being started, at
// whatever moment it comes.
func TestSparesClose(t *testing.T) {
	t.Parallel()
	for i := range 6 {
		r := scriptRig(t, 0, func(c *Config) { c.Spares = 4 }, "quick", "steps")
		for n := range 4 {
			r.ok(r.Call(string(rune('1'+n)), "steps", key("k"), ""))
		}
		if i > 0 {
			r.until("some are started", 10*time.Second, func() bool { return len(r.w.Pids("server")) >= i })
		}
		r.close()
		if left := faketool.WaitDead(r.w.Pids("server"), time.Second); len(left) > 0 {
			t.Errorf("closed after %d starts: %v are alive", i, left)
		}
		if log := r.logs.String(); strings.Contains(log, "ERROR") {
			t.Errorf("the end of the session is called an error: %s", log)
		}
	}
}

// TestSparesApart: two sessions of one server never have a worker in common, idle or
// not: a principal's data may be left in one (DESIGN 11, 2).
func TestSparesApart(t *testing.T) {
	t.Parallel()
	var pids [2]map[int]bool
	for i := range pids {
		r := scriptRig(t, 0, func(c *Config) { c.Spares = 2 }, "pid")
		for range 3 {
			r.ask("pid", key("k"))
		}
		pids[i] = map[int]bool{}
		for _, pid := range r.w.Pids("k") {
			pids[i][pid] = true
		}
	}
	for pid := range pids[0] {
		if pids[1][pid] {
			t.Errorf("both sessions were served by %d", pid)
		}
	}
}

// TestScriptsStress: many calls, most of them stopped at odd moments in odd ways. Each
// is over once, all workers are accounted for, and the session works.
func TestScriptsStress(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, func(c *Config) {
		c.Spares, c.MaxProcesses = 3, 6
		c.Ladder = belay.Ladder{Grace: 50 * time.Millisecond, KillAfter: 100 * time.Millisecond}
	}, "steps", "busy", "regex", "calm", "quick")
	tools := []string{"steps", "busy", "regex", "calm", "quick", "steps"}
	var all sync.WaitGroup
	for i := range 48 {
		id, tool := strconv.Itoa(i), tools[i%len(tools)]
		r.ok(r.Call(id, tool, `{"key":"k`+id+`","n":5}`, ""))
		if tool == "quick" || tool == "calm" && i%2 == 0 {
			continue
		}
		all.Go(func() {
			time.Sleep(time.Duration(i*37%400) * time.Millisecond)
			switch i % 4 {
			case 0:
				_ = r.Cancel(id, "enough")
			default:
				_, _ = r.tree.Cancel(t.Context(), belay.CancelRequest{
					Filter:       belay.Filter{IDs: []belay.RunID{r.run(id).ID()}},
					Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "op"}, Escalate: i%3 == 0, Now: i%5 == 0,
				})
			}
		})
	}
	all.Wait()
	for i := range 48 {
		id := strconv.Itoa(i)
		if receipt, err := r.run(id).Wait(t.Context()); err != nil {
			t.Errorf("%s: %v", id, err)
		} else if receipt != nil && !receipt.OK() {
			t.Errorf("%s: verdict %s\n%s", id, receipt.Verdict, timeline(receipt))
		}
		if n := len(r.Responses(id)); n > 1 {
			t.Errorf("%s was answered %d times", id, n)
		}
	}
	r.until("all workers are accounted for", 20*time.Second, func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return r.s.leased == len(r.s.idle) && r.s.coming == 0
	})
	r.until("the dead are dead", 30*time.Second, func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return len(r.s.all) == len(r.s.idle)+1
	})
	if m := r.ask("quick", key("q")); m.Text() != "quick q" {
		t.Errorf("%s", m.Raw)
	}
}

// TestLeaseOverlap: a call that waits for the end of an earlier one, and not for a
// process, has none started for it again and again.
func TestLeaseOverlap(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Isolation, c.Overlap = IsolationCall, OverlapWait
		c.Ladder = belay.Ladder{Grace: 2 * time.Second, KillAfter: time.Second}
	}, "-no-subscribe")
	r.start("1", "tick", tickForever("k", `"deaf":true`))
	r.ok(r.Cancel("1", ""))
	r.ok(r.Call("2", "tick", `{"key":"second","n":1,"ms":1}`, ""))
	r.seen("second", "start")
	if m, err := r.Expect("2"); err != nil || m.Result == nil {
		t.Errorf("%v %s", err, m.Raw)
	}
	if n := faketool.Starts(r.w.Path + ".starts"); n > 3 {
		t.Errorf("%d processes were started: the primary one and two are enough", n)
	}
}

// TestLeasePipelined: a caller may send its handshake and its first call without
// waiting for answers; the worker is put into the session before it gets the call.
func TestLeasePipelined(t *testing.T) {
	t.Parallel()
	for _, spares := range []int{0, 2} {
		for _, isolation := range []Isolation{IsolationCall, IsolationShared} {
			if isolation == IsolationShared && spares > 0 {
				continue
			}
			r := closedRig(t, 0, func(c *Config) { c.Spares, c.Isolation = spares, isolation }, "quick")
			for _, line := range []string{
				`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
				`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
				`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"quick","arguments":{"key":"q"}}}`,
			} {
				r.ok(r.Sendf("%s", line))
			}
			if m, err := r.Expect(`"c"`); err != nil || m.Text() != "quick q" {
				t.Errorf("%s, %d spares: %v %s", isolation, spares, err, m.Raw)
			}
			if spares > 0 {
				r.spares(2)
			}
			r.close()
		}
	}
}
