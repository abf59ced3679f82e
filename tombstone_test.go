package belay

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// MCP-G17: a mark lives for its time, is used once, and there are only so many.
func TestTombstonesLiveOnceAndForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		marks := NewTombstones[string, int](0, 0)
		if _, ok := marks.Take("never"); ok {
			t.Error("a mark that was never put")
		}
		marks.Put("a", 1)
		marks.Put("a", 2)
		if v, ok := marks.Take("a"); !ok || v != 1 {
			t.Errorf("the first mark does not stay: %d, %t", v, ok)
		}
		if v, ok := marks.Take("a"); ok || v != 0 {
			t.Errorf("used twice: %d, %t", v, ok)
		}
		marks.Put("a", 3)
		time.Sleep(TombstoneTTL - 1)
		marks.Put("b", 4)
		if v, ok := marks.Take("a"); !ok || v != 3 {
			t.Errorf("put again, taken just in time: %d, %t", v, ok)
		}
		marks.Put("a", 5)
		time.Sleep(TombstoneTTL)
		if v, ok := marks.Take("a"); ok || v != 0 {
			t.Errorf("taken after its time: %d, %t", v, ok)
		}
		marks.Put("c", 6)
		if marks.Len() != 1 {
			t.Errorf("%d marks, want the one that lives", marks.Len())
		}
	})
}

func TestTombstonesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		marks := NewTombstones[int, int](time.Minute, 3)
		for i := range 5 {
			marks.Put(i, i)
			time.Sleep(time.Second)
		}
		marks.Put(4, 4) // known: nobody has to make room
		for i := range 5 {
			if _, ok := marks.Take(i); ok != (i >= 2) {
				t.Errorf("mark %d: %t", i, ok)
			}
		}
		marks.Put(-1, 0)
		for i := range 10_000 { // one old mark, and many that come and go
			marks.Put(i, i)
			marks.Take(i)
		}
		if len(marks.marks) != 1 || marks.order.Len() != 1 {
			t.Errorf("%d marks and %d in order, want 1", len(marks.marks), marks.order.Len())
		}
	})
}

func TestTombstonesAreSafeForConcurrentUse(t *testing.T) {
	marks := NewTombstones[int, int](time.Minute, 100)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				marks.Put(i%200, g)
				marks.Take((i + g) % 200)
			}
		})
	}
	wg.Wait()
	if n := marks.Len(); n > 100 || n != marks.order.Len() {
		t.Errorf("%d marks, %d in order", n, marks.order.Len())
	}
}
