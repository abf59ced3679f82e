package ledger

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// BenchmarkRecords is how fast records reach the disk when nobody waits for a
// single one.
func BenchmarkRecords(b *testing.B) {
	for name, one := range map[string]func() belay.Detail{
		"runs":     func() belay.Detail { return ended("call", "ann") },
		"receipts": func() belay.Detail { return cancelled("call", "ann", "bob", "wrong branch") },
	} {
		b.Run(name, func(b *testing.B) {
			l := open(b, at(b), Options{Queue: 1 << 30})
			list := []belay.Detail{}
			for range b.N {
				list = append(list, one())
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range list {
				l.queue.put(&entry{info: list[i].Info, receipt: list[i].Receipt})
			}
			must(b, l.Flush(context.Background()))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkCommit is what a client that waits pays, alone and among 64.
func BenchmarkCommit(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			l := open(b, at(b), Options{})
			b.SetParallelism(clients)
			if clients == 1 {
				for b.Loop() {
					must(b, l.Commit(context.Background(), cancelled("call", "ann", "bob", "r")))
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						must(b, l.Commit(context.Background(), cancelled("call", "ann", "bob", "r")))
					}
				})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
		})
	}
}

// BenchmarkNotice is what one event costs the goroutine that follows the tree.
func BenchmarkNotice(b *testing.B) {
	l := open(b, at(b), Options{Queue: 1 << 30})
	d := inFlight("call", "ann")
	b.ReportAllocs()
	for b.Loop() {
		l.notice(&belay.Event{Type: belay.EventRegistered, Run: d.Info}, nil)
	}
}

// BenchmarkNewest is a page of 50 among a million runs.
func BenchmarkNewest(b *testing.B) {
	l := open(b, at(b), Options{KeepRuns: -1, KeepBytes: -1})
	const n = 1_000_000
	must(b, l.do(context.Background(), func(ctx context.Context) error {
		return l.run(ctx, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO runs SELECT unhex(printf('%%012x%%020x', 1700000000000 + i, i)), NULL, 'call', 'tool', 'server' || (i %% 20), 'owner' || (i %% 100), '', '{}',
			CASE i %% 100 WHEN 0 THEN 'failed' WHEN 1 THEN 'cancelled' ELSE 'completed' END, 'stopped', 1,
			1700000000000000000 + i * 1000000, 1700000000000000000 + i * 1000000, 0, NULL, NULL, '', '', 1, '', '' FROM n`, n))
	}))
	for name, q := range map[string]Query{
		"all": {}, "outcome": {Outcomes: []belay.Outcome{belay.Failed}}, "outcomes": {Outcomes: []belay.Outcome{belay.Failed, belay.Cancelled, belay.Lost}},
		"owner": {Owner: "owner7"}, "deep": {Before: time.UnixMilli(1700000000000 + n/2), Outcomes: []belay.Outcome{belay.Completed}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p, err := l.List(context.Background(), q)
				must(b, err)
				if len(p.Runs) != DefaultLimit {
					b.Fatal(len(p.Runs))
				}
			}
		})
	}
}

// BenchmarkTree is what a tree pays for a run, and for having a ledger.
func BenchmarkTree(b *testing.B) {
	for _, followed := range []bool{false, true} {
		b.Run(fmt.Sprint("followed=", followed), func(b *testing.B) {
			tree := belay.NewTree(belay.Options{})
			defer func() { must(b, tree.Close(context.Background())) }()
			if followed {
				must(b, open(b, at(b), Options{}).Follow(tree))
			}
			b.ReportAllocs()
			for b.Loop() {
				r, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "call", Owner: "ann"})
				must(b, err)
				r.Finish(belay.Completed)
			}
		})
	}
}
