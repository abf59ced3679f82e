package auth

import (
	"hash/maphash"
	"sync"
	"time"
)

// remembered is a JWT whose signature was verified.
type remembered struct {
	digest    digest
	principal Principal
	keys      *keySet // that it was verified with
	source    *source
}

// cache remembers verified JWTs, each until it expires or its issuer's keys
// change. It has two generations: when the young one is full it becomes the
// old one, and the old one goes. So it is bounded, no search is needed, and
// what is used stays.
type cache struct {
	seed maphash.Seed
	half int

	mu         sync.Mutex // guards the fields below
	young, old map[uint64]remembered
}

func newCache(limit int) *cache {
	return &cache{seed: maphash.MakeSeed(), half: max(1, limit/2), young: map[uint64]remembered{}}
}

// get is the principal of a token that is still good.
func (c *cache) get(d *digest, now time.Time) (Principal, bool) {
	at := d.place(c.seed)
	c.mu.Lock()
	e, ok := c.young[at]
	if !ok {
		if e, ok = c.old[at]; ok {
			c.putLocked(at, e)
		}
	}
	c.mu.Unlock()
	if !ok || !e.digest.equal(d) || !now.Before(e.principal.Expires) {
		return Principal{}, false
	}
	// Outside of the lock: it may start a read of the keys.
	if e.source.current(now) != e.keys {
		return Principal{}, false // a key that was withdrawn vouches for nobody
	}
	return e.principal, true
}

// put remembers a token. Two tokens at one place drive each other out, which
// costs them a signature each and nothing else.
func (c *cache) put(d *digest, e remembered, now time.Time) {
	if !now.Before(e.principal.Expires) {
		return
	}
	e.digest = *d
	c.mu.Lock()
	c.putLocked(d.place(c.seed), e)
	c.mu.Unlock()
}

func (c *cache) putLocked(at uint64, e remembered) {
	if len(c.young) >= c.half {
		c.old, c.young = c.young, map[uint64]remembered{}
	}
	c.young[at] = e
}

// len is how many are remembered.
func (c *cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.young) + len(c.old)
}
