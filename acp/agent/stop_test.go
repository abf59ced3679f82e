//go:build linux

package agent

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

// ACP-B10, B19; acceptance 8 and 9: the Stop of a turn ends the processes of the
// tool call that is open, wherever they went, and nobody beside them: not the agent,
// not its own helper, not an MCP server behind Belay, not what an earlier turn left.
func TestACP_B19_FirstStopEndsTheOpenToolCall(t *testing.T) {
	for _, fork := range []string{"child", "setsid", "daemon", "envi", "respawn", "termproof"} {
		t.Run(fork, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			session := r.run(belay.KindSession, "session", nil)
			first, turn1, _ := r.turn(session, "one")
			server := r.ticks("earlier", "")
			first.Closed("tc-one")
			first.End()
			turn1.Finish(belay.Completed)

			self := faketool.Command("tick", "-life=90s", "-witness="+r.w.Path, "-key=mcp")
			own := faketool.Command("tick", "-life=90s", "-witness="+r.w.Path, "-key=own")
			b, turn, call := r.turn(session, "two")
			tool := r.ticks("tool", fork)
			r.starts(append([]string{self[0], "wrap"}, self...)...)
			r.starts(own...)
			r.alive("mcp")
			r.alive("own")

			r.stop(turn)
			open, others := b.Living()
			if !has(open, tool) || len(open) < 2 {
				t.Fatalf("open: %s\nothers: %s", names(open), names(others))
			}
			if len(others) != 0 || has(open, server) {
				t.Fatalf("others: %s\nopen: %s", names(others), names(open))
			}
			e, err := b.Terminate(r.within(400*time.Millisecond), false)
			if err != nil || e == nil {
				t.Fatalf("terminate: %+v, %v", e, err)
			}
			deaf := fork == "termproof"
			if deaf != (e.Kind == belay.SeenSurvivors) && fork != "respawn" {
				t.Errorf("terminate saw %s: %s", e.Kind, e.Detail)
			}
			if e, err = b.Kill(r.within(5*time.Second), false); err != nil || e == nil || e.Kind != belay.SeenProcessGone || e.Scope != belay.ScopeLocalTree {
				t.Fatalf("kill: %+v, %v", e, err)
			}
			r.dead("tool")
			for _, key := range []string{"earlier", "mcp", "own"} {
				r.alive(key)
			}
			for _, i := range r.below(call, len(runsBelow(r, call))) {
				if receipt := r.verdict(i.ID); receipt.Cancellation.Cause != belay.CauseParent || receipt.Scope != belay.ScopeLocalTree {
					t.Errorf("receipt of %s: %+v", i.Name, receipt)
				}
			}
			if n := len(runsBelow(r, call)); n == 0 {
				t.Error("no process of the tool call has a run")
			}
			b.End()
			// The same session takes the next prompt.
			next, turn3, _ := r.turn(session, "three")
			r.ticks("next", "")
			r.stop(turn3)
			if e, err := next.Kill(r.within(5*time.Second), false); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
				t.Fatalf("next turn: %+v, %v", e, err)
			}
			r.alive("earlier")
		})
	}
}

func runsBelow(r *rig, above *belay.Run) (list []belay.Info) {
	all, err := r.runs.List(r.t.Context(), belay.Filter{Ended: true})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, i := range all {
		if i.Kind == belay.KindProcess && i.Parent == above.ID() {
			list = append(list, i)
		}
	}
	return list
}

// DESIGN 11, 8: at the first Stop what a closed tool call has left is named with the
// command that stops it; a second Stop takes it.
func TestACP_B19_SecondStopTakesTheOthers(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := r.run(belay.KindSession, "session", nil)
	b, turn, call := r.turn(session, "one")
	left := r.ticks("left", "")
	background := r.below(call, 1)[0]
	b.Closed("tc-one")
	time.Sleep(30 * time.Millisecond) // births have a grain of 10 ms
	hook := r.ticks("hook", "")       // born in the turn, while no tool call was open
	time.Sleep(early + 50*time.Millisecond)
	call2 := r.run(belay.KindCall, "second", turn)
	b.Opened("tc-2", call2)
	tool := r.ticks("tool", "")
	r.below(call2, 1)

	r.stop(turn)
	open, others := b.Living()
	if !has(open, tool) || len(open) != 1 {
		t.Fatalf("open: %s", names(open))
	}
	if !has(others, left) || !has(others, hook) || len(others) != 2 {
		t.Fatalf("others: %s", names(others))
	}
	for _, p := range others {
		switch {
		case p.PID == left && !strings.HasSuffix(p.Why, "a second Stop takes it, or: belay cancel "+background.ID.String()),
			p.PID == hook && !strings.Contains(p.Why, "or: kill "):
			t.Errorf("why of %d: %q", p.PID, p.Why)
		}
	}
	if e, err := b.Terminate(r.within(5*time.Second), false); err != nil || e == nil || e.Kind != belay.SeenProcessGone || len(e.Survivors) != 0 {
		t.Fatalf("terminate: %+v, %v", e, err)
	}
	r.dead("tool")
	r.alive("left")
	r.alive("hook")
	held := false
	for end := time.Now().Add(5 * time.Second); !held && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		d, err := r.runs.Get(t.Context(), background.ID)
		held = err == nil && d.Held == heldOther
	}
	if !held {
		t.Errorf("what was left does not say that a second Stop takes it")
	}

	r.stop(turn)
	if e, err := b.Terminate(r.within(5*time.Second), true); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
		t.Fatalf("second: %+v, %v", e, err)
	}
	r.dead("left")
	r.dead("hook")
	r.verdict(background.ID)
}

// The word "completed" that an agent gives because of the Stop does not put its
// tool's processes out of reach.
func TestACP_B19_ClosedByTheStopIsStillOpen(t *testing.T) {
	t.Parallel()
	r := start(t)
	b, turn, _ := r.turn(r.run(belay.KindSession, "session", nil), "one")
	tool := r.ticks("tool", "setsid")
	r.stop(turn)
	b.Closed("tc-one")
	open, others := b.Living()
	if !has(open, tool) || len(open) != 2 || len(others) != 0 {
		t.Fatalf("open: %s\nothers: %s", names(open), names(others))
	}
	if e, err := b.Terminate(r.within(5*time.Second), false); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
		t.Fatalf("terminate: %+v, %v", e, err)
	}
	r.dead("tool")
}

// ACP-B19; acceptance 10: with two sessions at work the Stop of one ends nothing of
// the other; who may be either's is named, and ended when both are stopped.
func TestACP_B19_TwoSessions(t *testing.T) {
	t.Parallel()
	r := start(t)
	s1, s2 := r.run(belay.KindSession, "s1", nil), r.run(belay.KindSession, "s2", nil)
	one, turn1, _ := r.turn(s1, "one")
	first := r.ticks("first", "") // while the first turn runs alone
	time.Sleep(30 * time.Millisecond)
	two, turn2, _ := r.turn(s2, "two")
	either := r.ticks("either", "")

	r.stop(turn1)
	open, others := one.Living()
	if !has(open, first) || len(open) != 1 || !has(others, either) || len(others) != 1 {
		t.Fatalf("open: %s\nothers: %s", names(open), names(others))
	}
	if _, err := one.Terminate(r.within(5*time.Second), false); err != nil {
		t.Fatal(err)
	}
	r.dead("first")
	r.stop(turn1)
	if _, err := one.Kill(r.within(5*time.Second), true); err != nil {
		t.Fatal(err)
	}
	r.alive("either")

	r.stop(turn2)
	open, _ = two.Living()
	if !has(open, either) {
		t.Fatalf("when both are stopped: %s", names(open))
	}
	if e, err := two.Terminate(r.within(5*time.Second), false); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
		t.Fatalf("both: %+v, %v", e, err)
	}
	r.dead("either")
}

// ACP-B32: the end of a session takes what its turns have left, earlier ones
// included, and nothing of another session.
func TestACP_B32_SessionTakesEarlierTurns(t *testing.T) {
	t.Parallel()
	r := start(t)
	s1, s2 := r.run(belay.KindSession, "s1", nil), r.run(belay.KindSession, "s2", nil)
	for _, x := range []struct {
		session *belay.Run
		name    string
	}{{s1, "a"}, {s2, "b"}, {s1, "c"}} {
		b, turn, _ := r.turn(x.session, x.name)
		r.ticks(x.name, "daemon")
		b.Closed("tc-" + x.name)
		b.End()
		turn.Finish(belay.Completed)
		time.Sleep(30 * time.Millisecond)
	}
	l := r.Session(s1)
	open, others := l.Living()
	if len(open) != 4 || len(others) != 0 {
		t.Fatalf("open: %s\nothers: %s", names(open), names(others))
	}
	r.stop(s1)
	if e, err := l.Terminate(r.within(5*time.Second), false); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
		t.Fatalf("terminate: %+v, %v", e, err)
	}
	if e, err := l.Kill(r.within(5*time.Second), false); err != nil || e == nil {
		t.Fatalf("kill: %+v, %v", e, err)
	}
	r.dead("a")
	r.dead("c")
	r.alive("b")
	r.alive("b/daemon")
}

// ACP-B19, DESIGN 11, 7: what the user keeps and what is known as somebody else's
// lives on, with all below it; the latter is named as spared.
func TestACP_B19_KeptAndSparedLiveOn(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *Config) { c.Keep = []string{"*-key=kept *"} })
	b, turn, _ := r.turn(r.run(belay.KindSession, "session", nil), "one")
	r.ticks("kept", "child", "-n=100000")
	tmux := copyOf(t, r.tool, strings.TrimSuffix(r.tool, "tool")+"tmux: server")
	r.starts(tmux, faketool.Marker, "tick", "-life=90s", "-witness="+r.w.Path, "-key=tmux")
	r.alive("tmux")
	r.ticks("tool", "")
	r.stop(turn)
	e, err := b.Kill(r.within(5*time.Second), true)
	if err != nil || e == nil || e.Kind != belay.SeenProcessGone || len(e.Spared) != 1 || e.Spared[0].Why == "" {
		t.Fatalf("kill: %+v, %v", e, err)
	}
	r.dead("tool")
	r.alive("kept")
	r.alive("kept/child")
	r.alive("tmux")
	killPID(t, r.w.Pids("tmux")[0]) // it would live on under its guardian
	r.dead("tmux")
}

// A process of a tool call can be stopped by itself: nobody else is touched, and the
// tool call goes on.
func TestACP_B25_OneProcessAlone(t *testing.T) {
	t.Parallel()
	r := start(t)
	_, turn, call := r.turn(r.run(belay.KindSession, "session", nil), "one")
	r.ticks("tool", "termproof")
	run := r.below(call, 1)[0]
	if !strings.Contains(run.Name, "faketool tick") || run.Address == "" || run.Owner != "tester" {
		t.Errorf("run: %+v", run)
	}
	r.ticks("beside", "")
	r.below(call, 2)
	_, err := r.runs.Cancel(t.Context(), belay.CancelRequest{
		Filter: belay.Filter{IDs: []belay.RunID{run.ID}}, Cancellation: belay.Cancellation{Cause: belay.CauseOperator, Via: "test"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if receipt := r.verdict(run.ID); receipt.Scope != belay.ScopeLocalTree || receipt.Took() > 5*time.Second {
		t.Errorf("receipt: %+v", receipt)
	}
	r.dead("tool")
	r.alive("beside")
	if turn.Cancellation() != nil || call.Cancellation() != nil {
		t.Error("the tool call was stopped too")
	}
}

// A process that ends by itself ends its run; it is found completed, not cancelled.
func TestACP_B8_RunEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	r := start(t)
	_, _, call := r.turn(r.run(belay.KindSession, "session", nil), "one")
	r.ticks("short", "", "-n=40")
	run := r.below(call, 1)[0]
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		d, err := r.runs.Get(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if d.Outcome == belay.Completed && d.Work == belay.Stopped {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the run is %+v", d.Info)
		}
	}
}

// ACP-B27: one tool call is stopped by its processes alone if nobody else can own
// them; otherwise there is no such way.
func TestACP_B27_OneToolCallAlone(t *testing.T) {
	t.Parallel()
	r := start(t)
	b, turn, _ := r.turn(r.run(belay.KindSession, "session", nil), "one")
	if b.Alone("tc-one") != nil || b.Alone("unknown") != nil {
		t.Error("a tool call without processes can be stopped alone")
	}
	r.ticks("tool", "setsid")
	time.Sleep(30 * time.Millisecond)
	b.Opened("tc-2", r.run(belay.KindCall, "second", turn))
	r.ticks("both", "")
	if b.Alone("tc-2") != nil {
		t.Error("what may be another tool call's could be stopped alone")
	}
	if b.Alone("tc-one") != nil {
		t.Error("of the first tool call one process may be the second's")
	}
	r.stopsBoth(b)
	time.Sleep(30 * time.Millisecond)
	b.Closed("tc-2")
	time.Sleep(30 * time.Millisecond)
	r.ticks("again", "")
	s := b.Alone("tc-one")
	if s == nil {
		t.Fatal("no way to stop a tool call that owns all its processes")
	}
	if e, err := s.(belay.Terminator).Terminate(r.within(5*time.Second), nil); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
		t.Fatalf("terminate: %+v, %v", e, err)
	}
	r.dead("tool")
	r.dead("again")
}

// stopsBoth ends the process whose tool call is in doubt.
func (r *rig) stopsBoth(b *Brood) {
	r.t.Helper()
	pids := r.w.Pids("both")
	open, _ := b.Living()
	if !has(open, pids[0]) {
		r.t.Fatalf("open: %s", names(open))
	}
	killPID(r.t, pids[0])
	r.dead("both")
}

// ACP-B7: nothing is looked at while no tool call is open.
func TestACP_B7_IdleLooksAtNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	b, _, _ := r.turn(r.run(belay.KindSession, "session", nil), "one")
	r.ticks("left", "")
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.looks
	}
	b.Closed("tc-one")
	before, since := count(), time.Now()
	for time.Since(since) < 300*time.Millisecond { // the last look is over then, also on a busy machine
		if time.Sleep(10 * time.Millisecond); count() != before {
			before, since = count(), time.Now()
		}
	}
	time.Sleep(400 * time.Millisecond)
	if after := count(); after != before {
		t.Errorf("%d looks in 400 ms without an open tool call", after-before)
	}
	// Nor is it ever often.
	b.Opened("tc-2", r.run(belay.KindCall, "second", b.run))
	time.Sleep(time.Second)
	if n := count() - before; n < 1 || n > 20 {
		t.Errorf("%d looks in the first second of a tool call", n)
	}
}

func killPID(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// What the first Stop has left is stopped by a Stop of its own run, as it says, and
// is asked before it is killed; another that was left lives on.
func TestACP_B19_OtherIsStoppedByItself(t *testing.T) {
	t.Parallel()
	r := start(t)
	b, turn, call := r.turn(r.run(belay.KindSession, "session", nil), "one")
	r.ticks("left", "", "-clean=10ms")
	background := r.below(call, 1)[0]
	r.ticks("beside", "")
	r.below(call, 2)
	b.Closed("tc-one")
	time.Sleep(30 * time.Millisecond)
	r.stop(turn)
	if e, err := b.Terminate(r.within(5*time.Second), false); err != nil || e != nil {
		t.Fatalf("with nobody to end: %+v, %v", e, err)
	}
	r.held(background.ID, heldOther)
	run := r.handle(background.ID)
	r.stop(run)
	if receipt := r.verdict(background.ID); receipt.Scope != belay.ScopeLocalTree {
		t.Errorf("receipt: %+v", receipt)
	}
	r.dead("left")
	if r.w.Count("left", "cleaned") != 1 {
		t.Error("it was not asked first")
	}
	r.alive("beside")
}

// held waits until a run says why no force is used.
func (r *rig) held(id belay.RunID, why string) {
	r.t.Helper()
	var last belay.Detail
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		d, err := r.runs.Get(r.t.Context(), id)
		if err == nil && d.Held == why {
			return
		}
		last = d
	}
	r.t.Fatalf("held %q, want %q: %+v", last.Held, why, last.Receipt)
}

// handle is the run of a process by its id.
func (r *rig) handle(id belay.RunID) *belay.Run {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.families {
		if f.run.ID() == id {
			return f.run
		}
	}
	r.t.Fatalf("no process has the run %s", id)
	return nil
}

// DESIGN 11, 16: where no force is to be used none is, also when a process is
// stopped by itself, and that is said.
func TestACP_ObservedProcessIsNotEnded(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *Config) { c.Never = true })
	_, _, call := r.turn(r.run(belay.KindSession, "session", nil), "one")
	r.ticks("tool", "")
	run := r.below(call, 1)[0]
	for range 2 {
		r.stop(r.handle(run.ID))
		time.Sleep(50 * time.Millisecond)
	}
	d, err := r.runs.Get(t.Context(), run.ID)
	for end := time.Now().Add(5 * time.Second); err == nil && !d.Receipt.Final && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		d, err = r.runs.Get(t.Context(), run.ID)
	}
	if err != nil || !d.Receipt.Final || d.Receipt.Verdict == belay.Confirmed {
		t.Errorf("receipt: %+v, %v", d.Receipt, err)
	}
	r.alive("tool")
}

// A process that is found by the Stop itself, too young before, gets its receipt too.
func TestACP_B25_FoundByTheStop(t *testing.T) {
	t.Parallel()
	r := start(t)
	b, turn, call := r.turn(r.run(belay.KindSession, "session", nil), "one")
	r.stop(turn)
	r.ticks("late", "")
	open, _ := b.Living()
	if len(open) != 1 {
		t.Fatalf("open: %s", names(open))
	}
	run := r.below(call, 1)[0]
	if e, err := b.Terminate(r.within(5*time.Second), false); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
		t.Fatalf("terminate: %+v, %v", e, err)
	}
	receipt := r.verdict(run.ID)
	if c := receipt.Cancellation; c.Cause != belay.CauseParent || c.Stop != turn.Cancellation().Stop || c.Origin != turn.ID() {
		t.Errorf("cancellation: %+v", c)
	}
}

// Some agents start the tool first and say so then: it is the tool call's all the
// same, also if it was seen before the word.
func TestACP_B19_ToolBeforeItsWord(t *testing.T) {
	t.Parallel()
	r := start(t)
	turn := r.run(belay.KindTurn, "turn", r.run(belay.KindSession, "session", nil))
	b := r.Turn(turn)
	tool := r.ticks("tool", "setsid")
	if open, others := b.Living(); len(open) != 0 || len(others) != 2 {
		t.Fatalf("before the word: open: %s\nothers: %s", names(open), names(others))
	}
	call := r.run(belay.KindCall, "late", turn)
	b.Opened("tc-1", call)
	r.stop(turn)
	open, others := b.Living()
	if !has(open, tool) || len(open) != 2 || len(others) != 0 {
		t.Fatalf("open: %s\nothers: %s", names(open), names(others))
	}
	if e, err := b.Terminate(r.within(5*time.Second), false); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
		t.Fatalf("terminate: %+v, %v", e, err)
	}
	r.dead("tool")
}

// ACP-B19: behind a launcher (npx, a shell) the agent is none the less the agent: its
// helpers and its MCP servers behind Belay are not the turn's, whoever starts them.
// Where it cannot be told which of a launcher's children is the agent, its helpers are
// not known, and the rest holds.
func TestACP_B19_AgentBehindALauncher(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, line string
		known      bool
	}{
		{"alone", self + " agent; exit $?", true},
		{"one of two", "sleep 90 & " + self + " agent; kill $!", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, func(cfg *Config) { cfg.Command = []string{"sh", "-c", c.line} })
			lives := []string{"before", "mcp", "shell"}
			r.ticks("before", "") // the agent is there
			b, turn, _ := r.turn(r.run(belay.KindSession, "session", nil), "one")
			key := func(name string) []string {
				return faketool.Command("tick", "-life=90s", "-witness="+r.w.Path, "-key="+name)
			}
			if c.known {
				lives = append(lives, "own")
				r.starts(key("own")...)
			}
			r.starts(append([]string{self, "wrap"}, key("mcp")...)...)
			r.starts("sh", "-c", strings.Join(append([]string{self, "wrap"}, key("shell")...), " ")+"; exit $?")
			tool := r.ticks("tool", "")
			for _, k := range lives {
				r.alive(k)
			}
			r.stop(turn)
			if open, others := b.Living(); len(open) != 1 || !has(open, tool) || len(others) != 0 {
				t.Fatalf("open: %s\nothers: %s", names(open), names(others))
			}
			if _, err := b.Kill(r.within(5*time.Second), true); err != nil {
				t.Fatal(err)
			}
			r.dead("tool")
			for _, k := range lives {
				r.alive(k)
			}
		})
	}
}

// DESIGN 11, 7: a tool that is known to clean up has its time before the kill, as far
// as there is any; a second Stop does not wait for it.
func TestACP_B19_SlowToolsCleanUp(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(map[bool]string{false: "first Stop", true: "second Stop"}[again], func(t *testing.T) {
			t.Parallel()
			r := start(t)
			b, turn, _ := r.turn(r.run(belay.KindSession, "session", nil), "one")
			git := copyOf(t, r.tool, strings.TrimSuffix(r.tool, "tool")+"git")
			r.starts(git, faketool.Marker, "tick", "-life=90s", "-witness="+r.w.Path, "-key=git", "-clean=1500ms")
			r.alive("git")
			r.stop(turn)
			if e, err := b.Terminate(r.within(200*time.Millisecond), again); err != nil || e == nil || e.Kind != belay.SeenSurvivors {
				t.Fatalf("terminate: %+v, %v", e, err)
			}
			if e, err := b.Kill(r.within(12*time.Second), again); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
				t.Fatalf("kill: %+v, %v", e, err)
			}
			if cleaned := r.w.Count("git", "cleaned") == 1; cleaned == again {
				t.Errorf("it has cleaned up: %v", cleaned)
			}
		})
	}
}

// What the agent itself starts after its word that the turn is over is no tool's, and
// a next turn's if there is one; what the tool starts or has lost is its own still.
func TestACP_B19_AfterTheAgentsWord(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := r.run(belay.KindSession, "session", nil)
	b, turn, _ := r.turn(session, "one")
	r.ticks("tool", "respawn")
	r.stop(turn)
	b.Answered()
	time.Sleep(30 * time.Millisecond)
	own := r.ticks("own", "")
	if open, others := b.Living(); len(open) < 3 || has(open, own) || !has(others, own) {
		t.Fatalf("open: %s\nothers: %s", names(open), names(others))
	}
	next, turn2, _ := r.turn(session, "two")
	later := r.ticks("later", "")
	if open, others := b.Living(); has(open, later) || has(others, later) {
		t.Fatalf("the next turn's: open: %s\nothers: %s", names(open), names(others))
	}
	if e, err := b.Kill(r.within(5*time.Second), false); err != nil || e == nil || e.Kind != belay.SeenProcessGone {
		t.Fatalf("kill: %+v, %v", e, err)
	}
	r.dead("tool")
	r.alive("own")
	r.alive("later")
	r.stop(turn2)
	if open, _ := next.Living(); len(open) != 1 || !has(open, later) {
		t.Fatalf("open: %s", names(open))
	}
}
