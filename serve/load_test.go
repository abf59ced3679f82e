package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/mcp/httpclient"
)

// holder is an HTTP server whose tool never ends by itself: it notes when it was
// told to, and how many calls it holds.
type holder struct {
	mu      sync.Mutex
	held    map[string]chan struct{} // by session and id
	told    int
	last    time.Time // when the last one was told
	started atomic.Int64
}

func (h *holder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ RequestID json.RawMessage }
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	session := r.Header.Get("Mcp-Session-Id")
	switch {
	case m.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", h.started.Add(1)))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"holder","version":"1"}}}`, m.ID)
	case m.Method == "notifications/cancelled":
		h.release(session + string(m.Params.RequestID))
		w.WriteHeader(http.StatusAccepted)
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "tools/call" && bytes.Contains(body, []byte(`"hold"`)):
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		h.hold(session+string(m.ID), r.Context().Done())
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"fine"}]}}`, m.ID)
	}
}

func (h *holder) hold(key string, gone <-chan struct{}) {
	over := make(chan struct{})
	h.mu.Lock()
	h.held[key] = over
	h.mu.Unlock()
	select {
	case <-over:
	case <-gone:
		h.release(key)
	}
}

func (h *holder) release(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if over := h.held[key]; over != nil {
		delete(h.held, key)
		close(over)
		h.told++
		h.last = time.Now()
	}
}

func (h *holder) counts() (held, told int, last time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held), h.told, h.last
}

func (r *rig) holder() (*holder, Definition) {
	h := &holder{held: make(map[string]chan struct{})}
	web := httptest.NewServer(h)
	r.t.Cleanup(func() {
		r.close(belay.Cancellation{Cause: belay.CauseShutdown})
		web.Close()
	})
	s := config.New("tools", config.Policy{})
	s.URL = web.URL
	s.Grace, s.KillAfter = config.Some(200*time.Millisecond), config.Some(300*time.Millisecond)
	return h, Definition{Server: s}
}

// TestLoadCancelled: 2,000 calls in flight in one session, and 10 in each of 200
// sessions, in front of an HTTP server, are all stopped at once: every server is
// told within a second, every caller is answered, nothing is left.
func TestLoadCancelled(t *testing.T) {
	for _, c := range []struct{ sessions, each int }{{1, 2000}, {200, 10}} {
		t.Run(fmt.Sprintf("%d sessions", c.sessions), func(t *testing.T) {
			r := newRig(t, nil)
			r.client.Transport = &http.Transport{MaxIdleConnsPerHost: 3000}
			h, d := r.holder()
			r.apply(d)
			var sessions []string
			for range c.sessions {
				sessions = append(sessions, r.begin("tools"))
			}
			before := settled()
			var wg sync.WaitGroup
			var answered atomic.Int64
			for _, session := range sessions {
				for i := range c.each {
					wg.Go(func() {
						a, err := r.post(Path("tools"), session, call(i+1, "hold", `{}`))
						if err != nil || a.status != 200 || !strings.Contains(a.body, "-32800") {
							t.Errorf("%+v, %v", a, err)
							return
						}
						answered.Add(1)
					})
				}
			}
			total := c.sessions * c.each
			r.within(time.Minute, "all calls are held", func() bool { n, _, _ := h.counts(); return n == total })
			w, at := calm.Start(t), time.Now()
			_, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
				Filter:       belay.Filter{Kinds: []belay.Kind{belay.KindCall}},
				Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test", Reason: "all"},
			})
			if err != nil {
				t.Fatal(err)
			}
			r.within(time.Minute, "all were told", func() bool { _, n, _ := h.counts(); return n == total })
			_, _, last := h.counts()
			took := last.Sub(at)
			w.Within(t, took, time.Second*loadFactor, fmt.Sprintf("the last of %d was told", total))
			t.Logf("%d told within %v", total, took)
			wg.Wait()
			if answered.Load() != int64(total) {
				t.Errorf("%d of %d were answered", answered.Load(), total)
			}
			r.works(false, sessions[0])
			r.quiet()
			r.client.CloseIdleConnections()
			httpclient.CloseIdleConnections() // which time does, too
			const kept = 32 << 20             // ended runs are remembered for 10 min
			var after uint64
			for range 40 { // the servers' ends of the connections go a moment later
				if after = settled(); after < before+kept {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			if t.Logf("the heap was %d KB and is %d KB", before>>10, after>>10); after > before+kept {
				t.Error("the memory has not come back")
			}
		})
	}
}

// quiet waits until no call is in flight any more: for a server that nobody here
// can see, that is when its receipt is given up.
func (r *rig) quiet() {
	r.t.Helper()
	var left int
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}})
		list = slices.DeleteFunc(list, func(i belay.Info) bool { return i.Over() })
		if left = len(list); err == nil && left == 0 {
			return
		}
	}
	r.t.Fatalf("%d calls are still in flight", left)
}

func settled() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestLoadLeft: callers that vanish in the middle of a modern call leave
// nothing behind: each call is stopped, and no goroutine or run stays.
func TestLoadLeft(t *testing.T) {
	r := newRig(t, nil)
	_, d := r.holder()
	r.apply(d)
	r.must(r.modern("tools", "echo", `{}`))
	total := 10_000 / loadFactor
	body := `{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"hold","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: hold\r\nContent-Length: %d\r\n\r\n", Path("tools"), r.web.Listener.Addr(), len(body))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range total / 50 {
				conn, err := net.Dial("tcp", r.web.Listener.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, head+body)
				_ = conn.(*net.TCPConn).SetLinger(0) // an abrupt end
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	r.quiet()
	if a := r.must(r.modern("tools", "echo", `{}`)); a.status != 200 {
		t.Errorf("%+v", a)
	}
}

// TestLoadSlow: a caller that does not read, and one that sends half a request,
// delay nobody else.
func TestLoadSlow(t *testing.T) {
	r := newRig(t, nil)
	r.apply(r.fake("tools"))
	session := r.begin("tools")
	addr := r.web.Listener.Addr().String()
	half, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	fmt.Fprintf(half, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{", Path("tools"), addr)
	mute, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	body := call(1, "tick", `{"key":"m","n":100}`)
	fmt.Fprintf(mute, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Session-Id: %s\r\nMcp-Protocol-Version: 2025-11-25\r\nContent-Length: %d\r\n\r\n%s", Path("tools"), addr, session, len(body), body)
	r.event("m", "tick")
	for i := range 50 {
		w, at := calm.Start(t), time.Now()
		if a := r.must(r.post(Path("tools"), session, call(i+10, "echo", `{"x":1}`))); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		w.Within(t, time.Since(at), time.Second, "a call beside a caller that does not read")
		w.Stop()
	}
}
