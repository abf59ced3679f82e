package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// The ladder under which every row runs, and what a row may take beyond it. On
// a busy machine of two cores a process needs longer to die than the bench
// says; what this harness must tell apart is stopped and not stopped.
const (
	grace  = 500 * time.Millisecond
	margin = 1500 * time.Millisecond
	watch  = 2000 * time.Millisecond // how long the witness is watched after the Stop
)

// row is one session.
type row struct {
	peer, event string
	belay       bool
	noCancel    bool          // this client gives up without telling anybody: nothing for Belay to carry out
	stop        time.Time     // when it was stopped
	wentOn      time.Duration // from then to the last tick
	allowed     time.Duration // what that may come to; 0: grace + margin
	stillAt     bool          // it was ticking when the watching ended
	alive       []int         // processes of the stopped call, after the watching
	told        string        // what the client was told
	next        string        // "ok", or what was wrong
	problem     string        // why this row fails the run; bare rows never do
}

// judge decides whether a row under Belay fails the run.
func (r *row) judge() {
	if !r.belay || r.noCancel || r.problem != "" {
		return
	}
	switch {
	case r.stillAt:
		r.problem = "the work went on"
	case r.late():
		r.problem = fmt.Sprintf("the work went on for %v", r.wentOn.Round(time.Millisecond))
	case len(r.alive) > 0 && !strings.Contains(r.event, "listens"):
		r.problem = fmt.Sprintf("left alive: %v", r.alive)
	case r.next != "ok":
		r.problem = "next call: " + r.next
	}
}

// late reports whether the work went on for too long.
func (r *row) late() bool { return r.wentOn > max(r.allowed, grace+margin) }

// timed is the row itself, also of one that it is part of.
func (r *row) timed() *row { return r }

// way is what the session went through.
func (r *row) way() string {
	if r.belay {
		return "Belay"
	}
	return "bare"
}

func (r *row) cells() []string {
	work, alive := fmt.Sprintf("%d ms", max(0, r.wentOn.Milliseconds())), "none"
	if r.stillAt {
		work = fmt.Sprintf("> %d ms, still at it", watch.Milliseconds())
	}
	told := r.told
	if r.noCancel {
		told += " (it sends no cancel)"
	}
	if len(r.alive) > 0 {
		alive = fmt.Sprintf("%d", len(r.alive))
	}
	return []string{r.peer, r.event, r.way(), work, alive, told, r.next, r.problem}
}

// line is one session of a table.
type line interface {
	judge()
	cells() []string // the last one is the problem
	failed() bool
}

func (r *row) failed() bool { return r.problem != "" }

// table collects the rows of one kind.
type table struct {
	title, method string // of its part of the document
	columns       []string
	told          int // the column with what the client was told: the long one
	lines         []line
	// allow is what a limit comes to on a machine that was busy with other things
	// from one time to another; nil: the limit.
	allow func(from, to time.Time, limit time.Duration) time.Duration
}

func stdioTable() table {
	return table{
		title: "Over stdio",
		method: "Under Belay: `belay wrap --enforce strict --grace " + grace.String() + "`; `--enforce never` in the rows of stop-ack. \"alive\" counts\n" +
			"processes of the stopped call. Clients are run against the reference server, servers with a raw client.",
		columns: []string{"peer", "stopped by", "way", "work went on", "alive", "client was told", "next calls", "problem"},
		told:    5,
	}
}

func (t *table) add(l line) {
	if l, ok := l.(interface{ timed() *row }); ok && t.allow != nil {
		r := l.timed()
		r.allowed = t.allow(r.stop, r.stop.Add(r.wentOn), grace+margin)
	}
	l.judge()
	t.lines = append(t.lines, l)
	if l.failed() { // the table comes at the end; this is for whoever waits
		fmt.Fprintf(os.Stderr, "interop: FAILED: %s\n", strings.Join(l.cells(), " | "))
	}
}

func (t *table) text() string {
	if len(t.lines) == 0 {
		return ""
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.columns, "\t"))
	for _, l := range t.lines {
		cells := l.cells()
		cells[t.told] = cut(cells[t.told], 60)
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // into memory
	return "\n" + t.title + "\n\n" + out.String()
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

func (t *table) markdown() string {
	var out strings.Builder
	last := len(t.columns) - 1 // the problem is for the terminal
	fmt.Fprintf(&out, "\n## %s\n\n%s\n\n| %s |\n|%s\n", t.title, t.method, strings.Join(t.columns[:last], " | "), strings.Repeat("---|", last))
	for _, l := range t.lines {
		cells := l.cells()[:last]
		cells[t.told] = strings.ReplaceAll(cut(cells[t.told], 90), "|", "\\|")
		fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | "))
	}
	return out.String()
}

// document is docs/interop.md.
func document(versions []string, tables ...*table) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Real peers\n\nWritten by `make interop` (`go run ./interop -md FILE`). Each row is a session of its own: a long call is\n"+
		"started and stopped, and the server's own witness tells how long it went on working; it is watched for\n"+
		"%v.\n\nPeers: %s.\n", watch, strings.Join(versions, ", "))
	for _, t := range tables {
		if len(t.lines) > 0 {
			out.WriteString(t.markdown())
		}
	}
	return out.String()
}

// verdict prints the closing line and returns the exit code.
func verdict(tables ...*table) int {
	rows, failed := 0, 0
	for _, t := range tables {
		rows += len(t.lines)
		for _, l := range t.lines {
			if l.failed() {
				failed++
			}
		}
	}
	fmt.Printf("\n%d passed, %d failed\n", rows-failed, failed)
	if failed > 0 {
		return 1
	}
	return 0
}
