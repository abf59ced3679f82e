package acp

import "sync/atomic"

// memory remembers the last keys that were put into it (ACP-L11). Guarded by its
// owner's lock.
type memory struct {
	ring []string
	at   int            // the oldest, once the ring is full
	has  map[string]int // how often each is in the ring
}

func (m *memory) add(key string) {
	if m.has == nil {
		m.has = make(map[string]int)
	}
	m.has[key]++
	if len(m.ring) < maxMemory {
		m.ring = append(m.ring, key)
		return
	}
	old := m.ring[m.at]
	if m.has[old]--; m.has[old] == 0 {
		delete(m.has, old)
	}
	m.ring[m.at] = key
	m.at = (m.at + 1) % maxMemory
}

func (m *memory) knows(key string) bool { return m.has[key] > 0 }

// Counts is what a connection has seen that is not as it should be, and what it
// did about cancels.
type Counts struct {
	Cancels          uint64 // cancels of single requests that hit one
	MalformedCancels uint64 // named no request
	StrayCancels     uint64 // named a request that is over, is the receiver's own, or cannot be cancelled
	EarlyCancels     uint64 // came before their request
	LateResults      uint64 // of handlers, after their request had been answered for them
	LateAnswers      uint64 // of the peer, to calls that were given up
	StrayAnswers     uint64 // of the peer, to no call
	BadMessages      uint64 // could not be read
}

type counts struct {
	cancels, malformed, stray, early, lateResults, lateAnswers, strayAnswers, badMessages atomic.Uint64
}

// Counts is the counts so far.
func (c *Conn) Counts() Counts {
	n := &c.counts
	return Counts{
		Cancels: n.cancels.Load(), MalformedCancels: n.malformed.Load(), StrayCancels: n.stray.Load(), EarlyCancels: n.early.Load(),
		LateResults: n.lateResults.Load(), LateAnswers: n.lateAnswers.Load(), StrayAnswers: n.strayAnswers.Load(), BadMessages: n.badMessages.Load(),
	}
}
