package gateway

// InFlight is how many things of the session are not over, about: calls and
// other requests of the caller, calls between two legs, tasks that somebody
// waits for, and calls that were stopped and whose receipt is not final yet. It
// is 0 if and only if nothing is. Unlike a look at the tree it costs nothing of
// what other sessions have in flight, and it counts calls that hang below runs
// elsewhere, too.
func (s *Session) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.calls) + len(s.tasks)
	for _, r := range s.rounds.byKey {
		if r.of != nil && r.of.parked {
			n++
		}
	}
	for _, d := range s.doubts {
		if r := d.run.Receipt(); r == nil || !r.Final {
			n++
		}
	}
	return n
}
