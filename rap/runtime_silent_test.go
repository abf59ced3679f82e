package rap

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
)

// wireless is a tool server without a network, for virtual time.
type wireless struct {
	mu     sync.Mutex
	seen   []string // paths
	bodies []string
	status func(path string, n int) int
}

// RoundTrip implements http.RoundTripper.
func (w *wireless) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.seen, w.bodies = append(w.seen, r.URL.Path), append(w.bodies, string(body))
	n := 0
	for _, path := range w.seen {
		if path == r.URL.Path {
			n++
		}
	}
	w.mu.Unlock()
	status, text := 200, ""
	if r.URL.Path == PathDiscovery {
		text = `{"name":"s","endpoint":"https://tools.test/run","tools":[{"name":"work","description":"","inputSchema":{"type":"object"}}]}`
	} else if w.status != nil {
		status = w.status(r.URL.Path, n)
	}
	if status == 0 { // hangs
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func (w *wireless) count(path string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.seen {
		if one == path {
			n++
		}
	}
	return n
}

// virtual is a runtime with that server, in a bubble of virtual time.
func virtual(t *testing.T, w *wireless) (*Runtime, *Thread, func()) {
	t.Helper()
	tree := belay.NewTree(belay.Options{})
	rt, err := NewRuntime(RuntimeOptions{
		Tree: tree, Callback: "https://rt.test/cb", Servers: []Server{{Name: "s", Base: "https://tools.test", Client: &http.Client{Transport: w}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	th, err := rt.Open(ThreadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := th.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rt, th, func() {
		ctx, end := context.WithTimeout(context.Background(), time.Minute)
		defer end()
		if err := rt.Close(ctx, belay.Cancellation{}); err != nil {
			t.Error(err)
		}
		_ = tree.Close(ctx)
	}
}

// TestRAP94_Silence: a server that took the cancel and says nothing is signalled, and
// unconfirmed after ten seconds, never confirmed; a result that comes still later
// raises the receipt to acknowledged (RAP-93, 94; acceptance 17).
func TestRAP94_Silence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wireless{}
		rt, th, end := virtual(t, w)
		defer end()
		c, err := th.Invoke(CallOptions{Tool: "work"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		c.Run().Cancel(belay.Cancellation{Cause: belay.CauseUser})
		synctest.Wait()
		if r := c.Run().Receipt(); r.Verdict != belay.Signalled || r.Work != belay.Stopping || r.Final {
			t.Errorf("at once: %s, %s", r.Verdict, r.Work)
		}
		r, err := c.Run().Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 10*time.Second || r.Verdict != belay.Signalled || r.Work != belay.Unconfirmed {
			t.Errorf("after %v: %s, %s", took, r.Verdict, r.Work)
		}
		time.Sleep(time.Minute)
		post := httptest.NewRequest(http.MethodPost, strings.TrimPrefix(c.inv.CallbackURL, "https://rt.test"),
			strings.NewReader(`{"type":"tool_result","group_id":"`+th.ID()+`","id":"`+c.ID()+`","text":"done after all"}`))
		post.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		rt.ServeHTTP(rec, post)
		if r := c.Run().Receipt(); rec.Code != 200 || r.Verdict != belay.Acknowledged || r.Partial != "done after all" || r.Outcome != belay.Cancelled {
			t.Errorf("%d: %s, partial %q", rec.Code, r.Verdict, r.Partial)
		}
		if n := w.count(PathCancel); n != 1 {
			t.Errorf("%d cancels", n)
		}
	})
}

// TestRAP59_Waits: the four attempts and the waits between them, by the clock.
func TestRAP59_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wireless{status: func(path string, _ int) int {
			if path == "/run" {
				return 503
			}
			return 200
		}}
		_, th, end := virtual(t, w)
		defer end()
		began := time.Now()
		_, err := th.Do(t.Context(), CallOptions{Tool: "work"})
		took := time.Since(began)
		if err == nil || w.count("/run") != 4 || took < 6200*time.Millisecond*4/5 || took > 6200*time.Millisecond*6/5 {
			t.Errorf("%v after %d attempts and %v", err, w.count("/run"), took)
		}
		synctest.Wait()
		if n := w.count(PathCancel); n != 1 {
			t.Errorf("%d cancels: a server that may have got it is told that nobody waits", n)
		}
	})
}

// TestRAP90_TwoSeconds: a server that does not answer the cancel gets two seconds, and
// is not asked again.
func TestRAP90_TwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wireless{status: func(path string, _ int) int {
			if path == PathCancel {
				return 0
			}
			return 200
		}}
		_, th, end := virtual(t, w)
		defer end()
		c, err := th.Invoke(CallOptions{Tool: "work"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		c.Run().Cancel(belay.Cancellation{Cause: belay.CauseUser})
		<-c.Done()
		if took := time.Since(began); took != 0 {
			t.Errorf("the caller waited %v", took)
		}
		time.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		r := c.Run().Receipt()
		if steps(r, SeenServerNotTold) != 1 || r.Verdict != belay.Unreachable || !strings.Contains(told(r), "no answer within 2s") {
			t.Errorf("%s: %+v", r.Verdict, r.Steps)
		}
		time.Sleep(time.Minute)
		if n := w.count(PathCancel); n != 1 {
			t.Errorf("%d cancels", n)
		}
	})
}

// TestNotifier: a thousand servers are told at the same time, by nobody who waits.
func TestNotifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wireless{status: func(string, int) int { return 0 }}
		list := make([]Target, 1000)
		for i := range list {
			list[i] = Target{Base: "https://tools.test", Client: &http.Client{Transport: w}}
		}
		n, err := NewNotifier(NotifierOptions{Targets: list})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		reports := make(chan Told, 1000)
		if err := n.Cancel(CancelNotice{ThreadID: "t", ToolCallID: "c"}, func(told Told) { reports <- told }); err != nil {
			t.Fatal(err)
		}
		if err := n.Cancel(CancelNotice{ThreadID: "t\n", ToolCallID: "c"}, nil); err == nil {
			t.Error("a bad id was sent")
		}
		synctest.Wait()
		if got := w.count(PathCancel); got != 1000 || time.Since(began) != 0 {
			t.Errorf("%d told after %v", got, time.Since(began))
		}
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if err := n.Close(ctx); err != nil || len(reports) != 1000 || time.Since(began) != DefaultNotifyTimeout {
			t.Errorf("%v, %d reports after %v", err, len(reports), time.Since(began))
		}
		if err := n.CloseThread(CloseNotice{ThreadID: "t"}, nil); err == nil {
			t.Error("a closed notifier tells")
		}
	})
}
