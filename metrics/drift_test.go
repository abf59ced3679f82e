package metrics

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belayhq/belay"
)

// lossy is a Control whose watchers lose events.
type lossy struct {
	*belay.Tree
	lose func() bool
	lost atomic.Int64
}

func (l *lossy) Watch(ctx context.Context, f belay.Filter) iter.Seq2[belay.Event, error] {
	events := l.Tree.Watch(ctx, f)
	return func(yield func(belay.Event, error) bool) {
		var lost uint64
		for e, err := range events {
			if err == nil && l.lose() {
				lost += 1 + e.Lost
				l.lost.Add(1)
				continue
			}
			e.Lost += lost
			lost = 0
			if !yield(e, err) {
				return
			}
		}
	}
}

// The gauges equal the truth after any runs and any lost events, the last ones
// included; and every run that was counted as started is in flight or ended.
func TestNoDrift(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tree := belay.NewTree(belay.Options{})
		defer shut(tree)
		share := rapid.SampledFrom([]int{0, 5, 30, 90, 100}).Draw(rt, "percent lost")
		seed := rapid.Uint64().Draw(rt, "seed")
		coin := rand.New(rand.NewPCG(seed, 1)) // of the follower's goroutine only
		l := &lossy{Tree: tree, lose: func() bool { return coin.IntN(100) < share }}
		m, err := New(Options{Control: l, Recheck: 5 * time.Millisecond})
		if err != nil {
			rt.Fatal(err)
		}
		defer m.Close()
		live(rt, tree)
		until(rt, "the gauges equal the truth", func() string { return drift(m, tree) }, func() {})
		if n := values(t, m)["belay_events_missed_total"]; share == 0 && n != 0 {
			rt.Fatalf("missed %v", n)
		}
		until(rt, "what has started is in flight or has ended", func() string { return leak(values(t, m)) }, func() {})
	})
}

func leak(got map[string]float64) string {
	started, ended, flight := total(got, "belay_runs_started_total"), total(got, "belay_runs_ended_total"), total(got, "belay_runs_in_flight")
	if started == ended+flight {
		return ""
	}
	return fmt.Sprintf("started %v, ended %v, in flight %v", started, ended, flight)
}

// live does random things with runs.
func live(rt *rapid.T, tree *belay.Tree) {
	var runs []*belay.Run
	steps := rapid.SliceOfN(rapid.IntRange(0, 99), 1, 120).Draw(rt, "steps")
	for i, n := range steps {
		if n < 40 || len(runs) == 0 {
			s := belay.Spec{Kind: []belay.Kind{belay.KindCall, belay.KindTask, "odd"}[n%3], Name: "t", Server: fmt.Sprint(n % 4), Queued: n%5 == 0}
			if len(runs) > 0 && n%2 == 0 {
				s.Parent = runs[n%len(runs)]
			}
			if r, err := tree.Register(s); err == nil {
				if n%3 > 0 {
					r.Context() // else nobody can be told
				}
				runs = append(runs, r)
			}
			continue
		}
		r := runs[i%len(runs)]
		switch n % 7 {
		case 0, 1:
			r.Finish(belay.Completed)
		case 2:
			r.Cancel(belay.Cancellation{Cause: belay.CauseUser})
		case 3:
			r.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
		case 4:
			r.Start()
		case 5:
			r.Settle(belay.Failed)
		case 6:
			r.Pause()
		}
	}
}

// drift says where gauges and truth differ; empty where they do not.
func drift(m *Metrics, tree *belay.Tree) string {
	list, _ := tree.List(context.Background(), belay.Filter{})
	truth := map[cell]int{}
	w := allWords()
	for i := range list {
		truth[cell{w.kinds.id(list[i].Kind), w.works.id(list[i].Work)}]++
	}
	for c, n := range m.flight() {
		if truth[c] != n {
			return fmt.Sprintf("%s %s: counted %d, there are %d", w.kinds.name(c.kind), w.works.name(c.work), n, truth[c])
		}
		delete(truth, c)
	}
	if len(truth) > 0 {
		return fmt.Sprintf("not counted: %v", truth)
	}
	return ""
}

func total(all map[string]float64, name string) (sum float64) {
	for k, v := range all {
		if len(k) >= len(name) && k[:len(name)] == name {
			sum += v
		}
	}
	return sum
}

// Many goroutines, real losses of a real watcher, pages read meanwhile.
func TestStress(t *testing.T) {
	tree := newTree(t)
	m := start(t, Options{Control: tree, Recheck: 20 * time.Millisecond})
	done := make(chan struct{})
	for g := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range 2000 {
				r, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "t", Server: fmt.Sprint(g)})
				if err != nil {
					t.Error(err)
					return
				}
				if i%3 == 0 {
					r.Cancel(belay.Cancellation{Cause: belay.CauseUser})
					r.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
				}
				r.Finish(belay.Completed)
				if i%500 == 0 {
					values(t, m)
				}
			}
		}()
	}
	for range 4 {
		<-done
	}
	until(t, "the gauges equal the truth", func() string { return drift(m, tree) }, func() {})
	got := values(t, m)
	t.Logf("missed %v events; started %v, ended %v", got["belay_events_missed_total"], total(got, "belay_runs_started_total"), total(got, "belay_runs_ended_total"))
	if got["belay_events_missed_total"] == 0 && total(got, "belay_runs_started_total") != 8000 {
		t.Errorf("started %v", total(got, "belay_runs_started_total"))
	}
}

func BenchmarkEvent(b *testing.B) {
	c := &entryEvents{}
	m, err := New(Options{Control: c})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	at := time.Now()
	e := belay.Event{Run: belay.Info{ID: belay.NewRunID(), Kind: belay.KindCall, Server: "files", Started: at}}
	b.ReportAllocs()
	for b.Loop() { // a call's whole life: two events
		e.Type, e.Run.Outcome, e.Run.Work, e.Run.Ended = belay.EventRegistered, belay.Pending, belay.Running, time.Time{}
		m.notice(&e, nil)
		e.Type, e.Run.Outcome, e.Run.Work, e.Run.Ended = belay.EventEnded, belay.Completed, belay.Stopped, at
		m.notice(&e, nil)
	}
}

// entryEvents is a Control in which nothing happens.
type entryEvents struct{ belay.Control }

func (*entryEvents) List(context.Context, belay.Filter) ([]belay.Info, error) { return nil, nil }

func (*entryEvents) Watch(ctx context.Context, _ belay.Filter) iter.Seq2[belay.Event, error] {
	return func(func(belay.Event, error) bool) { <-ctx.Done() }
}

// BenchmarkCall is what a call pays: a run with nobody who watches beside one
// whose events are counted.
func BenchmarkCall(b *testing.B) {
	for _, counted := range []bool{false, true} {
		b.Run(fmt.Sprintf("counted=%v", counted), func(b *testing.B) {
			tree := belay.NewTree(belay.Options{})
			defer shut(tree)
			if counted {
				m, err := New(Options{Control: tree})
				if err != nil {
					b.Fatal(err)
				}
				defer m.Close()
			}
			b.ReportAllocs()
			for b.Loop() {
				r, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "t", Server: "files"})
				if err != nil {
					b.Fatal(err)
				}
				r.Finish(belay.Completed)
			}
		})
	}
}
