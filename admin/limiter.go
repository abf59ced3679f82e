package admin

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The default rate of [Rates] (ORC-36).
const (
	DefaultRate  = 20 // requests per second and principal
	DefaultBurst = 40
)

// maxPrincipals bounds what is kept for each principal: rates and tombstones.
const maxPrincipals = 10_000

// Rates is a [Limiter] with a token bucket for each principal, so that one who
// asks too often takes nothing from another. Make one with [NewRates].
type Rates struct {
	limit rate.Limit
	burst int
	now   func() time.Time

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
}

var _ Limiter = (*Rates)(nil)

// NewRates returns a limiter; values that are not positive mean the defaults.
func NewRates(perSecond float64, burst int) *Rates {
	if perSecond <= 0 {
		perSecond = DefaultRate
	}
	if burst <= 0 {
		burst = DefaultBurst
	}
	return &Rates{limit: rate.Limit(perSecond), burst: burst, now: time.Now, buckets: make(map[string]*rate.Limiter)}
}

// Allow implements [Limiter].
func (r *Rates) Allow(principal string) (bool, time.Duration) {
	now := r.now()
	bucket := r.bucket(principal, now)
	if bucket.AllowN(now, 1) {
		return true, 0
	}
	missing := 1 - bucket.TokensAt(now)
	return false, time.Duration(missing / float64(r.limit) * float64(time.Second))
}

func (r *Rates) bucket(principal string, now time.Time) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[principal]
	if b == nil {
		if len(r.buckets) >= maxPrincipals {
			r.sweepLocked(now)
		}
		b = rate.NewLimiter(r.limit, r.burst)
		r.buckets[principal] = b
	}
	return b
}

// sweepLocked drops the buckets that are full again, which are as good as new,
// and if there are none any one: principals are known people, not strangers.
func (r *Rates) sweepLocked(now time.Time) {
	for name, b := range r.buckets {
		if b.TokensAt(now) >= float64(r.burst) {
			delete(r.buckets, name)
		}
	}
	for name := range r.buckets {
		if len(r.buckets) < maxPrincipals {
			return
		}
		delete(r.buckets, name)
	}
}
