package gateway

import "github.com/belayhq/belay"

// InFlight is how many things of the session are not over, about: calls and
// other requests of the caller, calls between two legs, tasks, and what was
// stopped and has no final receipt yet. It is 0 if and only if nothing is.
// Unlike a look at the tree it costs nothing of what other sessions have in
// flight, and it counts calls that hang below runs elsewhere, too.
func (s *Session) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.calls)
	for _, t := range s.tasks {
		if !settled(t.run) {
			n++
		}
	}
	for _, r := range s.rounds.byKey {
		if r.of != nil && (r.of.parked || r.of.apart) {
			n++
		}
	}
	for _, d := range s.doubts {
		if !settled(d.run) {
			n++
		}
	}
	return n
}

// settled reports whether a run was stopped and its receipt is final.
func settled(run *belay.Run) bool {
	r := run.Receipt()
	return r != nil && r.Final
}
