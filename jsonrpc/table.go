package jsonrpc

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
)

// DefaultMaxInFlight is the bound of a [Table] whose Max is 0.
const DefaultMaxInFlight = 65536

// Table holds what is in flight by id: one table per connection and direction,
// since ids of different connections and of the two directions of one are
// strangers to each other (MCP-G7, MCP-G9). The zero Table is ready to use. All
// methods may be called concurrently. A Table must not be copied.
type Table[V any] struct {
	// Max bounds the number of entries; 0 means [DefaultMaxInFlight]. It must not
	// change once the table is in use.
	Max int

	mu   sync.Mutex
	m    map[string]tableEntry[V] // by ID.Key
	peak int                      // largest len(m) since m was made
}

type tableEntry[V any] struct {
	id ID // as it was added, to be echoed
	v  V
}

// Add puts v under id. Errors match [ErrID] when id is absent, [ErrDuplicateID]
// when one of the same key is there, [ErrTooMany] at the bound; then nothing has
// changed.
func (t *Table[V]) Add(id ID, v V) error {
	if id.IsZero() {
		return fmt.Errorf("%w: there is none to keep a call under", ErrID)
	}
	limit := t.Max
	if limit <= 0 {
		limit = DefaultMaxInFlight
	}
	key := id.Key()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, dup := t.m[key]; dup {
		return fmt.Errorf("%w: %v", ErrDuplicateID, id)
	}
	if len(t.m) >= limit {
		return fmt.Errorf("%w: at most %d are allowed", ErrTooMany, limit)
	}
	if t.m == nil {
		t.m = make(map[string]tableEntry[V])
	}
	t.m[key] = tableEntry[V]{id, v}
	t.peak = max(t.peak, len(t.m))
	return nil
}

// Get returns what is under id.
func (t *Table[V]) Get(id ID) (V, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.m[id.Key()]
	return e.v, ok
}

// Take removes and returns what is under id. Of several callers one gets it.
func (t *Table[V]) Take(id ID) (V, bool) {
	return t.TakeIf(id, nil)
}

// TakeIf is Take for an entry that ok accepts; a nil ok accepts everything. ok is
// called with the table locked and must not use it.
func (t *Table[V]) TakeIf(id ID, ok func(V) bool) (V, bool) {
	key := id.Key()
	t.mu.Lock()
	defer t.mu.Unlock()
	e, found := t.m[key]
	if !found || ok != nil && !ok(e.v) {
		var none V
		return none, false
	}
	delete(t.m, key)
	// A Go map never gives back the room of a burst, so make a new one after it.
	if len(t.m) == 0 && t.peak > 1024 {
		t.m, t.peak = nil, 0
	}
	return e.v, true
}

// TakeAll empties the table and returns what was in it: the end of a session.
func (t *Table[V]) TakeAll() []V {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]V, 0, len(t.m))
	for _, e := range t.m {
		all = append(all, e.v)
	}
	t.m, t.peak = nil, 0
	return all
}

// Len returns the number of entries.
func (t *Table[V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.m)
}

// Range calls f for each entry that was there when Range began, until f returns
// false. The table is not locked meanwhile: f may change it.
func (t *Table[V]) Range(f func(ID, V) bool) {
	t.mu.Lock()
	all := make([]tableEntry[V], 0, len(t.m))
	for _, e := range t.m {
		all = append(all, e)
	}
	t.mu.Unlock()
	for _, e := range all {
		if !f(e.id, e.v) {
			return
		}
	}
}

// Minter makes the ids of requests that we send ourselves: the strings b-1, b-2,
// and so on. They are never numbers (some peers ignore a cancel of 0, others mix
// "1" and 1) and never used again, since a late cancel or answer would hit the
// wrong call (MCP-G6). The zero Minter is ready to use; there must be one per
// connection. It may be used concurrently and must not be copied.
type Minter struct {
	// Prefix stands in front of the number; "" means "b-". It must be plain ASCII
	// without quotes and backslashes.
	Prefix string

	last atomic.Uint64
}

// Next returns an id that this Minter has not returned before.
func (m *Minter) Next() ID {
	prefix := m.Prefix
	if prefix == "" {
		prefix = "b-"
	}
	var space [64]byte
	raw := append(space[:0], '"')
	raw = append(raw, prefix...)
	raw = strconv.AppendUint(raw, m.last.Add(1), 10)
	return ID{raw: string(append(raw, '"'))}
}
