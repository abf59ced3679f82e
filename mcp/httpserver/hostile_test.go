package httpserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

func contextWithLocal(t *testing.T, a net.Addr) context.Context {
	return context.WithValue(t.Context(), http.LocalAddrContextKey, a)
}

// socket writes raw bytes to the handler.
func (r *rig) socket(text string) *net.TCPConn {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func rawPost(body string, length int, headers ...string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n%s\r\n%s",
		length, strings.Join(append(headers, ""), "\r\n"), body)
}

// answer reads one response from a socket.
func answer(t *testing.T, conn net.Conn) reply {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// A body over the bound, announced or not, is 413; one that is truncated,
// never comes, or is empty is 400. None of them reaches the server.
func TestBadBodies(t *testing.T) {
	r := newRig(t, Config{MaxBody: 1000, BodyWait: 100 * time.Millisecond})
	long := call("1", strings.Repeat("x", 1000))
	if got := r.post(long); got.status != 413 || errorOf(got.body) == 0 {
		t.Errorf("announced: %+v", got)
	}
	req := r.request(t.Context(), http.MethodPost, "", "")
	req.Body = io.NopCloser(strings.NewReader(long))
	resp, err := r.c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.read(resp); got.status != 413 {
		t.Errorf("in chunks: %+v", got)
	}
	short := call("1", "now")
	conn := r.socket(rawPost(short[:30], len(short)))
	_ = conn.CloseWrite()
	if got := answer(t, conn); got.status != 400 || errorOf(got.body) != -32700 {
		t.Errorf("truncated: %+v", got)
	}
	if got := answer(t, r.socket(rawPost(short[:30], len(short)))); got.status != 400 {
		t.Errorf("never ends: %+v", got)
	}
	if got := r.post(""); got.status != 400 || errorOf(got.body) != -32700 {
		t.Errorf("empty: %+v", got)
	}
	if got := r.post("{}"); got.status != 400 || errorOf(got.body) != -32600 {
		t.Errorf("no message: %+v", got)
	}
	exact := call("1", strings.Repeat("x", 1000-len(call("1", ""))))
	req = r.request(t.Context(), http.MethodPost, "", "")
	req.Body = io.NopCloser(strings.NewReader(exact))
	if resp, err = r.c.Do(req); err != nil {
		t.Fatal(err)
	}
	if got := r.read(resp); got.status != 400 || !strings.Contains(got.body, "Mcp-Session-Id") {
		t.Errorf("exactly the bound: %+v", got)
	}
}

// Whoever is refused before the body is read is answered whether that body ever
// comes or not.
func TestRefusedBeforeTheBody(t *testing.T) {
	r := newRig(t, Config{Identify: who})
	for header, want := range map[string]int{"Origin: http://evil.com": 403, "X-Nobody: 1": 401} {
		if got := answer(t, r.socket(rawPost("{", 1000, header))); got.status != want || errorOf(got.body) == 0 {
			t.Errorf("%s: %+v", header, got)
		}
	}
	conn := r.socket(strings.Replace(rawPost("{", 1000, "X-Who: ana"), "POST / ", "POST /message?session=x ", 1))
	if got := answer(t, conn); got.status != 404 {
		t.Errorf("%+v", got)
	}
}

// Bodies and answers of many sizes pass whole, announced or in chunks.
func TestSizes(t *testing.T) {
	r := newRig(t, Config{Backend: &fake{handle: func(_ *fakeSession, a arrival) {
		_ = a.to.Answer(0, a.Frame)
	}}})
	for _, size := range []int{0, 100, 2_000, 4 << 10, 33 << 10, 3 << 20} {
		body := modernBody("1", "echo", `"pad":"`+strings.Repeat("x", size)+`",`)
		for _, chunked := range []bool{false, true} {
			req := r.request(t.Context(), http.MethodPost, "", body, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: echo")
			if chunked {
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), -1
			}
			resp, err := r.c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.read(resp); got.status != 200 || got.body != body || resp.ContentLength != int64(len(body)) {
				t.Errorf("%d bytes, chunked %v: %d, %d bytes of %d", size, chunked, got.status, len(got.body), resp.ContentLength)
			}
		}
	}
}

// A deadline for the body must not end the exchange once the body is here.
func TestBodyDeadlineEnds(t *testing.T) {
	r := newRig(t, Config{BodyWait: 50 * time.Millisecond, HeaderWait: 200 * time.Millisecond})
	body, headers := modernCall("1", "later")
	resp, err := r.begin(t.Context(), http.MethodPost, "", body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	a := r.modern("local").call(t, "1")
	if err := a.to.Answer(0, a.ok()); err != nil {
		t.Fatal(err)
	}
	if got := r.read(resp); !strings.Contains(got.body, "result") {
		t.Errorf("%+v", got)
	}
	if n := len(r.modern("local").abandoned()); n != 0 {
		t.Errorf("%d abandoned", n)
	}
}

// MCP-54: a socket that is reset, closed, or closed in half while its call runs
// is a Stop of that call.
func TestSocketEnds(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){
		"close": func(c *net.TCPConn) { c.Close() },
		"reset": func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
		"half":  func(c *net.TCPConn) { _ = c.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			body, headers := modernCall("1", "later")
			conn := r.socket(rawPost(body, len(body), headers...))
			r.modern("local").call(t, "1")
			end(conn)
			eventually(t, "Abandon", func() bool { return len(r.modern("local").abandoned()) == 1 })
		})
	}
}

// A reader that does not read is cut off at the bound; senders never wait, and
// what a disconnect means follows (DESIGN 5, MCP-G15).
func TestSlowReader(t *testing.T) {
	r := newRig(t, Config{QueueBytes: 64 << 10, WriteWait: 300 * time.Millisecond})
	body, headers := modernCall("1", "later")
	conn := r.socket(rawPost(body, len(body), headers...))
	_ = conn.SetReadBuffer(4 << 10)
	a := r.modern("local").call(t, "1")
	frame := []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + strings.Repeat("x", 16<<10) + `"}}`)
	start := time.Now()
	eventually(t, "the queue is full", func() bool { return a.to.Send(frame) != nil })
	eventually(t, "Abandon", func() bool { return len(r.modern("local").abandoned()) == 1 })
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %s", d)
	}

	// The legacy stream of one slow session, and everybody else.
	slow, quick := r.start("2025-06-18"), r.start("2025-06-18")
	conn = r.socket("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n" + slow + "\r\n\r\n")
	_ = conn.SetReadBuffer(4 << 10)
	eventually(t, "GET stream", func() bool {
		s := r.h.lookup(strings.TrimPrefix(slow, "Mcp-Session-Id: "), local, false)
		return s != nil && s.main.attached.Load()
	})
	for range 2000 {
		if err := r.session(0).out.Send(frame); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.post(call("1", "now"), quick); got.status != 200 {
		t.Errorf("another session: %+v", got)
	}
	s := r.h.lookup(strings.TrimPrefix(slow, "Mcp-Session-Id: "), local, false)
	eventually(t, "cut off", func() bool { return !s.main.attached.Load() })
	if kept := s.kept.Load(); kept > 2*64<<10 {
		t.Errorf("%d bytes kept", kept)
	}
	if got := r.post(call("1", "now"), slow); got.status != 200 {
		t.Errorf("its own calls: %+v", got)
	}
}

// What waits for a resume is bounded, and the answer is what is kept longest.
func TestDetachedStreamIsBounded(t *testing.T) {
	r := newRig(t, Config{ResumeBytes: 10_000, ResumeFor: time.Hour})
	id := r.start("2025-06-18")
	a, last := r.drop(id, "7")
	eventually(t, "detached", func() bool { return r.parkedStreams() == 1 })
	for i := range 1000 {
		if err := a.to.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"n":%d}}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	_ = a.to.Answer(0, a.ok())
	s := r.h.lookup(strings.TrimPrefix(id, "Mcp-Session-Id: "), local, false)
	if kept := s.kept.Load(); kept > 10_000 {
		t.Errorf("%d bytes kept", kept)
	}
	got := r.do(http.MethodGet, "", "", id, "Last-Event-ID: "+last)
	list, _ := events(got.body)
	if n := len(list); n < 10 || n > 900 || !strings.Contains(list[n-1].data, `"id":7`) || !strings.Contains(list[n-2].data, "999") {
		t.Errorf("%d events", n)
	}
	r.do(http.MethodDelete, "", "", id)
	if kept := s.kept.Load(); kept > 10_000 {
		t.Errorf("%d bytes kept", kept)
	}
}

// A stream can be resumed for ResumeFor only.
func TestResumeExpires(t *testing.T) {
	r := newRig(t, Config{ResumeFor: 50 * time.Millisecond})
	id := r.start("2025-06-18")
	a, last := r.drop(id, "7")
	eventually(t, "expired", func() bool { return a.to.Send([]byte(`{}`)) != nil })
	if got := r.do(http.MethodGet, "", "", id, "Last-Event-ID: "+last); got.status != 405 {
		t.Errorf("%+v", got)
	}
	s := r.h.lookup(strings.TrimPrefix(id, "Mcp-Session-Id: "), local, false)
	if kept := s.kept.Load(); kept != 0 {
		t.Errorf("%d bytes kept", kept)
	}
}

// 2,000 calls in flight in one session are answered, each with its own answer.
func TestManyCallsAtOnce(t *testing.T) {
	n := 2000
	if raceEnabled {
		n = 300
	}
	var mu sync.Mutex
	var waiting []arrival
	f := &fake{}
	f.handle = func(s *fakeSession, a arrival) {
		if a.ToolName() != "later" {
			standard(s, a)
			return
		}
		mu.Lock()
		waiting = append(waiting, a)
		mu.Unlock()
	}
	r := newRig(t, Config{Backend: f, HeaderWait: time.Minute})
	id := r.start("2025-06-18")
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			tool, headers := call(fmt.Sprint(i), "later"), []string{id}
			if i%2 == 0 {
				tool, headers = modernCall(fmt.Sprint(i), "later")
			}
			resp, err := r.begin(t.Context(), http.MethodPost, "", tool, headers...)
			if err != nil {
				t.Error(err)
				return
			}
			if got := r.read(resp); got.status != 200 || !strings.Contains(got.body, fmt.Sprintf(`"id":%d,`, i)) {
				t.Errorf("%d: %+v", i, got)
			}
		})
	}
	eventually(t, "all calls", func() bool { mu.Lock(); defer mu.Unlock(); return len(waiting) == n })
	for i, a := range waiting {
		if i%3 == 0 {
			_ = a.to.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/progress"}`))
		}
		_ = a.to.Answer(0, a.ok())
	}
	wg.Wait()
}

// 10,000 abrupt disconnects, at all moments of a call's life, leak neither
// goroutines (goleak) nor streams.
func TestAbruptDisconnects(t *testing.T) {
	n := 10_000
	if raceEnabled {
		n = 500
	}
	r := newRig(t, Config{Disconnect: Cancel})
	id := r.start("2025-06-18")
	modernText, modernHeaders := modernCall("1", "later")
	texts := []string{
		rawPost(modernText, len(modernText), modernHeaders...),
		rawPost(call("1", "later"), len(call("1", "later")), id),
		rawPost(call("1", "progress"), len(call("1", "progress")), id),
		rawPost(call("1", "later"), 10_000, id),
		"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n" + id + "\r\n\r\n",
		"GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n",
	}
	addr := strings.TrimPrefix(r.url, "http://")
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := worker; i < n; i += 8 {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, texts[i%len(texts)])
				if i%2 == 0 {
					_ = conn.SetReadDeadline(time.Now().Add(time.Duration(i%5) * time.Millisecond))
					_, _ = conn.Read(make([]byte, 1))
				}
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, "all exchanges over", func() bool {
		r.h.mu.Lock()
		defer r.h.mu.Unlock()
		return r.h.active == 0
	})
	r.h.mu.Lock()
	sessions := len(r.h.sessions)
	r.h.mu.Unlock()
	s := r.h.lookup(strings.TrimPrefix(id, "Mcp-Session-Id: "), local, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	finished := 0
	for _, st := range s.streams { // what was written whole waits for a resume
		if len(st.open()) == 0 {
			finished++
		}
	}
	if sessions != 1 || len(s.streams) != finished || finished > maxParked {
		t.Errorf("%d sessions, %d streams, of which %d are finished", sessions, len(s.streams), finished)
	}
}

// Close gives up on a backend that does not end, answers its calls, and comes
// to its end all the same.
func TestCloseIsBounded(t *testing.T) {
	r := newRig(t, Config{Backend: &fake{handle: standard, hang: true}})
	id := r.start("2025-06-18")
	done := make(chan reply, 1)
	go func() { done <- r.post(call("7", "later"), id) }()
	r.session(0).call(t, "7")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("late"))
	defer cancel()
	if err := r.h.Close(ctx, belay.Cancellation{}); err != nil && err.Error() != "late" {
		t.Error(err)
	}
	if got := <-done; errorOf(got.body) != belay.CodeCancelled || !strings.Contains(got.body, `"id":7`) {
		t.Errorf("%+v", got)
	}
	if err := r.h.Close(t.Context(), belay.Cancellation{}); err != nil {
		t.Error(err)
	}
}

// A DELETE that waits for a backend which does not end holds neither Close up nor
// the calls of the session.
func TestCloseBesideDelete(t *testing.T) {
	r := newRig(t, Config{Backend: &fake{handle: standard, hang: true}})
	id := r.start("2025-06-18")
	done, deleted := make(chan reply, 1), make(chan reply, 1)
	go func() { done <- r.post(call("7", "later"), id) }()
	r.session(0).call(t, "7")
	go func() { deleted <- r.do(http.MethodDelete, "", "", id) }()
	eventually(t, "the session is being deleted", func() bool {
		r.h.mu.Lock()
		defer r.h.mu.Unlock()
		return len(r.h.sessions) == 0
	})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("late"))
	defer cancel()
	began := time.Now()
	if err := r.h.Close(ctx, belay.Cancellation{}); err != nil && err.Error() != "late" {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	<-done
	<-deleted
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the exchanges ended after %v", took)
	}
}
