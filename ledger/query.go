package ledger

import (
	"cmp"
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
	MaxLimit     = 1000
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
	Since     time.Time         // started at this time or later, to the millisecond
	Before    time.Time         // started before

	Limit  int    // default 50, at most 1,000
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

// Get returns one run with the newest revision of its receipt, or an error that
// wraps [belay.ErrNotFound].
func (l *Ledger) Get(ctx context.Context, id belay.RunID) (Record, error) {
	var body sql.NullString
	e, err := scanRun(l.readers.QueryRowContext(ctx, "SELECT "+columns+`,
		(SELECT body FROM receipts WHERE run = runs.id ORDER BY revision DESC LIMIT 1) FROM runs WHERE id = ?`, id[:]), &body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Record{}, fmt.Errorf("%w: %s is not in the ledger", belay.ErrNotFound, id)
	case err != nil:
		return Record{}, sick(l.path, err)
	}
	rec := Record{Entry: e}
	if body.Valid {
		rec.Receipt = &belay.Receipt{}
		if err := json.Unmarshal([]byte(body.String), rec.Receipt); err != nil {
			return Record{}, damage(l.path, fmt.Errorf("the receipt of %s: %w", id, err))
		}
	}
	return rec, nil
}

// List returns the newest runs that match, or those after the cursor. A cursor
// that no list gave out is [ErrBadCursor], other values that cannot be are
// [belay.ErrBadRequest].
func (l *Ledger) List(ctx context.Context, q Query) (Page, error) {
	limit := q.Limit
	switch {
	case limit == 0:
		limit = DefaultLimit
	case limit < 0 || limit > MaxLimit:
		return Page{}, fmt.Errorf("%w: limit %d (want 1 to %d)", belay.ErrBadRequest, limit, MaxLimit)
	}
	found := []Entry{} // an empty page is a list, not null
	for _, part := range q.parts() {
		text, args, err := part.sql(limit + 1)
		if err != nil {
			return Page{}, err
		}
		some, err := l.runs(ctx, text, args)
		if err != nil {
			return Page{}, err
		}
		found = append(found, some...)
	}
	slices.SortFunc(found, func(a, b Entry) int { return -cmp.Compare(string(a.ID[:]), string(b.ID[:])) })
	var p Page
	if len(found) > limit {
		found = found[:limit]
		p.Next = cursorOf(found[limit-1].ID)
	}
	p.Runs = found
	return p, nil
}

func (l *Ledger) runs(ctx context.Context, text string, args []any) ([]Entry, error) {
	rows, err := l.readers.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, sick(l.path, err)
	}
	defer rows.Close()
	var list []Entry
	for rows.Next() {
		e, err := scanRun(rows)
		if err != nil {
			return nil, sick(l.path, err)
		}
		list = append(list, e)
	}
	if err := rows.Err(); err != nil {
		return nil, sick(l.path, err)
	}
	return list, nil
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
func (q *Query) sql(limit int) (string, []any, error) {
	var (
		args  []any
		where []string
		and   = func(cond string, values ...any) { where, args = append(where, cond), append(args, values...) }
		head  = "SELECT " + columns + " FROM runs"
		order = "runs.id"
	)
	if !q.Under.IsZero() {
		head = `WITH RECURSIVE below(id) AS (SELECT ? UNION SELECT runs.id FROM below CROSS JOIN runs ON runs.parent = below.id LIMIT ` +
			fmt.Sprint(maxSubtree) + `) SELECT ` + columns + ` FROM below CROSS JOIN runs ON runs.id = below.id`
		args = append(args, q.Under[:])
	} else if len(q.Labels) > 0 {
		head, order = "SELECT "+columns+" FROM labels CROSS JOIN runs ON runs.id = labels.run", "labels.run"
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
		{"runs.owner", q.Owner}, {"runs.server", q.Server}, {"runs.stopped_by", q.StoppedBy},
	} {
		if c.value != "" {
			and(c.column+" = ?", c.value)
		}
	}
	if q.InFlight {
		and("runs.over = 0")
	}
	if q.Cancelled {
		and("runs.cancellation IS NOT NULL")
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
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16) //nolint:gosec // not negative
	return id
}

// scanner is a row.
type scanner interface{ Scan(into ...any) error }

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
