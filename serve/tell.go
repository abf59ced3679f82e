package serve

import (
	"context"
)

// Tell sends a notification to every open legacy session of a principal, or with
// owner "" of all, and says how many were told (ORC-44, DESIGN 11, 11). Sessions
// in which a request with this id (the text of the JSON-RPC id, 7 for 7 and for
// "7") is in flight in either direction are left out, and so are the shared
// ones of 2026-07-28. A caller of /mcp is told once, however many servers are
// behind. It waits for no session: one that cannot take the frame is not
// counted, and keeps it from nobody else. The error is ctx's cause when that
// ends first. frame is not kept.
func (h *Hub) Tell(ctx context.Context, owner, id string, frame []byte) (told int, err error) {
	if h.o.Identify == nil && owner != "" { // everybody is one
		if owner != h.o.Owner {
			return 0, nil
		}
		owner = ""
	}
	for _, s := range h.listeners(owner) {
		if ctx.Err() != nil {
			return told, context.Cause(ctx)
		}
		if s.Tell(id, frame) {
			told++
		}
	}
	return told + h.joined.backend.Tell(owner, id, frame), nil
}

// listeners are the sessions that callers of owner have for themselves.
func (h *Hub) listeners(owner string) []*held {
	var list []*held
	for _, e := range h.endpoints() {
		e.mu.Lock()
		for s := range e.sessions {
			if !s.modern && !s.part && (owner == "" || s.owner == owner) {
				list = append(list, s)
			}
		}
		e.mu.Unlock()
	}
	return list
}

// endpoints are all that have not ended, leaving ones too.
func (h *Hub) endpoints() []*endpoint {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make([]*endpoint, 0, len(h.current))
	for _, e := range h.current {
		all = append(all, e)
	}
	for _, list := range h.leaving {
		all = append(all, list...)
	}
	return all
}
