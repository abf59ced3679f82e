package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay/mcp"
)

// MCP-33, MCP-34: a legacy stream that ends behind an event id is resumed there,
// as often as it takes, as long as it brings something.
func TestResume(t *testing.T) {
	s := newServer(t, nil)
	s.Config.Handler = handler(s, legacy("s-1", func(s *server, x *exchange) {
		x.events()
		last, n := x.Request.Header.Get("Last-Event-ID"), 0
		_, _ = fmt.Sscanf(last, "e-%d", &n)
		switch {
		case last == "":
			_, _ = x.Write([]byte("retry: 1\n"))
			x.event("e-1", "")
		case n < 20:
			x.event(fmt.Sprintf("e-%d", n+1), fmt.Sprintf(`{"jsonrpc":"2.0","method":"n%d"}`, n))
		default:
			x.event("e-99", `{"jsonrpc":"2.0","id":"b-1","result":{}}`)
		}
	}))
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, legacyCall, "b-1")
	r.wait(t, 1, `message "b-1" 200 {"jsonrpc":"2.0","id":"b-1","result":{}}`)
	for i := 1; i < 20; i++ {
		if r.count(fmt.Sprintf(`message "b-1" 200 {"jsonrpc":"2.0","method":"n%d"}`, i)) != 1 {
			t.Errorf("n%d is missing", i)
		}
	}
	s.wait(t, 1, "GET Session-Id=s-1 Protocol-Version=2025-11-25 Last-Event-Id=e-20 ")
	if n := s.count("POST"); n != 3 {
		t.Errorf("%d POSTs", n)
	}
}

// MCP-G28, MCP-75: a stream that cannot be resumed loses its call, once, and no
// stream is fetched for ever.
func TestResumeInVain(t *testing.T) {
	for name, tc := range map[string]struct {
		again func(x *exchange)
		gets  int
		want  string
	}{
		"405":      {func(x *exchange) { x.WriteHeader(http.StatusMethodNotAllowed) }, 1, "its stream cannot be resumed: unexpected HTTP status 405"},
		"400":      {func(x *exchange) { x.WriteHeader(http.StatusBadRequest) }, 1, "its stream cannot be resumed: unexpected HTTP status 400"},
		"HTML":     {func(x *exchange) { _, _ = x.Write([]byte("<html>")) }, 1, `its stream cannot be resumed: no event stream: 200 "text/html`},
		"503":      {func(x *exchange) { x.WriteHeader(http.StatusServiceUnavailable) }, maxResumes, "in vain"},
		"empty":    {func(x *exchange) { x.events() }, maxResumes, "in vain"},
		"comments": {func(x *exchange) { x.events(); _, _ = x.Write([]byte(": x\n\n")) }, maxResumes, "in vain"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			s.Config.Handler = handler(s, legacy("s-1", func(_ *server, x *exchange) {
				if x.Method == http.MethodGet {
					tc.again(x)
					return
				}
				x.events()
				_, _ = x.Write([]byte("retry: 1\n"))
				x.event("e-1", `{"jsonrpc":"2.0","method":"n"}`)
			}))
			rec := &errorRecorder{}
			c, err := Open(Config{URL: s.URL, Client: client(t)}, rec)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(within(t)) }()
			handshake(t, c, s, &rec.recorder)
			send(t, c, legacyCall, "b-1")
			if line := rec.wait(t, 1, `lost "b-1"`); !strings.Contains(line, tc.want) || !errors.Is(rec.lost(), ErrClosedEarly) {
				t.Errorf("%s, want %s", line, tc.want)
			}
			if n := s.count("Last-Event-Id=e-1"); n != tc.gets {
				t.Errorf("%d GETs, want %d", n, tc.gets)
			}
			if n := rec.count("lost"); n != 1 {
				t.Error(rec.all())
			}
		})
	}
	t.Run("modern", func(t *testing.T) {
		s := newServer(t, func(_ *server, x *exchange) {
			x.events()
			x.event("e-1", `{"jsonrpc":"2.0","method":"n"}`)
		})
		c, r := open(t, Config{URL: s.URL})
		send(t, c, modernCall, "b-1")
		same(t, r.wait(t, 1, "lost"), `lost "b-1" connection ended before the response`)
		if s.count("GET") != 0 {
			t.Error(s.all())
		}
	})
}

// MCP-37: a session that is over when a stream is resumed.
func TestResumeSessionOver(t *testing.T) {
	s := newServer(t, nil)
	s.Config.Handler = handler(s, legacy("s-1", func(_ *server, x *exchange) {
		if x.Method == http.MethodGet {
			x.WriteHeader(http.StatusNotFound)
			return
		}
		x.events()
		_, _ = x.Write([]byte("retry: 1\n"))
		x.event("e-1", "")
	}))
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, legacyCall, "b-1")
	r.wait(t, 1, "over session is over")
	if r.count(`lost "b-1" session is over`) != 1 || r.count("lost") != 1 {
		t.Error(r.all())
	}
}

// A cancelled call is not resumed: its stream may end as it likes.
func TestNoResumeAfterCancel(t *testing.T) {
	s := newServer(t, nil)
	release := make(chan struct{})
	s.Config.Handler = handler(s, legacy("s-1", func(s *server, x *exchange) {
		x.events()
		_, _ = x.Write([]byte("retry: 1\n"))
		x.event("e-1", `{"jsonrpc":"2.0","method":"n"}`)
		<-release
	}))
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, legacyCall, "b-1")
	r.wait(t, 1, `"n"`)
	cancelCall(t, c, "b-1")
	close(release)
	for c.InFlight() > 0 {
		time.Sleep(time.Millisecond)
	}
	if s.count("Last-Event-Id") != 0 || r.count("lost") != 0 {
		t.Error(s.all(), r.all())
	}
}

// MCP-74: what follows the response on its stream is passed on, a stream that
// the server never ends is left, and one that it does end keeps its connection.
func TestStreamBehindTheResponse(t *testing.T) {
	s := newServer(t, func(s *server, x *exchange) {
		x.events()
		x.event("", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, x.id()))
		if x.id() == `"b-1"` {
			x.event("", `{"jsonrpc":"2.0","method":"behind"}`)
			x.hang(s)
		}
		s.add("from %s", x.RemoteAddr)
	})
	c, r := open(t, Config{URL: s.URL})
	send(t, c, modernCall, "b-1")
	r.wait(t, 1, `message "b-1" 200 {"jsonrpc":"2.0","method":"behind"}`)
	s.wait(t, 1, "gone") // after lingerWait
	for i := range 5 {
		send(t, c, modernCall, fmt.Sprintf("b-%d", i+2))
		r.wait(t, 1, fmt.Sprintf(`"id":"b-%d"`, i+2))
		s.wait(t, i+2, "from")
	}
	if r.count("lost") != 0 {
		t.Error(r.all())
	}
	conns := map[string]bool{}
	for _, line := range s.all() {
		if strings.HasPrefix(line, "from") {
			conns[line] = true
		}
	}
	if len(conns) > 3 { // the one that was left, and one or two more
		t.Errorf("%d connections for 6 requests", len(conns))
	}
}

// Everything ends with Close: calls that hang, streams that never end, queues,
// and each call is told; the goroutines are gone (goleak).
func TestClose(t *testing.T) {
	s := newServer(t, nil)
	inner := legacy("s-1", func(s *server, x *exchange) {
		s.add("begun")
		if strings.Contains(x.body, "stream") {
			x.events()
		}
		x.hang(s)
	})
	s.Config.Handler = handler(s, func(s *server, x *exchange) {
		switch {
		case x.Method == http.MethodGet:
			x.events()
			x.hang(s)
		case x.m.Method == "notifications/hang":
			s.add("begun")
			x.hang(s)
		case x.Method == http.MethodDelete:
			x.hang(s)
		case x.m.Method == mcp.NoticeCancelled:
			s.add("begun")
			x.hang(s)
		default:
			inner(s, x)
		}
	})
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, legacyCall, "b-1")
	send(t, c, legacyCall, "stream")
	send(t, c, legacyCall, "b-3")
	send(t, c, `{"jsonrpc":"2.0","method":"notifications/hang"}`)
	send(t, c, `{"jsonrpc":"2.0","method":"notifications/behind"}`)
	s.wait(t, 4, "begun")
	told := make(chan error)
	go func() { _, err := c.Cancel(within(t), mustID(`"b-3"`), ""); told <- err }()
	s.wait(t, 5, "begun")
	ctx := within(t)
	done := make(chan error)
	go func() { done <- c.closeWithin(ctx, 100*time.Millisecond) }()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "no answer to DELETE") {
		t.Error(err)
	}
	if err := <-told; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for _, id := range []string{"b-1", "stream"} {
		if r.count(fmt.Sprintf("lost %q connection is closed", id)) != 1 {
			t.Error(r.all())
		}
	}
	if r.count("lost") != 2 || r.count("over") != 0 {
		t.Error(r.all())
	}
	s.wait(t, 7, "gone")
}

// A connection that its server is about to close is not used for a call, which
// nobody could send again without knowing whether it arrived.
func TestIdleConnectionIsLeft(t *testing.T) {
	s := newServer(t, func(s *server, x *exchange) {
		x.Header().Set("Keep-Alive", "timeout=1, max=100")
		s.add("from %s", x.RemoteAddr)
		x.ok()
	})
	c, r := open(t, Config{URL: s.URL})
	call := func(id string) string {
		t.Helper()
		send(t, c, modernCall, id)
		r.wait(t, 1, fmt.Sprintf("message %q", id))
		all := s.all()
		return all[len(all)-1]
	}
	first := call("b-1")
	same(t, call("b-2"), first)
	time.Sleep(900 * time.Millisecond)
	if second := call("b-3"); second == first || !strings.HasPrefix(second, "from") {
		t.Errorf("%s again", second)
	}
	if r.count("lost") != 0 || s.count("POST") != 3 {
		t.Error(r.all(), s.all())
	}
}

// TestResumesAtMeasure: a server that ends its streams at once, each with one
// more event and the wish to be asked again without delay, is asked no more often
// than every resumeLeast (MCP-33).
func TestResumesAtMeasure(t *testing.T) {
	const long = 600 * time.Millisecond
	s := newServer(t, nil)
	var gets atomic.Int32
	began := time.Now()
	s.Config.Handler = handler(s, legacy("s-1", func(_ *server, x *exchange) {
		x.events()
		_, _ = x.Write([]byte("retry: 1\n"))
		if time.Since(began) > long {
			x.event("e-last", `{"jsonrpc":"2.0","id":"b-1","result":{}}`)
			return
		}
		x.event(fmt.Sprint("e-", gets.Add(1)), "")
	}))
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, legacyCall, "b-1")
	r.wait(t, 1, `message "b-1" 200 {"jsonrpc":"2.0","id":"b-1","result":{}}`)
	if n, most := int(gets.Load()), int(time.Since(began)/resumeLeast)+2; n > most || n < 3 {
		t.Errorf("it was asked %d times in %v, want at most %d", n, time.Since(began), most)
	}
}
