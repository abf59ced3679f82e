package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belayhq/belay"
)

// buryLost ends the runs whose process is dead: it held the lock that we have.
// Each Stop ends in a receipt (DESIGN 1): those that were being stopped then get a
// final one, which claims no more than was written down.
func (l *Ledger) buryLost(ctx context.Context) error {
	now := time.Now()
	return inTx(ctx, l.conn, func() error {
		stopping, err := l.dyingReceipts(ctx, now)
		if err != nil {
			return err
		}
		res, err := l.conn.ExecContext(ctx, `UPDATE runs SET outcome = CASE outcome WHEN 'pending' THEN 'lost' ELSE outcome END,
			work = 'unconfirmed', over = 1, ended = ?, note = ? WHERE over = 0`, now.UnixNano(), noteDied)
		if err != nil {
			return err
		}
		for i := range stopping {
			if err := l.sealDead(ctx, &stopping[i]); err != nil {
				return err
			}
		}
		n, err := res.RowsAffected()
		if n > 0 {
			l.stats.Lost = uint64(n)
			l.opts.Log.Warn("runs were in flight when Belay ended the last time; they are lost", "runs", n, "stopping", len(stopping), "ledger", l.path)
		}
		return err
	})
}

// dyingReceipts are the final receipts of the runs that were being stopped: what
// was known, and that nothing more will be.
func (l *Ledger) dyingReceipts(ctx context.Context, now time.Time) (list []belay.Receipt, err error) {
	rows, err := l.conn.QueryContext(ctx, `SELECT id, kind, name, server, outcome, held, verdict, cancellation,
		(SELECT body FROM receipts WHERE run = runs.id ORDER BY revision DESC LIMIT 1)
		FROM runs WHERE over = 0 AND cancellation IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r belay.Receipt
		var id []byte
		var cancellation string
		var body *string
		if err := rows.Scan(&id, &r.Kind, &r.Name, &r.Server, &r.Outcome, &r.Held, &r.Verdict, &cancellation, &body); err != nil {
			return nil, err
		}
		copy(r.Run[:], id)
		if err := json.Unmarshal([]byte(cancellation), &r.Cancellation); err != nil {
			return nil, fmt.Errorf("the cancellation of %s: %w", r.Run, err)
		}
		if body != nil {
			if err := json.Unmarshal([]byte(*body), &r); err != nil {
				return nil, fmt.Errorf("the receipt of %s: %w", r.Run, err)
			}
		}
		if r.Final {
			continue
		}
		if len(r.Steps) == 0 && r.Cancellation != nil {
			r.Steps = []belay.Step{{At: r.Cancellation.At, Step: belay.StepRequested, Detail: belay.CleanReason(r.Cancellation.Error())}}
		}
		if r.Verdict == "" {
			r.Verdict = belay.Unreachable // whether it was told was not written down
		}
		if r.Outcome == belay.Pending {
			r.Outcome = belay.Lost
		}
		r.Steps = append(r.Steps, belay.Step{At: now, Step: belay.StepGaveUp, Detail: noteDied})
		r.Work, r.Final, r.Ended = belay.Unconfirmed, true, now
		list = append(list, r)
	}
	return list, rows.Err()
}

// sealDead writes one of them down.
func (l *Ledger) sealDead(ctx context.Context, r *belay.Receipt) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := l.conn.ExecContext(ctx, `INSERT INTO receipts (run, revision, recorded, verdict, size, body)
		SELECT ?, coalesce(max(revision), 0) + 1, ?, ?, ?, ? FROM receipts WHERE run = ?`,
		r.Run[:], r.Ended.UnixNano(), string(r.Verdict), size(r), string(body), r.Run[:]); err != nil {
		return err
	}
	_, err = l.conn.ExecContext(ctx, "UPDATE runs SET verdict = ? WHERE id = ?", string(r.Verdict), r.Run[:])
	return err
}
