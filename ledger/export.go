package ledger

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// Format is a form of an export.
type Format string

// The formats.
const (
	JSONLines Format = "json" // one Record per line
	CSV       Format = "csv"  // one line per receipt, with a head; safe to open in a spreadsheet
)

// Receipts yields the cancelled runs that match and have a receipt, newest
// first. Limit is the most that are yielded; 0: all. It reads page by page and
// keeps nothing open between two, so that a slow reader holds up nobody.
func (r *Reader) Receipts(ctx context.Context, q Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		left := q.Limit
		part := q
		part.Receipt, part.Limit = true, 200
		for {
			runs, next, err := r.Find(ctx, part)
			if err != nil {
				yield(Record{}, err)
				return
			}
			for i := range runs {
				if !yield(runs[i], nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if part.Cursor = next; next == "" {
				return
			}
		}
	}
}

// Export writes what Receipts yields.
func (r *Reader) Export(ctx context.Context, w io.Writer, f Format, q Query) error {
	switch f {
	case JSONLines:
		enc := json.NewEncoder(w)
		for rec, err := range r.Receipts(ctx, q) {
			if err != nil {
				return err
			}
			if err := enc.Encode(rec); err != nil {
				return fmt.Errorf("export receipts: %w", err)
			}
		}
		return nil
	case CSV:
		return r.exportCSV(ctx, w, q)
	}
	return fmt.Errorf("%w: format %.32q (want %s or %s)", belay.ErrBadRequest, f, JSONLines, CSV)
}

var csvHead = []string{
	"run", "kind", "name", "server", "owner", "started", "ended", "outcome", "work", "verdict", "scope", "final",
	"cause", "by", "via", "reason", "stopped_at", "took_ms", "steps", "survivors", "spared", "late", "held", "note",
}

func (r *Reader) exportCSV(ctx context.Context, w io.Writer, q Query) error {
	out := csv.NewWriter(w)
	if err := out.Write(csvHead); err != nil {
		return fmt.Errorf("export receipts: %w", err)
	}
	for rec, err := range r.Receipts(ctx, q) {
		if err != nil {
			out.Flush()
			return err
		}
		if err := out.Write(csvRow(&rec)); err != nil {
			return fmt.Errorf("export receipts: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("export receipts: %w", err)
	}
	return nil
}

func csvRow(rec *Record) []string {
	r, c := rec.Receipt, rec.Receipt.Cancellation
	if c == nil {
		c = &belay.Cancellation{}
	}
	row := []string{
		rec.ID.String(), string(rec.Kind), rec.Name, rec.Server, rec.Owner, stamp(rec.Started), stamp(rec.Ended),
		string(rec.Outcome), string(rec.Work), string(r.Verdict), string(r.Scope), strconv.FormatBool(r.Final),
		string(c.Cause), c.By, c.Via, c.Reason, stamp(c.At), strconv.FormatInt(r.Took().Milliseconds(), 10),
		strconv.Itoa(len(r.Steps)), strconv.Itoa(len(r.Survivors)), strconv.Itoa(len(r.Spared)), strconv.Itoa(r.Late),
		r.Held, rec.Note,
	}
	for i := range row {
		row[i] = harmless(row[i])
	}
	return row
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// harmless keeps a spreadsheet from taking a cell for a formula: names and
// reasons come from peers. Blanks before it do not help against every program.
func harmless(cell string) string {
	first := strings.TrimLeft(cell, " \t\r\n\u00a0")
	if first == "" {
		return cell
	}
	for _, sign := range []string{"=", "+", "-", "@", "|", "%", "＝", "＋", "－", "＠"} {
		if strings.HasPrefix(first, sign) {
			return "'" + cell
		}
	}
	if cell[0] == '\t' || cell[0] == '\r' || cell[0] == '\n' {
		return "'" + cell
	}
	return cell
}
