package gateway

import "hash/maphash"

// recentMax is how many ids of ended calls are remembered.
const recentMax = 4096

// recent remembers the last ids of calls that are over: those that a caller used,
// so that a cancel which comes late is not taken for one that came early
// (MCP-G17), and those that a server may still answer. It keeps a hash of
// each, with a seed of its own: 64 bits that nobody can aim at, and nothing for
// the garbage collector to look at.
type recent struct {
	seed maphash.Seed
	keys map[uint64]struct{}
	ring []uint64
	next int
}

func (r *recent) add(key string) {
	if r.keys == nil {
		r.seed = maphash.MakeSeed()
		r.keys = make(map[uint64]struct{})
	}
	h := maphash.String(r.seed, key)
	if _, ok := r.keys[h]; ok {
		return
	}
	r.keys[h] = struct{}{}
	if len(r.ring) < recentMax {
		r.ring = append(r.ring, h)
		return
	}
	delete(r.keys, r.ring[r.next])
	r.ring[r.next] = h
	r.next = (r.next + 1) % recentMax
}

func (r *recent) has(key string) bool {
	if r.keys == nil {
		return false
	}
	_, ok := r.keys[maphash.String(r.seed, key)]
	return ok
}
