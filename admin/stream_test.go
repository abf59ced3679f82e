package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// sse is an open event stream.
type sse struct {
	*rig
	resp *http.Response
	in   *bufio.Scanner
	end  context.CancelFunc
}

type sseEvent struct {
	id, kind, data string
	event          belay.Event
}

func (r *rig) events(token, query, last string) *sse {
	r.Helper()
	ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
	r.Cleanup(end)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/v1/events"+query, nil)
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // by close
	if err != nil {
		r.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		r.Fatalf("%s %s", resp.Status, resp.Header)
	}
	return &sse{r, resp, bufio.NewScanner(resp.Body), end}
}

func (s *sse) close() {
	s.end()
	s.resp.Body.Close()
}

// next is the next event; ok is false at the end of the stream.
func (s *sse) next() (e sseEvent, ok bool) {
	s.Helper()
	for s.in.Scan() {
		key, value, _ := strings.Cut(s.in.Text(), ": ")
		switch key {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			e.data = value
			if err := json.Unmarshal([]byte(value), &e.event); err != nil {
				s.Fatal(err)
			}
		case "":
			if e.kind != "" {
				return e, true
			}
		}
	}
	return e, false
}

// until reads up to the event of this kind of this run.
func (s *sse) until(kind belay.EventType, run *belay.Run) (seen []sseEvent) {
	s.Helper()
	for {
		e, ok := s.next()
		if !ok {
			s.Fatalf("the stream ended before %s of %s: %+v", kind, run.ID(), seen)
		}
		seen = append(seen, e)
		if e.kind == string(kind) && e.event.Run.ID == run.ID() {
			return seen
		}
	}
}

// Events of one's own runs only, and after a break from where it was, each once.
func TestEvents(t *testing.T) {
	r := newRig(t, Options{})
	s := r.events("ann", "", "")
	foreign := r.call("bob", "1")
	mine := r.call("ann", "1", with(&stopper{}))
	seen := s.until(belay.EventRegistered, mine)
	last := seen[len(seen)-1].id
	s.close()
	foreign.Finish(belay.Completed)
	mine.Cancel(belay.Cancellation{Cause: belay.CauseUser, Reason: "why"})
	r.wait(mine)
	s = r.events("ann", "", last)
	seen = append(seen, s.until(belay.EventEnded, mine)...)
	s.close()
	ids := make(map[string]bool)
	final := false
	for _, e := range seen {
		if e.event.Run.Owner != "ann" || ids[e.id] {
			t.Errorf("event %+v", e)
		}
		ids[e.id] = true
		if e.kind == string(belay.EventFinal) {
			final = e.event.Receipt != nil && e.event.Receipt.Verdict == belay.Confirmed
		}
	}
	if !final {
		t.Errorf("no final receipt in %+v", seen)
	}
}

// An id of another process, or one that never was, is answered with "lost".
func TestEventsLost(t *testing.T) {
	r := newRig(t, Options{})
	for _, last := range []string{"other-7", r.api.feed.id(999), "x"} {
		s := r.events("op", "", last)
		run := r.call("ann", "1")
		seen := s.until(belay.EventRegistered, run)
		if seen[0].kind != "lost" || seen[0].id != "" {
			t.Errorf("after %q: %+v", last, seen[0])
		}
		s.close()
	}
}

// A stream that falls behind what is kept is told how much it missed.
func TestFeedBehind(t *testing.T) {
	f := &feed{events: make([]entry, feedKept), next: 1, more: make(chan struct{})}
	for range feedKept + 10 {
		f.add(entry{})
	}
	if b := f.from(1, 5); b.lost != 10 || b.first != 11 || len(b.events) != 5 {
		t.Errorf("lost %d, first %d, %d events", b.lost, b.first, len(b.events))
	}
	if b := f.from(f.now(), 5); b.lost != 0 || len(b.events) != 0 {
		t.Errorf("at the end: %+v", b)
	}
}

// Filters hold for streams; Close ends them; too many of one principal are refused.
func TestStreamsEnd(t *testing.T) {
	r := newRig(t, Options{})
	s := r.events("op", "?owner=bob", "")
	r.call("ann", "1")
	run := r.call("bob", "1")
	if seen := s.until(belay.EventRegistered, run); len(seen) != 1 {
		t.Errorf("the filter let through %+v", seen)
	}
	for range maxStreamsOf - 1 {
		defer r.events("op", "", "").close()
	}
	if got := r.do("GET", "/v1/events", "op", ""); got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("stream %d: %d", maxStreamsOf+1, got.status)
	}
	r.api.Close()
	for {
		if _, ok := s.next(); !ok {
			break
		}
	}
	s.close()
}

// passing is a principal whose credentials end.
type passing struct {
	person

	until time.Time
}

func (p passing) Expires() time.Time { return p.until }

type passingBy time.Time

func (b passingBy) Principal(*http.Request) (Principal, error) {
	return passing{everybody["op"], time.Time(b)}, nil
}

// A stream ends with the credentials that opened it.
func TestStreamExpires(t *testing.T) {
	r := newRig(t, Options{Authorizer: passingBy(time.Now().Add(100 * time.Millisecond))})
	s := r.events("op", "", "")
	defer s.close()
	if e, ok := s.next(); ok {
		t.Errorf("%+v", e)
	}
}

// changing is an Authorizer whose people change while requests are served.
type changing struct{ now atomic.Pointer[people] }

func (c *changing) Principal(r *http.Request) (Principal, error) { return c.now.Load().Principal(r) }

// Whoever is not known any more, or may see something else, loses the stream that
// is open, and whoever is as before keeps it.
func TestEventsOfWithdrawnCredentials(t *testing.T) {
	who := &changing{}
	who.now.Store(&everybody)
	r := newRig(t, Options{Authorizer: who})
	ann, bob, reader := r.events("ann", "", ""), r.events("bob", "", ""), r.events("reader", "", "")
	who.now.Store(&people{
		"ann": everybody["ann"], "reader": {"reader", []string{PermReadOwn}},
	})
	r.api.Renew()
	for name, s := range map[string]*sse{"bob": bob, "reader": reader} {
		if e, ok := s.next(); ok {
			t.Errorf("%s sees %+v", name, e)
		}
	}
	ann.until(belay.EventRegistered, r.call("ann", "1"))
	who.now.Store(&people{})
	r.api.Renew()
	r.call("ann", "2")
	if e, ok := ann.next(); ok && e.event.Run.Address == "2" {
		t.Errorf("ann sees %+v", e)
	}
}

// ORC-44b: who may see the run gets the seed's frame on the event stream, whoever's
// sessions are told; others get nothing, and so does everybody of a run that has no
// id of a protocol.
func TestObserversGetTheFrame(t *testing.T) {
	r := newRig(t, Options{Broadcast: ToNobody})
	streams := map[string]*sse{}
	for _, who := range []string{"reader", "ann", "bob"} {
		streams[who] = r.events(who, "", "")
		defer streams[who].close()
	}
	nameless, run := r.call("ann", "", with(&stopper{})), r.call("ann", `"call-7"`, with(&stopper{}))
	into[cancelDone](r, r.do("POST", "/v1/runs/"+nameless.ID().String()+"/cancel", "op", `{"wait":5}`), 200)
	into[cancelled](r, r.cancel("op", `{"requestId":"call-7","reason":"user pressed Stop","wait":5}`), 200)
	into[cancelled](r, r.cancel("op", `{"requestId":"nobody-knows"}`), 200)
	last := r.call("bob", `"last"`)
	want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"call-7","reason":"user pressed Stop","run":"` + run.ID().String() + `"}}`
	for who, times := range map[string]int{"reader": 1, "ann": 1, "bob": 0} {
		switch who {
		case "ann":
			last = r.call("ann", `"last of ann"`)
		case "bob":
			last = r.call("bob", `"last of bob"`)
		}
		var got []string
		for _, e := range streams[who].until(belay.EventRegistered, last) {
			if e.kind == "notifications/cancelled" {
				got = append(got, e.data)
			}
		}
		if len(got) != times || times > 0 && got[0] != want {
			t.Errorf("%s got %q, want %d times %s", who, got, times, want)
		}
	}
}
