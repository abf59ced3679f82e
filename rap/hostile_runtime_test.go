package rap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
)

// TestRAP39_GuessedCallbackURLs: only the whole token leads to the call; what is
// nearly it is a stranger's, and its body is not even looked at (RAP-68).
func TestRAP39_GuessedCallbackURLs(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: one("work", func(c *rappeer.Invoked) { <-c.Cancelled })})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	c := s.invoke(s.thread(ThreadOptions{}), "work")
	at := p.AwaitCall(soon(t), "work")
	body := fmt.Sprintf(`{"type":"tool_result","group_id":%q,"id":%q,"text":"taken over"}`, at.Group, at.ID)
	base, token := at.Callback[:len(at.Callback)-tokenLen], at.Callback[len(at.Callback)-tokenLen:]
	other := func(b byte) string {
		if b == 'A' {
			return "B"
		}
		return "A"
	}
	guesses := []string{
		"", token + "/", "/" + token, token + "A", token[:tokenLen-1], token + "%00", "%2e/" + token, token + ";x=1", "x/" + token,
		strings.ToUpper(token), strings.ToLower(token), token[:20] + "%20" + token[21:],
	}
	for i := range token {
		guesses = append(guesses, token[:i]+other(token[i])+token[i+1:])
	}
	for range 1000 {
		guess, _ := newToken()
		guesses = append(guesses, guess)
	}
	for _, guess := range guesses {
		resp, err := http.Post(base+guess, ContentType, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%q got %d", guess, resp.StatusCode)
		}
	}
	if c.isOver() {
		t.Error("a guess has ended the call")
	}
	s.stop(c.Run())
}

// TestRAP68_AThousandReplays of a callback change nothing: one outcome, one result
// handed over, and a receipt that does not grow with them (RAP-26, RAP-93).
func TestRAP68_AThousandReplays(t *testing.T) {
	release := make(chan struct{})
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){
		"once":    func(*rappeer.Invoked) {},
		"stopped": func(c *rappeer.Invoked) { <-release },
	}})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{})
	replay := func(at *rappeer.Invoked) {
		t.Helper()
		var odd atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for j := range 125 {
					if status, err := at.Text(fmt.Sprintf("try %d of %d", j, i)); err != nil || status != http.StatusOK {
						odd.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := odd.Load(); n != 0 {
			t.Errorf("%d of 1000 did not get 200", n)
		}
	}
	c := s.invoke(th, "once")
	replay(p.AwaitCall(soon(t), "once"))
	first, err := c.Wait(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := c.Result(); again != first || c.Run().Info().Outcome != belay.Completed {
		t.Errorf("the result became %v, outcome %s", again, c.Run().Info().Outcome)
	}
	var late atomic.Int32
	c, err = th.Invoke(CallOptions{Tool: "stopped", Arguments: json.RawMessage(`{}`), Late: func(*ToolResult) { late.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	at := p.AwaitCall(soon(t), "stopped")
	s.stop(c.Run())
	replay(at)
	close(release)
	if _, err := c.Run().Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	r := c.Run().Receipt()
	if late.Load() != 1 || r.Outcome != belay.Cancelled || len(r.Steps) > 100 {
		t.Errorf("%d late results, outcome %s, %d steps", late.Load(), r.Outcome, len(r.Steps))
	}
}

// unruly is a tool server over bare HTTP, whose answers to posts are the test's.
func unruly(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	web := httptest.NewServer(mux)
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	mux.HandleFunc("GET "+PathDiscovery, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name":"s","endpoint":"`+web.URL+`/run","tools":[{"name":"work","description":"d","inputSchema":{"type":"object"}}]}`)
	})
	mux.HandleFunc("POST /", answer)
	return web.URL
}

// TestRAP58_OddAcknowledgements: of an answer only its status counts. One that never
// ends costs neither the result nor the Stop any time (RAP-12, RAP-90).
func TestRAP58_OddAcknowledgements(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "<html>\x00\xff"); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond)
		}
	}
	for name, odd := range map[string]http.HandlerFunc{
		"garbage": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "\x00\xff{]<html>") },
		"large":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8<<20)) },
		"endless": endless,
		"an opinion of its own": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"type":"tool_result","group_id":"t","id":"c","text":"not this way"}`)
		},
	} {
		calls := make(chan *Invocation, 10)
		base := unruly(t, func(w http.ResponseWriter, r *http.Request) {
			if text, err := io.ReadAll(r.Body); err == nil && r.URL.Path == "/run" {
				inv, _ := ParseInvocation(text)
				calls <- inv
			}
			odd(w, r)
		})
		s := newStage(t, func(o *RuntimeOptions) {
			o.Servers = []Server{{Name: "p", Base: base}}
		})
		th := s.thread(ThreadOptions{})
		c := s.invoke(th, "work")
		inv := <-calls
		resp, err := http.Post(inv.CallbackURL, ContentType, strings.NewReader(fmt.Sprintf(`{"type":"tool_result","group_id":%q,"id":%q,"text":"done"}`, inv.GroupID, inv.ID)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if r, err := c.Wait(soon(t)); err != nil || r.Text != "done" {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		c = s.invoke(th, "work")
		<-calls
		s.stop(c.Run())
		if _, err := c.Wait(soon(t)); !errors.As(err, new(*belay.Cancellation)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRAP8_Redirects are followed by nothing that is posted: neither a call nor a
// cancel, with what they say and whose credentials they carry, goes where a server
// points.
func TestRAP8_Redirects(t *testing.T) {
	var there atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { there.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var cancels atomic.Int32
		base := unruly(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == PathCancel {
				cancels.Add(1)
			}
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		})
		s := newStage(t, func(o *RuntimeOptions) {
			o.Servers = []Server{{Name: "p", Base: base, Sign: BearerToken("secret-secret-secret")}}
		})
		if _, err := s.invoke(s.thread(ThreadOptions{}), "work").Wait(soon(t)); !errors.Is(err, ErrNotAccepted) {
			t.Errorf("%d: %v", status, err)
		}
		n, err := NewNotifier(NotifierOptions{Targets: []Target{{Name: "p", Base: base}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Cancel(CancelNotice{ThreadID: "t", ToolCallID: "c"}, nil); err != nil {
			t.Fatal(err)
		}
		until(t, "the cancel was posted", func() bool { return cancels.Load() == 1 })
		if err := n.Close(soon(t)); err != nil {
			t.Error(err)
		}
	}
	if n := there.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// TestRAP48_ManifestsWithoutEnd: of 100 MB hardly more is read than a manifest may
// have, compressed or not, and 100,000 tools are none.
func TestRAP48_ManifestsWithoutEnd(t *testing.T) {
	var sent atomic.Int64
	head := `{"name":"s","endpoint":"http://127.0.0.1/run","tools":[`
	tool := func(i int) string { return fmt.Sprintf(`{"name":"t%d","description":"","inputSchema":{}},`, i) }
	for name, serve := range map[string]http.HandlerFunc{
		"100 MB": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, head)
			for i := 0; sent.Load() < 100<<20; i++ {
				n, err := io.WriteString(w, tool(i))
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		},
		"100,000 tools": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, head)
			for i := range 100_000 {
				if _, err := io.WriteString(w, tool(i)); err != nil {
					return
				}
			}
			_, _ = io.WriteString(w, tool(100_000)[:len(tool(100_000))-1]+"]}")
		},
		"4,097 tools": func(w http.ResponseWriter, _ *http.Request) {
			list := make([]string, MaxTools+1)
			for i := range list {
				list[i] = fmt.Sprintf(`{"name":"t%d","description":"","inputSchema":{"type":"object"}}`, i)
			}
			_, _ = io.WriteString(w, head+strings.Join(list, ",")+"]}")
		},
		"a deep one": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, head+`{"name":"a","description":"","inputSchema":`+strings.Repeat(`{"not":`, 9000)+"true"+strings.Repeat("}", 9000)+"}]}")
		},
	} {
		web := httptest.NewServer(serve)
		s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: web.URL}} })
		th, err := s.Open(ThreadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := th.Load(soon(t)); !errors.Is(err, ErrManifest) || len(th.Tools()) != 0 {
			t.Errorf("%s: %v, %d tools", name, err, len(th.Tools()))
		}
		web.Close()
	}
	if n := sent.Load(); n > 32<<20 { // what the kernel's buffers hold
		t.Errorf("%d MB of a manifest were taken", n>>20)
	}
}

// TestRAP48_AManifestThatNeverComes keeps nobody longer than they want to wait, and a
// call and a Stop beside it not at all (RAP-50).
func TestRAP48_AManifestThatNeverComes(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"name":"s",`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer web.Close()
	defer web.CloseClientConnections()
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: web.URL}} })
	th, err := s.Open(ThreadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	ctx, end := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, enough)
	defer end()
	if err := th.Load(ctx); !errors.Is(err, enough) || len(th.Tools()) != 0 {
		t.Errorf("%v, %d tools", err, len(th.Tools()))
	}
}

// TestRAP37_CallbacksCutInTheMiddle leave the call pending, and a whole one ends it
// (RAP-68).
func TestRAP37_CallbacksCutInTheMiddle(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: one("work", func(*rappeer.Invoked) {})})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	c := s.invoke(s.thread(ThreadOptions{}), "work")
	at := p.AwaitCall(soon(t), "work")
	body := fmt.Sprintf(`{"type":"tool_result","group_id":%q,"id":%q,"text":"half"}`, at.Group, at.ID)
	path := at.Callback[len(s.web.URL):]
	for _, cut := range []string{
		head(path, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n", len(body), body),
		head(path, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s", len(body)+5, body),
		head(path, fmt.Sprintf("Content-Length: %d", len(body)+1)) + body,
	} {
		conn, err := net.Dial("tcp", s.web.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, cut)
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, _ := io.ReadAll(conn)
		if strings.Contains(string(answer), " 200 ") {
			t.Errorf("%.60q… was taken", cut)
		}
		conn.Close()
	}
	for name, bad := range map[string]string{
		"a key twice":   strings.TrimSuffix(body, "}") + `,"text":"other"}`,
		"invalid UTF-8": strings.Replace(body, "half", "h\xff", 1),
		"text behind":   body + "{}",
		"17 MB":         strings.Replace(body, "half", strings.Repeat("h", 17<<20), 1),
	} {
		if status, err := at.PostRaw(ContentType, []byte(bad)); err == nil && status/100 != 4 {
			t.Errorf("%s: %d", name, status)
		}
	}
	if c.isOver() {
		t.Error("the call has ended")
	}
	if status, err := at.Text("whole"); err != nil || status != http.StatusOK {
		t.Error(status, err)
	}
	if r, err := c.Wait(soon(t)); err != nil || r.Text != "whole" {
		t.Error(r, err)
	}
}
