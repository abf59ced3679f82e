package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/demo"
)

type demoCmd struct {
	JSON bool `name:"json" help:"Print JSON: every scene with both its sides."`
}

// Help implements kong.HelpProvider.
func (*demoCmd) Help() string {
	return `Presses Stop on real processes, first without Belay and then with it, and says for each how long the tool went on
working, what it left alive, and what its client was told. The tools' own witness files are the evidence. Nothing is fetched;
takes less than 50 seconds. The ladder is shortened to 0.7 s until SIGTERM and 1.2 s until the kill.

Exit codes: 0 every receipt is confirmed (or acknowledged where the tool itself answered) and nobody else was harmed, else 3.

Examples:

    belay demo
    belay demo --json`
}

// Run plays the demo.
func (c *demoCmd) Run(env *Env) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	ctx, stop := interruptible()
	defer stop()
	st := styleOf(env.Stderr, env.Getenv)
	say := func(line string) { fmt.Fprintln(env.Stderr, st.paint(faint, line)) }
	report, err := demo.Play(ctx, demo.Options{Self: self, Progress: say})
	if errors.Is(err, context.Canceled) {
		return exitWith(ExitStopped)
	}
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if c.JSON {
		out := json.NewEncoder(env.Stdout)
		out.SetIndent("", "  ")
		err = out.Encode(report)
	} else {
		printDemo(env, report)
	}
	if err == nil && !report.OK {
		err = exitWith(ExitUnconfirmed)
	}
	return err
}

// printDemo prints one table: what happened after the Stop, bare and under Belay.
func printDemo(env *Env, report demo.Report) {
	st := styleOf(env.Stdout, env.Getenv)
	t := table{columns: []column{
		{head: "SCENE"}, {head: "SIDE"}, {head: "WORKED ON"}, {head: "LEFT ALIVE"}, {head: "CLIENT TOLD"}, {head: "PROOF"}, {head: "THE REST", min: 10},
	}}
	for i := range report.Rows {
		row := &report.Rows[i]
		if row.Skip != "" {
			t.add(cell{row.Scene, bold}, cell{"", faint}, cell{}, cell{}, cell{}, cell{}, cell{"not played: " + row.Skip, faint})
			continue
		}
		t.add(append([]cell{{row.Scene, bold}, {"bare", faint}}, sideCells(&row.Bare, false)...)...)
		t.add(append([]cell{{"", plain}, {"belay", faint}}, sideCells(&row.Belay, true)...)...)
		t.note(row.About)
	}
	t.print(env.Stdout, st)
	verdict, colour := "Every Stop under Belay was proven, and nobody else was harmed.", good
	if !report.OK {
		verdict, colour = "Not every Stop under Belay was proven; see above.", bad
	}
	fmt.Fprintf(env.Stdout, "\n%s (%s)\n", st.paint(colour, verdict), report.Took.Round(100*time.Millisecond))
}

func sideCells(s *demo.Side, under bool) []cell {
	if s.Error != "" {
		return []cell{{}, {}, {}, {}, {"failed: " + s.Error, bad}}
	}
	worked := cell{fmt.Sprintf("%.2f s", s.WentOn.Seconds()), good}
	if s.Still {
		worked = cell{fmt.Sprintf("> %.1f s", s.WentOn.Seconds()), bad}
	}
	left := cell{"none", good}
	if s.Left > 0 {
		left = cell{fmt.Sprintf("%d", s.Left), bad}
	}
	proof := cell{"", plain}
	if under {
		var words []string
		for _, v := range s.Verdict {
			if len(words) == 0 || words[len(words)-1] != string(v) {
				words = append(words, string(v))
			}
		}
		proof = cell{strings.Join(words, ", "), good}
		if !s.OK {
			proof.tone = bad
		}
		if s.Verdicts() == belay.Confirmed && len(s.Verdict) > 1 {
			proof.text = fmt.Sprintf("%d confirmed", len(s.Verdict))
		}
	}
	rest := cell{s.Others, good}
	if s.Harmed {
		rest.tone = bad
	}
	return []cell{worked, left, {s.Told, plain}, proof, rest}
}
