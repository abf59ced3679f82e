package admin

import (
	"container/list"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Numbers of ORC-37.
const (
	keepKeys = 10 * time.Minute
	maxKeys  = 10_000
)

// memory remembers for a time what the first request with an Idempotency-Key
// resolved to, so that a repeat reaches that run and no later one.
type memory struct {
	mu    sync.Mutex
	known map[memoryKey]*list.Element // of order
	order *list.List                  // of *remembered, oldest first
}

type memoryKey struct{ principal, key string }

// remembered is one first request. Its lock is held while that request is being
// resolved: a repeat that arrives meanwhile waits for the outcome.
type remembered struct {
	of    memoryKey
	since time.Time

	mu    sync.Mutex
	done  bool
	name  string      // the id as the first request gave it
	run   belay.RunID // zero: nobody knew it
	asked bool        // a tombstone was made
}

func newMemory() *memory {
	return &memory{known: make(map[memoryKey]*list.Element), order: list.New()}
}

// of returns what is remembered for a key, locked; a key that is new is
// remembered from now on. unlock must be called once.
func (m *memory) of(principal, key string) (entry *remembered, unlock func()) {
	entry = m.find(memoryKey{principal, key}, time.Now())
	entry.mu.Lock()
	return entry, entry.mu.Unlock
}

func (m *memory) find(k memoryKey, now time.Time) *remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := m.order.Front(); e != nil; e = m.order.Front() {
		r := e.Value.(*remembered) //nolint:forcetypeassert // the list holds nothing else
		if m.order.Len() < maxKeys && now.Sub(r.since) < keepKeys {
			break
		}
		m.order.Remove(e)
		delete(m.known, r.of)
	}
	if e := m.known[k]; e != nil {
		return e.Value.(*remembered) //nolint:forcetypeassert // see above
	}
	r := &remembered{of: k, since: now}
	m.known[k] = m.order.PushBack(r)
	return r
}
