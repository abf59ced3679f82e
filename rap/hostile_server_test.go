package rap

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
)

// besieged is a tool server that is spoken to over bare connections.
type besieged struct {
	t      *testing.T
	h      *Handler
	web    *httptest.Server
	good   *rappeer.Runtime
	starts atomic.Int32
}

// besiege serves one tool, which works until it is stopped.
func besiege(t *testing.T, change func(*HandlerOptions)) *besieged {
	t.Helper()
	s := &besieged{t: t}
	set, err := NewToolset(Manifest{Name: "files"}, Operation{Tool: Tool{Name: "scan", Description: "scans"}, Run: func(ctx context.Context, _ *Job) (Result, error) {
		s.starts.Add(1)
		<-ctx.Done()
		return Result{}, context.Cause(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	o := HandlerOptions{Toolset: set, Authenticator: Loopback("ann"), PartialWait: 10 * time.Second}
	if change != nil {
		change(&o)
	}
	if s.h, err = NewHandler(o); err != nil {
		t.Fatal(err)
	}
	s.web = httptest.NewServer(s.h)
	s.good = &rappeer.Runtime{Base: s.web.URL}
	s.good.Start()
	t.Cleanup(func() {
		if err := s.h.Close(context.Background(), belay.Cancellation{}); err != nil {
			t.Error(err)
		}
		s.good.Stop()
		s.web.Close()
	})
	return s
}

// raw sends bytes over a connection of its own.
func (s *besieged) raw(text string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.web.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func head(path, more string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + more + "\r\n\r\n"
}

// TestRAP37_BodiesCutInTheMiddle start nothing and stop nothing, however whole they
// look (RAP-35, RAP-56).
func TestRAP37_BodiesCutInTheMiddle(t *testing.T) {
	s := besiege(t, nil)
	if a, err := s.good.Invoke("scan", "t", "c", nil); err != nil || a.Status != http.StatusOK {
		t.Fatal(a, err)
	}
	invocation := s.good.Invocation("scan", "t", "cut", nil, nil)
	cancel := `{"thread_id":"t","tool_call_id":"c"}`
	for _, cut := range []string{
		head(PathInvoke, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n", len(invocation), invocation), // all of it, but for the end
		head(PathInvoke, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s", len(invocation)+10, invocation),
		head(PathInvoke, fmt.Sprintf("Content-Length: %d", len(invocation)+1)) + invocation,
		head(PathCancel, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n", len(cancel), cancel),
		head(PathCancel, fmt.Sprintf("Content-Length: %d", len(cancel)+1)) + cancel,
		head(PathClose, "Transfer-Encoding: chunked") + "zz\r\n" + `{"thread_id":"t"}`,
	} {
		c := s.raw(cut)
		_ = c.(*net.TCPConn).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				t.Errorf("%.40q… was taken", cut)
			}
		}
	}
	s.h.mu.Lock()
	jobs := len(s.h.jobs)
	s.h.mu.Unlock()
	until(t, "the good call runs", func() bool { return s.starts.Load() == 1 })
	if jobs != 1 {
		t.Errorf("%d calls are known, want the good one alone", jobs)
	}
}

// TestRAP35_IdsOfAStranger: what no id may be is refused where it could be answered,
// and stops nothing where it may not be (RAP-11, RAP-36).
func TestRAP35_IdsOfAStranger(t *testing.T) {
	s := besiege(t, nil)
	if a, err := s.good.Invoke("scan", "t", "c", nil); err != nil || a.Status != http.StatusOK {
		t.Fatal(a, err)
	}
	callback := s.good.Callback("t", "x")
	for name, id := range map[string]string{
		"10 MB":                   `"` + strings.Repeat("c", 10<<20) + `"`,
		"3 MB":                    `"` + strings.Repeat("c", 3<<20) + `"`,
		"over 256 bytes":          `"` + strings.Repeat("c", 257) + `"`,
		"256 bytes by escapes":    `"` + strings.Repeat(`\u00e9`, 129) + `"`,
		"a control character":     "\"c\x01\"",
		"an escaped one":          `"c\u0000"`,
		"a newline":               `"c\n"`,
		"one of the second table": `"c\u0085"`,
		"invalid UTF-8":           "\"c\xff\"",
		"half a character":        `"c\ud800"`,
		"nothing":                 `""`,
		"null":                    `null`,
		"a number":                `7`,
		"an object":               `{"a":"c"}`,
		"one twice":               `"c","id":"c","tool_call_id":"c"`,
	} {
		a, err := s.good.Do(http.MethodPost, PathInvoke, `{"operation":"scan","arguments":{},"group_id":"t","callback_url":"`+callback+`","id":`+id+`}`)
		if err == nil && a.Status != http.StatusBadRequest && a.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("invoke with %s: %d", name, a.Status)
		}
		a, err = s.good.Do(http.MethodPost, PathCancel, `{"thread_id":"t","tool_call_id":`+id+`}`)
		switch {
		case err == nil && (a.Status == http.StatusOK || a.Status == http.StatusRequestEntityTooLarge) && a.Body == "":
		case err != nil && len(id) > MaxNotice: // it was told to go before it had sent all
		default:
			t.Errorf("cancel with %s: %+v, %v", name, a.Status, err)
		}
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if len(s.h.jobs) != 1 || s.h.jobs[jobKey{"ann", "t", "c"}].run.Cancellation() != nil || s.h.early.Len() != 0 {
		t.Errorf("%d calls, %d marks", len(s.h.jobs), s.h.early.Len())
	}
}

// TestRAP42_SlowBodies: a thousand that claim 4 MiB each and send nothing cost what
// they sent, and keep nobody from being stopped (RAP-34).
func TestRAP42_SlowBodies(t *testing.T) {
	s := besiege(t, nil)
	if a, err := s.good.Invoke("scan", "t", "c", nil); err != nil || a.Status != http.StatusOK {
		t.Fatal(a, err)
	}
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var slow []net.Conn
	for range 400 {
		slow = append(slow, s.raw(head(PathInvoke, fmt.Sprintf("Content-Length: %d", MaxInvocation))+`{"operation":`))
	}
	until(t, "their bodies are being read", func() bool { return reading.left.Load() <= maxReading-400*firstRoom })
	runtime.ReadMemStats(&now)
	if grown := int64(now.HeapAlloc) - int64(before.HeapAlloc); grown > 128<<20 {
		t.Errorf("the heap grew by %d MiB, for %d MiB that were only claimed", grown>>20, 400*MaxInvocation>>20)
	}
	if a, err := s.good.Cancel("t", "c"); err != nil || a.Status != http.StatusOK {
		t.Error(a, err)
	}
	if m, err := s.good.Wait(soon(t), "t", "c", 1); err != nil || m.Text != "Error: Cancelled by user." {
		t.Errorf("%s, %v", m.Body, err)
	}
	for _, c := range slow {
		c.Close()
	}
	until(t, "what was being read is given back", func() bool { return reading.left.Load() == maxReading })
}

// TestRAP42_TooMuchIsBeingRead: then calls and callbacks are put off, and cancels are
// taken (RAP-15).
func TestRAP42_TooMuchIsBeingRead(t *testing.T) {
	s := besiege(t, nil)
	if a, err := s.good.Invoke("scan", "t", "c", nil); err != nil || a.Status != http.StatusOK {
		t.Fatal(a, err)
	}
	if err := reading.take(maxReading); err != nil {
		t.Fatal(err)
	}
	a, err := s.good.Invoke("scan", "t", "d", nil)
	b, errB := s.good.Cancel("t", "c")
	reading.give(maxReading)
	if err != nil || a.Status != http.StatusServiceUnavailable {
		t.Errorf("a call: %+v, %v", a, err)
	}
	if errB != nil || b.Status != http.StatusOK {
		t.Errorf("a cancel: %+v, %v", b, errB)
	}
	if m, err := s.good.Wait(soon(t), "t", "c", 1); err != nil || m.Text != "Error: Cancelled by user." {
		t.Errorf("%s, %v", m.Body, err)
	}
}

// TestRAP88_AThreadOfAThousandCalls: one close stops them all, each gets its one
// result, and the thread beside it goes on.
func TestRAP88_AThreadOfAThousandCalls(t *testing.T) {
	const n = 1000
	s := besiege(t, func(o *HandlerOptions) { o.MaxCalls, o.MaxCallsPerCaller = 2*n, 2*n })
	for i := range n {
		if a, err := s.good.Invoke("scan", "t", fmt.Sprint("c", i), nil); err != nil || a.Status != http.StatusOK {
			t.Fatal(a, err)
		}
	}
	if a, err := s.good.Invoke("scan", "beside", "c0", nil); err != nil || a.Status != http.StatusOK {
		t.Fatal(a, err)
	}
	until(t, "all have started", func() bool { return s.starts.Load() == n+1 })
	if a, err := s.good.CloseThread("t"); err != nil || a.Status != http.StatusOK || a.Body != "" {
		t.Fatal(a, err)
	}
	ctx, end := context.WithTimeout(t.Context(), 60*time.Second)
	defer end()
	for i := range n {
		m, err := s.good.Wait(ctx, "t", fmt.Sprint("c", i), 1)
		if err != nil || !strings.HasPrefix(m.Text, "Error: Cancelled by parent") {
			t.Fatalf("c%d: %s, %v", i, m.Body, err)
		}
	}
	until(t, "all are forgotten", func() bool {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		return len(s.h.jobs) == 1 && s.h.total == 1
	})
	for i := range n {
		if got := len(s.good.Messages("t", fmt.Sprint("c", i))); got != 1 {
			t.Errorf("c%d got %d messages", i, got)
		}
	}
	if len(s.good.Messages("beside", "c0")) != 0 {
		t.Error("the thread beside it was stopped, too")
	}
}

// TestRAP37_DuplicateKeys: what one reader takes for the first and another for the
// last is refused, in every message and on both ends.
func TestRAP37_DuplicateKeys(t *testing.T) {
	s := besiege(t, nil)
	body := s.good.Invocation("scan", "t", "c", nil, nil)
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		t.Fatal(err)
	}
	for key, value := range members {
		twice := body[:len(body)-1] + fmt.Sprintf(`,%q:%s}`, key, value)
		if a, err := s.good.Do(http.MethodPost, PathInvoke, twice); err != nil || a.Status != http.StatusBadRequest {
			t.Errorf("%s twice: %+v, %v", key, a, err)
		}
	}
	if s.starts.Load() != 0 {
		t.Error("a tool was started")
	}
}
