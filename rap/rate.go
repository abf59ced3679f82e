package rap

import (
	"math"
	"sync"
	"time"
)

// rates lets each caller do something so often. Callers are few, for they are
// authenticated, but their number is bounded all the same.
type rates struct {
	rate  float64 // per second
	burst float64

	mu  sync.Mutex
	now func() time.Time
	of  map[string]*allowance
}

type allowance struct {
	left float64
	at   time.Time
}

// maxBuckets is how many callers are told apart. A allowance that would be full again
// says nothing and is the first to go.
const maxBuckets = 10_000

func newRates(rate float64, burst int) *rates {
	return &rates{rate: rate, burst: float64(burst), now: time.Now, of: map[string]*allowance{}}
}

// take uses up one of the caller's. When there is none it says after how long
// there will be.
func (r *rates) take(caller string) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	b := r.of[caller]
	if b == nil {
		if len(r.of) >= maxBuckets {
			r.sweepLocked(now)
		}
		b = &allowance{left: r.burst, at: now}
		r.of[caller] = b
	}
	b.left = math.Min(r.burst, b.left+now.Sub(b.at).Seconds()*r.rate)
	b.at = now
	if b.left < 1 {
		return time.Duration((1 - b.left) / r.rate * float64(time.Second)), false
	}
	b.left--
	return 0, true
}

// sweepLocked makes room: first where nothing is lost by it.
func (r *rates) sweepLocked(now time.Time) {
	for caller, b := range r.of {
		if b.left+now.Sub(b.at).Seconds()*r.rate >= r.burst {
			delete(r.of, caller)
		}
	}
	for caller := range r.of {
		if len(r.of) < maxBuckets {
			return
		}
		delete(r.of, caller)
	}
}
