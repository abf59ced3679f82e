package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

func newTree(t *testing.T) *belay.Tree {
	t.Helper()
	tree := belay.NewTree(belay.Options{})
	t.Cleanup(func() { // without waiting for what a test left running
		over, end := context.WithCancel(context.Background())
		end()
		_ = tree.Close(over)
	})
	return tree
}

func register(t *testing.T, tree *belay.Tree, name string) *belay.Run {
	t.Helper()
	r, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: name, Owner: "ann", Labels: map[string]string{"n": name}})
	must(t, err)
	return r
}

// TestFollow: a tree's runs are journalled when they start and recorded with
// their receipts when they end, nobody calling Commit.
func TestFollow(t *testing.T) {
	path := at(t)
	l, tree := open(t, path, Options{}), newTree(t)
	before := register(t, tree, "before") // catching up finds it
	gone := register(t, tree, "ended before")
	gone.Finish(belay.Failed)
	must(t, l.Follow(tree))
	done, stopped, running := register(t, tree, "done"), register(t, tree, "stopped"), register(t, tree, "running")
	until(t, "the journal has the runs", func() bool {
		p, err := l.List(t.Context(), Query{InFlight: true})
		return err == nil && len(p.Runs) == 4
	})
	done.Finish(belay.Completed)
	_, err := tree.Cancel(t.Context(), belay.CancelRequest{
		Filter: belay.Filter{IDs: []belay.RunID{stopped.ID()}}, Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "bob", Reason: "enough"},
	})
	must(t, err)
	stopped.Observe(belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree})
	until(t, "the ends are recorded", func() bool {
		p, err := l.List(t.Context(), Query{InFlight: true})
		return err == nil && len(p.Runs) == 2
	})
	must(t, l.Flush(t.Context()))
	r, err := l.Get(t.Context(), stopped.ID())
	must(t, err)
	if r.Receipt == nil || r.Receipt.Verdict != belay.Confirmed || r.Cancellation.By != "bob" || r.Outcome != belay.Cancelled || r.Ended.IsZero() {
		t.Errorf("the stopped run: %+v, receipt %+v", r.Info, r.Receipt)
	}
	if r, err := l.Get(t.Context(), gone.ID()); err != nil || r.Outcome != belay.Failed {
		t.Errorf("ended before: %+v, %v", r.Info, err)
	}
	if err := l.Follow(tree); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("a second tree: %v", err)
	}
	before.Finish(belay.Completed) // right before Close, which takes it over
	must(t, l.Close(t.Context()))
	l = open(t, path, Options{})
	for run, want := range map[*belay.Run]belay.Outcome{before: belay.Completed, done: belay.Completed, running: belay.Lost} {
		if r, err := l.Get(t.Context(), run.ID()); err != nil || r.Outcome != want {
			t.Errorf("%s after a restart: %s (%v), want %s", run.Name(), r.Outcome, err, want)
		}
	}
}

// TestLateEvidence: evidence after the ladder gave up upgrades the stored receipt (MCP-G32).
func TestLateEvidence(t *testing.T) {
	l, tree := open(t, at(t), Options{}), newTree(t)
	must(t, l.Follow(tree))
	r, err := tree.Register(belay.Spec{
		Kind: belay.KindCall, Name: "late", Stopper: deaf{},
		Ladder: belay.Ladder{Grace: time.Millisecond, KillAfter: time.Millisecond, ConfirmAfter: 5 * time.Millisecond},
	})
	must(t, err)
	r.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	verdict := func() belay.Verdict {
		rec, err := l.Get(t.Context(), r.ID())
		if err != nil || rec.Receipt == nil {
			return ""
		}
		return rec.Receipt.Verdict
	}
	until(t, "the ladder gave up", func() bool { return verdict() == belay.Signalled })
	r.Observe(belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree})
	until(t, "the receipt is better", func() bool { return verdict() == belay.Confirmed })
}

// deaf is told and does nothing.
type deaf struct{}

func (deaf) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) { return nil, nil }

// TestFullQueue: what did not fit is counted and fetched from the tree afterwards.
func TestFullQueue(t *testing.T) {
	l, tree := open(t, at(t), Options{Queue: 8, Batch: 5 * time.Millisecond}), newTree(t)
	must(t, l.Follow(tree))
	until(t, "it has caught up the first time", func() bool { return l.Stats().Resyncs == 1 })
	const n = 200
	for i := range n {
		register(t, tree, fmt.Sprint(i)).Finish(belay.Completed)
	}
	until(t, "all runs are in the file", func() bool {
		var got int
		err := l.readers.QueryRowContext(t.Context(), "SELECT count(*) FROM runs WHERE outcome = 'completed'").Scan(&got)
		return err == nil && got == n
	})
	if s := l.Stats(); s.Dropped == 0 || s.Resyncs < 2 {
		t.Errorf("nothing was dropped; the test proves nothing: %+v", s)
	}
}

// forgetful is a Control that loses events and forgets runs.
type forgetful struct {
	belay.Control
	events chan belay.Event

	mu   sync.Mutex
	list []belay.Info
}

func (f *forgetful) Watch(ctx context.Context, _ belay.Filter) iter.Seq2[belay.Event, error] {
	return func(yield func(belay.Event, error) bool) {
		for {
			select {
			case e := <-f.events:
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (f *forgetful) List(context.Context, belay.Filter) ([]belay.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list, nil
}

// TestMissedEvents: lost events are counted and made up for; a run that nobody
// remembers any more is lost, with a note that says who lost it.
func TestMissedEvents(t *testing.T) {
	f := &forgetful{events: make(chan belay.Event)}
	l := open(t, at(t), Options{})
	must(t, l.Follow(f))
	a, b, c := inFlight("ends unseen", ""), inFlight("ends seen by List", ""), inFlight("goes on", "")
	for _, d := range []belay.Detail{a, b, c} {
		f.mu.Lock()
		f.list = append(f.list, d.Info)
		f.mu.Unlock()
		f.events <- belay.Event{Type: belay.EventRegistered, Run: d.Info}
	}
	must(t, l.Flush(t.Context()))
	b.Outcome, b.Work, b.Ended = belay.Completed, belay.Stopped, time.Now()
	f.mu.Lock()
	f.list = []belay.Info{b.Info, c.Info}
	f.mu.Unlock()
	other := ended("other", "")
	f.events <- belay.Event{Type: belay.EventRegistered, Run: other.Info, Lost: 2}
	until(t, "it caught up", func() bool { return l.Stats().Unseen == 1 })
	must(t, l.Flush(t.Context()))
	for _, want := range []struct {
		id      belay.RunID
		outcome belay.Outcome
		note    string
	}{{a.ID, belay.Lost, noteUnseen}, {b.ID, belay.Completed, ""}, {c.ID, belay.Pending, ""}, {other.ID, belay.Completed, ""}} {
		if r, err := l.Get(t.Context(), want.id); err != nil || r.Outcome != want.outcome || r.Note != want.note {
			t.Errorf("%s: %s %q %v", r.Name, r.Outcome, r.Note, err)
		}
	}
	if s := l.Stats(); s.Missed != 2 {
		t.Errorf("stats: %+v", s)
	}
}
