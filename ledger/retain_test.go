package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

func count(t *testing.T, l *Ledger, table string) (n int) {
	t.Helper()
	must(t, l.readers.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

// TestRetentionByAge: what ended too long ago goes with all that belongs to it;
// what started as long ago and ended later, or runs, stays.
func TestRetentionByAge(t *testing.T) {
	l := open(t, at(t), Options{KeepFor: time.Minute})
	old := numbered(1200, func(i int) belay.Detail { // an hour ago
		d := cancelled("", "ann", "bob", "r")
		d.Ended = d.Started.Add(-time.Hour)
		d.Labels = map[string]string{"k": fmt.Sprint(i)}
		return d
	})
	old[5].Ended = time.Now()
	old[6].Info, old[6].Receipt = inFlight("runs", "ann").Info, nil
	old[6].ID, old[6].Started = old[5].ID, old[5].Started
	old[6].ID[15]++
	must(t, l.Commit(t.Context(), old...), l.Trim(t.Context()))
	p, err := l.List(t.Context(), Query{})
	must(t, err)
	if got := strings.Join(names(p.Runs), " "); got != "runs 5" && got != "5 runs" {
		t.Errorf("left: %s", got)
	}
	if r, k := count(t, l, "receipts"), count(t, l, "labels"); r != 1 || k != 1 {
		t.Errorf("%d receipts and %d labels are left", r, k)
	}
	if s := l.Stats(); s.Trimmed != 1198 {
		t.Errorf("stats: %+v", s)
	}
}

// TestRetentionOfPrincipals: some have a time of their own, shorter or longer than
// everybody's (DESIGN 11, 15).
func TestRetentionOfPrincipals(t *testing.T) {
	l := open(t, at(t), Options{KeepFor: 30 * time.Minute, KeepOf: map[string]time.Duration{"ann": time.Minute, "bob": -1, "cat": 3 * time.Hour}})
	aged := func(owner string, age time.Duration) {
		list := numbered(600, func(int) belay.Detail {
			d := ended("", owner)
			d.Ended = d.Started.Add(-age)
			return d
		})
		must(t, l.Commit(t.Context(), list...))
	}
	for owner, age := range map[string]time.Duration{"ann": 10 * time.Minute, "bob": 100 * time.Hour, "cat": 2 * time.Hour, "dan": 2 * time.Hour, "eve": 10 * time.Minute} {
		aged(owner, age)
	}
	must(t, l.Trim(t.Context()))
	for owner, want := range map[string]int{"ann": 0, "bob": 600, "cat": 600, "dan": 0, "eve": 600} {
		n := 0
		must(t, l.readers.QueryRowContext(t.Context(), "SELECT count(*) FROM runs WHERE owner = ?", owner).Scan(&n))
		if n != want {
			t.Errorf("%s has %d runs, want %d", owner, n, want)
		}
	}
}

// TestRetentionByCount: the oldest go (ORC-53).
func TestRetentionByCount(t *testing.T) {
	l := open(t, at(t), Options{KeepRuns: 10})
	must(t, l.Commit(t.Context(), numbered(700, func(int) belay.Detail { return ended("", "ann") })...), l.Trim(t.Context()))
	p, err := l.List(t.Context(), Query{})
	must(t, err)
	if got := names(p.Runs); len(got) != 10 || got[0] != "699" || got[9] != "690" {
		t.Errorf("left: %v", got)
	}
}

// TestRetentionBySize: the disk really shrinks, and steps are small.
func TestRetentionBySize(t *testing.T) {
	const limit = 1 << 20
	path := at(t)
	l := open(t, path, Options{KeepBytes: limit})
	for range 3 {
		must(t, l.Commit(t.Context(), numbered(1000, func(int) belay.Detail { return cancelled("", "ann", "bob", strings.Repeat("r", 900)) })...))
	}
	before := l.bytes()
	must(t, l.do(t.Context(), func(ctx context.Context) error {
		more, err := l.trimStep(ctx)
		if s := l.Stats(); !more || s.Trimmed != trimRuns {
			t.Errorf("one step: more %v, %d runs", more, s.Trimmed)
		}
		return err
	}))
	must(t, l.Trim(t.Context()))
	info, err := os.Stat(path)
	must(t, err)
	if info.Size() > limit || before < 3*limit || l.bytes() > limit+4096 {
		t.Errorf("%d bytes before, the file has %d, with its log %d; the limit is %d", before, info.Size(), l.bytes(), limit)
	}
	if n := count(t, l, "runs"); n == 0 {
		t.Error("everything was deleted")
	}
	must(t, l.Check(t.Context()))
}

// TestErase: nothing of a principal is left in the rows or in the bytes of the
// file, others' records stay, and late news do not bring it back.
func TestErase(t *testing.T) {
	path := at(t)
	l := open(t, path, Options{})
	const who, words = "erika.mustermann", "for a very private cause"
	var list []belay.Detail
	for range 700 {
		list = append(list, cancelled("hers", who, "bob", "r"), cancelled("his", "bob", who, words))
	}
	flying := inFlight("flying", who)
	stays := cancelled("stays", "bob", "eve", "r")
	must(t, l.Commit(t.Context(), append(list, flying, stays)...))
	time.Sleep(time.Millisecond) // clocks are coarse: the erasure is after the starts
	sum, err := l.Erase(t.Context(), who)
	must(t, err)
	if sum.Runs != 701 || sum.Redacted != 700 {
		t.Errorf("erased %+v", sum)
	}
	his, err := l.Get(t.Context(), list[1].ID)
	must(t, err)
	if his.Cancellation.By != nobody || his.Receipt == nil || his.Receipt.Verdict != belay.Confirmed || his.Receipt.Cancellation.Reason != "" {
		t.Errorf("a redacted run: %+v, %+v", his.Cancellation, his.Receipt)
	}
	if r, err := l.Get(t.Context(), stays.ID); err != nil || r.Cancellation.By != "eve" {
		t.Errorf("another's run: %+v %v", r.Info, err)
	}

	late := list[0] // evidence comes late for both
	r := *late.Receipt
	r.Late = 9
	late.Receipt = &r
	if err := l.Commit(t.Context(), late); !errors.Is(err, ErrErased) {
		t.Errorf("late news of an erased run: %v", err)
	}
	late = list[1]
	r2 := *late.Receipt
	r2.Late = 9
	late.Receipt = &r2
	must(t, l.Commit(t.Context(), late))
	if got, err := l.Get(t.Context(), late.ID); err != nil || got.Receipt.Late != 9 {
		t.Errorf("late news of a redacted run: %+v %v", got.Receipt, err)
	}
	must(t, l.Commit(t.Context(), ended("new", who[:5])))
	for _, name := range []string{path, path + "-wal"} {
		content, err := os.ReadFile(name)
		must(t, err)
		for _, word := range []string{who, words} {
			if bytes.Contains(content, []byte(word)) {
				t.Errorf("%s still has %q", name, word)
			}
		}
	}
	if again, err := l.Erase(t.Context(), who); err != nil || again != (Erased{}) {
		t.Errorf("again: %+v %v", again, err)
	}
	if _, err := l.Erase(t.Context(), ""); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("nobody: %v", err)
	}
}
