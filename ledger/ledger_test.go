package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
)

// TestKeptOverRestart: what was committed is read again, whole, by the next
// process (ORC-53).
func TestKeptOverRestart(t *testing.T) {
	path := at(t)
	l := open(t, path, Options{Partials: true, Commands: true})
	d := cancelled("build", "ann", "bob", "wrong branch")
	d.Labels = map[string]string{"trace": "4bf9", "team": "a b"}
	d.Parent, d.Deadline, d.Node, d.Pid, d.Held, d.Address = belay.NewRunID(), time.Now().Add(time.Hour), "n1", 7, "no", "s/1"
	d.Receipt.Partial = "half"
	d.Receipt.Survivors = []belay.Process{{PID: 3, Born: time.Now().UTC(), Command: "sleep 9"}}
	must(t, l.Commit(t.Context(), d), l.Close(t.Context()))

	l = open(t, path, Options{})
	got, err := l.Get(t.Context(), d.ID)
	must(t, err)
	sameTime := cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })
	if diff := cmp.Diff(d, got.Detail(), sameTime); diff != "" {
		t.Errorf("after a restart (-written +read):\n%s", diff)
	}
	if _, err := l.Get(t.Context(), belay.NewRunID()); !errors.Is(err, belay.ErrNotFound) {
		t.Errorf("an unknown run: %v", err)
	}
}

// TestLost: runs in flight when the process died are lost; an outcome that was
// given stays.
func TestLost(t *testing.T) {
	path := at(t)
	l := open(t, path, Options{})
	running, told, done := inFlight("running", "ann"), cancelled("told", "ann", "ann", ""), ended("done", "ann")
	told.Work, told.Ended, told.Receipt, told.Verdict = belay.Stopping, time.Time{}, nil, belay.Signalled
	must(t, l.Commit(t.Context(), running, told, done), l.Close(t.Context()))
	l = open(t, path, Options{})
	if n := l.Stats().Lost; n != 2 {
		t.Errorf("%d runs lost, want 2", n)
	}
	for _, want := range []struct {
		d       belay.Detail
		outcome belay.Outcome
		work    belay.Work
		note    string
	}{
		{running, belay.Lost, belay.Unconfirmed, noteDied},
		{told, belay.Cancelled, belay.Unconfirmed, noteDied},
		{done, belay.Completed, belay.Stopped, ""},
	} {
		r, err := l.Get(t.Context(), want.d.ID)
		must(t, err)
		if r.Outcome != want.outcome || r.Work != want.work || r.Note != want.note || r.Ended.IsZero() {
			t.Errorf("%s: %s %s %q ended %v", r.Name, r.Outcome, r.Work, r.Note, r.Ended)
		}
		if r.Verdict != want.d.Verdict {
			t.Errorf("%s: the verdict was %q and is %q", r.Name, want.d.Verdict, r.Verdict)
		}
	}
}

// TestAppendOnly: the file itself refuses what would rewrite history, and news
// that are older than what is known change nothing.
func TestAppendOnly(t *testing.T) {
	l := open(t, at(t), Options{})
	d := cancelled("x", "ann", "bob", "r")
	must(t, l.Commit(t.Context(), d))

	stale := d
	stale.Outcome, stale.Work, stale.Ended, stale.Verdict, stale.Cancellation, stale.Receipt = belay.Pending, belay.Running, time.Time{}, "", nil, nil
	weaker := d
	r := *d.Receipt
	r.Verdict, r.Steps = belay.Signalled, r.Steps[:2]
	weaker.Receipt, weaker.Verdict, weaker.Outcome = &r, belay.Signalled, belay.Failed
	must(t, l.Commit(t.Context(), stale), l.Commit(t.Context(), weaker))
	got, err := l.Get(t.Context(), d.ID)
	must(t, err)
	if got.Outcome != belay.Cancelled || got.Verdict != belay.Confirmed || got.Receipt.Verdict != belay.Confirmed || got.Work != belay.Stopped {
		t.Errorf("older news won: %+v", got)
	}
	must(t, l.do(t.Context(), func(ctx context.Context) error {
		for _, text := range []string{
			"UPDATE receipts SET body = '{}'", "UPDATE runs SET outcome = 'completed'", "UPDATE runs SET owner = 'eve'", "UPDATE runs SET name = 'y'",
		} {
			if _, err := l.conn.ExecContext(ctx, text); err == nil {
				return fmt.Errorf("the file let %q pass", text)
			}
		}
		return nil
	}))
}

// TestRevisions: better or further evidence adds a revision, a chatty tool does
// not fill the file.
func TestRevisions(t *testing.T) {
	l := open(t, at(t), Options{})
	d := cancelled("x", "ann", "bob", "r")
	d.Verdict, d.Receipt.Verdict = belay.Signalled, belay.Signalled
	for i := range 3 * MaxRevisions {
		r := *d.Receipt
		r.Late = i
		d.Receipt = &r
		must(t, l.Commit(t.Context(), d))
	}
	r := *d.Receipt
	r.Verdict, r.Late = belay.Confirmed, r.Late+1
	d.Receipt, d.Verdict = &r, belay.Confirmed
	must(t, l.Commit(t.Context(), d))
	var n int
	must(t, l.readers.QueryRowContext(t.Context(), "SELECT count(*) FROM receipts").Scan(&n))
	got, err := l.Get(t.Context(), d.ID)
	must(t, err)
	if n != MaxRevisions+1 || got.Receipt.Verdict != belay.Confirmed || got.Verdict != belay.Confirmed {
		t.Errorf("%d revisions (want %d), verdict %s/%s", n, MaxRevisions+1, got.Verdict, got.Receipt.Verdict)
	}
}

// TestTaken: a second run with the same id is refused (ORC-68), and does not
// hold up others.
func TestTaken(t *testing.T) {
	l := open(t, at(t), Options{})
	first, other := ended("first", "ann"), ended("other", "ann")
	second := ended("second", "eve")
	second.ID = first.ID
	must(t, l.Commit(t.Context(), first))
	if err := l.Commit(t.Context(), second, other); !errors.Is(err, ErrTaken) || !errors.Is(err, ErrNotStored) {
		t.Errorf("second run with a taken id: %v", err)
	}
	got, err := l.Get(t.Context(), first.ID)
	must(t, err)
	if _, err := l.Get(t.Context(), other.ID); err != nil || got.Name != "first" {
		t.Errorf("the id is %q's; the other: %v", got.Name, err)
	}
}

// TestConcurrent: many committers share transactions, readers do not wait.
func TestConcurrent(t *testing.T) {
	l := open(t, at(t), Options{})
	const writers, each = 12, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				d := cancelled("x", fmt.Sprint("owner", w), "bob", "r")
				if err := l.Commit(t.Context(), d); err != nil {
					t.Error(err)
					return
				}
				if got, err := l.Get(t.Context(), d.ID); err != nil || got.Receipt == nil {
					t.Errorf("committed but not found: %v", err)
				}
				if _, err := l.List(t.Context(), Query{Outcomes: []belay.Outcome{belay.Cancelled, belay.Lost}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s := l.Stats(); s.Written != writers*each || s.Batches >= s.Written || s.Queued != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// TestAsker: who gives up waiting in the middle of a change leaves the file usable.
func TestAsker(t *testing.T) {
	l := open(t, at(t), Options{})
	ctx, end := context.WithCancel(t.Context())
	err := l.do(ctx, func(ctx context.Context) error {
		return inTx(ctx, l.conn, func() error {
			end()
			_, err := l.conn.ExecContext(ctx, "DELETE FROM runs")
			return err
		})
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the change: %v", err)
	}
	must(t, l.Commit(t.Context(), ended("x", "")))
	if _, err := l.Erase(ctx, "ann"); !errors.Is(err, context.Canceled) {
		t.Errorf("erase for nobody: %v", err)
	}
	if err := l.Commit(ctx, ended("y", "")); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("commit for nobody: %v", err)
	}
}

// TestClose: it is idempotent, and nothing is accepted after it.
func TestClose(t *testing.T) {
	l := open(t, at(t), Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { must(t, l.Close(context.Background())) })
	}
	wg.Wait()
	if err := l.Commit(t.Context(), ended("x", "")); !errors.Is(err, belay.ErrClosed) || !errors.Is(err, ErrNotStored) {
		t.Errorf("commit after close: %v", err)
	}
	if err := l.Flush(t.Context()); !errors.Is(err, belay.ErrClosed) {
		t.Errorf("flush after close: %v", err)
	}
	if err := l.Follow(belay.NewTree(belay.Options{})); !errors.Is(err, belay.ErrClosed) {
		t.Errorf("follow after close: %v", err)
	}
}

// TestDiskFull: Belay goes on, who waits is told at once, the log says it once,
// and what was kept is written when there is room again.
func TestDiskFull(t *testing.T) {
	var out lines
	l := open(t, at(t), Options{Log: out.logger()})
	limit := func(n int) {
		must(t, l.do(t.Context(), func(ctx context.Context) error { return l.run(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", n)) }))
	}
	must(t, l.Commit(t.Context(), ended("before", "")))
	limit(1) // SQLite takes the present size: nothing can grow
	big := func() belay.Detail {
		return cancelled(strings.Repeat("x", 200), "ann", "bob", strings.Repeat("y", 1000))
	}
	var kept []belay.Detail
	for range 60 {
		kept = append(kept, big())
	}
	w, start := calm.Start(t), time.Now()
	if err := l.Commit(t.Context(), kept...); !errors.Is(err, ErrNotStored) {
		t.Fatalf("commit to a full disk: %v", err)
	}
	if err := l.Commit(t.Context(), ended("again", "")); !errors.Is(err, ErrNotStored) {
		t.Errorf("commit to a full disk: %v", err)
	}
	w.Within(t, time.Since(start), 5*time.Second, "two commits to a full disk")
	if s := l.Stats(); s.Failed < 2 || s.Trouble == nil {
		t.Errorf("stats: %+v", s)
	}
	limit(1 << 30)
	until(t, "the records are written", func() bool { return l.Stats().Trouble == nil && l.Stats().Queued == 0 })
	for _, d := range kept {
		if _, err := l.Get(t.Context(), d.ID); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(out.String(), "cannot be written"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, out.String())
	}
	if !strings.Contains(out.String(), "written again") {
		t.Errorf("recovery was not logged:\n%s", out.String())
	}
}

// TestPrivacy: partial results and command lines are stored only when configured
// (DESIGN 11, 15), and the caller's receipt is not touched.
func TestPrivacy(t *testing.T) {
	secret := []belay.Process{{PID: 4, Command: "curl -H token"}}
	for _, o := range []Options{{}, {Partials: true, Commands: true}} {
		l := open(t, at(t), o)
		d := cancelled("x", "ann", "bob", "r")
		d.Receipt.Partial, d.Receipt.Survivors, d.Receipt.Spared = "half", secret, secret
		d.Receipt.Steps[2].Evidence.Survivors = secret
		must(t, l.Commit(t.Context(), d))
		got, err := l.Get(t.Context(), d.ID)
		must(t, err)
		r := got.Receipt
		all := r.Survivors[0].Command + r.Spared[0].Command + r.Steps[2].Evidence.Survivors[0].Command
		if o.Commands != (all == strings.Repeat(secret[0].Command, 3)) || !o.Commands && all != "" || o.Partials != (r.Partial == "half") {
			t.Errorf("%+v: stored %q and %q", o, all, r.Partial)
		}
		if len(r.Survivors) != 1 || r.Survivors[0].PID != 4 || d.Receipt.Steps[2].Evidence.Survivors[0].Command == "" {
			t.Error("more than the command line is gone, or the caller's receipt was changed")
		}
	}
}
