package gateway

import (
	"testing"
	"testing/synctest"
	"time"
)

// DESIGN section 9, no wake-ups: the idle function is called once after each
// time of use, and then there is no timer any more.
func TestIdler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Duration
		begin := time.Now()
		i := &idler{f: func() { calls = append(calls, time.Since(begin)) }}
		for range 4 { // in use for 12 s
			i.touch()
			time.Sleep(3 * time.Second)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(calls) != 1 || calls[0] < 9*time.Second+idleAfter || calls[0] > 9*time.Second+3*idleAfter {
			t.Errorf("called at %v", calls)
		}
		i.touch()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(calls) != 2 || i.armed.Load() {
			t.Errorf("called at %v, armed %v", calls, i.armed.Load())
		}
		(&idler{}).touch()
	})
}
