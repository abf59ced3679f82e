package admin

import (
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Numbers of ORC-79.
const (
	earlyTTL = 10 * time.Second
	earlyMax = 1_000 // for each principal

	maxPrincipals = 10_000 // that have any
)

// Tombstones is an [EarlyStops] in memory. Whoever registers calls asks Take
// with the caller and the text of its id before the call starts. Make one with
// [NewTombstones]. Safe for concurrent use.
type Tombstones struct {
	mu    sync.Mutex
	marks map[string]*belay.Tombstones[string, belay.Cancellation]
}

var _ EarlyStops = (*Tombstones)(nil)

// NewTombstones returns an empty set.
func NewTombstones() *Tombstones {
	return &Tombstones{marks: make(map[string]*belay.Tombstones[string, belay.Cancellation])}
}

// Put implements [EarlyStops]. It refuses when too many principals have marks.
func (t *Tombstones) Put(owner, id string, c belay.Cancellation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.marks[owner]
	if m == nil {
		if len(t.marks) >= maxPrincipals && !t.sweepLocked() {
			return false
		}
		m = belay.NewTombstones[string, belay.Cancellation](earlyTTL, earlyMax)
		t.marks[owner] = m
	}
	m.Put(id, c)
	return true
}

// Take implements [EarlyStops].
func (t *Tombstones) Take(owner, id string) (belay.Cancellation, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.marks[owner]
	if m == nil {
		return belay.Cancellation{}, false
	}
	c, ok := m.Take(id)
	if m.Len() == 0 {
		delete(t.marks, owner)
	}
	return c, ok
}

// sweepLocked forgets principals whose marks have expired, and reports whether
// there is room now.
func (t *Tombstones) sweepLocked() bool {
	for owner, m := range t.marks {
		m.Take("") // no id is empty; this drops what has expired
		if m.Len() == 0 {
			delete(t.marks, owner)
		}
	}
	return len(t.marks) < maxPrincipals
}
