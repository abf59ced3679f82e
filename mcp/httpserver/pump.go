package httpserver

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// outcome says how an exchange ended.
type outcome uint8

const (
	finished outcome = iota // everything was written
	gone                    // the caller went away, or did not read
	replaced                // another exchange reads the stream now
	expired                 // the caller's credentials are not good any more
)

// reason says in a Stop why an exchange ended before its answer was written.
func (o outcome) reason() string {
	if o == expired {
		return "the credentials of the client's stream have expired"
	}
	return "the client closed the connection"
}

// Values of response headers that never change; maps may share them.
var (
	valueJSON   = []string{typeJSON}
	valueStream = []string{typeStream}
	valueCache  = []string{"no-cache, no-transform"}
	valueNo     = []string{"no"}
)

const (
	// autoLength is the longest body whose length net/http finds by itself.
	autoLength = 2000
	// largeWrite is what a socket's buffer takes at once in any case, about.
	largeWrite = 32 << 10
)

// pump writes one stream as the response of one exchange. It runs on the
// exchange's own goroutine.
type pump struct {
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	s      *stream
	reader uint64

	prelude []byte // goes out first
	eager   bool   // the headers go out at once
	session string // the id that a new session is announced by

	// expires is when the credentials stop being good with which the stream was
	// asked for; zero: never. The stream ends then if back says that its caller
	// can come back to it, with fresh ones.
	expires time.Time
	back    bool

	begun bool // the response is an event stream
	*gear
}

// gear is what pumps use again.
type gear struct {
	timer *time.Timer
	buf   []byte
}

var gears = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &gear{timer: t}
}}

// run writes until the stream or the exchange is over. ended is closed when
// the session with the server is.
func (p *pump) run(ended <-chan struct{}, atClose func()) outcome {
	p.gear = gears.Get().(*gear) //nolint:forcetypeassert // the pool makes no other
	p.rc = http.NewResponseController(p.w)
	defer p.park()
	closing := p.h.closing
	if atClose == nil {
		closing = nil
	}
	if p.eager && !p.begin(true) {
		return gone
	}
	p.rearm()
	for {
		got := p.s.take(p.reader, p.buf[:0])
		switch {
		case got.leave:
			return p.left()
		case got.answer != nil && !p.begun:
			return p.plain(got)
		}
		if len(got.events) > 0 || got.done {
			if !p.events(got) {
				return gone
			}
			switch {
			case got.done:
				return finished
			case p.mustEnd(): // who is written to all the time is never quiet
				return expired
			}
			p.rearm()
			continue
		}
		select {
		case <-p.s.wake:
		case <-p.r.Context().Done():
			return gone
		case <-p.timer.C:
			if p.mustEnd() {
				return expired
			}
			if !p.quiet() {
				return gone
			}
			p.rearm()
		case <-ended:
			ended = nil
			p.s.settle(errEnded)
		case <-closing:
			closing = nil
			atClose()
		}
	}
}

// errEnded is what a request gets whose server went away without a word.
var errEnded = &failure{status: http.StatusBadGateway, code: codeInternal, text: "the session with the server has ended"}

// left tells a reader that was replaced from one that was cut off.
func (p *pump) left() outcome {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.reader != p.reader {
		return replaced
	}
	return gone
}

// plain answers with one JSON body: the way of most calls.
func (p *pump) plain(got haul) outcome {
	status := p.s.statusFor(got.status, got.answer)
	p.announce()
	if len(got.answer) <= largeWrite {
		if writeJSON(p.w, status, got.answer) != nil {
			return gone
		}
		return finished
	}
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.h.cfg.WriteWait))
	err := writeJSON(p.w, status, got.answer)
	if err == nil {
		err = p.rc.Flush()
	}
	_ = p.rc.SetWriteDeadline(time.Time{})
	if err != nil {
		return gone
	}
	return finished
}

// announce puts the id of a new session into the headers. A refused initialize
// opens none.
func (p *pump) announce() {
	if p.session != "" && !p.s.wasRefused() {
		p.w.Header()[headerSession] = []string{p.session}
	}
}

// writeJSON writes a whole response.
func writeJSON(w http.ResponseWriter, status int, body []byte) error {
	header := w.Header()
	header["Content-Type"] = valueJSON
	if len(body) > autoLength {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
	}
	_, err := w.Write(body) //nolint:gosec,nolintlint // it is JSON, and its type says so; found in some runs only
	return err
}

// begin starts the event stream; flush says that its headers have to leave.
func (p *pump) begin(flush bool) bool {
	p.begun = true
	header := p.w.Header()
	header["Content-Type"] = valueStream
	header["Cache-Control"] = valueCache
	header["X-Accel-Buffering"] = valueNo
	p.announce()
	p.w.WriteHeader(http.StatusOK)
	if len(p.prelude) > 0 {
		return p.write(p.prelude)
	}
	return !flush || p.rc.Flush() == nil
}

// events writes what was taken.
func (p *pump) events(got haul) bool {
	p.buf = got.events
	if !p.begun {
		if got.begin && len(got.events) > 0 {
			p.prime()
		}
		if !p.begin(len(got.events) == 0) {
			return false
		}
	}
	p.back = p.back || p.s.named && len(got.events) > 0 // they have ids
	return len(got.events) == 0 || p.write(got.events)
}

// prime makes the first thing of a stream an id without a message, for clients
// that can take it.
func (p *pump) prime() {
	if p.s.named && p.s.priming && p.prelude == nil {
		p.prelude = appendPriming(nil, p.s.number)
		p.back = true
	}
}

// quiet is called when nothing was said for a while: the headers go out, or a
// comment that finds out whether anybody is there (MCP-G5).
func (p *pump) quiet() bool {
	if p.begun {
		return apart(func() bool { return p.write([]byte(comment)) })
	}
	if !p.s.commit() {
		return true
	}
	p.prime()
	return apart(func() bool { return p.begin(true) })
}

// apart calls f on a goroutine of its own and waits for it. To write a
// response's head takes net/http more stack than all that went before, and a
// goroutine keeps what it once took: with thousands of calls that wait, that
// shows.
func apart(f func() bool) bool {
	done := make(chan bool, 1)
	go func() { done <- f() }()
	return <-done
}

// write hands bytes to the socket, which has to take them in time: a peer that
// vanished without a word is noticed by that.
func (p *pump) write(b []byte) bool {
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.h.cfg.WriteWait))
	if _, err := p.w.Write(b); err != nil {
		return false
	}
	return p.rc.Flush() == nil
}

func (p *pump) rearm() {
	wait := p.h.cfg.HeaderWait
	if p.begun {
		wait = p.h.cfg.KeepAlive
		if p.back && !p.expires.IsZero() {
			wait = min(wait, time.Until(p.expires))
		}
	}
	p.timer.Reset(wait)
}

// mustEnd reports whether the stream is one that ends with its caller's
// credentials, and they are not good any more.
func (p *pump) mustEnd() bool {
	return p.begun && p.back && !p.expires.IsZero() && !time.Now().Before(p.expires)
}

// park gives the gear back. The write deadline must not outlive the exchange:
// the connection serves other requests after it.
func (p *pump) park() {
	if p.begun {
		_ = p.rc.SetWriteDeadline(time.Time{})
	}
	p.timer.Stop()
	if cap(p.buf) > 2*maxHaul {
		p.buf = nil
	}
	gears.Put(p.gear)
	p.gear = nil
}
