package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table collects the groups of a run.
type table struct{ rows []*result }

func (t *table) add(r *result) {
	t.rows = append(t.rows, r)
	verdict := "equal"
	if !r.ok() {
		verdict = "NOT EQUAL"
	}
	fmt.Printf("conformance: %s: %s (%.1fs)\n", r.name, verdict, r.took.Seconds())
}

var columns = []string{"group", "scenarios", "direct", "exit", "via Belay", "exit", "equal"}

func (r *result) cells() []string {
	d, v := r.direct.figures(), r.via.figures()
	equal := "yes"
	switch {
	case !r.ok():
		equal = "NO"
	case len(r.better) > 0:
		equal = fmt.Sprintf("yes, %d better", len(r.better))
	}
	return []string{
		r.name, fmt.Sprint(d.scenarios),
		fmt.Sprintf("%d passed, %d failed", d.passed, d.failed), fmt.Sprint(d.exit),
		fmt.Sprintf("%d passed, %d failed", v.passed, v.failed), fmt.Sprint(v.exit), equal,
	}
}

// text is the table, and below it everything that differs.
func (t *table) text() string {
	var out strings.Builder
	out.WriteString("\n")
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	for _, r := range t.rows {
		fmt.Fprintln(w, strings.Join(r.cells(), "\t"))
	}
	_ = w.Flush() // into memory
	for _, r := range t.rows {
		if r.problem != "" {
			fmt.Fprintf(&out, "\n%s: %s\n", r.name, r.problem)
		}
		if len(r.differences) > 0 {
			fmt.Fprintf(&out, "\n%s, what differs:\n", r.name)
		}
		for _, d := range r.differences {
			fmt.Fprintf(&out, "  - %v\n", d)
		}
	}
	for _, b := range t.better() {
		fmt.Fprintf(&out, "\nbetter through Belay: %s: %s: %s directly, %s through Belay: %s\n", b.scenario, b.check, b.from, b.to, b.why)
	}
	return out.String()
}

// better lists the improvements that were seen, each once.
func (t *table) better() (list []*improvement) {
	for _, r := range t.rows {
		for _, b := range r.better {
			if !slices.Contains(list, b) {
				list = append(list, b)
			}
		}
	}
	return list
}

const head = `# Conformance

Written by ` + "`go run ./conformance -update`" + ` on %s; ` + "`make conformance`" + ` repeats it, in CI too. The
official MCP conformance suite runs against the official Go SDK's conformance server and client and the
reference server, directly and with ` + "`belay serve`" + ` in between. What is asked is equality: the same checks
pass, the same fail, the same exit code. The failures below are the peers' own: the tasks extension, which
the suite does not score, and the suite's tools, which the reference server does not have.

Versions: %s.

`

const foot = `
- Server groups: the suite calls Belay, Belay calls the server. Behind stdio groups Belay starts the
  server as a child process; the suite cannot speak stdio itself, so the direct side is the same server
  over HTTP.
- Client groups: the client calls Belay, Belay calls the suite's server. The scenarios of authorization
  are not counted: their tokens are bound to the address of the suite's server, and go past any gateway.
- Cancellation is not in the suite. What Belay promises there is in [guarantees.md](guarantees.md) and
  measured in [interop.md](interop.md).
`

// markdown is the page that is kept.
func (t *table) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, head, time.Now().UTC().Format(time.DateOnly), versions())
	fmt.Fprintf(&out, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, r := range t.rows {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(r.cells(), " | "))
	}
	out.WriteString(foot)
	for _, b := range t.better() {
		fmt.Fprintf(&out, "- Better through Belay, `%s` in %s (%s directly, %s through Belay): %s.\n", b.check, b.scenario, b.from, b.to, b.why)
	}
	return out.String()
}

// verdict prints the closing line and returns the exit code.
func (t *table) verdict() int {
	failed := 0
	for _, r := range t.rows {
		if !r.ok() {
			failed++
		}
	}
	fmt.Printf("\n%d groups equal, %d not\n", len(t.rows)-failed, failed)
	if failed > 0 || len(t.rows) == 0 {
		return 1
	}
	return 0
}
