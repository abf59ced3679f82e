package ledger

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Bounds of one step of retention: others' records wait no longer than that.
const (
	trimRuns  = 500
	trimPages = 2000
)

// Trim deletes what is beyond the bounds of [Options] now, in small steps, and
// returns when nothing more is to be done. The ledger does that by itself too.
func (l *Ledger) Trim(ctx context.Context) error {
	for {
		var more bool
		err := l.do(ctx, func(ctx context.Context) (err error) {
			more, err = l.trimStep(ctx)
			return err
		})
		if err != nil || !more {
			return err
		}
	}
}

// trimStep deletes some of the oldest ended runs that are beyond a bound and
// gives some free pages back. more: there is more to do.
func (l *Ledger) trimStep(ctx context.Context) (more bool, err error) {
	if l.broken != nil {
		return false, l.broken
	}
	deleted, err := l.expire(ctx)
	if err != nil {
		return false, err
	}
	if deleted == 0 {
		deleted, err = l.overflow(ctx)
		if err != nil {
			return false, err
		}
	}
	left, err := l.shrink(ctx)
	l.count(func(s *Stats) { s.Trimmed += uint64(deleted) })
	return deleted > 0 || left, err
}

// expire deletes runs that ended too long ago: of everybody who has no time of
// their own, then of those who have.
func (l *Ledger) expire(ctx context.Context) (int64, error) {
	owners := slices.Sorted(maps.Keys(l.opts.KeepOf))
	others, args := "", make([]any, len(owners))
	for i, owner := range owners {
		args[i] = owner
	}
	if len(owners) > 0 {
		others = "owner NOT IN (?" + strings.Repeat(", ?", len(owners)-1) + ")"
	}
	n, err := l.expireOf(ctx, l.opts.KeepFor, others, args...)
	for _, owner := range owners {
		if n > 0 || err != nil {
			break // small steps
		}
		n, err = l.expireOf(ctx, l.opts.KeepOf[owner], "owner = ?", owner)
	}
	return n, err
}

// expireOf deletes runs of some owners. They are among those that started even
// longer ago, so that no index by end is needed.
func (l *Ledger) expireOf(ctx context.Context, keep time.Duration, owners string, args ...any) (int64, error) {
	if keep < 0 {
		return 0, nil
	}
	limit := time.Now().Add(-keep)
	last := earliest(limit.Add(time.Millisecond))
	where := "id < ? AND over = 1 AND ended < ?"
	if owners != "" {
		where += " AND " + owners
	}
	return l.deleteRuns(ctx, where, trimRuns, append([]any{last[:], limit.UnixNano()}, args...)...)
}

// overflow deletes the oldest ended runs while there are too many, or the file
// is too big.
func (l *Ledger) overflow(ctx context.Context) (int64, error) {
	var n int64
	if err := l.conn.QueryRowContext(ctx, "SELECT count(*) FROM runs").Scan(&n); err != nil {
		return 0, err
	}
	if l.opts.KeepRuns >= 0 {
		if n > int64(l.opts.KeepRuns) {
			return l.deleteRuns(ctx, "over = 1", min(trimRuns, n-int64(l.opts.KeepRuns)))
		}
	}
	if l.opts.KeepBytes < 0 {
		return 0, nil
	}
	var pages, free, size int64
	if err := l.pragmas(ctx, &pages, &free, &size); err != nil {
		return 0, err
	}
	used := (pages - free) * size
	if used <= l.opts.KeepBytes || n == 0 {
		return 0, nil
	}
	mean := max(used/n, 1) // of a run; so many must go, not simply the next 500
	return l.deleteRuns(ctx, "over = 1", min(trimRuns, (used-l.opts.KeepBytes)/mean+1))
}

func (l *Ledger) pragmas(ctx context.Context, pages, free, size *int64) error {
	return l.conn.QueryRowContext(ctx, "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size").Scan(pages, free, size)
}

// deleteRuns deletes the oldest runs that match; triggers take what belongs to
// them.
func (l *Ledger) deleteRuns(ctx context.Context, where string, limit int64, args ...any) (n int64, err error) {
	err = inTx(ctx, l.conn, func() error {
		text := "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE " + where + " ORDER BY id LIMIT ?)" //nolint:gosec // where is made of constants of this package
		res, err := l.conn.ExecContext(ctx, text, append(args, limit)...)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n, err
}

// shrink gives free pages back to the file system. left: there are more.
func (l *Ledger) shrink(ctx context.Context) (left bool, err error) {
	var pages, free, size int64
	if err := l.pragmas(ctx, &pages, &free, &size); err != nil || free == 0 {
		return false, err
	}
	// The statement frees a page with each step, so that it must be read to its end.
	if err := l.run(ctx, "PRAGMA incremental_vacuum(2000)"); err != nil {
		return false, err
	}
	if free > trimPages {
		return true, nil
	}
	_, err = l.truncate(ctx)
	return false, err
}

// truncate moves the log into the file, which is when the file becomes smaller,
// and empties the log. Readers can hold it up; then the next time does it.
func (l *Ledger) truncate(ctx context.Context) (held bool, err error) {
	var busy, pages, moved int
	err = l.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved)
	return busy != 0, err
}

func (l *Ledger) run(ctx context.Context, pragma string) error {
	rows, err := l.conn.QueryContext(ctx, pragma)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() { // each step does a part of the work
	}
	return rows.Err()
}
