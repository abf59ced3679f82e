package gateway

import (
	"container/list"
	"sync"
	"time"

	"github.com/belayhq/belay/mcp"
)

// TaskRegistry knows whose the tasks of a server are (MCP-86, MCP-G38): an id is
// bound to the principal who got it, so that nobody else's request about it
// reaches the server. Sessions of one server share one; ids that it has never
// seen pass. It holds 10,000 ids, each for the task's time to live after the last
// news of it; when it is full the oldest of the same principal makes room, and
// only then another's. The zero TaskRegistry is ready; safe for concurrent use.
type TaskRegistry struct {
	mu    sync.Mutex // taken after Session.mu; nothing is called under it
	byID  map[string][]*list.Element
	order list.List // of *bound, oldest first
}

// bound is one id with whom it belongs to.
type bound struct {
	id      string
	owner   string
	s       *Session  // that watches the task; nil when it is over
	up      *upstream // that was told to work on it
	ttl     time.Duration
	expires time.Time
}

// keepBound is how long an id stays bound beyond the task's time to live.
const keepBound = 10 * time.Minute

func (b *bound) live(ttl time.Duration) {
	if ttl > 0 {
		b.ttl = ttl
	}
	if b.ttl <= 0 {
		b.ttl = taskTTL
	}
	b.expires = time.Now().Add(b.ttl + keepBound)
}

// bind says that a session got a task.
func (r *TaskRegistry) bind(n mcp.TaskNews, s *Session, u *upstream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner := s.cfg.Owner
	if e := r.lookLocked(n.ID, owner); e != nil {
		r.dropLocked(e)
	}
	r.makeRoomLocked(owner)
	b := &bound{id: n.ID, owner: owner, s: s, up: u}
	b.live(n.TTL)
	if r.byID == nil {
		r.byID = make(map[string][]*list.Element)
	}
	r.byID[n.ID] = append(r.byID[n.ID], r.order.PushBack(b))
}

// find returns what is known of an id for a principal. foreign says that it is
// another's alone.
func (r *TaskRegistry) find(id, owner string) (b bound, foreign bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.lookLocked(id, owner); e != nil {
		return *boundOf(e), false
	}
	return bound{}, len(r.byID[id]) > 0
}

// touch says that something was heard of a task.
func (r *TaskRegistry) touch(id, owner string, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.lookLocked(id, owner); e != nil {
		boundOf(e).live(ttl)
	}
}

// leave takes a session that is over out of all entries, which stay.
func (r *TaskRegistry) leave(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.order.Front(); e != nil; e = e.Next() {
		if b := boundOf(e); b.s == s {
			b.s, b.up = nil, nil
		}
	}
}

// lookLocked finds the principal's entry for an id, and forgets those that have
// expired.
func (r *TaskRegistry) lookLocked(id, owner string) *list.Element {
	var found *list.Element
	now := time.Now()
	for _, e := range append([]*list.Element(nil), r.byID[id]...) {
		switch b := boundOf(e); {
		case now.After(b.expires):
			r.dropLocked(e)
		case b.owner == owner:
			found = e
		}
	}
	return found
}

// boundOf is the entry in an element of the list, which holds nothing else.
func boundOf(e *list.Element) *bound { return e.Value.(*bound) } //nolint:forcetypeassert // see above

func (r *TaskRegistry) dropLocked(gone *list.Element) {
	b := boundOf(gone)
	r.order.Remove(gone)
	var rest []*list.Element
	for _, e := range r.byID[b.id] {
		if e != gone {
			rest = append(rest, e)
		}
	}
	if len(rest) == 0 {
		delete(r.byID, b.id)
		return
	}
	r.byID[b.id] = rest
}

// makeRoomLocked makes room for one entry of a principal.
func (r *TaskRegistry) makeRoomLocked(owner string) {
	if r.order.Len() < maxTasks {
		return
	}
	now := time.Now()
	var own *list.Element
	for e := r.order.Front(); e != nil; {
		next := e.Next()
		switch b := boundOf(e); {
		case now.After(b.expires):
			r.dropLocked(e)
		case own == nil && b.owner == owner:
			own = e
		}
		e = next
	}
	switch {
	case r.order.Len() < maxTasks:
	case own != nil:
		r.dropLocked(own)
	default:
		r.dropLocked(r.order.Front())
	}
}
