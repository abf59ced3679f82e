package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/local"
)

var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func someRuns() []belay.Info {
	top, sub := belay.NewRunID(), belay.NewRunID()
	return []belay.Info{
		{ID: top, Kind: belay.KindSession, Name: "npx server-everything", Outcome: belay.Pending, Work: belay.Running, Started: at, Pid: 7},
		{
			ID: sub, Parent: top, Kind: belay.KindCall, Name: "evil\x1b[31m\nname " + strings.Repeat("long ", 40), Server: "srv",
			Outcome: belay.Cancelled, Work: belay.Unconfirmed, Started: at, Held: "no sign of life; a second Stop uses force",
			Cancellation: &belay.Cancellation{Cause: belay.CauseUser, By: "ada", Via: "cli", Reason: "wrong\x07 branch"},
		},
		{ID: belay.NewRunID(), Parent: sub, Kind: belay.KindProcess, Name: "make", Outcome: belay.Pending, Work: belay.Waiting, Started: at},
	}
}

var colour = regexp.MustCompile("\x1b\\[[0-9]*m")

// Whatever a tool calls itself, a list fits the terminal line by line, and no
// control character of its reaches the terminal.
func TestListsFitTheTerminal(t *testing.T) {
	for _, width := range []int{60, 80, 120, 200} {
		for _, tree := range []bool{false, true} {
			var b strings.Builder
			st := style{terminal: true, colour: true, width: width}
			(&psCmd{Tree: tree}).print(&b, st, someRuns(), at.Add(90*time.Second))
			text := colour.ReplaceAllString(b.String(), "")
			if strings.ContainsAny(text, "\x1b\x07") {
				t.Errorf("control characters: %q", text)
			}
			if !strings.Contains(text, "1m30s") || !strings.Contains(text, "held") || !strings.Contains(text, "a second Stop uses force") {
				t.Errorf("at %d columns something is missing:\n%s", width, text)
			}
			least := 76 // what is never cut: ids, states, ages
			if tree {
				least = 96
			}
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > max(width, least) && !strings.Contains(line, "held: ") {
					t.Errorf("%d columns, tree %v: a line of %d: %q", width, tree, n, line)
				}
			}
		}
	}
}

// Without a terminal nothing is cut and nothing coloured.
func TestListsForPrograms(t *testing.T) {
	runs := someRuns()
	var b strings.Builder
	(&psCmd{}).print(&b, style{}, runs, at)
	if strings.Contains(b.String(), "\x1b") || strings.Contains(b.String(), "…") || !strings.Contains(b.String(), runs[0].ID.String()) {
		t.Errorf("%q", b.String())
	}
}

// A ring of parents, which another process could tell of, is drawn once and
// ends.
func TestTreeOfARing(t *testing.T) {
	a, b := belay.NewRunID(), belay.NewRunID()
	runs := []belay.Info{{ID: a, Parent: b, Name: "a"}, {ID: b, Parent: a, Name: "b"}, {ID: belay.NewRunID(), Name: "self"}}
	runs[2].Parent = runs[2].ID
	if got := treeTable(runs, at); len(got.rows) != 3 {
		t.Errorf("%d rows, want 3", len(got.rows))
	}
}

// A window that does not know its height shows what most windows do.
func TestLinesFitTheWindow(t *testing.T) {
	for _, c := range []struct{ lines, height, want int }{{10, 0, 10}, {40, 0, 23}, {40, 10, 9}, {5, 10, 5}, {9, 1, 2}} {
		if got := cutLines(make([]string, c.lines), c.height); len(got) != c.want {
			t.Errorf("%d lines in %d: %d, want %d", c.lines, c.height, len(got), c.want)
		}
	}
}

func TestStyleOf(t *testing.T) {
	var b strings.Builder
	if st := styleOf(&b, func(string) string { return "" }); st.terminal || st.colour || st.width != 0 {
		t.Errorf("of a buffer: %+v", st)
	}
	if got := (style{}).paint(bad, "x"); got != "x" {
		t.Errorf("without colour: %q", got)
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0s", 1240 * time.Millisecond: "1.2s", 59 * time.Second: "59s", 61 * time.Second: "1m01s",
		3*time.Hour + 4*time.Minute: "3h04m", 49 * time.Hour: "2d01h",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
}

// Every state has a word, and no two that a person must tell apart share one.
func TestStateWords(t *testing.T) {
	for _, c := range []struct {
		o    belay.Outcome
		w    belay.Work
		held string
		want string
	}{
		{belay.Pending, belay.Waiting, "", "waiting"},
		{belay.Pending, belay.Running, "", "running"},
		{belay.Cancelled, belay.Running, "", "running on"},
		{belay.Cancelled, belay.Stopping, "", "stopping"},
		{belay.Cancelled, belay.Stopped, "", "stopped"},
		{belay.Cancelled, belay.Unconfirmed, "", "unconfirmed"},
		{belay.Cancelled, belay.Unconfirmed, "why", "held"},
		{belay.Completed, belay.Stopped, "", "completed"},
		{belay.Failed, belay.Stopped, "", "failed"},
		{belay.Declined, belay.Stopped, "", "declined"},
		{belay.Lost, belay.Stopped, "", "lost"},
	} {
		if got, _ := stateOf(&belay.Info{Outcome: c.o, Work: c.w, Held: c.held}); got != c.want {
			t.Errorf("%s, %s, held %q: %q, want %q", c.o, c.w, c.held, got, c.want)
		}
	}
}

// The exit code is 0 only when the Stop may be called done (DESIGN 11, 4).
func TestCancelExitCodes(t *testing.T) {
	receipt := func(v belay.Verdict) *belay.Receipt { return &belay.Receipt{Verdict: v, Final: true} }
	busy := receipt(belay.Acknowledged)
	busy.Survivors = []belay.Process{{PID: 1}}
	over := belay.Info{Outcome: belay.Completed, Work: belay.Stopped}
	hung := &local.SocketError{Pid: 7, Err: fmt.Errorf("%w", belay.ErrUnreachable)}
	foreign := &local.SocketError{Foreign: true, Err: belay.ErrForbidden}
	refused := fmt.Errorf("the Belay process 7: %w", belay.ErrForbidden)
	type results = []belay.CancelResult
	for _, c := range []struct {
		what string
		cmd  cancelCmd
		r    results
		err  error
		want int
	}{
		{"confirmed", cancelCmd{}, results{{Receipt: receipt(belay.Confirmed)}}, nil, ExitDone},
		{"acknowledged", cancelCmd{}, results{{Receipt: receipt(belay.Acknowledged)}}, nil, ExitDone},
		{"acknowledged with survivors", cancelCmd{}, results{{Receipt: busy}}, nil, ExitUnconfirmed},
		{"signalled", cancelCmd{}, results{{Receipt: receipt(belay.Confirmed)}, {Receipt: receipt(belay.Signalled)}}, nil, ExitUnconfirmed},
		{"unreachable", cancelCmd{}, results{{Receipt: receipt(belay.Unreachable)}}, nil, ExitUnconfirmed},
		{"over by itself", cancelCmd{}, results{{Run: over}}, nil, ExitDone},
		{"lost", cancelCmd{}, results{{Run: belay.Info{Outcome: belay.Lost, Work: belay.Stopped}}}, nil, ExitUnconfirmed},
		{"no receipt and still there", cancelCmd{}, results{{Run: belay.Info{Outcome: belay.Pending, Work: belay.Running}}}, nil, ExitUnconfirmed},
		{"nothing", cancelCmd{All: true}, nil, nil, ExitNothing},
		{"a foreign socket hides nothing", cancelCmd{All: true}, results{{Receipt: receipt(belay.Confirmed)}}, foreign, ExitDone},
		{"a silent process may", cancelCmd{All: true}, results{{Receipt: receipt(belay.Confirmed)}}, hung, ExitUnconfirmed},
		{"but not with ids", cancelCmd{Runs: []string{"x"}}, results{{Receipt: receipt(belay.Confirmed)}}, hung, ExitDone},
		{"refused", cancelCmd{}, nil, errors.Join(refused, foreign), ExitFailed},
		{"dry", cancelCmd{DryRun: true}, results{{Plan: &belay.Plan{}}}, nil, ExitDone},
	} {
		if got := exitCode(c.cmd.exit(c.r, 0, c.err)); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.what, got, c.want)
		}
	}
}

// A receipt's block names what is left, and nothing in it can move the cursor.
func TestPrintReceipt(t *testing.T) {
	r := &belay.Receipt{
		Run: belay.NewRunID(), Kind: belay.KindCall, Name: "slow\x1b]0;title\x07", Server: "srv", Outcome: belay.Cancelled, Work: belay.Stopped,
		Cancellation: &belay.Cancellation{Cause: belay.CauseDeadline, At: at}, Verdict: belay.Signalled, Scope: belay.ScopeRemote, Final: true,
		Ended: at.Add(2003 * time.Millisecond), Late: 1, StillActive: true, Partial: "half\x1b[2J\nan answer", Dropped: 2, Remote: []string{"10.0.0.1:443"},
		Survivors: []belay.Process{{PID: 42, Command: "sleep\x1b[0m 1000"}}, Spared: []belay.Process{{PID: 43, Command: "tmux", Why: "known shared daemon"}},
		Steps: []belay.Step{
			{At: at, Step: belay.StepRequested, Detail: "asked"},
			{At: at.Add(2 * time.Second), Step: belay.StepTerminate, Error: "no such\nprocess"},
			{At: at.Add(2003 * time.Millisecond), Step: belay.StepEvidence, Evidence: &belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeRemote}},
		},
	}
	var b strings.Builder
	printReceipt(&b, style{}, r, true)
	want := r.Run.String() + `  slow]0;title (call of srv)
  verdict     signalled: the local process is dead, the effect elsewhere is not known, after 2.003s
  stopped by  its deadline
  timeline
    +0.000s  requested    asked
    +2.000s  terminate    failed: no such process
    +2.003s  evidence     process gone (remote)
    and 2 steps more
  activity    it sent something after the Stop
  survivors   pid 42  sleep[0m 1000
  spared      pid 43  tmux  (known shared daemon)
  remote      it held connections to 10.0.0.1:443
  late        1 answer came after the Stop and was not delivered
  partial     half[2J an answer
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// The steps of a Stop that takes long stand below one another.
func TestTimelineIsAligned(t *testing.T) {
	var b strings.Builder
	printSteps(&b, style{}, &belay.Receipt{Steps: []belay.Step{
		{At: at, Step: belay.StepTold}, {At: at.Add(10 * time.Second), Step: belay.StepGaveUp, Detail: "in vain"},
	}})
	want := "  timeline\n     +0.000s  told\n    +10.000s  unconfirmed  in vain\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// The parser is built from struct tags; a mistake in them is found here.
func TestGrammar(t *testing.T) {
	if _, err := newParser(&Env{}); err != nil {
		t.Fatal(err)
	}
}
