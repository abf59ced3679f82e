package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/admin/client"
)

// breaker ends event streams when told to.
type breaker struct {
	cut    atomic.Pointer[context.CancelCauseFunc]
	opened atomic.Int32
	down   atomic.Bool
	resume atomic.Pointer[string]
}

func (b *breaker) front(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" {
			if b.down.Load() {
				http.Error(w, "away", http.StatusServiceUnavailable)
				return
			}
			id := r.Header.Get("Last-Event-ID")
			b.resume.Store(&id)
			ctx, end := context.WithCancelCause(r.Context())
			defer end(nil)
			b.cut.Store(&end)
			b.opened.Add(1)
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
}

// TestWatchGoesOn: a stream that breaks goes on behind the last event, so that
// what happened in between is seen, once; the break itself is given as one error.
func TestWatchGoesOn(t *testing.T) {
	b := &breaker{}
	r := newRig(t, admin.Options{}, b.front)
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	events := r.as("op").Watch(ctx, belay.Filter{})
	if b.opened.Load() != 1 {
		t.Fatal("it does not watch from the call on")
	}
	for n := range 3 {
		r.call(fmt.Sprint("run", n), "bob")
	}
	var names []string
	broke := 0
	for e, err := range events {
		if err != nil {
			if !errors.Is(err, belay.ErrUnreachable) {
				t.Errorf("broken: %v", err)
			}
			broke++
			b.down.Store(false)
			continue
		}
		if e.Type != belay.EventRegistered {
			continue
		}
		if e.Lost != 0 {
			t.Errorf("%s: %d lost", e.Run.Name, e.Lost)
		}
		names = append(names, e.Run.Name)
		switch e.Run.Name {
		case "run2":
			b.down.Store(true)
			(*b.cut.Load())(nil)
			r.call("between", "bob")
		case "between":
			r.call("last", "bob")
		case "last":
			end(nil)
		}
	}
	if want := "[run0 run1 run2 between last]"; fmt.Sprint(names) != want || broke != 1 {
		t.Errorf("%v after %d errors, want %s", names, broke, want)
	}
	if *b.resume.Load() == "" || b.opened.Load() != 2 {
		t.Errorf("%d streams, the last behind %q", b.opened.Load(), *b.resume.Load())
	}
}

// TestWatchSaysWhatIsLost: a count goes with the next event; where there is none,
// as after a new start of the server, that is said.
func TestWatchSaysWhatIsLost(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: lost\r\ndata: {\"lost\":0}\r\n\r\nevent: lost\ndata: {\"lost\":7}\n\nid: x-1\nevent: run.changed\ndata: {\"seq\":3,\n", "data: \"lost\":2}\n\n",
			"id: x-2\nevent: notifications/cancelled\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"7\"}}\n\n", // no event of a run
			"event: run.changed\ndata: what is this\n\nid: x-3\ndata: {\"seq\":5}\n\nevent: cut off\ndata: {\"seq\":6}\n")
	}))
	defer server.Close()
	c, err := client.New(client.Options{Server: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	var got []string
	for e, err := range c.Watch(t.Context(), belay.Filter{}) {
		if err != nil {
			got = append(got, fmt.Sprint(errors.Is(err, client.ErrLost)))
			if !errors.Is(err, client.ErrLost) {
				break
			}
			continue
		}
		got = append(got, fmt.Sprint(e.Seq, "+", e.Lost))
	}
	if want := "[true 3+9 5+1 false]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestWatchBreaksEarly: with no event yet there is nothing to go on behind, and
// that is said.
func TestWatchBreaksEarly(t *testing.T) {
	b := &breaker{}
	r := newRig(t, admin.Options{}, b.front)
	events := r.as("op").Watch(t.Context(), belay.Filter{})
	(*b.cut.Load())(nil)
	var got []error
	for _, err := range events {
		if got = append(got, err); len(got) == 2 {
			break
		}
	}
	if !errors.Is(got[0], belay.ErrUnreachable) || !errors.Is(got[1], client.ErrLost) {
		t.Errorf("%v", got)
	}
}

// TestWatchRefused: a refusal ends the loop; asking again would change nothing.
func TestWatchRefused(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	var got []error
	for _, err := range r.as("nothing").Watch(t.Context(), belay.Filter{}) {
		got = append(got, err)
	}
	if len(got) != 1 || !errors.Is(got[0], belay.ErrForbidden) {
		t.Errorf("%v", got)
	}
}

// TestWatchUnread: a sequence that nobody ranges over ends with its context.
func TestWatchUnread(t *testing.T) {
	b := &breaker{}
	r := newRig(t, admin.Options{}, b.front)
	ctx, end := context.WithCancelCause(t.Context())
	_ = r.as("op").Watch(ctx, belay.Filter{})
	end(nil)
	time.Sleep(time.Millisecond) // goleak looks for what is left
}
