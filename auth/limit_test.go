package auth

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// takes is how many of n pass.
func takes(l *Limiter, name string, n int) (passed int) {
	for range n {
		if l.Take(Principal{Name: name}) == nil {
			passed++
		}
	}
	return passed
}

// TestLimiter: ORC-36: 20 per second and principal, burst 40; Retry-After is
// when the next one really passes, and asking too early costs nothing.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{})
		if n := takes(l, "a", 1000); n != 40 {
			t.Fatalf("burst of %d", n)
		}
		err := l.Take(Principal{Name: "a"})
		var limited *Limited
		if !errors.Is(err, ErrTooManyRequests) || !errors.As(err, &limited) || limited.After != 50*time.Millisecond {
			t.Fatal(err)
		}
		if d := Describe(err); d.Status != 429 || d.RetryAfter != "1" {
			t.Fatalf("%+v", d)
		}
		if n := takes(l, "b", 1); n != 1 {
			t.Fatal("another principal pays for it")
		}
		time.Sleep(limited.After - time.Microsecond)
		if takes(l, "a", 1) != 0 {
			t.Fatal("too early")
		}
		time.Sleep(time.Microsecond)
		if takes(l, "a", 2) != 1 {
			t.Fatal("not when it was promised")
		}
		time.Sleep(time.Second)
		if n := takes(l, "a", 100); n != 20 {
			t.Fatalf("%d in a second", n)
		}
	})
}

// TestLimiterBound: its memory is bounded, whoever comes; a principal that was
// used up is not forgotten for a crowd, so that a crowd is no way to a fresh
// burst, and the crowd together has one share.
func TestLimiterBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Principals: 10})
		if takes(l, "a", 40) != 40 {
			t.Fatal("burst")
		}
		passed := 0
		for n := range 1000 {
			passed += takes(l, fmt.Sprint("crowd", n), 1)
		}
		if l.len() != 10 || passed != 9+40 {
			t.Fatalf("%d known, %d passed", l.len(), passed)
		}
		if takes(l, "a", 1) != 0 {
			t.Fatal("a fresh burst")
		}
		time.Sleep(3 * time.Second) // everybody's burst is whole again
		if takes(l, "new", 40) != 40 || l.len() != 10 {
			t.Fatal("nobody was forgotten")
		}
	})
}

// TestLimiterManyConnections: 64 connections of one principal get its share
// and no more, and each learns when to come again.
func TestLimiterManyConnections(t *testing.T) {
	l := NewLimiter(Limits{PerSecond: 0.001, Burst: 40})
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		passed int
	)
	for range 64 {
		all.Go(func() {
			for range 100 {
				err := l.Take(Principal{Name: "a"})
				var limited *Limited
				switch {
				case err == nil:
					mu.Lock()
					passed++
					mu.Unlock()
				case !errors.As(err, &limited) || limited.After <= 0 || limited.After > 1001*time.Second:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if passed != 40 {
		t.Fatalf("%d passed", passed)
	}
}
