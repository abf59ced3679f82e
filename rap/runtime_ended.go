package rap

import "time"

// endedCalls are the callback URLs of calls that have ended, oldest first. There may
// be thousands, so that they hold nothing that a garbage collector has to follow.
type endedCalls struct {
	list  []endedCall
	first int       // those before have been taken
	since time.Time // what the times of the list count from
}

type endedCall struct {
	key tokenKey
	at  time.Duration
}

// put adds one, and gives forget those that are too many, or too old.
func (e *endedCalls) put(key tokenKey, now time.Time, forget func(tokenKey)) {
	if e.since.IsZero() {
		e.since = now
	}
	if e.first > maxEnded {
		e.list, e.first = e.list[:copy(e.list, e.list[e.first:])], 0
	}
	at := now.Sub(e.since)
	e.list = append(e.list, endedCall{key, at})
	for len(e.list)-e.first > maxEnded || at-e.list[e.first].at > KeepCallbacks {
		forget(e.list[e.first].key)
		e.first++
	}
}
