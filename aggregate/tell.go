package aggregate

import (
	"maps"
	"slices"

	"github.com/belayhq/belay/mcp"
)

// Tell sends a notification to every legacy caller of a principal, or with owner
// "" of all, and says how many were told (ORC-44). It leaves out callers for whom
// a request with this id is in flight in either direction, whatever the id's
// JSON type, since they would take the notification for theirs (DESIGN 11, 11),
// and those that have not finished their handshake or do not read. It waits for
// nobody. Callers of 2026-07-28 have no stream that it could go to.
func (b *Backend) Tell(owner, id string, frame []byte) (told int) {
	b.mu.Lock()
	all := slices.Collect(maps.Keys(b.sessions))
	b.mu.Unlock()
	for _, s := range all {
		if s.era == mcp.Legacy && (owner == "" || s.who.Principal == owner) && s.tell(id, frame) {
			told++
		}
	}
	return told
}

func (s *session) tell(id string, frame []byte) bool {
	s.mu.Lock()
	free := s.ready != nil && !s.closing
	for _, key := range [...]string{id, `"` + id + `"`} { // as jsonrpc.ID.Key says it of numbers and strings
		free = free && s.calls[key] == nil && s.asks[key] == nil
	}
	s.mu.Unlock()
	return free && s.home.Send(frame) == nil
}
