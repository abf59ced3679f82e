package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belayhq/belay"
)

// upsertRun writes a run or what is new about it. What must not change does not:
// the first outcome stays, the verdict only rises, a run that is over stays over
// even if a person's second Stop takes it up again (its end will come once
// more). A row of another run is not touched (ORC-68).
const upsertRun = `INSERT INTO runs (id, parent, kind, name, server, owner, address, labels, outcome, work, over,
	started, ended, deadline, cancellation, stopped_by, verdict, held, pid, node, note)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
	outcome = CASE runs.outcome WHEN 'pending' THEN excluded.outcome ELSE runs.outcome END,
	work = CASE WHEN runs.over > excluded.over THEN runs.work ELSE excluded.work END,
	held = CASE WHEN runs.over > excluded.over THEN runs.held ELSE excluded.held END,
	ended = CASE WHEN runs.over > excluded.over THEN runs.ended ELSE excluded.ended END,
	over = max(runs.over, excluded.over),
	cancellation = coalesce(runs.cancellation, excluded.cancellation),
	stopped_by = coalesce(runs.stopped_by, excluded.stopped_by),
	verdict = CASE WHEN excluded.verdict <> '' AND instr(?, excluded.verdict) >= instr(?, runs.verdict)
		THEN excluded.verdict ELSE runs.verdict END,
	note = CASE excluded.note WHEN '' THEN runs.note ELSE excluded.note END
WHERE runs.started = excluded.started AND runs.owner = excluded.owner AND runs.kind = excluded.kind AND runs.name = excluded.name`

const verdictsRising = "unreachable signalled acknowledged confirmed" // later is better

// statements are prepared once: to do it for each transaction would cost as much
// as some twenty rows.
type statements struct {
	l                         *Ledger
	run, label, last, receipt *sql.Stmt
}

// statements are those of the connection that writes.
func (l *Ledger) statements(ctx context.Context) (*statements, error) {
	if l.stmts != nil {
		return l.stmts, nil
	}
	w := &statements{l: l}
	for _, s := range []struct {
		into **sql.Stmt
		text string
	}{
		{&w.run, upsertRun},
		{&w.label, "INSERT OR IGNORE INTO labels (key, value, run) VALUES (?, ?, ?)"},
		{&w.last, "SELECT revision, verdict, size, body FROM receipts WHERE run = ? ORDER BY revision DESC LIMIT 1"},
		{&w.receipt, "INSERT INTO receipts (run, revision, recorded, verdict, size, body) VALUES (?, ?, ?, ?, ?, ?)"},
	} {
		stmt, err := l.conn.PrepareContext(ctx, s.text) //nolint:sqlclosecheck // by close
		if err != nil {
			w.close()
			return nil, err
		}
		*s.into = stmt
	}
	l.stmts = w
	return w, nil
}

func (w *statements) close() {
	for _, s := range []*sql.Stmt{w.run, w.label, w.last, w.receipt} {
		if s != nil {
			_ = s.Close()
		}
	}
}

// record writes one entry. An error that wraps ErrNotStored concerns this entry
// alone.
func (w *statements) record(ctx context.Context, e *entry) error {
	info, receipt, err := w.l.redact(e)
	if err != nil {
		return err
	}
	args, err := runRow(info, receipt, e.note)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotStored, err)
	}
	res, err := w.run.ExecContext(ctx, append(args, verdictsRising, verdictsRising)...)
	if err != nil {
		if code(err) == codeConstraint {
			return fmt.Errorf("%w: %w", ErrNotStored, err)
		}
		return err
	}
	if n, err := res.RowsAffected(); err == nil && n == 0 {
		return ErrTaken
	}
	for k, v := range info.Labels {
		if _, err := w.label.ExecContext(ctx, k, v, info.ID[:]); err != nil {
			return err
		}
	}
	if receipt == nil {
		return nil
	}
	return w.revise(ctx, receipt)
}

// revise adds a state of a receipt, unless it says nothing new.
func (w *statements) revise(ctx context.Context, r *belay.Receipt) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotStored, err)
	}
	var (
		revision, was int
		verdict       belay.Verdict
		before        string
	)
	err = w.last.QueryRowContext(ctx, r.Run[:]).Scan(&revision, &verdict, &was, &before)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case before == string(body), size(r) < was, rank(r.Verdict) < rank(verdict):
		return nil // known, or older than what is known
	case revision >= MaxRevisions && rank(r.Verdict) <= rank(verdict):
		return nil
	}
	_, err = w.receipt.ExecContext(ctx, r.Run[:], revision+1, time.Now().UnixNano(), string(r.Verdict), size(r), string(body))
	return err
}

// redact is the entry without what may not be stored.
func (l *Ledger) redact(e *entry) (*belay.Info, *belay.Receipt, error) {
	info, receipt := &e.info, e.receipt
	if l.gone(info.Owner, info.Started) {
		return nil, nil, ErrErased
	}
	if c := info.Cancellation; c != nil && l.gone(c.By, c.At) {
		copied := *info
		info = &copied
		info.Cancellation = faceless(c)
	}
	if receipt == nil {
		return info, nil, nil
	}
	receipt = l.discreet(receipt)
	if c := receipt.Cancellation; c != nil && l.gone(c.By, c.At) {
		forget(receipt)
	}
	return info, receipt, nil
}

// gone reports whether the principal was erased after that time.
func (l *Ledger) gone(principal string, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	when, erased := l.erased[principal]
	return erased && at.Before(when)
}

// discreet is a copy of the receipt with what the options let be stored. Events
// are shared with other watchers, so the copy goes as deep as it changes.
func (l *Ledger) discreet(r *belay.Receipt) *belay.Receipt {
	c := *r
	if !l.opts.Partials {
		c.Partial = ""
	}
	c.Steps = append([]belay.Step(nil), r.Steps...)
	if l.opts.Commands {
		return &c
	}
	c.Survivors, c.Spared = nameless(r.Survivors), nameless(r.Spared)
	for i := range c.Steps {
		if e := c.Steps[i].Evidence; e != nil && len(e.Survivors)+len(e.Spared) > 0 {
			bare := *e
			bare.Survivors, bare.Spared = nameless(e.Survivors), nameless(e.Spared)
			c.Steps[i].Evidence = &bare
		}
	}
	return &c
}

func nameless(list []belay.Process) []belay.Process {
	if list == nil {
		return nil
	}
	bare := make([]belay.Process, len(list))
	for i, p := range list {
		p.Command = ""
		bare[i] = p
	}
	return bare
}

// runRow is the arguments of upsertRun.
func runRow(i *belay.Info, r *belay.Receipt, note string) ([]any, error) {
	if i.ID.IsZero() {
		return nil, fmt.Errorf("%w: a run without an id", belay.ErrBadRequest)
	}
	labels := []byte("{}")
	var err error
	if len(i.Labels) > 0 {
		if labels, err = json.Marshal(i.Labels); err != nil {
			return nil, err
		}
	}
	var parent, cancellation, by any
	if !i.Parent.IsZero() {
		parent = i.Parent[:]
	}
	if c := i.Cancellation; c != nil {
		text, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		cancellation = string(text)
		if c.By != "" && c.By != nobody {
			by = c.By
		}
	}
	done, ended := 0, nanos(i.Ended)
	if over(i) {
		done = 1
		switch {
		case ended != 0:
		case r != nil && !r.Ended.IsZero():
			ended = nanos(r.Ended)
		default:
			ended = time.Now().UnixNano()
		}
	}
	outcome := i.Outcome
	if outcome == "" {
		outcome = belay.Pending
	}
	return []any{
		i.ID[:], parent, string(i.Kind), i.Name, i.Server, i.Owner, i.Address, string(labels), string(outcome), string(i.Work), done,
		nanos(i.Started), ended, nanos(i.Deadline), cancellation, by, string(i.Verdict), i.Held, i.Pid, i.Node, note,
	}, nil
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
