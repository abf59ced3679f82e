package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/belayhq/belay"
)

// Pace of a stream that breaks.
const (
	firstBackOff = 100 * time.Millisecond
	lastBackOff  = 5 * time.Second
	maxSilence   = 45 * time.Second // a server says something every 15 s
)

// ErrLost says that events are missing and nobody knows how many, since the
// server was started anew, or the stream broke before its first event. Who keeps a picture of the runs lists them again.
var ErrLost = errors.New("events were lost, and it is not known how many; list the runs again")

var errSilent = fmt.Errorf("%w: the event stream was silent for too long", belay.ErrUnreachable)

// Watch implements [belay.Control]. It watches from the call on, so that a List
// after it misses nothing: the first connection is made before it returns. A
// stream that breaks is opened again behind the last event, with a back-off of
// at most five seconds; the first failure of a row is given as an error, and the
// loop goes on. Events that could not be had any more are counted in the Lost of
// the next one; where nobody knows the number, [ErrLost] is given. A refusal
// (401, 403, …) is given and ends the loop, as the end of ctx does.
func (c *Client) Watch(ctx context.Context, f belay.Filter) iter.Seq2[belay.Event, error] {
	ctx, end := context.WithCancelCause(ctx)
	w := &watch{client: c, ctx: ctx, filter: f, query: filterValues(f.Owner, f.Server, f.Kinds, f.Labels)}
	if !f.Under.IsZero() {
		w.query.Set("under", f.Under.String())
	}
	first, err := w.connect()
	return func(yield func(belay.Event, error) bool) {
		defer end(errLeft)
		w.run(first, err, yield)
	}
}

var errLeft = errors.New("the loop over the events was left")

// watch is one loop over events. Only the loop uses it.
type watch struct {
	client *Client
	ctx    context.Context //nolint:containedctx // it is the loop's, from its begin to its end
	filter belay.Filter
	query  url.Values
	last   string // Last-Event-ID
	lost   uint64 // to be said with the next event
	gave   bool   // the stream that is read gave something
}

// stream is one connection.
type stream struct {
	body  io.ReadCloser
	ctx   context.Context //nolint:containedctx // its cause says why the connection was ended
	end   context.CancelCauseFunc
	quiet *time.Timer
}

func (s *stream) close() {
	s.quiet.Stop()
	s.end(errLeft)
	_ = s.body.Close()
}

// Read implements io.Reader: whatever comes is a sign of life.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 {
		s.quiet.Reset(maxSilence)
	}
	if err != nil && !errors.Is(err, io.EOF) && s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	return n, err
}

func (w *watch) connect() (*stream, error) {
	ctx, end := context.WithCancelCause(w.ctx)
	quiet := time.AfterFunc(maxSilence, func() { end(errSilent) })
	h := http.Header{"Accept": {"text/event-stream"}}
	if w.last != "" {
		h.Set("Last-Event-ID", w.last)
	}
	resp, err := w.client.open(ctx, call{method: http.MethodGet, path: "/v1/events", query: w.query, header: h}) //nolint:bodyclose // the stream closes it
	if err != nil {
		quiet.Stop()
		end(errLeft)
		return nil, err
	}
	return &stream{body: resp.Body, ctx: ctx, end: end, quiet: quiet}, nil
}

// run reads one stream after the other.
func (w *watch) run(s *stream, err error, yield func(belay.Event, error) bool) {
	failed := 0 // in a row
	for {
		if err == nil {
			w.gave = false
			if err = w.read(s, yield); errors.Is(err, errLeft) {
				return
			}
		}
		if w.ctx.Err() != nil {
			return
		}
		if w.gave {
			failed = 0
		}
		if failed++; failed == 1 || refused(err) {
			if !yield(belay.Event{}, err) || refused(err) {
				return
			}
		}
		timer := time.NewTimer(backOff(failed))
		select {
		case <-timer.C:
		case <-w.ctx.Done():
			timer.Stop()
			return
		}
		s, err = w.connect()
		if err == nil && w.last == "" && !yield(belay.Event{}, ErrLost) { // there is nothing to go on behind
			s.close()
			return
		}
	}
}

// backOff is the pause before a try, after so many failures in a row.
func backOff(failed int) time.Duration {
	return min(firstBackOff<<min(failed-1, 10), lastBackOff)
}

// refused reports whether the same request will be refused again.
func refused(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status < 500 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout
}

// read gives the events of one stream. It returns errLeft when the loop is over,
// else what ended the stream.
func (w *watch) read(s *stream, yield func(belay.Event, error) bool) error {
	defer s.close()
	in := newSSEReader(s)
	in.last = w.last
	for {
		e, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%s %w: it ended the event stream", w.client.named, belay.ErrUnreachable)
		case err != nil:
			return fmt.Errorf("%s %w: the event stream broke: %w", w.client.named, belay.ErrUnreachable, err)
		}
		w.gave, w.last = true, e.id
		if !w.give(e, yield) {
			return errLeft
		}
	}
}

// noticeKind is a notice of a cancel in the form in which MCP sessions get it;
// the run's own events say the same and more.
const noticeKind = "notifications/cancelled"

// give hands one event on; false: the loop is over.
func (w *watch) give(e sseEvent, yield func(belay.Event, error) bool) bool {
	if e.kind == "lost" {
		var said struct {
			Lost uint64 `json:"lost"`
		}
		if json.Unmarshal(e.data, &said) == nil && said.Lost > 0 {
			w.lost += said.Lost
			return true
		}
		return yield(belay.Event{}, ErrLost)
	}
	if len(e.data) == 0 || e.kind == noticeKind {
		return true
	}
	var event belay.Event
	if err := json.Unmarshal(e.data, &event); err != nil {
		w.lost++ // an event of a form that this client does not know
		return true
	}
	if len(w.filter.IDs) > 0 && !slices.Contains(w.filter.IDs, event.Run.ID) {
		return true
	}
	event.Lost += w.lost
	w.lost = 0
	return w.ctx.Err() == nil && yield(event, nil)
}
