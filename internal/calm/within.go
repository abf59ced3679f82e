package calm

import (
	"context"
	"fmt"
	"testing"
	"time"
)

const (
	// strikes is how many attempts beyond what their weather allows fail a test.
	// Not one: what a stall takes is measured, and measured roughly.
	strikes = 3
	// patience is how long void attempts are repeated. At least voids of them
	// are made, however long one takes.
	patience = 30 * time.Second
	voids    = 3
	// lull is how long the machine must have been calm before the next attempt,
	// and calmWait for how long that is waited for.
	lull     = 100 * time.Millisecond
	calmWait = 3 * time.Second
)

// Within fails the test unless an attempt takes at most limit. An attempt says
// from when to when it measured. One that fails the test ends the attempts.
func Within(tb testing.TB, limit time.Duration, attempt func() (from, to time.Time)) {
	tb.Helper()
	within(tb, limit, func() (time.Duration, Weather) {
		w := Start(tb)
		defer w.Stop()
		from, to := attempt()
		w.Stop()
		return to.Sub(from), w.Between(from, to)
	}, func() { await(tb) })
}

// within decides; what measures and what waits for calm is given to it.
func within(tb testing.TB, limit time.Duration, attempt func() (time.Duration, Weather), wait func()) {
	tb.Helper()
	begun := time.Now()
	var over, void int
	for {
		took, got := attempt()
		switch {
		case took <= limit || tb.Failed():
			return
		case took > got.Allow(limit):
			if over++; over == strikes {
				tb.Errorf("it took %v, at most %v are allowed (%v)", took, limit, got)
				return
			}
			tb.Logf("it took %v, more than %v (%v); trying again", took, limit, got)
		default:
			// Not proven, and not refuted either: the next attempt may say more.
			if void++; over == 0 && void >= voids && time.Since(begun) > patience {
				tb.Logf("it took %v, more than %v; the machine was never calm (%v), which would have allowed %v", took, limit, got, got.Allow(limit))
				return
			}
			tb.Logf("it took %v, more than %v, but the machine was not calm (%v); trying again", took, limit, got)
		}
		wait()
	}
}

// await waits until the machine is calm, but not for long: it may never be.
func await(tb testing.TB) {
	w := Start(tb)
	defer w.Stop()
	for end := w.begun.Add(calmWait); time.Now().Before(end); time.Sleep(nap) {
		now := time.Now()
		from := now.Add(-lull)
		if from.Before(w.begun) {
			continue
		}
		if got := w.Between(from, now); got.Stalled < lull/20 && got.Crowd <= 1 {
			return
		}
	}
}

// Receive receives what must come within limit, or what the weather makes of it.
func Receive[T any](tb testing.TB, from <-chan T, limit time.Duration) (T, error) {
	w := Start(tb)
	defer w.Stop()
	tick := time.NewTicker(nap)
	defer tick.Stop()
	for {
		select {
		case v := <-from:
			return v, nil
		case <-tick.C:
		}
		if err := w.over(limit); err != nil {
			var none T
			return none, err
		}
	}
}

// over says whether more than limit has passed in the weather since Start.
func (w *Watch) over(limit time.Duration) error {
	now := time.Now()
	took := now.Sub(w.begun)
	if took <= limit {
		return nil
	}
	if got := w.Between(w.begun, now); took > got.Allow(limit) {
		return &late{limit, got}
	}
	return nil
}

// late is the cause of a Deadline's end.
type late struct {
	limit time.Duration
	got   Weather
}

// Error says what was waited for how long.
func (l *late) Error() string { return fmt.Sprintf("not within %v (%v)", l.limit, l.got) }

// Deadline returns a context that ends with the test, or once more than limit
// has passed in the weather that there was meanwhile. Its cause says so.
func Deadline(tb testing.TB, limit time.Duration) context.Context {
	ctx, end := context.WithCancelCause(tb.Context())
	w := Start(tb)
	w.done.Go(func() {
		for {
			select {
			case <-w.quit:
				return
			case <-time.After(min(nap, limit)):
			}
			if err := w.over(limit); err != nil {
				end(err)
				return
			}
		}
	})
	tb.Cleanup(func() { end(context.Canceled) })
	return ctx
}
