package belay

import (
	"container/list"
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
	marks map[K]*list.Element // of order
	order *list.List          // of *tombstone[K, V], oldest first
}

type tombstone[K comparable, V any] struct {
	key   K
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
	return &Tombstones[K, V]{ttl: ttl, max: limit, marks: make(map[K]*list.Element), order: list.New()}
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
	if t.order.Len() >= t.max {
		t.dropLocked(t.order.Front())
	}
	t.marks[key] = t.order.PushBack(&tombstone[K, V]{key, value, now.Add(t.ttl)})
}

// Take returns and forgets the mark of key, if there is one: one use.
func (t *Tombstones[K, V]) Take(key K) (value V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepLocked(time.Now())
	e, ok := t.marks[key]
	if !ok {
		return value, false
	}
	return t.dropLocked(e).value, true
}

// Len is the number of marks, expired ones that were not yet swept included.
func (t *Tombstones[K, V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.marks)
}

// sweepLocked drops what has expired. All marks live equally long, so the
// oldest expire first.
func (t *Tombstones[K, V]) sweepLocked(now time.Time) {
	for e := t.order.Front(); e != nil; e = t.order.Front() {
		if m, _ := e.Value.(*tombstone[K, V]); now.Before(m.until) {
			return
		}
		t.dropLocked(e)
	}
}

func (t *Tombstones[K, V]) dropLocked(e *list.Element) *tombstone[K, V] {
	m, _ := t.order.Remove(e).(*tombstone[K, V])
	delete(t.marks, m.key)
	return m
}
