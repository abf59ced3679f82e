package calm

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// judge is a test that can fail without failing this one.
type judge struct {
	testing.TB
	failed bool
	said   []string
}

func (j *judge) Helper()                 {}
func (j *judge) Failed() bool            { return j.failed }
func (j *judge) Logf(f string, a ...any) { j.said = append(j.said, fmt.Sprintf(f, a...)) }
func (j *judge) Errorf(f string, a ...any) {
	j.failed = true
	j.Logf(f, a...)
}

// Within: what is kept proves, what the weather explains is void, what it does
// not explain counts, and the third of that fails, void attempts between or not.
func TestWithin(t *testing.T) {
	const limit = 100 * time.Millisecond
	quiet, storm := Weather{Crowd: 1}, Weather{Crowd: 3, Stalled: 50 * time.Millisecond} // which allows 400 ms
	type try struct {
		took time.Duration
		got  Weather
	}
	for name, tt := range map[string]struct {
		tries []try
		fails bool
	}{
		"kept":                      {[]try{{limit, quiet}}, false},
		"once late":                 {[]try{{2 * limit, quiet}, {limit, quiet}}, false},
		"late thrice":               {[]try{{2 * limit, quiet}, {101 * time.Millisecond, quiet}, {limit + 1, quiet}}, true},
		"a storm, then kept":        {[]try{{4 * limit, storm}, {4 * limit, storm}, {4 * limit, storm}, {4 * limit, storm}, {limit, storm}}, false},
		"later than the storm":      {[]try{{4*limit + 1, storm}, {5 * limit, storm}, {9 * limit, storm}}, true},
		"late, with storms between": {[]try{{2 * limit, quiet}, {2 * limit, storm}, {2 * limit, quiet}, {2 * limit, storm}, {2 * limit, quiet}}, true},
	} {
		j, n, waits := &judge{TB: t}, 0, 0
		within(j, limit, func() (time.Duration, Weather) {
			n++
			return tt.tries[n-1].took, tt.tries[n-1].got
		}, func() { waits++ })
		if j.failed != tt.fails || n != len(tt.tries) || waits != n-1 {
			t.Errorf("%s: failed %v after %d of %d attempts, waited %d times: %s", name, j.failed, n, len(tt.tries), waits, strings.Join(j.said, "; "))
		}
	}
}

// An attempt that failed its test is the last.
func TestWithinFailed(t *testing.T) {
	j, n := &judge{TB: t}, 0
	Within(j, time.Nanosecond, func() (time.Time, time.Time) {
		n++
		j.Errorf("no")
		return time.Now(), time.Now().Add(time.Second)
	})
	if n != 1 {
		t.Errorf("%d attempts", n)
	}
}

// What is simply slow fails in every weather that there is.
func TestWithinSlow(t *testing.T) {
	t.Parallel()
	j := &judge{TB: t}
	Within(j, time.Millisecond, func() (time.Time, time.Time) {
		now := time.Now()
		return now.Add(-10 * time.Minute), now // nobody was crowded that much
	})
	if !j.failed || len(j.said) != strikes {
		t.Errorf("%q", j.said)
	}
}

// The weather of a stretch is that of the stretch, not of what lies around it.
func TestWeather(t *testing.T) {
	t0 := time.Now()
	ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
	cores := runtime.NumCPU()
	seen := []sample{
		{ms(0), 0, 9 * cores, 0},
		{ms(5), 0, cores, 0},
		{ms(50), 40 * time.Millisecond, 2 * cores, time.Millisecond},
		{ms(55), 0, 3 * cores, time.Millisecond},
		{ms(160), 100 * time.Millisecond, 9 * cores, 200 * time.Millisecond},
		{ms(165), 0, 9 * cores, 900 * time.Millisecond},
	}
	for _, tt := range []struct {
		from, to int
		want     Weather
	}{
		{1, 54, Weather{40 * time.Millisecond, 2}},
		{30, 54, Weather{20 * time.Millisecond, 2.5}},
		{51, 52, Weather{0, 3}},
		{70, 100, Weather{199 * time.Millisecond, 9}},
	} {
		if got := weather(seen, ms(tt.from), ms(tt.to)); got != tt.want {
			t.Errorf("%d-%d: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
	if got := weather(nil, ms(0), ms(9)); got != (Weather{Crowd: 1}) {
		t.Errorf("nothing seen: %v", got)
	}
	if got := (Weather{Stalled: time.Second, Crowd: 1.5}).Allow(2 * time.Second); got != 5*time.Second {
		t.Errorf("allowed %v", got)
	}
}

// A machine whose cores are all taken is seen.
func TestWatchSees(t *testing.T) {
	w := Start(t)
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !stop.Load() {
				runtime.KeepAlive(w)
			}
		})
	}
	from := time.Now()
	time.Sleep(200 * time.Millisecond)
	to := time.Now()
	stop.Store(true)
	all.Wait()
	w.Stop()
	if got := w.Between(from, to); got.Stalled == 0 {
		t.Errorf("%v", got)
	} else {
		t.Log(got)
	}
	j := &judge{TB: t}
	if w.Within(j, time.Hour, time.Second, "an hour"); !j.failed {
		t.Error("nobody was that crowded")
	}
	j = &judge{TB: t}
	if w.Within(j, time.Second, time.Second, "a second"); j.failed || len(j.said) > 0 {
		t.Errorf("%q", j.said)
	}
}

// A deadline ends with its cause, not early, and with its test.
func TestDeadline(t *testing.T) {
	begun := time.Now()
	ctx := Deadline(t, 50*time.Millisecond)
	<-ctx.Done()
	if took := time.Since(begun); took < 50*time.Millisecond || !strings.Contains(context.Cause(ctx).Error(), "not within 50ms") {
		t.Errorf("after %v: %v", took, context.Cause(ctx))
	}
	var longer context.Context
	t.Run("ends", func(t *testing.T) { longer = Deadline(t, time.Hour) })
	if longer.Err() == nil {
		t.Error("it outlived its test")
	}
}

// What comes is received; what does not come is missed, in time.
func TestReceive(t *testing.T) {
	c := make(chan int, 1)
	c <- 7
	if n, err := Receive(t, c, time.Minute); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	begun := time.Now()
	if n, err := Receive(t, c, 20*time.Millisecond); n != 0 || err == nil || time.Since(begun) < 20*time.Millisecond {
		t.Errorf("%d, %v after %v", n, err, time.Since(begun))
	}
}
