package calm

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	// nap is how often the machine is looked at.
	nap = 5 * time.Millisecond
	// punctual is how late a timer may be on a calm machine.
	punctual = time.Millisecond
	// seldom is how often what costs more to read is looked at, in naps.
	seldom = 8
)

// Watch looks at the machine until its test ends. A goroutine that only naps is
// its canary: by how much it oversleeps is what everything else may have lost,
// too.
type Watch struct {
	begun time.Time
	quit  chan struct{}
	once  sync.Once
	done  sync.WaitGroup

	mu   sync.Mutex
	seen []sample // in order of time
}

// sample is one look at the machine.
type sample struct {
	at       time.Time
	late     time.Duration // by which the canary overslept, up to at
	runnable int           // tasks of the whole machine that want to run; 0 is unknown
	stolen   time.Duration // since the machine started: no task of it could run
}

// Start begins to watch, until Stop or the end of the test.
func Start(tb testing.TB) *Watch {
	w := &Watch{begun: time.Now(), quit: make(chan struct{})}
	w.seen = []sample{{at: w.begun, runnable: runnable(), stolen: stolen()}}
	w.done.Go(w.look)
	tb.Cleanup(w.Stop)
	return w
}

// Stop ends the looking; what was seen is kept. It may be called often.
func (w *Watch) Stop() {
	w.once.Do(func() { close(w.quit) })
	w.done.Wait()
}

func (w *Watch) look() {
	was := w.seen[0].stolen
	timer := time.NewTimer(nap)
	defer timer.Stop()
	for n := 1; ; n++ {
		before := time.Now()
		timer.Reset(nap)
		ended := false
		select {
		case <-w.quit:
			ended = true
		case <-timer.C:
		}
		s := sample{at: time.Now(), runnable: runnable()}
		if s.late = s.at.Sub(before) - nap; s.late < punctual {
			s.late = 0
		}
		if ended || n%seldom == 0 {
			was = stolen()
		}
		s.stolen = was
		w.mu.Lock()
		w.seen = append(w.seen, s)
		w.mu.Unlock()
		if ended {
			return
		}
	}
}

// Between tells the weather of a stretch of time since Start.
func (w *Watch) Between(from, to time.Time) Weather {
	w.mu.Lock()
	defer w.mu.Unlock()
	return weather(w.seen, from, to)
}

// Within fails the test unless took, which ended now, is at most limit, or what
// the weather makes of limit.
func (w *Watch) Within(tb testing.TB, took, limit time.Duration, what string) {
	tb.Helper()
	if took <= limit {
		return
	}
	now := time.Now()
	got := w.Between(now.Add(-took), now)
	if took > got.Allow(limit) {
		tb.Errorf("%s: after %v, want %v (%v)", what, took, limit, got)
		return
	}
	tb.Logf("%s: after %v; more than %v, but the machine was not calm (%v)", what, took, limit, got)
}

// Weather is what the machine took from a stretch of time.
type Weather struct {
	Stalled time.Duration // this process wanted to run and was not run
	Crowd   float64       // tasks that wanted each core, on average; at least 1
}

// Allow is what a bound comes to in this weather: with n times as many runnable
// tasks as cores everything may take n times as long, and a stall, which may hit
// both sides of a conversation one after the other, counts twice.
func (w Weather) Allow(limit time.Duration) time.Duration {
	return time.Duration(w.Crowd*float64(limit)) + 2*w.Stalled
}

// String is for messages of tests.
func (w Weather) String() string {
	return fmt.Sprintf("crowd %.1f, stalled %v", w.Crowd, w.Stalled.Round(time.Millisecond))
}

// weather sums up what was seen between two times. A sample tells about the time
// since the one before it.
func weather(seen []sample, from, to time.Time) Weather {
	var late, first, last time.Duration
	var sum, looks int
	var before time.Time // of the sample before
	for i, s := range seen {
		if s.at.Before(from) {
			first, last, before = s.stolen, s.stolen, s.at
			continue
		}
		if before.After(to) {
			break
		}
		before = s.at
		if last = s.stolen; i == 0 {
			first = s.stolen
		}
		// The part of the oversleeping that lies within the stretch.
		began, ended := s.at.Add(-s.late), s.at
		if began.Before(from) {
			began = from
		}
		if ended.After(to) {
			ended = to
		}
		late += max(0, ended.Sub(began))
		if s.runnable > 0 {
			sum, looks = sum+s.runnable, looks+1
		}
	}
	got := Weather{Stalled: max(late, last-first), Crowd: 1}
	if looks > 0 {
		got.Crowd = max(1, float64(sum)/float64(looks)/float64(runtime.NumCPU()))
	}
	return got
}
