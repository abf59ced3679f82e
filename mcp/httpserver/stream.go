package httpserver

import (
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Errors of a stream's senders. Both say that the message will not arrive.
var (
	// ErrGone says that nobody will read the stream any more.
	ErrGone = errors.New("the caller is gone")
	// ErrNoStream says that the caller takes a plain response only, which has no
	// room for anything but the answer.
	ErrNoStream = errors.New("the caller takes no stream")
)

// shape is what a stream is for; it never changes.
type shape struct {
	number   uint64 // names it in event ids; 0 is the session's own stream
	owner    *session
	modern   bool
	named    bool // events have ids, and what was sent is kept for a resume
	priming  bool // the client understands an event without data (2025-11-25)
	standing bool // the session's own stream: no answer ends it
	plain    bool // the caller takes no stream: answers only
	prefers  bool // the caller would rather have a stream
	batch    bool
	opens    bool // the request is initialize
}

// stream is what one response consists of: the answers to the requests of one
// POST and what belongs to them, or everything that belongs to a session.
// Senders put messages in and never wait; the goroutine of the HTTP exchange
// takes them out and writes. On a legacy connection the exchange may end before
// the stream does, and another one may take over (resume).
//
// It is the [mcp.Outlet] of a POST with one request.
type stream struct {
	shape
	limit int           // bytes that may wait for a reader
	wake  chan struct{} // buffered by one: something changed

	// attached is written with mu held, and read without it by who looks for a
	// stream that is being read.
	attached atomic.Bool

	mu      sync.Mutex
	expect  int        // requests that have neither been answered nor dropped
	dropped bool       // one of them was dropped
	ended   bool       // nothing follows, whatever is still expected
	id      jsonrpc.ID // of the request, if it is one
	parts   []*part    // or of a batch
	answer  []byte     // the answer, when it was the first thing and can go as plain JSON
	status  int        // the HTTP status that came with it
	refused bool       // initialize got an error

	events []event // kept ones, then those not yet written, from next on
	next   int
	unsent int    // bytes of events[next:]
	seq    uint64 // of the last event

	reader    uint64 // the exchange that writes, by its attach; 0: none
	readers   uint64 // attaches so far
	committed bool   // an event stream was begun: only events from here on
	cut       bool   // the reader was too slow and has to go
	dead      bool   // nobody will ever read what comes

	// The fields below are guarded by the mu of owner.
	parking uint64      // of the latest parking, 0 while it is not parked
	later   *time.Timer // stops the calls, see CancelAfter
}

// event is one encoded event.
type event struct {
	seq  uint64
	data []byte
}

func newStream(s shape, limit, expect int) *stream {
	return &stream{shape: s, limit: limit, expect: expect, wake: make(chan struct{}, 1)}
}

// Send implements [mcp.Outlet].
func (s *stream) Send(frame []byte, edits ...jsonrpc.Edit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.overLocked(), s.dead:
		return ErrGone
	case s.plain:
		return ErrNoStream
	}
	return s.pushLocked(frame, edits, false)
}

// Answer implements [mcp.Outlet] for a POST with one request.
func (s *stream) Answer(status int, frame []byte, edits ...jsonrpc.Edit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answerLocked(status, frame, edits)
}

func (s *stream) answerLocked(status int, frame []byte, edits []jsonrpc.Edit) error {
	if s.standing && !s.ended && !s.dead {
		return s.pushLocked(frame, edits, true)
	}
	if s.expect == 0 || s.ended {
		return ErrGone
	}
	s.expect--
	if s.opens {
		_, s.refused = errorAt(frame)
	}
	if s.dead {
		return ErrGone
	}
	streams := s.committed || s.batch || len(s.events) > 0 || s.prefers && s.statusFor(status, frame) == http.StatusOK
	if !s.plain && streams {
		return s.pushLocked(frame, edits, true)
	}
	s.answer, s.status = s.plainAnswerLocked(frame, edits), status
	s.wakeLocked()
	return nil
}

// statusFor is the HTTP status of an answer that is the first thing sent: the
// server's own, so that Belay equals direct, or by the error's code (MCP-62).
func (s *stream) statusFor(status int, frame []byte) int {
	switch {
	case status == http.StatusOK, status >= 400 && status < 600:
		return status
	case s.modern:
		return statusOf(frame)
	}
	return http.StatusOK
}

// plainAnswerLocked is the body of a plain response: the answer, or all answers
// of a batch, of which this is the next.
func (s *stream) plainAnswerLocked(frame []byte, edits []jsonrpc.Edit) []byte {
	if !s.batch {
		size := len(frame)
		for _, e := range edits {
			size += len(e.New)
		}
		return jsonrpc.AppendSplice(make([]byte, 0, size), frame, edits...)
	}
	body := s.answer
	if body == nil {
		body = append(body, '[')
	} else {
		body[len(body)-1] = ','
	}
	return append(jsonrpc.AppendSplice(body, frame, edits...), ']')
}

// Drop implements [mcp.Outlet].
func (s *stream) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.standing || s.expect == 0 {
		return
	}
	s.expect--
	s.dropped = true
	s.wakeLocked()
}

// part is the outlet of one request of a batch.
type part struct {
	*stream
	number uint64 // of the exchange, as far as the session is concerned
	id     jsonrpc.ID
	done   bool // guarded by stream.mu
}

var _, _ mcp.Outlet = (*stream)(nil), (*part)(nil)

// Answer implements [mcp.Outlet].
func (p *part) Answer(status int, frame []byte, edits ...jsonrpc.Edit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return ErrGone
	}
	p.done = true
	return p.answerLocked(status, frame, edits)
}

// Drop implements [mcp.Outlet].
func (p *part) Drop() {
	p.mu.Lock()
	done := p.done
	p.done = true
	p.mu.Unlock()
	if !done {
		p.stream.Drop()
	}
}

// Send implements [mcp.Outlet].
func (p *part) Send(frame []byte, edits ...jsonrpc.Edit) error {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done {
		return ErrGone
	}
	return p.stream.Send(frame, edits...)
}

func (s *stream) overLocked() bool { return s.ended || s.expect == 0 && !s.standing }

// eventOverhead is what an event has beside its message, about.
const eventOverhead = 64

// pushLocked queues one message. An answer is always taken: its caller would
// hang without it, and there is one at most for each request.
func (s *stream) pushLocked(frame []byte, edits []jsonrpc.Edit, answer bool) error {
	size := len(frame) + eventOverhead
	for _, e := range edits {
		size += len(e.New)
	}
	if s.unsent > 0 && s.unsent+size > s.limit {
		if s.reader != 0 && !s.cut {
			// Everybody else must not wait for a slow reader: it is cut off, and
			// what a disconnect means is decided where disconnects are.
			s.cut = true
			s.logLocked("a caller that does not read was cut off", "waiting", s.unsent)
			s.wakeLocked()
		}
		if !s.named {
			if !answer {
				return jsonrpc.ErrQueueFull
			}
		} else {
			s.forgetLocked(s.unsent + size - s.limit)
		}
	}
	s.seq++
	e := event{s.seq, appendEvent(make([]byte, 0, size), eventID{s.number, s.seq}, s.named, frame, edits)}
	s.events = append(s.events, e)
	s.unsent += len(e.data)
	s.keepLocked(len(e.data))
	s.wakeLocked()
	return nil
}

// keepLocked accounts for n more bytes that are kept, and lets go of what was
// written longest ago when the session keeps too much.
func (s *stream) keepLocked(n int) {
	if !s.named || s.owner == nil {
		return
	}
	over := s.owner.kept.Add(int64(n)) - int64(s.owner.h.cfg.ResumeBytes)
	drop := 0
	for over > 0 && drop < s.next {
		over -= int64(len(s.events[drop].data))
		drop++
	}
	s.dropLocked(drop)
	if over > 0 && s.reader == 0 {
		s.forgetLocked(int(over))
	}
}

// forgetLocked gives up the oldest messages of a stream that nobody reads, n
// bytes at least, except the last one: that may be the answer.
func (s *stream) forgetLocked(n int) {
	drop := 0
	for n > 0 && drop < len(s.events)-1 {
		n -= len(s.events[drop].data)
		drop++
	}
	if drop > s.next {
		s.logLocked("messages for a caller that is not there were given up", "count", drop-s.next)
	}
	s.dropLocked(drop)
}

// dropLocked removes the first n events.
func (s *stream) dropLocked(n int) {
	if n == 0 {
		return
	}
	for i := range n {
		size := len(s.events[i].data)
		if i >= s.next {
			s.unsent -= size
		}
		if s.named && s.owner != nil {
			s.owner.kept.Add(int64(-size))
		}
		s.events[i].data = nil
	}
	s.events = s.events[n:]
	s.next = max(0, s.next-n)
	if len(s.events) == 0 {
		s.events = nil
	}
}

func (s *stream) logLocked(text string, args ...any) {
	if s.owner != nil {
		s.owner.h.cfg.Log.Warn(text, append([]any{slog.Uint64("stream", s.number), slog.String("session", s.owner.short())}, args...)...)
	}
}

func (s *stream) wakeLocked() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// attach makes the calling exchange the reader, in the place of the one before,
// which notices and leaves. A resume goes on behind the event after.
func (s *stream) attach(resume bool, after uint64) (reader uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resume {
		s.rewindLocked(after)
		s.committed = true
	}
	s.readers++
	s.reader = s.readers
	s.cut = false
	s.attached.Store(true)
	s.wakeLocked()
	return s.reader
}

// rewindLocked makes what follows the event after unsent again, and what comes
// before it sent.
func (s *stream) rewindLocked(after uint64) {
	s.next, s.unsent = len(s.events), 0
	for i, e := range s.events {
		if e.seq > after {
			s.next = min(s.next, i)
			s.unsent += len(e.data)
		}
	}
}

// left reports whether a resume behind the event after has anything to give:
// messages, or a request that is still to be answered (MCP-G24).
func (s *stream) left(after uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return false
	}
	if !s.overLocked() {
		return true
	}
	return len(s.events) > 0 && s.events[len(s.events)-1].seq > after
}

// detach ends the reading of one exchange. It is false if another exchange has
// taken over, whose business the stream is now.
func (s *stream) detach(reader uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != reader {
		return false
	}
	s.reader = 0
	s.attached.Store(false)
	return true
}

// kill says that nobody will read the stream any more, and lets its memory go.
func (s *stream) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	s.answer = nil
	s.dropLocked(len(s.events))
	s.wakeLocked()
}

// settle ends a stream from this side. With a failure every request that is
// still open gets it as its answer (MCP-G28); without one they are dropped.
func (s *stream) settle(f *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != nil && !s.ended && s.expect > 0 {
		if !s.batch {
			_ = s.answerLocked(f.status, jsonrpc.AppendError(nil, s.id, f.code, f.text, f.data), nil)
		}
		for _, p := range s.parts {
			if !p.done {
				p.done = true
				_ = s.answerLocked(f.status, jsonrpc.AppendError(nil, p.id, f.code, f.text, f.data), nil)
			}
		}
	}
	s.ended = true
	s.wakeLocked()
}

// open returns the exchanges whose requests have no answer yet.
func (s *stream) open() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expect == 0 || s.ended {
		return nil
	}
	if !s.batch {
		return []uint64{s.number}
	}
	var open []uint64
	for _, p := range s.parts {
		if !p.done {
			open = append(open, p.number)
		}
	}
	return open
}

// wasRefused reports whether initialize was answered with an error.
func (s *stream) wasRefused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// haul is what a reader takes out of a stream at once.
type haul struct {
	events []byte // to be written as they are
	answer []byte // or the body of a plain response
	status int    // that came with the answer
	begin  bool   // these are the first events of the stream on any exchange
	done   bool   // nothing follows
	leave  bool   // the reader has to go: it was replaced or is too slow
}

// maxHaul is about how much is written at once, so that a reader's buffer
// stays small whatever waits.
const maxHaul = 64 << 10

// take gives the reader what waits, appended to dst.
func (s *stream) take(reader uint64, dst []byte) haul {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reader != reader || s.cut:
		return haul{leave: true}
	case s.answer != nil && s.expect == 0:
		return haul{answer: s.answer, status: s.status, done: true}
	}
	got := haul{begin: !s.committed}
	first := s.next
	for s.next < len(s.events) && (len(dst) == 0 || len(dst)+len(s.events[s.next].data) <= maxHaul) {
		e := s.events[s.next].data
		dst = append(dst, e...)
		s.unsent -= len(e)
		s.next++
	}
	got.events = dst
	got.done = s.next == len(s.events) && (s.dead || s.overLocked())
	if s.next > first {
		s.committed = true
		if !s.named {
			s.dropLocked(s.next)
		}
	}
	return got
}

// commit begins an event stream although there is nothing to send yet. It is
// false if there is something by now, or if there can be no such stream.
func (s *stream) commit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plain || s.answer != nil || s.next < len(s.events) {
		return false
	}
	s.committed = true
	return true
}

// resumable reports whether a client can have an id to come back with and may
// still come back: nothing more is owed to one that cancelled.
func (s *stream) resumable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named && s.committed && !s.dead && !(s.dropped && s.expect == 0)
}
