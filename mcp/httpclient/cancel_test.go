package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// MCP-53, MCP-G20: a modern request is cancelled by closing its POST, before the
// headers, within a stream and within JSON, and by nothing else.
func TestModernCancelClosesThePost(t *testing.T) {
	for name, begin := range map[string]func(x *exchange){
		"no headers": func(*exchange) {},
		"stream":     func(x *exchange) { x.events(); x.event("", `{"jsonrpc":"2.0","method":"notifications/progress"}`) },
		"resumable":  func(x *exchange) { x.events(); x.event("e-1", `{"jsonrpc":"2.0","method":"notifications/progress"}`) },
		"half JSON":  func(x *exchange) { x.json(200, `{"jsonrpc"`); x.flush() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(s *server, x *exchange) { begin(x); s.add("begun"); x.hang(s) })
			c, r := open(t, Config{URL: s.URL})
			send(t, c, modernCall, "b-1")
			s.wait(t, 1, "begun")
			if told := cancelCall(t, c, "b-1"); told.NotStarted || told.Means != "POST closed" {
				t.Errorf("%+v", told)
			}
			s.wait(t, 1, "gone")
			if n := s.count("POST"); n != 1 {
				t.Errorf("%d POSTs", n)
			}
			if n := r.count("lost"); n != 0 || c.InFlight() != 0 {
				t.Errorf("%q, %d in flight", r.all(), c.InFlight())
			}
			if _, err := c.Cancel(t.Context(), jsonrpc.StringID("b-1"), ""); !errors.Is(err, ErrUnknownCall) {
				t.Error(err)
			}
		})
	}
}

// MCP-32, MCP-G20: in a legacy session the notification goes into that session;
// the POST stays open, its late answer is still reported (MCP-G27), and Forget
// closes it.
func TestLegacyCancelNotifies(t *testing.T) {
	s := newServer(t, nil)
	answer := make(chan struct{})
	s.Config.Handler = handler(s, legacy("s-9", func(s *server, x *exchange) {
		x.events()
		s.add("begun")
		select {
		case <-answer:
			x.event("", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"late":true}}`, x.id()))
		case <-x.Context().Done():
			s.add("gone %s", x.body)
		}
	}))
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, legacyCall, "b-1")
	send(t, c, legacyCall, "b-2")
	s.wait(t, 2, "begun")
	for _, id := range []string{"b-1", "b-2"} {
		if told := cancelCall(t, c, id); told.NotStarted || told.Means != "notification, 202" {
			t.Errorf("%+v", told)
		}
	}
	same(t, s.wait(t, 1, `"requestId":"b-1"`), `POST Session-Id=s-9 Protocol-Version=2025-11-25 `+
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"b-1","reason":"because"}}`)
	if n := s.count("gone"); n != 0 {
		t.Errorf("%d POSTs were closed", n)
	}
	c.Forget(jsonrpc.StringID("b-1"))
	s.wait(t, 1, `gone {"jsonrpc":"2.0","id":"b-1"`)
	close(answer)
	same(t, r.wait(t, 1, "late"), `message "b-2" 200 {"jsonrpc":"2.0","id":"b-2","result":{"late":true}}`)
	if n := r.count("lost"); n != 0 {
		t.Error(r.all())
	}
}

// MCP-G20: a legacy server without sessions gets both.
func TestStatelessCancelDoesBoth(t *testing.T) {
	for _, status := range []int{202, 400} {
		s := newServer(t, nil)
		s.Config.Handler = handler(s, legacy("", func(s *server, x *exchange) { s.add("begun"); x.hang(s) }))
		inner := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if status == 400 && s.count("begun") > 0 && req.Method == http.MethodPost {
				s.add("refused")
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			inner.ServeHTTP(w, req)
		})
		c, r := open(t, Config{URL: s.URL})
		handshake(t, c, s, r)
		send(t, c, legacyCall, "b-1")
		s.wait(t, 1, "begun")
		told := cancelCall(t, c, "b-1")
		s.wait(t, 1, "gone")
		if status == 202 {
			s.wait(t, 1, "notifications/cancelled")
			same(t, told.Means, "notification, 202; POST closed")
		} else {
			s.wait(t, 1, "refused")
			same(t, told.Means, "POST closed; notification, 400")
		}
	}
}

// MCP-G19: the cancel waits for nobody: not for the answer to another
// notification, nor for those queued behind it.
func TestCancelOvertakesNotifications(t *testing.T) {
	s := newServer(t, nil)
	release := make(chan struct{})
	s.Config.Handler = handler(s, legacy("s-1", func(s *server, x *exchange) { s.add("begun"); x.hang(s) }))
	inner := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("X-Hold") != "" {
			<-release
		}
		inner.ServeHTTP(w, req)
	})
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, legacyCall, "b-1")
	s.wait(t, 1, "begun")
	c.mu.Lock()
	held := http.Header{"X-Hold": {"1"}}
	c.mu.Unlock()
	if err := c.enqueue(notice{frame: []byte(`{"jsonrpc":"2.0","method":"notifications/held"}`), extra: held}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		send(t, c, `{"jsonrpc":"2.0","method":"notifications/n%d"}`, i)
	}
	cancelCall(t, c, "b-1")
	if s.count("notifications/cancelled") != 1 || s.count("notifications/n") != 0 {
		t.Error(s.all())
	}
	close(release)
	s.wait(t, 1, `"notifications/n99"`)
	queued := slices.DeleteFunc(s.all(), func(line string) bool { return !strings.Contains(line, `"notifications/n`) }) // the end of the call may come between
	for i, line := range queued {                                                                                       // in their order
		if !strings.Contains(line, fmt.Sprintf(`"notifications/n%d"`, i)) {
			t.Fatalf("%d: %s", i, line)
		}
	}
}

// MCP-G19: never before the request has been written. The server takes the first
// bytes of a long request and reads no further for a while.
func TestCancelWaitsForTheRequest(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c, _ := open(t, Config{URL: "http://" + ln.Addr().String(), Transport: Streamable})
	c.mu.Lock()
	c.session.openedLocked("s-1", "2025-11-25")
	c.mu.Unlock()
	send(t, c, `{"jsonrpc":"2.0","id":"b-1","method":"tools/call","params":{"x":%q}}`, strings.Repeat("x", 12<<20))
	first, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if _, err := first.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	second := make(chan struct{})
	go func() {
		defer close(second)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = conn.Write([]byte("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		_ = conn.Close()
	}()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("told too late"))
	defer cancel()
	if told, err := c.Cancel(ctx, jsonrpc.StringID("b-1"), ""); err == nil || !strings.Contains(err.Error(), "told too late") {
		t.Fatalf("%+v %v", told, err)
	}
	select {
	case <-second:
		t.Fatal("the cancel overtook its request")
	default:
	}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			if _, err := first.Read(buf); err != nil {
				return
			}
		}
	}()
	if told := cancelCall(t, c, "b-1"); told.NotStarted || told.Means != "notification, 202" {
		t.Errorf("%+v", told)
	}
	<-second
}

// MCP-G16: what has not begun to be written never does: behind
// notifications/initialized that is under way, and while a connection is made.
func TestCancelBeforeStart(t *testing.T) {
	s := newServer(t, nil)
	release := make(chan struct{})
	inner := legacy("s-1", func(_ *server, x *exchange) { x.ok() })
	s.Config.Handler = handler(s, func(s *server, x *exchange) {
		if x.m.Method == mcp.NoticeInitialized {
			<-release
		}
		inner(s, x)
	})
	c, r := open(t, Config{URL: s.URL})
	send(t, c, initialize)
	r.wait(t, 1, `"b-0"`)
	send(t, c, initialized)
	send(t, c, legacyCall, "b-1")
	send(t, c, legacyCall, "b-2")
	if told := cancelCall(t, c, "b-1"); !told.NotStarted {
		t.Errorf("%+v", told)
	}
	close(release)
	r.wait(t, 1, `message "b-2"`)
	if s.count(`"b-1"`) != 0 || r.count(`"b-1"`) != 0 {
		t.Errorf("%q %q", s.all(), r.all())
	}

	for name, wrap := range map[string]func(*http.Transport) http.RoundTripper{
		"ours":    func(tr *http.Transport) http.RoundTripper { return tr },
		"unknown": func(tr *http.Transport) http.RoundTripper { return roundTripper{tr} },
	} {
		t.Run(name, func(t *testing.T) {
			dialing, dialled := make(chan struct{}), make(chan struct{})
			tr := NewTransport()
			defer tr.CloseIdleConnections()
			dial := tr.DialContext
			tr.DialContext = func(_ context.Context, network, addr string) (net.Conn, error) {
				close(dialing)
				<-dialled
				return dial(t.Context(), network, addr)
			}
			c, r := open(t, Config{URL: s.URL, Client: wrap(tr)})
			send(t, c, modernCall, "b-3")
			<-dialing
			if told := cancelCall(t, c, "b-3"); !told.NotStarted {
				t.Errorf("%+v", told)
			}
			close(dialled)
			if err := c.Close(within(t)); err != nil {
				t.Error(err)
			}
			if s.count(`"b-3"`) != 0 || len(r.all()) != 0 {
				t.Errorf("%q %q", s.all(), r.all())
			}
		})
	}
}

// roundTripper is a client that the package does not know.
type roundTripper struct{ http.RoundTripper }

// MCP-G16: each of many calls that are cancelled while they start is either
// withdrawn, and then never seen by the server, or sent; and sent ones are told.
func TestCancelWhileStarting(t *testing.T) {
	for name, wrap := range map[string]func(*http.Transport) http.RoundTripper{
		"ours":    func(tr *http.Transport) http.RoundTripper { return tr },
		"unknown": func(tr *http.Transport) http.RoundTripper { return roundTripper{tr} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(s *server, x *exchange) { x.hang(s) })
			tr := NewTransport()
			defer tr.CloseIdleConnections()
			c, r := open(t, Config{URL: s.URL, Client: wrap(tr)})
			const n = 300
			told := make([]Told, n)
			var wg sync.WaitGroup
			for i := range n {
				send(t, c, modernCall, fmt.Sprintf("b-%d.", i))
				wg.Go(func() {
					for range i % 30 * 100 {
						runtime.Gosched()
					}
					told[i] = cancelCall(t, c, fmt.Sprintf("b-%d.", i))
				})
			}
			wg.Wait()
			if err := c.Close(within(t)); err != nil {
				t.Error(err)
			}
			withdrawn := 0
			for i := range n {
				if told[i].NotStarted {
					withdrawn++
					if s.count(fmt.Sprintf(`POST Protocol-Version=2026-07-28 Method=tools/call Name=x {"jsonrpc":"2.0","id":"b-%d."`, i)) != 0 {
						t.Errorf("b-%d was withdrawn and seen", i)
					}
				}
			}
			t.Logf("%d of %d withdrawn", withdrawn, n)
			if len(r.all()) != 0 {
				t.Error(r.all())
			}
		})
	}
}

// MCP-G10 from the other side: a server that answers the cancel with 400, with
// nothing at all, or with an end of the connection, costs no session.
func TestCancelIsRefused(t *testing.T) {
	s := newServer(t, nil)
	inner := legacy("s-1", func(s *server, x *exchange) {
		if strings.Contains(x.body, "b-9") {
			x.ok()
			return
		}
		s.add("begun")
		x.hang(s)
	})
	s.Config.Handler = handler(s, func(s *server, x *exchange) {
		switch {
		case x.m.Method != mcp.NoticeCancelled:
			inner(s, x)
		case strings.Contains(x.body, "b-1"):
			x.WriteHeader(http.StatusBadRequest)
			_, _ = x.Write([]byte("bad\x1b[31m request"))
		case strings.Contains(x.body, "b-2"):
			x.hang(s)
		default:
			panic(http.ErrAbortHandler)
		}
	})
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	for _, id := range []string{"b-1", "b-2", "b-3"} {
		send(t, c, legacyCall, id)
	}
	s.wait(t, 3, "begun")
	told, err := c.Cancel(within(t), jsonrpc.StringID("b-1"), "")
	var status *StatusError
	if !errors.As(err, &status) || status.Status != 400 || told.Means != "notification, 400" || status.Text != `"bad\x1b[31m request"` {
		t.Errorf("%+v %v", told, err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("long enough"))
	defer cancel()
	if _, err := c.Cancel(ctx, jsonrpc.StringID("b-2"), ""); err == nil || !strings.Contains(err.Error(), "long enough") {
		t.Error(err)
	}
	if _, err := c.Cancel(within(t), jsonrpc.StringID("b-3"), ""); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	send(t, c, legacyCall, "b-9")
	r.wait(t, 1, `message "b-9"`)
	if r.count("lost") != 0 || r.count("over") != 0 {
		t.Error(r.all())
	}
}

// MCP-7, A7: an initialize that is given up says nothing on the wire.
func TestHandshakeIsNeverCancelled(t *testing.T) {
	s := newServer(t, func(s *server, x *exchange) { s.add("begun"); x.hang(s) })
	c, r := open(t, Config{URL: s.URL})
	send(t, c, initialize)
	s.wait(t, 1, "begun")
	cancelCall(t, c, "b-0")
	s.wait(t, 1, "gone")
	if s.count("POST") != 1 || len(r.all()) != 0 {
		t.Errorf("%q %q", s.all(), r.all())
	}
}

// MCP-20, A9: a server that reads the cancel before its request ignores it; a
// cancel that was so early is repeated until the server shows that it has read
// the request.
func TestEarlyCancelIsRepeated(t *testing.T) {
	s := newServer(t, nil)
	read := make(chan struct{})
	inner := legacy("s-1", func(s *server, x *exchange) { x.events(); s.add("begun"); x.hang(s) })
	h := handler(s, inner)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 1000 { // the call, whose body is read late
			s.add("late")
			<-read
		}
		h.ServeHTTP(w, r)
	})
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, `{"jsonrpc":"2.0","id":"b-1","method":"tools/call","params":{"x":%q}}`, strings.Repeat("x", 1000))
	s.wait(t, 1, "late")
	cancelCall(t, c, "b-1")
	s.wait(t, 2, `"requestId":"b-1"`)
	close(read)
	s.wait(t, 1, "begun")
	c.Forget(jsonrpc.StringID("b-1"))
	s.wait(t, 1, "gone")
}

// MCP-G16: a request that is withdrawn when its headers are about to be written
// makes no message, on a connection of its own and on any other.
func TestWithdrawnAtTheLastMoment(t *testing.T) {
	for name, wrap := range map[string]func(*http.Transport) http.RoundTripper{
		"ours":    func(tr *http.Transport) http.RoundTripper { return tr },
		"unknown": func(tr *http.Transport) http.RoundTripper { return roundTripper{tr} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(_ *server, x *exchange) { x.ok() })
			tr := NewTransport()
			defer tr.CloseIdleConnections()
			var c *Conn
			dial := tr.DialContext
			withdraw := sync.OnceFunc(func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				for _, k := range c.calls {
					k.withdraw() // and the POST is not cancelled yet
				}
			})
			tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				withdraw()
				return dial(ctx, network, addr)
			}
			conn, r := open(t, Config{URL: s.URL, Client: wrap(tr)})
			c = conn
			send(t, c, modernCall, "b-1")
			r.wait(t, 1, `lost "b-1" server cannot be reached`)
			send(t, c, modernCall, "b-2")
			r.wait(t, 1, `message "b-2"`)
			if n := s.count(`"b-1"`); n != 0 {
				t.Error(s.all())
			}
		})
	}
}
