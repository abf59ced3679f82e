package auth

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits are the settings of a [Limiter]. Zero values mean the defaults
// (ORC-36).
type Limits struct {
	PerSecond  float64 // 0: 20
	Burst      int     // 0: 40
	Principals int     // that are told apart at once; 0: 10,000
}

// Limiter bounds how often each principal may do something. It is safe for
// concurrent use and starts nothing. Its memory is bounded, and filling it up
// gives nobody a fresh burst: only a principal whose burst is whole again is
// forgotten, which nobody can notice; while there is none, new ones share one
// bucket.
type Limiter struct {
	rate  rate.Limit
	burst int
	limit int
	full  time.Duration // from empty to whole

	mu     sync.Mutex // guards the fields below
	byName map[string]*list.Element
	used   *list.List // of *bucket, the last used first
	rest   *rate.Limiter
}

type bucket struct {
	name string
	last time.Time
	rate *rate.Limiter
}

// NewLimiter makes a Limiter.
func NewLimiter(l Limits) *Limiter {
	def(&l.PerSecond, 20)
	def(&l.Burst, 40)
	def(&l.Principals, 10_000)
	return &Limiter{
		rate: rate.Limit(l.PerSecond), burst: l.Burst, limit: l.Principals,
		full:   time.Duration(float64(l.Burst) / l.PerSecond * float64(time.Second)),
		byName: map[string]*list.Element{}, used: list.New(),
		rest: rate.NewLimiter(rate.Limit(l.PerSecond), l.Burst),
	}
}

// Take takes one from the principal's share. Otherwise the error is a
// [*Limited] that says when the next one would pass; asking too early costs
// nothing. It never waits.
func (l *Limiter) Take(p Principal) error { return l.TakeFor(p.Name) }

// TakeFor is [Limiter.Take] for what is no principal, such as an address whose
// credentials keep failing: a signature costs us more to refuse than them to
// make up. Use a Limiter of its own for each kind of key.
func (l *Limiter) TakeFor(key string) error {
	now := time.Now()
	l.mu.Lock()
	r := l.bucketLocked(key, now)
	l.mu.Unlock()
	if r.AllowN(now, 1) {
		return nil
	}
	// Not by a reservation: giving it back restores too little when others
	// reserve at the same time.
	missing := (1 - r.TokensAt(now)) / float64(l.rate)
	// Another request may have left between the two questions.
	return &Limited{After: max(time.Duration(missing*float64(time.Second)), time.Millisecond)}
}

func (l *Limiter) bucketLocked(name string, now time.Time) *rate.Limiter {
	if e := l.byName[name]; e != nil {
		b := e.Value.(*bucket) //nolint:forcetypeassert // nothing else is in this list
		b.last = now
		l.used.MoveToFront(e)
		return b.rate
	}
	if len(l.byName) >= l.limit {
		oldest := l.used.Back()
		b := oldest.Value.(*bucket) //nolint:forcetypeassert // see above
		if now.Sub(b.last) < l.full {
			return l.rest
		}
		l.used.Remove(oldest)
		delete(l.byName, b.name)
	}
	b := &bucket{name: name, last: now, rate: rate.NewLimiter(l.rate, l.burst)}
	l.byName[name] = l.used.PushFront(b)
	return b.rate
}

// len is how many principals are told apart now.
func (l *Limiter) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byName)
}
