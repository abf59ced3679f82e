package belay

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// crowd is a tree with n calls in flight, of 1,000 owners, each with labels of
// its own.
func crowd(b *testing.B, n int) *Tree {
	b.Helper()
	tree := NewTree(Options{})
	session, _ := tree.Register(Spec{Kind: KindSession, Name: "session"})
	for i := range n {
		_, err := tree.Register(Spec{
			Kind: KindCall, Name: "echo", Server: "everything", Owner: "user" + strconv.Itoa(i%1000), Parent: session,
			Address: strconv.Itoa(i / 1000), Queued: i == n/3,
			Labels: map[string]string{"trace_id": fmt.Sprintf("%032x", i), "request_id": "r" + strconv.Itoa(i), "team": "t" + strconv.Itoa(i%10)},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return tree
}

// The bar: a page of 100 out of 100,000 runs in flight below 20 ms, whatever
// the filter. held is the longest that somebody else waited for the tree.
func BenchmarkPageOf100k(b *testing.B) {
	const n = 100_000
	tree := crowd(b, n)
	middle, _ := tree.List(b.Context(), Filter{Owner: "user500"})
	for _, c := range []struct {
		name   string
		filter Filter
		before RunID
		want   int
	}{
		{"all", Filter{}, RunID{}, 100},
		{"cursor", Filter{}, middle[50].ID, 100},
		{"ended too", Filter{Ended: true}, RunID{}, 100},
		{"owner", Filter{Owner: "user7"}, RunID{}, 100},
		{"nobody", Filter{Owner: "nobody"}, RunID{}, 0},
		{"label of a tenth", Filter{Labels: map[string]string{"team": "t3"}}, RunID{}, 100},
		{"label of one", Filter{Labels: map[string]string{"trace_id": fmt.Sprintf("%032x", 1)}}, RunID{}, 1},
		{"label of none", Filter{Labels: map[string]string{"trace_id": "x"}}, RunID{}, 0},
		{"state of one", Filter{Works: []Work{Waiting}}, RunID{}, 1},
		{"state of none", Filter{Works: []Work{Unconfirmed}, Ended: true}, RunID{}, 0},
		{"under", Filter{Under: middle[0].ID}, RunID{}, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			var worst time.Duration
			for b.Loop() {
				start := time.Now()
				list, err := tree.ListBefore(b.Context(), c.filter, c.before, 100)
				worst = max(worst, time.Since(start))
				if err != nil || len(list) != c.want {
					b.Fatalf("%d runs, want %d (%v)", len(list), c.want, err)
				}
			}
			b.ReportMetric(float64(worst.Nanoseconds()), "ns/worst")
		})
	}
}

func BenchmarkFindRequestIn100k(b *testing.B) {
	tree := crowd(b, 100_000)
	for _, c := range []struct {
		name, text, owner string
		want              int
	}{{"one", "42", "user7", 1}, {"of all owners", "42", "", 1000}, {"none", "x", "", 0}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if list, err := tree.FindRequest(b.Context(), c.text, c.owner, false); err != nil || len(list) != c.want {
					b.Fatalf("%d runs, want %d (%v)", len(list), c.want, err)
				}
			}
		})
	}
}
