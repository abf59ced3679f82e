package rap

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// The rate of messages to one callback URL that are no result (RAP-42, RAP-79).
const (
	callbackRate  = 50  // a second
	callbackBurst = 100 // at once
)

// ServeHTTP takes the messages of tool servers: POST, at a path of one segment
// below that of the callback URL. The token in it is the proof of who sends it.
//
//	200  taken; also a duplicate, and one that came too late: both change nothing
//	400  malformed; the call stays pending
//	404  unknown or expired token, or ids that are not those of its call
//	405  no POST
//	413  over [MaxMessage]
//	429, 503  too much at once; again after Retry-After
//
// Bodies are empty.
func (rt *Runtime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, ok := rt.token(r.URL.EscapedPath())
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	at, c, s := rt.lookup(key)
	if at == nil && s == nil {
		rt.log.Debug("a message came to an unknown or expired callback URL; it was dropped")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	m, status := rt.read(w, r)
	if m != nil {
		status = rt.take(m, at, c, s)
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if status != http.StatusOK { // which is what a handler that writes nothing says
		w.WriteHeader(status)
	}
}

// token is the digest of the token in a path.
func (rt *Runtime) token(path string) (tokenKey, bool) {
	rt.mu.Lock()
	prefix := rt.path
	rt.mu.Unlock()
	text, ok := strings.CutPrefix(path, prefix+"/")
	if !ok {
		return tokenKey{}, false
	}
	return keyOf(text)
}

// lookup is what a token leads to: a call's slot, with the call unless it has its
// result, and a subscription; nil where there is none.
func (rt *Runtime) lookup(key tokenKey) (*slot, *Pending, *Subscription) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if at := rt.calls[key]; at != nil {
		return at, at.call, rt.subs[key]
	}
	return nil, nil, rt.subs[key]
}

// read reads one message; nil with the status that says what was wrong.
func (rt *Runtime) read(w http.ResponseWriter, r *http.Request) (Message, int) {
	if !isJSON(r) {
		rt.log.Warn("a tool server sent something that is no JSON; it was refused", "type", r.Header.Get("Content-Type"))
		return nil, http.StatusBadRequest
	}
	body, err := readBody(w, r, MaxMessage)
	switch {
	case errors.Is(err, ErrTooLarge):
		return nil, http.StatusRequestEntityTooLarge
	case errors.Is(err, belay.ErrTooMany):
		return nil, http.StatusServiceUnavailable
	case err != nil:
		return nil, http.StatusBadRequest
	}
	m, err := ParseMessage(body)
	if err != nil {
		rt.log.Warn("a tool server sent a malformed message; it was refused", "error", err)
		return nil, http.StatusBadRequest
	}
	return m, 0
}

// take hands a message to the call or subscription of its token, under the lock of
// the thread (RAP-70), and returns the status of the answer.
func (rt *Runtime) take(m Message, at *slot, c *Pending, s *Subscription) int {
	var th *Thread
	var id string
	var rate *meter
	if s != nil {
		th, id, rate = s.th, s.ID, &s.rate
	} else {
		th, id, rate = at.th, at.id, &at.rate
	}
	group, of := m.Address()
	if group != th.id || of != id && m.Type() != TypeView {
		rt.log.Warn("a message named another call than its callback URL; it was dropped", "type", m.Type())
		return http.StatusNotFound // RAP-68
	}
	if m.Type() != TypeResult && !rate.allow(time.Now()) {
		return http.StatusTooManyRequests
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	ok := true
	switch m := m.(type) {
	case *ToolResult:
		if c != nil { // else it is a duplicate (RAP-68)
			c.takeLocked(m)
		}
	case *SubscriptionEvent:
		ok = s == nil || s.takeLocked(m)
	case *OAuth:
		if c != nil {
			c.authoriseLocked(m)
		}
	case *UserChoice:
		if c != nil {
			c.chooseLocked(m)
		}
	case *ViewUpdate:
		var of *Events
		if c != nil {
			of = c.o.Events
		}
		ok = th.viewLocked(m, of)
	}
	if !ok {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// takeLocked takes the result of the call. One that comes after the end is
// evidence if the call was stopped, and nothing otherwise: it never reopens it
// (RAP-26, RAP-68, RAP-93).
func (c *Pending) takeLocked(r *ToolResult) {
	outcome := belay.Completed
	if Failed(r) {
		outcome = belay.Failed
	}
	switch {
	case c.run.Finish(outcome): // else it was stopped, or it is a duplicate
		if r.Subscription {
			r = c.subscribeLocked(r)
		}
		c.endLocked(r, nil)
	case c.run.Cancellation() != nil && !c.late:
		c.late = true
		c.lateLocked(r)
	}
}

// meter is a rate of its own for each call. The zero value is full.
type meter struct {
	mu   sync.Mutex
	used float64
	at   time.Time
}

func (m *meter) allow(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.at.IsZero() {
		m.used = max(0, m.used-now.Sub(m.at).Seconds()*callbackRate)
	}
	m.at = now
	if m.used+1 > callbackBurst {
		return false
	}
	m.used++
	return true
}
