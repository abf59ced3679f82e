package httpserver

import (
	"time"
)

// maxParked bounds the streams of one session that wait for a resume.
const maxParked = 1024

// parked is a stream that nobody reads, until somebody resumes it or the time
// is up.
type parked struct {
	*stream
	parking uint64 // stale if the stream's is another one
	until   time.Time
}

// stream makes the stream of a request.
func (s *session) stream(what shape, accept takes, expect int) *stream {
	what.owner = s
	what.named = accept.stream
	what.plain = !accept.stream
	what.prefers = accept.eager
	st := newStream(what, s.h.cfg.QueueBytes, expect)
	st.committed = !accept.json
	return st
}

func (s *session) add(st *stream) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		st.settle(errEnded)
		return
	}
	s.streams[st.number] = st
	s.mu.Unlock()
}

// resume finds the stream of an event that a client names, if it has anything
// behind that event.
func (s *session) resume(id eventID) *stream {
	if id.stream == 0 {
		return s.main
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[id.stream]
	if st == nil || !st.left(id.seq) {
		return nil
	}
	st.parking = 0
	if st.later != nil {
		st.later.Stop()
		st.later = nil
	}
	return st
}

// after is what the end of an exchange means for its stream.
func (s *session) after(p *pump, end outcome) {
	s.touch()
	st := p.s
	if end == replaced || !st.detach(p.reader) {
		return
	}
	switch {
	case st == s.main:
		return
	case st.opens && st.wasRefused():
		s.close(withoutCaller(p.r.Context()), disconnect(s.who.Principal, "the server refused initialize"))
	case st.opens && end == gone && !p.begun:
		// The caller never learned the session's id.
		s.close(withoutCaller(p.r.Context()), disconnect(s.who.Principal, "the client left during initialize"))
	case end == finished && !st.resumable():
		s.forget(st)
	case end == finished:
		s.park(st, false)
	default:
		s.lost(st, end)
	}
}

// lost is called when the connection of a request dropped before its answer was
// written (MCP-31, MCP-G15), or was ended with its caller's credentials.
func (s *session) lost(st *stream, end outcome) {
	if len(st.open()) == 0 && !st.resumable() {
		s.forget(st)
		return
	}
	if s.h.cfg.Disconnect == Cancel {
		s.abandon(st, end.reason())
		return
	}
	if !st.resumable() {
		st.kill() // nobody has an id to come back with; the call itself goes on
	}
	s.park(st, s.h.cfg.Disconnect == CancelAfter)
}

// abandon stops the calls of a stream that nobody will read.
func (s *session) abandon(st *stream, reason string) {
	open := st.open()
	s.forget(st)
	for _, n := range open {
		s.be.Abandon(n, disconnect(s.who.Principal, reason))
	}
}

// forget drops a stream with all that it keeps.
func (s *session) forget(st *stream) {
	s.mu.Lock()
	if s.streams[st.number] == st {
		delete(s.streams, st.number)
	}
	s.mu.Unlock()
	st.kill()
}

// park keeps a stream for a resume, and with stopLater its calls only for so
// long.
func (s *session) park(st *stream, stopLater bool) {
	cfg := &s.h.cfg
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		st.kill()
		return
	}
	s.parks++
	st.parking = s.parks
	s.parked = append(s.parked, parked{st, s.parks, time.Now().Add(cfg.ResumeFor)})
	if stopLater {
		parking := s.parks
		st.later = time.AfterFunc(cfg.CancelAfter, func() { s.notResumed(st, parking) })
	}
	out := s.surplusLocked(time.Now())
	s.armLocked()
	s.mu.Unlock()
	for _, old := range out {
		s.forget(old)
	}
}

// notResumed stops calls whose caller did not come back in time.
func (s *session) notResumed(st *stream, parking uint64) {
	if !s.h.enter() {
		return
	}
	defer s.h.leave()
	s.mu.Lock()
	still := st.parking == parking && !s.closed
	s.mu.Unlock()
	if still {
		s.abandon(st, "the client did not come back within "+s.h.cfg.CancelAfter.String())
	}
}

// surplusLocked takes the parked streams out of the list that are too old or
// too many, oldest first.
func (s *session) surplusLocked(now time.Time) (out []*stream) {
	for len(s.parked) > 0 {
		p := s.parked[0]
		stale := p.parking != p.stream.parking
		// The bytes of a stream that is still being written to are bounded there.
		over := s.kept.Load() > int64(s.h.cfg.ResumeBytes) && len(p.open()) == 0
		if !stale && now.Before(p.until) && len(s.parked) <= maxParked && !over {
			break
		}
		s.parked[0] = parked{}
		s.parked = s.parked[1:]
		if !stale {
			delete(s.streams, p.number)
			out = append(out, p.stream)
		}
	}
	return out
}

// armLocked sets the timer to the end of the oldest parking.
func (s *session) armLocked() {
	if len(s.parked) == 0 || s.closed {
		return
	}
	d := time.Until(s.parked[0].until)
	if s.expiry == nil {
		s.expiry = time.AfterFunc(d, s.expire)
	} else {
		s.expiry.Reset(d)
	}
}

// expire lets go of what nobody resumed. A call that still runs goes on; its
// answer is lost.
func (s *session) expire() {
	if !s.h.enter() {
		return
	}
	defer s.h.leave()
	s.mu.Lock()
	out := s.surplusLocked(time.Now())
	s.armLocked()
	s.mu.Unlock()
	for _, st := range out {
		st.kill()
	}
}
