package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/lease"
)

// Bounds of event streams.
const (
	maxStreams    = 1_000
	maxStreamsOf  = 32 // of one principal
	streamBatch   = 64
	streamBeat    = 15 * time.Second
	streamPatient = 30 * time.Second // for one write
)

var errExpired = errors.New("the credentials of the stream have expired")

// streams counts the streams that are open.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
	era chan struct{} // closed when everybody is to be asked again who they are; nil: nobody has looked
}

// now is closed by the next renew.
func (s *streams) now() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.era == nil {
		s.era = make(chan struct{})
	}
	return s.era
}

func (s *streams) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.era != nil {
		close(s.era)
		s.era = nil
	}
}

// Renew has the Authorizer asked again about everybody who has an event stream
// open, and ends those of whoever is not known any more, or may see less or more
// than before. Call it when the Authorizer has begun to say something else.
func (a *API) Renew() { a.streams.renew() }

func (s *streams) open(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || s.of[who] >= maxStreamsOf {
		return false
	}
	if s.of == nil {
		s.of = make(map[string]int)
	}
	s.all++
	s.of[who]++
	return true
}

func (s *streams) closed(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[who]--; s.of[who] == 0 {
		delete(s.of, who)
	}
}

// serveEvents streams events of runs within the reach as server-sent events: the
// event's type as event, its JSON as data, its feed and number as id. With Last-Event-ID
// it goes on behind that; what cannot be had any more is said by an event
// "lost", after which a client lists the runs again. A client that does not read
// loses its stream after [streamPatient], and nobody else anything. A stream ends
// with the credentials that opened it, and when they are withdrawn ([API.Renew]);
// era was asked for before p was.
func (a *API) serveEvents(w http.ResponseWriter, r *http.Request, p Principal, within reach, f belay.Filter, era <-chan struct{}) {
	if !a.streams.open(accountOf(p)) {
		w.Header().Set("Retry-After", "5")
		problem(w, http.StatusTooManyRequests, "too many event streams are open")
		return
	}
	defer a.streams.closed(accountOf(p))
	ctx := r.Context()
	if until := expiryOf(p); !until.IsZero() {
		limited, end := context.WithDeadlineCause(ctx, until, errExpired)
		defer end()
		ctx = limited
	}
	s := stream{leases: a.leasesOf(p), isBelow: a.isBelow, who: p.Name(), w: w, out: http.NewResponseController(w), feed: a.feed, within: within, filter: f, pos: a.feed.now(), ctx: ctx, era: era}
	s.renew = func() bool {
		s.era = a.streams.now() // before it is asked: nothing is missed
		again, err := a.who(r)
		if err != nil || again.Name() != p.Name() {
			return false
		}
		reads := reachBy(again, PermRead, PermReadOwn)
		return reads.all == within.all && reads.owner == within.owner
	}
	resumed := true
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		s.pos, resumed = a.feed.after(id)
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if !resumed {
		s.lost(0)
	} else {
		s.write(": belay\n\n") // the headers go out now
	}
	s.run()
}

// stream is one client of the feed. Only its handler uses it.
type stream struct {
	who     string
	leases  *lease.Registry // nil: what is shown here tells no runtime of a Stop
	isBelow func(ctx context.Context, id, root belay.RunID) bool
	w       http.ResponseWriter
	out     *http.ResponseController
	feed    *feed
	within  reach
	filter  belay.Filter
	pos     uint64
	ctx     context.Context // of the request
	err     error           // of the first write that failed

	era   <-chan struct{} // closed: ask renew
	renew func() bool     // whether the client may still see what it sees
}

func (s *stream) run() {
	ctx := s.ctx
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for s.err == nil && ctx.Err() == nil {
		select {
		case <-s.era:
			if !s.renew() {
				return
			}
		default:
		}
		b := s.feed.from(s.pos, streamBatch)
		if b.lost > 0 {
			s.lost(b.lost)
		}
		for i := range b.events {
			s.send(b.first+uint64(i), &b.events[i])
		}
		s.pos = b.first + uint64(len(b.events))
		switch {
		case len(b.events) > 0:
			continue
		case b.closed:
			return
		}
		select {
		case <-b.more:
		case <-s.era:
		case <-beat.C:
			s.write(": beat\n\n")
		case <-ctx.Done():
		}
	}
}

// send writes an event that the client may see and wants. What the Control
// itself lost before it is said to everybody: it concerns everybody's runs.
func (s *stream) send(n uint64, e *entry) {
	if e.Lost > 0 {
		s.lost(e.Lost)
	}
	if e.Type == "" && e.frame == nil || !s.within.sees(&e.Run) || !s.filter.Match(&e.Run) || !s.under(&e.Run) {
		return
	}
	if e.frame != nil {
		s.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", s.feed.id(n), methodCancelled, e.frame))
		return
	}
	out := e.Event
	out.Lost = 0
	s.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", s.feed.id(n), e.Type, compact(out)))
	if s.err == nil && s.leases != nil && e.Run.Owner == s.who {
		s.leases.Delivered(s.who, e.Run.ID, stepOf(&e.Event))
	}
}

// leasesOf is where it counts that p was shown an event. An agent inside of a run
// is not its runtime, although it may hold the same token.
func (a *API) leasesOf(p Principal) *lease.Registry {
	if len(insideOf(p)) > 0 {
		return nil
	}
	return a.o.Leases
}

// under reports whether the run lies where the client looks.
func (s *stream) under(i *belay.Info) bool {
	root := s.filter.Under
	return root.IsZero() || i.ID == root || i.Parent == root || s.isBelow(s.ctx, i.ID, root)
}

// stepOf is the step of a Stop that an event shows; empty: none.
func stepOf(e *belay.Event) belay.Means {
	switch {
	case e.Type == belay.EventCancelled:
		return belay.StepTold
	case e.Type == belay.EventStep && e.Receipt != nil && len(e.Receipt.Steps) > 0:
		return e.Receipt.Steps[len(e.Receipt.Steps)-1].Step
	}
	return ""
}

// lost says that events are missing; 0: nobody knows how many.
func (s *stream) lost(n uint64) {
	s.write(fmt.Sprintf("event: lost\ndata: {\"lost\":%d}\n\n", n))
}

func (s *stream) write(text string) {
	if s.err != nil {
		return
	}
	// A server without deadlines still streams; its other limits hold.
	_ = s.out.SetWriteDeadline(time.Now().Add(streamPatient))
	if _, s.err = s.w.Write([]byte(text)); s.err == nil {
		s.err = s.out.Flush()
	}
}
