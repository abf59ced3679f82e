package belay

import (
	"sync"
	"time"
)

// Tombstones remember for a short time the addresses of runs that were
// cancelled before they were seen (MCP-G17), so that an early cancel stops its
// call on arrival. Make one with [NewTombstones]. Safe for concurrent use.
type Tombstones[K comparable, V any] struct {
	ttl time.Duration
	max int

	mu    sync.Mutex
	marks map[K]tombstone[V]
	order []mark[K] // oldest first; may hold keys that were taken
}

type mark[K comparable] struct {
	key   K
	until time.Time
}

type tombstone[V any] struct {
	value V
	until time.Time
}

// Defaults of [NewTombstones] (MCP-G17).
const (
	TombstoneTTL = 30 * time.Second
	TombstoneMax = 10_000
)

// NewTombstones returns an empty set; zero values mean the defaults.
func NewTombstones[K comparable, V any](ttl time.Duration, limit int) *Tombstones[K, V] {
	if ttl <= 0 {
		ttl = TombstoneTTL
	}
	if limit <= 0 {
		limit = TombstoneMax
	}
	return &Tombstones[K, V]{ttl: ttl, max: limit, marks: make(map[K]tombstone[V])}
}

// Put remembers key. If it is remembered already, the first mark stays. When
// the set is full the oldest mark makes room.
func (t *Tombstones[K, V]) Put(key K, value V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.sweepLocked(now)
	if _, ok := t.marks[key]; ok {
		return
	}
	until := now.Add(t.ttl)
	t.marks[key] = tombstone[V]{value, until}
	t.order = append(t.order, mark[K]{key, until})
}

// Take returns and forgets the mark of key, if there is one: one use.
func (t *Tombstones[K, V]) Take(key K) (value V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.marks[key]
	if !ok {
		return value, false
	}
	delete(t.marks, key)
	if len(t.marks) == 0 {
		t.order = nil
	}
	return m.value, time.Now().Before(m.until)
}

// Len is the number of marks, expired ones that were not yet swept included.
func (t *Tombstones[K, V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.marks)
}

// sweepLocked drops what has expired, and the oldest when the set is full.
func (t *Tombstones[K, V]) sweepLocked(now time.Time) {
	for len(t.order) > 0 {
		oldest := t.order[0]
		m, ok := t.marks[oldest.key]
		switch {
		case !ok || !m.until.Equal(oldest.until): // was taken, perhaps put again
		case now.Before(m.until) && len(t.marks) < t.max:
			return
		default:
			delete(t.marks, oldest.key)
		}
		t.order = t.order[1:]
	}
}
