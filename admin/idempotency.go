package admin

import (
	"container/list"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Numbers of ORC-37. A principal's bound is what the default rate lets through
// in that time; whoever sends more forgets keys of their own, and nobody else's.
const (
	keepKeys  = 10 * time.Minute
	maxKeysOf = 12_500
	maxKeys   = 50_000
)

// memory remembers for a time what the first request with an Idempotency-Key
// resolved to, so that a repeat reaches that run and no later one.
type memory struct {
	mu    sync.Mutex
	known map[memoryKey]*list.Element // of the principal's list
	of    map[string]*list.List       // of *remembered, oldest first, by principal; none is empty
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
	return &memory{known: make(map[memoryKey]*list.Element), of: make(map[string]*list.List)}
}

// first returns what is remembered for a key, locked; a key that is new is
// remembered from now on. unlock must be called once.
func (m *memory) first(principal, key string) (entry *remembered, unlock func()) {
	entry = m.find(memoryKey{principal, key}, time.Now())
	entry.mu.Lock()
	return entry, entry.mu.Unlock
}

func (m *memory) find(k memoryKey, now time.Time) *remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trimLocked(k.principal, maxKeysOf, now)
	if e := m.known[k]; e != nil {
		return e.Value.(*remembered) //nolint:forcetypeassert // the list holds nothing else
	}
	if len(m.known) >= maxKeys {
		m.makeRoomLocked(now)
	}
	own := m.of[k.principal]
	if own == nil {
		own = list.New()
		m.of[k.principal] = own
	}
	r := &remembered{of: k, since: now}
	m.known[k] = own.PushBack(r)
	return r
}

// trimLocked forgets a principal's keys that are old, and the oldest while there
// are as many as the limit.
func (m *memory) trimLocked(principal string, limit int, now time.Time) {
	own := m.of[principal]
	if own == nil {
		return
	}
	for e := own.Front(); e != nil; e = own.Front() {
		r := e.Value.(*remembered) //nolint:forcetypeassert // the list holds nothing else
		if own.Len() < limit && now.Sub(r.since) < keepKeys {
			return
		}
		own.Remove(e)
		delete(m.known, r.of)
	}
	delete(m.of, principal)
}

// makeRoomLocked forgets what is old of all principals, and if that is nothing
// the oldest key of whoever has the most.
func (m *memory) makeRoomLocked(now time.Time) {
	greediest, most := "", 0
	for principal, own := range m.of {
		m.trimLocked(principal, maxKeysOf+1, now)
		if n := own.Len(); n > most {
			greediest, most = principal, n
		}
	}
	if len(m.known) >= maxKeys {
		m.trimLocked(greediest, most, now)
	}
}
