package belay

import (
	"context"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// breaking is a Control whose watches end by themselves after two events.
type breaking struct {
	Control
	begun []time.Time
}

func (b *breaking) Watch(context.Context, Filter) iter.Seq2[Event, error] {
	b.begun = append(b.begun, time.Now())
	n := uint64(10 * len(b.begun))
	return func(yield func(Event, error) bool) {
		_ = yield(Event{Seq: n}, nil) && yield(Event{Seq: n + 1}, nil)
	}
}

// Who follows gets the events of one watch after the other, and is told that
// there was a gap before anything of the next; the first watch begins with the call.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &breaking{}
		start := time.Now()
		var got []uint64
		events := Follow(t.Context(), c, Filter{}, func() { got = append(got, 0) })
		if len(c.begun) != 1 {
			t.Fatalf("%d watches have begun", len(c.begun))
		}
		for e, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, e.Seq); e.Seq == 30 {
				break
			}
		}
		if want := []uint64{10, 11, 0, 20, 21, 0, 30}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if took := time.Since(start); took != 2*followAgain {
			t.Errorf("three watches took %v", took)
		}
	})
}

// The end of the context ends it, in a pause as well.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		time.AfterFunc(followAgain/2, end)
		n := 0
		for range Follow(ctx, &breaking{}, Filter{}, nil) {
			n++
		}
		if n != 2 {
			t.Errorf("%d events", n)
		}
	})
}
