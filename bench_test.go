package belay

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// The bar: below 1 us and at most 3 allocations (DESIGN, speed).
func BenchmarkRegisterFinish(b *testing.B) {
	tree := NewTree(Options{})
	session, _ := tree.Register(Spec{Kind: KindSession, Name: "session"})
	spec := Spec{Kind: KindCall, Name: "echo", Server: "everything", Owner: "me", Parent: session}
	b.ReportAllocs()
	used := processorTime()
	for b.Loop() {
		r, err := tree.Register(spec)
		if err != nil {
			b.Fatal(err)
		}
		r.Finish(Completed)
	}
	b.ReportMetric(float64((processorTime()-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// The bar: 10^6 runs in flight, below 1 KiB each (DESIGN, speed).
func BenchmarkMillionInFlight(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		before := heap()
		tree := NewTree(Options{})
		session, _ := tree.Register(Spec{Kind: KindSession, Name: "session"})
		runs := make([]*Run, n)
		for i := range runs {
			r, err := tree.Register(Spec{Kind: KindCall, Name: "echo", Server: "everything", Owner: "me", Parent: session})
			if err != nil {
				b.Fatal(err)
			}
			runs[i] = r
		}
		b.ReportMetric(float64(heap()-before)/n, "B/run")
		for _, r := range runs {
			r.Finish(Completed)
		}
		runtime.KeepAlive(tree)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/run")
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// counter is a stopper that says when the last of n runs was told.
type counter struct {
	left atomic.Int64
	last chan time.Time
}

func (c *counter) Tell(context.Context, *Cancellation) (*Evidence, error) {
	if c.left.Add(-1) == 0 {
		c.last <- time.Now()
	}
	return nil, nil
}

func (c *counter) Kill(context.Context, *Cancellation) (*Evidence, error) { return nil, nil }

// The bar: contexts ended and stoppers told of 100,000 leaves below 100 ms
// (DESIGN, speed). last-told is from the Stop until the last one is told, on
// average; best is the best round, which other users of the machine disturb
// least; cpu is the processor time of a round, the collector's included.
func BenchmarkCancel100k(b *testing.B) {
	const n = 100_000
	over, end := context.WithCancel(context.Background())
	end()
	var total, processor time.Duration
	best := time.Hour
	for b.Loop() {
		b.StopTimer()
		tree := NewTree(Options{})
		parent, _ := tree.Register(Spec{Kind: KindTurn, Name: "turn"})
		tool := &counter{last: make(chan time.Time, 1)}
		tool.left.Store(n)
		leaves := make([]context.Context, n)
		for i := range leaves {
			r, err := tree.Register(Spec{Kind: KindCall, Name: "leaf", Parent: parent, Stopper: tool})
			if err != nil {
				b.Fatal(err)
			}
			leaves[i] = r.Context()
		}
		runtime.GC()
		b.StartTimer()
		start, used := time.Now(), processorTime()
		parent.Cancel(Cancellation{Cause: CauseUser})
		told := (<-tool.last).Sub(start)
		processor += processorTime() - used
		b.StopTimer()
		total += told
		best = min(best, told)
		for _, ctx := range leaves {
			if ctx.Err() == nil {
				b.Fatal("a context is alive after its run was stopped")
			}
		}
		_ = tree.Close(over) // gives up 100,000 ladders at once
		b.StartTimer()
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/last-told")
	b.ReportMetric(float64(best.Nanoseconds()), "ns/best")
	b.ReportMetric(float64(processor.Nanoseconds())/float64(b.N), "cpu-ns/op")
}
