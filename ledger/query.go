package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// Bounds of a list.
const (
	DefaultLimit = 50
	MaxLimit     = 2000   // more than any door asks for: theirs is 1,000, and one to see whether there are more
	maxSubtree   = 10_000 // runs that Under looks at
)

// Query selects runs. Its zero value selects all; each field that is set
// narrows the selection.
type Query struct {
	Outcomes  []belay.Outcome   // any of these; pending: not answered yet
	InFlight  bool              // only runs that were not over when last heard of
	Cancelled bool              // only runs that somebody stopped
	Verdicts  []belay.Verdict   // any of these
	Kinds     []belay.Kind      // any of these
	Owner     string            //
	Server    string            //
	StoppedBy string            // the principal that pressed
	Labels    map[string]string // all of these
	Under     belay.RunID       // this run and what lies below it, at most 10,000 runs
	Request   string            // the text of the protocol's id: "7" for the number 7 and the string "7" (ORC-70)
	Stop      belay.StopID      // stopped by this act
	Receipt   bool              // only runs with a receipt
	Since     time.Time         // started at this time or later, to the millisecond
	Before    time.Time         // started before
	Behind    belay.RunID       // only runs that come after this one in the list

	Limit  int    // default 50, at most 2,000
	Cursor string // Page.Next of the page before; empty: from the newest
}

// Entry is one run as the ledger knows it.
type Entry struct {
	belay.Info
	Note string `json:"note,omitempty"` // the ledger's own word: why a run is lost
}

// Record is one run with its receipt; nil if it was not cancelled or its verdict
// was never final.
type Record struct {
	Entry
	Receipt *belay.Receipt `json:"receipt,omitempty"`
}

// Detail is the record in the words of [belay.Control].
func (r *Record) Detail() belay.Detail { return belay.Detail{Info: r.Info, Receipt: r.Receipt} }

// Page is a part of a list, newest first.
type Page struct {
	Runs []Entry `json:"runs"`
	Next string  `json:"next,omitempty"` // the cursor of the next page; empty: this is the last
}

const columns = `runs.id, runs.parent, runs.kind, runs.name, runs.server, runs.owner, runs.address, runs.labels, runs.outcome,
	runs.work, runs.started, runs.ended, runs.deadline, runs.cancellation, runs.verdict, runs.held, runs.pid, runs.node, runs.note`

// receiptOf is the newest revision of a run's receipt.
const receiptOf = "(SELECT body FROM receipts WHERE run = runs.id ORDER BY revision DESC LIMIT 1)"

// Get returns one run with the newest revision of its receipt, or an error that
// wraps [belay.ErrNotFound].
func (r *Reader) Get(ctx context.Context, id belay.RunID) (Record, error) {
	var rec Record
	err := r.look(ctx, func(db *sql.DB) (err error) {
		rec, err = scanRecord(db.QueryRowContext(ctx, "SELECT "+columns+", "+receiptOf+" FROM runs WHERE id = ?", id[:]))
		return err
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Record{}, fmt.Errorf("%w: %s is not in the ledger", belay.ErrNotFound, id)
	case err != nil:
		return Record{}, r.sick(err)
	}
	return rec, nil
}

// List returns the newest runs that match, or those after the cursor. A cursor
// that no list gave out is [ErrBadCursor], other values that cannot be are
// [belay.ErrBadRequest].
func (r *Reader) List(ctx context.Context, q Query) (Page, error) {
	found, next, err := page(ctx, r, &q, columns, scanEntry, func(e *Entry) belay.RunID { return e.ID })
	return Page{Runs: found, Next: next}, err
}

// Find is [Reader.List] with the receipts. next is the cursor of the next page;
// empty: this is the last.
func (r *Reader) Find(ctx context.Context, q Query) (runs []Record, next string, err error) {
	return page(ctx, r, &q, columns+", "+receiptOf, scanRecord, func(r *Record) belay.RunID { return r.ID })
}

// page reads one page of what the query selects.
func page[T any](ctx context.Context, r *Reader, q *Query, what string, scan func(scanner) (T, error), id func(*T) belay.RunID) ([]T, string, error) {
	limit := q.Limit
	switch {
	case limit == 0:
		limit = DefaultLimit
	case limit < 0 || limit > MaxLimit:
		return nil, "", fmt.Errorf("%w: limit %d (want 1 to %d)", belay.ErrBadRequest, limit, MaxLimit)
	}
	found := []T{} // an empty page is a list, not null
	err := r.look(ctx, func(db *sql.DB) error {
		found = found[:0]
		for _, part := range q.parts() {
			text, args, err := part.sql(what, limit+1)
			if err != nil {
				return err
			}
			if found, err = rowsOf(ctx, db, found, scan, text, args); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, "", r.sick(err)
	}
	slices.SortFunc(found, func(a, b T) int {
		x, y := id(&a), id(&b)
		return bytes.Compare(y[:], x[:])
	})
	if len(found) <= limit {
		return found, "", nil
	}
	found = found[:limit]
	return found, cursorOf(id(&found[limit-1])), nil
}

// rowsOf appends what the statement selects.
func rowsOf[T any](ctx context.Context, db *sql.DB, list []T, scan func(scanner) (T, error), text string, args []any) ([]T, error) {
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, rows.Err()
}

// sick says what a failed look at the file means; what concerns the asker alone
// stays as it is.
func (r *Reader) sick(err error) error {
	if errors.Is(err, belay.ErrBadRequest) || errors.Is(err, ErrClosed) {
		return err
	}
	return sick(r.path, err)
}

// parts cuts a query for several outcomes into one for each: an index walk with
// one value is in the order of the list, with several it would have to be
// sorted, which at a million rows is no page but a scan.
func (q *Query) parts() []Query {
	outcomes := slices.Compact(slices.Sorted(slices.Values(q.Outcomes)))
	if len(outcomes) < 2 {
		one := *q
		one.Outcomes = outcomes
		return []Query{one}
	}
	list := make([]Query, len(outcomes))
	for i, o := range outcomes {
		list[i] = *q
		list[i].Outcomes = []belay.Outcome{o}
	}
	return list
}

// sql is the statement for a query with at most one outcome. All that comes
// from outside is an argument.
func (q *Query) sql(what string, limit int) (string, []any, error) {
	var (
		args  []any
		where []string
		and   = func(cond string, values ...any) { where, args = append(where, cond), append(args, values...) }
		head  = "SELECT " + what + " FROM runs"
		order = "runs.id"
	)
	if !q.Under.IsZero() {
		head = `WITH RECURSIVE below(id) AS (SELECT ? UNION SELECT runs.id FROM below CROSS JOIN runs ON runs.parent = below.id LIMIT ` +
			fmt.Sprint(maxSubtree) + `) SELECT ` + what + ` FROM below CROSS JOIN runs ON runs.id = below.id`
		args = append(args, q.Under[:])
	} else if len(q.Labels) > 0 {
		head, order = "SELECT "+what+" FROM labels CROSS JOIN runs ON runs.id = labels.run", "labels.run"
	}
	for i, k := range slices.Sorted(maps.Keys(q.Labels)) {
		if i == 0 && q.Under.IsZero() {
			and("labels.key = ? AND labels.value = ?", k, q.Labels[k])
			continue
		}
		and("EXISTS (SELECT 1 FROM labels m WHERE m.key = ? AND m.value = ? AND m.run = runs.id)", k, q.Labels[k])
	}
	for _, o := range q.Outcomes {
		and("runs.outcome = ?", string(o))
	}
	for _, c := range []struct{ column, value string }{
		{"runs.owner", q.Owner}, {"runs.server", q.Server}, {"runs.stopped_by", q.StoppedBy}, {"runs.request", q.Request}, {"runs.stop", stopText(q.Stop)},
	} {
		if c.value != "" {
			and(c.column+" = ?", c.value)
		}
	}
	if q.InFlight {
		and("runs.over = 0")
	}
	if q.Cancelled || q.Receipt {
		and("runs.cancellation IS NOT NULL")
	}
	if q.Receipt {
		and("EXISTS (SELECT 1 FROM receipts WHERE run = runs.id)")
	}
	anyOf(and, "runs.kind", q.Kinds)
	anyOf(and, "runs.verdict", q.Verdicts)
	if err := q.span(and, order); err != nil {
		return "", nil, err
	}
	if len(where) > 0 {
		head += " WHERE " + strings.Join(where, " AND ")
	}
	return head + " ORDER BY " + order + " DESC LIMIT ?", append(args, limit), nil
}

// stopText is how the Stop stands in the file; empty for none.
func stopText(id belay.StopID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// span bounds the ids: they sort by time, so that both ages and the cursor are
// places in the same order.
func (q *Query) span(and func(string, ...any), order string) error {
	if !q.Since.IsZero() {
		from := earliest(q.Since)
		and(order+" >= ?", from[:])
	}
	if !q.Before.IsZero() {
		to := earliest(q.Before)
		and(order+" < ?", to[:])
	}
	if !q.Behind.IsZero() {
		and(order+" < ?", q.Behind[:])
	}
	if q.Cursor == "" {
		return nil
	}
	after, err := parseCursor(q.Cursor)
	if err != nil {
		return err
	}
	and(order+" < ?", after[:])
	return nil
}

// anyOf adds a condition that no index is asked for (the plus sign says so).
func anyOf[T ~string](and func(string, ...any), column string, values []T) {
	if len(values) == 0 {
		return
	}
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = string(v)
	}
	and("+"+column+" IN (?"+strings.Repeat(", ?", len(values)-1)+")", args...)
}

// earliest is the first id of that millisecond.
func earliest(t time.Time) (id belay.RunID) {
	ms := max(t.UnixMilli(), 0)
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16)
	return id
}

// scanner is a row.
type scanner interface{ Scan(into ...any) error }

// scanEntry reads a row of columns.
func scanEntry(row scanner) (Entry, error) { return scanRun(row) }

// scanRecord reads a row of columns and receiptOf.
func scanRecord(row scanner) (rec Record, err error) {
	var body sql.NullString
	if rec.Entry, err = scanRun(row, &body); err != nil || !body.Valid {
		return rec, err
	}
	rec.Receipt = &belay.Receipt{}
	if err := json.Unmarshal([]byte(body.String), rec.Receipt); err != nil {
		return rec, fmt.Errorf("%w: the receipt of %s: %w", ErrDamaged, rec.ID, err)
	}
	return rec, nil
}

func scanRun(row scanner, more ...any) (Entry, error) {
	var (
		e                        Entry
		id, parent               []byte
		labels                   string
		cancellation             sql.NullString
		started, ended, deadline int64
	)
	err := row.Scan(append([]any{
		&id, &parent, &e.Kind, &e.Name, &e.Server, &e.Owner, &e.Address, &labels, &e.Outcome,
		&e.Work, &started, &ended, &deadline, &cancellation, &e.Verdict, &e.Held, &e.Pid, &e.Node, &e.Note,
	}, more...)...)
	if err != nil {
		return e, err
	}
	copy(e.ID[:], id)
	copy(e.Parent[:], parent)
	e.Started, e.Ended, e.Deadline = moment(started), moment(ended), moment(deadline)
	if labels != "{}" {
		if err := json.Unmarshal([]byte(labels), &e.Labels); err != nil {
			return e, fmt.Errorf("%w: labels of %s: %w", ErrDamaged, e.ID, err)
		}
	}
	if cancellation.Valid {
		e.Cancellation = &belay.Cancellation{}
		if err := json.Unmarshal([]byte(cancellation.String), e.Cancellation); err != nil {
			return e, fmt.Errorf("%w: cancellation of %s: %w", ErrDamaged, e.ID, err)
		}
	}
	return e, nil
}
