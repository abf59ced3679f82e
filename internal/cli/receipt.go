package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// printReceipt writes the block of one receipt: what was stopped, the verdict,
// what is left, and with timeline also every step. Nothing that a tool wrote
// reaches the terminal with control characters in it.
func printReceipt(w io.Writer, st style, r *belay.Receipt, timeline bool) {
	fmt.Fprintf(w, "%s  %s\n", r.Run, st.paint(bold, title(r.Name, r.Kind, r.Server)))
	printVerdict(w, st, r)
	if timeline {
		printSteps(w, st, r)
	}
	printRest(w, st, r)
}

func printVerdict(w io.Writer, st style, r *belay.Receipt) {
	text, t := verdictWords(r)
	switch {
	case !r.Final && r.Verdict == belay.Unreachable: // which is how every receipt begins
		text, t = "not final yet: it is still being stopped", warn
	case !r.Final:
		text += " (not final yet: it is still being stopped)"
		t = warn
	case r.Verdict != belay.Unreachable:
		text += took(r)
	}
	field(w, st, "verdict", st.paint(t, text))
	if n := len(r.Steps); n > 0 && !r.OK() && r.Steps[n-1].Error != "" {
		field(w, st, "because", oneLine(r.Steps[n-1].Error))
	}
	if r.Cancellation != nil {
		field(w, st, "stopped by", stoppedBy(r.Cancellation))
	}
	if r.Held != "" {
		field(w, st, "force", st.paint(warn, heldText(r.Held)))
	}
}

// printSteps writes the timeline, each step with its time since the Stop.
func printSteps(w io.Writer, st style, r *belay.Receipt) {
	if len(r.Steps) == 0 {
		return
	}
	zero := r.Steps[0].At
	if r.Cancellation != nil {
		zero = r.Cancellation.At
	}
	width := len(offset(r.Steps[len(r.Steps)-1].At.Sub(zero))) // the last is the longest
	fmt.Fprintln(w, "  timeline")
	for _, s := range r.Steps {
		line := fmt.Sprintf("    %s  %-11s  %s", st.paint(faint, fmt.Sprintf("%*s", width, offset(s.At.Sub(zero)))), s.Step, strings.TrimSpace(stepText(st, &s)))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	if r.Dropped > 0 {
		fmt.Fprintf(w, "    and %s more\n", count(r.Dropped, "step"))
	}
}

func offset(d time.Duration) string { return fmt.Sprintf("+%.3fs", max(d, 0).Seconds()) }

func stepText(st style, s *belay.Step) string {
	var parts []string
	if e := s.Evidence; e != nil {
		kind := strings.ReplaceAll(string(e.Kind), "_", " ")
		if e.Scope != "" {
			kind += " (" + string(e.Scope) + ")"
		}
		parts = append(parts, kind)
	}
	if s.Detail != "" {
		parts = append(parts, s.Detail)
	}
	text := oneLine(strings.Join(parts, ": "))
	if s.Error != "" {
		text += st.paint(bad, " failed: "+oneLine(s.Error))
	}
	return text
}

// printRest writes what is left of the work, and what it had.
func printRest(w io.Writer, st style, r *belay.Receipt) {
	if r.StillActive {
		field(w, st, "activity", st.paint(warn, "it sent something after the Stop"))
	}
	processes(w, st, "survivors", bad, r.Survivors)
	processes(w, st, "spared", plain, r.Spared)
	if len(r.Remote) > 0 {
		field(w, st, "remote", "it held connections to "+oneLine(strings.Join(r.Remote, ", ")))
	}
	if r.Late > 0 {
		field(w, st, "late", count(r.Late, "answer")+" came after the Stop and was not delivered")
	}
	if r.Partial != "" {
		field(w, st, "partial", fit(oneLine(r.Partial), 200))
	}
}

func processes(w io.Writer, st style, name string, t tone, list []belay.Process) {
	const most = 20
	for i, p := range list {
		if i == most {
			field(w, st, "", fmt.Sprintf("and %d more", len(list)-most))
			return
		}
		label := name
		if i > 0 {
			label = ""
		}
		text := st.paint(t, fmt.Sprintf("pid %d", p.PID)) + "  " + oneLine(p.Command)
		if p.Why != "" {
			text += st.paint(faint, "  ("+oneLine(p.Why)+")")
		}
		field(w, st, label, text)
	}
}

// printPlan writes the block of a dry run.
func printPlan(w io.Writer, st style, r *belay.CancelResult) {
	fmt.Fprintf(w, "%s  %s\n", r.Run.ID, st.paint(bold, title(r.Run.Name, r.Run.Kind, r.Run.Server)))
	p := r.Plan
	if p == nil {
		field(w, st, "plan", "not known")
		return
	}
	if p.Tell != "" {
		field(w, st, "would tell", oneLine(p.Tell))
	}
	if p.Force != "" {
		field(w, st, "force", oneLine(p.Force))
	}
	processes(w, st, "would kill", bad, p.Kill)
	processes(w, st, "would spare", plain, p.Spared)
}

// field writes one line of a block.
func field(w io.Writer, st style, name, text string) {
	fmt.Fprintf(w, "  %s %s\n", st.paint(faint, fmt.Sprintf("%-11s", name)), text)
}

// labelText is labels in a fixed order.
func labelText(labels map[string]string) string {
	var parts []string
	for k, v := range labels {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return oneLine(strings.Join(parts, ", "))
}
