package gateway

// recentMax is how many ids of ended calls a session remembers.
const recentMax = 4096

// recent remembers the last ids that a caller used, so that a cancel which
// comes late is not taken for one that came early (MCP-G17).
type recent struct {
	keys map[string]struct{}
	ring []string
	next int
}

func (r *recent) add(key string) {
	if r.keys == nil {
		r.keys = make(map[string]struct{})
	}
	if _, ok := r.keys[key]; ok {
		return
	}
	r.keys[key] = struct{}{}
	if len(r.ring) < recentMax {
		r.ring = append(r.ring, key)
		return
	}
	delete(r.keys, r.ring[r.next])
	r.ring[r.next] = key
	r.next = (r.next + 1) % recentMax
}

func (r *recent) has(key string) bool {
	_, ok := r.keys[key]
	return ok
}
