package gateway

import "github.com/belayhq/belay/jsonrpc"

// Tell sends a notification of ours about the request with this id to the
// caller, and reports whether it was sent (ORC-44). id is the text of the id: 7
// for the number 7 and for the string "7".
//
// It is not sent while a request with such an id is in flight here in either
// direction, since the caller would take the frame for a word about that one
// (DESIGN 11, 11); nor to callers of the 2026-07-28 revision, to whom nothing is
// said that belongs to no request (MCP-74); nor before the caller has said that it
// is ready, or when the session is ending. A caller that is not listening just
// now may miss it. The frame is copied. Safe for concurrent use.
func (s *Session) Tell(id string, frame []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.failure != nil || s.cfg.Modern || !s.hand.Stands() || s.inFlightLocked(id) {
		return false
	}
	err := s.home.Send(frame)
	s.unreadLocked(err)
	return err == nil
}

// inFlightLocked reports whether a request with an id of this text is in
// flight: of the caller, or of the server as the caller knows it.
func (s *Session) inFlightLocked(id string) bool {
	keys := [2]string{jsonrpc.StringID(id).Key()}
	if other, err := jsonrpc.ParseID([]byte(id)); err == nil && other.Kind() != jsonrpc.IDString {
		keys[1] = other.Key()
	}
	for _, key := range keys {
		if _, ok := s.calls[key]; ok && key != "" {
			return true
		}
		if _, ok := s.asks[key]; ok && key != "" {
			return true
		}
	}
	return false
}
