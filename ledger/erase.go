package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// nobody stands where the name of an erased principal stood.
const nobody = "(erased)"

// maxErased bounds how many erasures are remembered against late news; the
// oldest is forgotten first. The tree forgets its ended runs much sooner.
const maxErased = 10_000

// Erased counts what an erasure did.
type Erased struct {
	Runs     int64 `json:"runs"`     // deleted with their receipts
	Redacted int64 `json:"redacted"` // others' runs that the principal had stopped: name and reason removed
}

// Erase removes a principal: its runs, those in flight included, with their
// receipts, and its name and words from the receipts of others' runs that it
// stopped. It returns when the bytes in the file are overwritten and the log is
// empty, for which the file is written anew: records wait meanwhile. Copies made before (backups, snapshots of the file system) are not
// in its reach. What the tree brings later about runs that started before is
// not stored; Commit of one is [ErrErased].
func (l *Ledger) Erase(ctx context.Context, principal string) (Erased, error) {
	var sum Erased
	if principal == "" {
		return sum, fmt.Errorf("erase: %w: no principal", belay.ErrBadRequest)
	}
	l.remember(principal, time.Now())
	for {
		var n, m int64
		err := l.do(ctx, func(ctx context.Context) (err error) {
			if l.broken != nil {
				return l.broken
			}
			if n, err = l.deleteRuns(ctx, "owner = ?", trimRuns, principal); err != nil {
				return err
			}
			m, err = l.redactRuns(ctx, principal)
			return err
		})
		if err != nil {
			return sum, fmt.Errorf("erase %.64q: %w", principal, err)
		}
		sum.Runs, sum.Redacted = sum.Runs+n, sum.Redacted+m
		if n+m == 0 {
			break
		}
	}
	return sum, l.do(ctx, func(ctx context.Context) error { return l.wipe(ctx) })
}

// wipe writes the file anew and empties the log. SQLite's secure_delete alone is
// not enough: where it moves rows between pages, parts of deleted ones stay in
// the gaps (a test found them). The copy that this takes for a moment is a
// private temporary file, without a name where the system allows that, not
// memory: the ledger may be large. Somebody who reads right now can hold the
// emptying of the log up.
func (l *Ledger) wipe(ctx context.Context) error {
	for _, step := range []string{"PRAGMA temp_store = FILE", "VACUUM", "PRAGMA temp_store = MEMORY"} {
		if _, err := l.conn.ExecContext(ctx, step); err != nil {
			return fmt.Errorf("deleted, but the bytes could not be overwritten (%s): %w; call again", step, err)
		}
	}
	for range 5 {
		held, err := l.truncate(ctx)
		if err != nil || !held {
			return err
		}
	}
	return errors.New("deleted, but somebody reads the ledger and its log still holds the old pages; call again")
}

func (l *Ledger) remember(principal string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.erased) >= maxErased {
		oldest, when := "", now
		for p, t := range l.erased {
			if t.Before(when) {
				oldest, when = p, t
			}
		}
		delete(l.erased, oldest)
	}
	l.erased[principal] = now
}

// redactRuns takes the principal's name out of some runs that it stopped. A
// receipt never changes: it is deleted and a redacted one is put in its place.
func (l *Ledger) redactRuns(ctx context.Context, principal string) (n int64, err error) {
	list, err := l.stoppedBy(ctx, principal)
	if err != nil {
		return 0, err
	}
	err = inTx(ctx, l.conn, func() error {
		for _, s := range list {
			if err := l.redactReceipts(ctx, s.id); err != nil {
				return err
			}
			text, err := json.Marshal(faceless(&s.cancellation))
			if err != nil {
				return err
			}
			if _, err := l.conn.ExecContext(ctx, "UPDATE runs SET cancellation = ?, stopped_by = NULL WHERE id = ?", string(text), s.id); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, err
}

type stopped struct {
	id           []byte
	cancellation belay.Cancellation
}

func (l *Ledger) stoppedBy(ctx context.Context, principal string) ([]stopped, error) {
	rows, err := l.conn.QueryContext(ctx, "SELECT id, cancellation FROM runs WHERE stopped_by = ? LIMIT ?", principal, trimRuns)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []stopped
	for rows.Next() {
		var s stopped
		var text string
		if err := rows.Scan(&s.id, &text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(text), &s.cancellation); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// redactReceipts replaces every revision of one run's receipt.
func (l *Ledger) redactReceipts(ctx context.Context, run []byte) error {
	list, err := l.revisions(ctx, run)
	if err != nil {
		return err
	}
	for _, r := range list {
		var receipt belay.Receipt
		if err := json.Unmarshal([]byte(r.body), &receipt); err != nil {
			return err
		}
		forget(&receipt)
		body, err := json.Marshal(&receipt)
		if err != nil {
			return err
		}
		if _, err := l.conn.ExecContext(ctx, "DELETE FROM receipts WHERE seq = ?", r.seq); err != nil {
			return err
		}
		_, err = l.conn.ExecContext(ctx, "INSERT INTO receipts (seq, run, revision, recorded, verdict, size, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
			r.seq, run, r.revision, r.recorded, r.verdict, r.size, string(body))
		if err != nil {
			return err
		}
	}
	return nil
}

type revision struct {
	seq, revision, recorded, size int64
	verdict, body                 string
}

func (l *Ledger) revisions(ctx context.Context, run []byte) ([]revision, error) {
	rows, err := l.conn.QueryContext(ctx, "SELECT seq, revision, recorded, size, verdict, body FROM receipts WHERE run = ?", run)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []revision
	for rows.Next() {
		var r revision
		if err := rows.Scan(&r.seq, &r.revision, &r.recorded, &r.size, &r.verdict, &r.body); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// faceless is a cancellation without who pressed and what they wrote.
func faceless(c *belay.Cancellation) *belay.Cancellation {
	bare := *c
	bare.By, bare.Reason = nobody, ""
	return &bare
}

// forget takes who pressed out of a receipt that is ours to change. The texts of
// steps are made of the cancellation's words.
func forget(r *belay.Receipt) {
	c := r.Cancellation
	if c == nil {
		return
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		switch {
		case s.Step == belay.StepRequested, c.By != "" && strings.Contains(s.Detail, c.By), c.Reason != "" && strings.Contains(s.Detail, c.Reason):
			s.Detail = nobody
		}
	}
	r.Cancellation = faceless(c)
}
