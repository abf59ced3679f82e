package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

type receiptsCmd struct {
	Runs   []string `arg:"" optional:"" name:"run" help:"Ids of runs, or beginnings of ids that fit no other: each receipt with its timeline."`
	Since  string   `placeholder:"TIME" help:"Only Stops since then: 90m, 7d, 2026-05-01 or 2026-05-01T12:00:00Z."`
	Owner  string   `placeholder:"NAME" help:"Only runs of this principal."`
	Of     string   `placeholder:"SERVER" help:"Only runs of this MCP server."`
	Label  []string `short:"l" placeholder:"KEY=VALUE" sep:"none" help:"Only runs with this label (repeat it for runs that have several)."`
	Limit  *int     `placeholder:"N" help:"At most so many; 0: all (default 100, all with --json and --csv)."`
	JSON   bool     `name:"json" help:"Print JSON: an array of receipts."`
	CSV    bool     `name:"csv" help:"Print one line for each receipt, with heads, for spreadsheets."`
	Ledger string   `placeholder:"FILE" help:"Read this ledger instead of your own."`

	remoteFlags
}

// Help implements kong.HelpProvider.
func (*receiptsCmd) Help() string {
	return `Shows what was stopped, by whom, and what proves it, the newest runs first: from a server, or without one from this user's
ledger, which belay serve keeps and which is read also when nothing runs, and from every Belay process of this user.

Examples:

    belay receipts --since 1h
    belay receipts run_01k4x2m7               one, with its timeline
    belay receipts --since 30d --csv > may.csv
    belay receipts --profile work --owner ann --json`
}

const receiptsShown = 100

// Run prints receipts.
func (c *receiptsCmd) Run(env *Env) error {
	pick, err := c.picker(time.Now())
	if err != nil {
		return err
	}
	at, err := c.open(env)
	switch {
	case err != nil:
		return err
	case at.client != nil && c.Ledger != "":
		return usagef("--ledger is a file of this machine, and a server was named too")
	}
	ctx, stop := interruptible()
	defer stop()
	out := c.printer(env)
	if len(c.Runs) > 0 {
		err = c.each(ctx, env, at, out)
	} else {
		err = c.list(ctx, env, at, pick, out)
	}
	if ctx.Err() != nil {
		return exitWith(ExitStopped)
	}
	if err := out.end(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return err
}

// picker checks the flags, and says of a receipt whether it is wanted.
func (c *receiptsCmd) picker(now time.Time) (*receiptQuery, error) {
	labels, err := parseLabels(c.Label)
	if err != nil {
		return nil, err
	}
	q := &receiptQuery{owner: c.Owner, of: c.Of, labels: labels, ledger: c.Ledger}
	if q.since, err = parseSince(c.Since, now); err != nil {
		return nil, err
	}
	switch {
	case c.JSON && c.CSV:
		return nil, usagef("--json and --csv exclude one another")
	case c.Limit != nil && *c.Limit < 0:
		return nil, usagef("--limit %d: want a number, or 0 for all", *c.Limit)
	case len(c.Runs) > 0 && (c.Since != "" || c.Owner != "" || c.Of != "" || len(labels) > 0):
		return nil, usagef("ids of runs and --since, --owner, --of and --label exclude one another")
	}
	return q, nil
}

// parseSince reads a time, or how long ago it was; days are allowed, since
// receipts are kept for weeks.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < 1e5 {
			return now.Add(-time.Duration(n * 24 * float64(time.Hour))), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, wall(now).Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--since %.64q: want how long ago, such as 90m or 7d, or a date such as 2026-05-01", text)
}

// each prints the receipts of the named runs.
func (c *receiptsCmd) each(ctx context.Context, env *Env, at *house, out receiptPrinter) error {
	missing := 0
	for _, typed := range c.Runs {
		d, err := at.lookUp(ctx, env, typed, c.Ledger)
		switch {
		case errors.Is(err, belay.ErrNotFound):
			env.Warnf("%v", err)
			missing++
			continue
		case err != nil:
			return err
		case d.Receipt == nil:
			env.Warnf("%s was not stopped: it has no receipt", d.ID)
			missing++
			continue
		}
		if err := out.add(d.Receipt); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if missing > 0 {
		return exitWith(ExitNothing)
	}
	return nil
}

// list prints those that were asked for.
func (c *receiptsCmd) list(ctx context.Context, env *Env, at *house, q *receiptQuery, out receiptPrinter) error {
	limit := receiptsShown
	if c.JSON || c.CSV {
		limit = 0
	}
	if c.Limit != nil {
		limit = *c.Limit
	}
	found := 0
	for r, err := range at.receipts(ctx, env, q) {
		switch {
		case err != nil && ctx.Err() == nil && fatal(err):
			return at.explained(err)
		case err != nil:
			env.warn(at.explained(err))
			continue
		case limit > 0 && found == limit:
			env.Warnf("there are more than %s; see --limit and --since", count(limit, "receipt"))
			return nil
		}
		found++
		if err := out.add(r); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if found == 0 && !c.JSON && !c.CSV {
		env.Warnf("no receipt matches: nothing was stopped")
	}
	return nil
}

// receiptPrinter prints receipts one by one.
type receiptPrinter interface {
	add(r *belay.Receipt) error
	end() error
}

func (c *receiptsCmd) printer(env *Env) receiptPrinter {
	st := styleOf(env.Stdout, env.Getenv)
	switch {
	case c.JSON:
		return &jsonReceipts{w: env.Stdout}
	case c.CSV:
		return newCSVReceipts(env.Stdout)
	case len(c.Runs) > 0:
		return &wholeReceipts{env.Stdout, st}
	}
	return newReceiptTable(env.Stdout, st)
}

// jsonReceipts is an array that is written as its members come.
type jsonReceipts struct {
	w    io.Writer
	some bool
}

func (j *jsonReceipts) add(r *belay.Receipt) error {
	text, err := json.MarshalIndent(r, "  ", "  ")
	if err != nil {
		return err
	}
	before := ",\n  "
	if !j.some {
		before = "[\n  "
	}
	j.some = true
	_, err = io.WriteString(j.w, before+string(text))
	return err
}

func (j *jsonReceipts) end() error {
	text := "\n]\n"
	if !j.some {
		text = "[]\n"
	}
	_, err := io.WriteString(j.w, text)
	return err
}

// wholeReceipts prints everything that a receipt says.
type wholeReceipts struct {
	w  io.Writer
	st style
}

func (w *wholeReceipts) add(r *belay.Receipt) error {
	printReceipt(w.w, w.st, r, true)
	return nil
}

func (w *wholeReceipts) end() error { return nil }

// receiptTable is one line for each.
type receiptTable struct {
	w  io.Writer
	st style
	t  *table
}

func newReceiptTable(w io.Writer, st style) *receiptTable {
	return &receiptTable{w, st, &table{columns: []column{
		{head: "STOPPED"}, {head: "RUN"}, {head: "VERDICT"}, {head: "TOOK"}, {head: "SERVER", min: 6}, {head: "NAME", min: 10}, {head: "STOPPED BY", min: 10},
	}}}
}

func (t *receiptTable) add(r *belay.Receipt) error {
	_, tone := verdictWords(r)
	verdict, at, took := string(r.Verdict), "", ""
	if !r.Final {
		verdict, tone = "not final", warn
	}
	if r.Cancellation != nil {
		at = wall(r.Cancellation.At).Format(time.DateTime)
	}
	if d := r.Took(); d > 0 {
		took = fmt.Sprintf("%.3fs", d.Seconds())
	}
	t.t.add(cell{at, plain}, cell{r.Run.String(), plain}, cell{verdict, tone}, cell{took, plain},
		cell{oneLine(r.Server), plain}, cell{oneLine(r.Name), bold}, cell{stoppedBy(r.Cancellation), plain})
	if n := len(r.Survivors); n > 0 {
		t.t.note(count(n, "process") + " seen alive after the Stop")
	}
	return nil
}

func (t *receiptTable) end() error {
	if len(t.t.rows) > 0 {
		t.t.print(t.w, t.st)
	}
	return nil
}

// csvReceipts is for spreadsheets.
type csvReceipts struct{ w *csv.Writer }

func newCSVReceipts(w io.Writer) *csvReceipts {
	c := &csvReceipts{csv.NewWriter(w)}
	_ = c.w.Write([]string{
		"run", "kind", "name", "server", "outcome", "work", "verdict", "scope", "final", "cause", "by", "via", "reason",
		"stop", "stopped_at", "took_ms", "steps", "survivors", "spared", "late", "held",
	}) // what cannot be written is said by end
	return c
}

func (c *csvReceipts) add(r *belay.Receipt) error {
	by := r.Cancellation
	if by == nil {
		by = &belay.Cancellation{}
	}
	row := []string{
		r.Run.String(), string(r.Kind), r.Name, r.Server, string(r.Outcome), string(r.Work), string(r.Verdict), string(r.Scope),
		strconv.FormatBool(r.Final), string(by.Cause), by.By, by.Via, by.Reason, by.Stop.String(), by.At.UTC().Format(time.RFC3339Nano),
		strconv.FormatInt(r.Took().Milliseconds(), 10), strconv.Itoa(len(r.Steps)), strconv.Itoa(len(r.Survivors)),
		strconv.Itoa(len(r.Spared)), strconv.Itoa(r.Late), r.Held,
	}
	for i := range row {
		row[i] = noFormula(row[i])
	}
	return c.w.Write(row)
}

func (c *csvReceipts) end() error {
	c.w.Flush()
	return c.w.Error()
}

// noFormula keeps a spreadsheet from taking a cell for a formula: names and
// reasons come from peers.
func noFormula(cell string) string {
	if text := strings.TrimLeft(oneLine(cell), " "); text != "" && strings.ContainsRune("=+-@|%＝＋－＠", []rune(text)[0]) {
		return "'" + oneLine(cell)
	}
	return oneLine(cell)
}

// receiptQuery says which receipts are wanted.
type receiptQuery struct {
	owner, of, ledger string
	labels            map[string]string
	since             time.Time
}

func (q *receiptQuery) wants(r *belay.Receipt) bool {
	return r != nil && (r.Cancellation == nil || !r.Cancellation.At.Before(q.since))
}

// fatal reports whether an error of a list of receipts is its end.
func fatal(err error) bool {
	_, partial := errors.AsType[*partialError](err)
	return !partial
}

// partialError says that some receipts could not be had; others come.
type partialError struct{ error }

// Unwrap makes the error seen.
func (p *partialError) Unwrap() error { return p.error }

// receipts are those of a server, or those of this user's processes and then of
// the ledger.
func (p *house) receipts(ctx context.Context, env *Env, q *receiptQuery) iter.Seq2[*belay.Receipt, error] {
	if p.client != nil {
		return p.served(ctx, q)
	}
	return p.kept(ctx, env, q)
}
