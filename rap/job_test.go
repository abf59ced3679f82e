package rap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
	"github.com/belayhq/belay/rap"
)

// asker asks its user whether to go on.
func asker(began chan<- error) rap.Operation {
	return rap.Operation{Tool: rap.Tool{Name: "ask"}, Run: func(ctx context.Context, j *rap.Job) (rap.Result, error) {
		i, err := j.Choose(ctx, "Write to /etc?", []string{"Yes", "No"}, 1)
		began <- err
		if err != nil {
			return rap.Result{}, err
		}
		return rap.Result{Text: fmt.Sprint("picked ", i)}, nil
	}}
}

func responseURL(m rappeer.Message) string {
	s, _ := m.Raw["response_url"].(string)
	return s
}

// TestRAP82_AChoiceIsAsked and answered once; the call ends in a result (RAP-84).
func TestRAP82_AChoiceIsAsked(t *testing.T) {
	answers := make(chan error, 8)
	g := newRig(t, nil, asker(answers))
	g.invoke("ask", "t", "c", nil)
	m := g.message("t", "c", 1)
	if m.Type != "user_choice" || m.Raw["prompt"] != "Write to /etc?" || m.Raw["default"] != 1.0 || !strings.HasPrefix(responseURL(m), g.Base+"/choice/") {
		t.Fatalf("%s", m.Body)
	}
	if list, _ := g.tree.List(g.ctx, belay.Filter{}); len(list) != 1 || list[0].Outcome != belay.Pending {
		t.Errorf("%+v", list)
	}
	post := func(body string) int {
		a, err := g.DoAs(nil, "POST", responseURL(m), "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		return a.Status
	}
	for body, want := range map[string]int{
		`{"id":"other","selected":0}`: 404, `{"selected":0}`: 400, `x`: 400, `{"id":"c","selected":"0"}`: 400, `{"id":"c","selected":0.5}`: 400,
	} {
		if got := post(body); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
	if got := post(`{"id":"c","selected":0}`); got != 200 {
		t.Errorf("the answer: %d", got)
	}
	if got := post(`{"id":"c","selected":1}`); got != 404 {
		t.Errorf("a second answer: %d", got)
	}
	if got := g.message("t", "c", 2); got.Type != "tool_result" || got.Text != "picked 0" {
		t.Errorf("%s", got.Body)
	}
	// An index that no choice has: 400, and the call ends in an error.
	g.invoke("ask", "t", "d", nil)
	m = g.message("t", "d", 1)
	if got := post(`{"id":"d","selected":2}`); got != 400 {
		t.Errorf("out of range: %d", got)
	}
	if got := g.message("t", "d", 2); got.Text != "Error: the answer is none of the choices" {
		t.Errorf("%s", got.Body)
	}
}

// TestRAP85_AStopWithdrawsTheChoice is acceptance 9 and R6: at once, and an answer
// that comes afterwards finds nothing.
func TestRAP85_AStopWithdrawsTheChoice(t *testing.T) {
	answers := make(chan error, 8)
	g := newRig(t, nil, asker(answers))
	g.invoke("ask", "t", "c", nil)
	m := g.message("t", "c", 1)
	g.cancel("t", "c")
	if a, err := g.DoAs(nil, "POST", responseURL(m), "application/json", `{"id":"c","selected":0}`); err != nil || a.Status != 404 {
		t.Errorf("an answer after the Stop: %+v, %v", a, err)
	}
	if got := g.message("t", "c", 2).Text; got != "Error: Cancelled by user." {
		t.Error(got)
	}
	if err := <-answers; belayCause(err) != belay.CauseUser {
		t.Errorf("the tool learned %v", err)
	}
	if _, receipt := g.receipt("t", "c"); receipt.Verdict != belay.Confirmed {
		t.Errorf("%+v", receipt)
	}
}

func belayCause(err error) belay.Cause {
	if c, ok := errors.AsType[*belay.Cancellation](err); ok {
		return c.Cause
	}
	return ""
}

// TestRAP81_AnAuthorisation is shown, waited for by the tool itself, and ended by a
// Stop or by its limit (RAP-80).
func TestRAP81_AnAuthorisation(t *testing.T) {
	come := make(chan struct{}, 1)
	g := newRig(t, func(o *rap.HandlerOptions) { o.AskWait = 300 * time.Millisecond }, rap.Operation{
		Tool: rap.Tool{Name: "mail"},
		Run: func(ctx context.Context, j *rap.Job) (rap.Result, error) {
			err := j.Authorize(ctx, "https://id.acme.test/authorize?state=s1", func(ctx context.Context) error {
				select {
				case <-come:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			return rap.Result{Text: "sent"}, err
		},
	})
	g.invoke("mail", "t", "a", nil)
	if m := g.message("t", "a", 1); m.Type != "oauth" || m.Raw["auth_url"] != "https://id.acme.test/authorize?state=s1" {
		t.Errorf("%s", m.Body)
	}
	come <- struct{}{}
	if m := g.message("t", "a", 2); m.Text != "sent" {
		t.Errorf("%s", m.Body)
	}
	g.invoke("mail", "t", "b", nil)
	g.message("t", "b", 1)
	g.cancel("t", "b")
	if m := g.message("t", "b", 2); m.Text != "Error: Cancelled by user." {
		t.Errorf("%s", m.Body)
	}
	g.invoke("mail", "t", "c", nil)
	if m := g.message("t", "c", 2); m.Text != "Error: the user did not answer in time" {
		t.Errorf("%s", m.Body)
	}
}

// TestRAP72_ASubscription: first a result, then events in their order, then the
// last; after a cancel nothing but that (RAP-73, RAP-74, RAP-78).
func TestRAP72_ASubscription(t *testing.T) {
	more := make(chan string)
	after := make(chan error, 1)
	told := make(chan struct{}, 2) // the tool knows that it is subscribed, which the runtime knows before
	g := newRig(t, nil, rap.Operation{Tool: rap.Tool{Name: "watch"}, Run: func(ctx context.Context, j *rap.Job) (rap.Result, error) {
		if err := j.Event(ctx, "too early", true); !errors.Is(err, rap.ErrSubscribed) {
			t.Errorf("an event before the subscription: %v", err)
		}
		if err := j.Subscribe(ctx, "watching build 9"); err != nil {
			return rap.Result{}, err
		}
		if err := j.Subscribe(ctx, "again"); !errors.Is(err, rap.ErrSubscribed) {
			t.Errorf("a second subscription: %v", err)
		}
		told <- struct{}{}
		for {
			select {
			case text, ok := <-more:
				if !ok {
					return rap.Result{Text: "build 9 is done"}, nil
				}
				if err := j.Event(ctx, text, true); err != nil {
					return rap.Result{}, err
				}
			case <-ctx.Done():
				after <- j.Event(context.WithoutCancel(ctx), "after the cancel", true)
				return rap.Result{}, context.Cause(ctx)
			}
		}
	}})
	g.invoke("watch", "t", "s", nil)
	if m := g.message("t", "s", 1); m.Type != "tool_result" || !m.Subscription || m.Text != "watching build 9" {
		t.Errorf("%s", m.Body)
	}
	for i := range 3 {
		more <- fmt.Sprint("step ", i)
	}
	for i := range 3 {
		if m := g.message("t", "s", i+2); m.Type != "subscription_event" || m.ToolCallID != "s" || m.Text != fmt.Sprint("step ", i) || m.Final || m.Raw["id"] != nil {
			t.Errorf("%s", m.Body)
		}
	}
	close(more)
	if m := g.message("t", "s", 5); !m.Final || m.Text != "build 9 is done" {
		t.Errorf("%s", m.Body)
	}
	g.settled("t", "s")
	more = make(chan string)
	g.invoke("watch", "t", "u", nil)
	g.message("t", "u", 1)
	<-told // of the first
	<-told
	g.cancel("t", "u")
	if m := g.message("t", "u", 2); !m.Final || m.Text != "[cancelled]" || m.Type != "subscription_event" {
		t.Errorf("%s", m.Body)
	}
	if err := <-after; err == nil {
		t.Error("an event was sent after the cancel")
	}
	g.settled("t", "u")
	if n := len(g.Messages("t", "u")); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// TestRAP86_Views are sent as they are.
func TestRAP86_Views(t *testing.T) {
	g := newRig(t, nil, rap.Operation{Tool: rap.Tool{Name: "show"}, Run: func(ctx context.Context, j *rap.Job) (rap.Result, error) {
		if err := j.View(ctx, "diff", json.RawMessage(`[]`)); !errors.Is(err, rap.ErrMalformed) {
			t.Errorf("content that is no object: %v", err)
		}
		return rap.Result{Text: "shown"}, j.View(ctx, "diff", json.RawMessage(`{"patch":"+1.0"}`))
	}})
	g.invoke("show", "t", "c", nil)
	if m := g.message("t", "c", 1); m.Type != "view_update" || m.GroupID != "t" || m.Raw["view_type"] != "diff" {
		t.Errorf("%s", m.Body)
	}
	if m := g.message("t", "c", 2); m.Text != "shown" {
		t.Errorf("%s", m.Body)
	}
}

// TestRAP89_Migration: a toolset without state says so; one with state answers when
// all has arrived.
func TestRAP89_Migration(t *testing.T) {
	const good = `{"session_id":"root","destination_url":"https://gw2.acme.test/rap/files"}`
	plain := newRig(t, nil, echo())
	moved := make(chan rap.Migration, 2)
	stateful := newRig(t, func(o *rap.HandlerOptions) {
		o.Migrate = func(_ context.Context, caller string, m rap.Migration) error {
			if moved <- m; m.SessionID == "bad" {
				return errors.New("the destination refused")
			}
			return nil
		}
	}, echo())
	for _, tt := range []struct {
		g      *rig
		body   string
		status int
	}{
		{plain, good, 404},
		{plain, `x`, 400},
		{stateful, `{"session_id":"root"}`, 400},
		{stateful, `{"session_id":"root","destination_url":"file:///x"}`, 400},
		{stateful, good, 200},
		{stateful, strings.Replace(good, "root", "bad", 1), 502},
	} {
		a, err := tt.g.Do("POST", "/migrate", tt.body)
		if err != nil || a.Status != tt.status || (a.Status != 200) != strings.HasPrefix(a.Body, `{"error":"`) {
			t.Errorf("%s: %+v, %v; want %d", tt.body, a, err, tt.status)
		}
	}
	if m := <-moved; m.SessionID != "root" || m.DestinationURL != "https://gw2.acme.test/rap/files" {
		t.Errorf("%+v", m)
	}
}

// TestRAP97_UnknownCancelsLeaveMemoryFlat: ten thousand of them, by many callers,
// leave ten thousand small marks at most, and nothing of malformed ones.
func TestRAP97_UnknownCancelsLeaveMemoryFlat(t *testing.T) {
	callers := 0
	h := bare(t, func(*http.Request) string { callers++; return fmt.Sprint("caller", callers/50) })
	send := func(n int) {
		for i := range n {
			w := httptest.NewRecorder()
			body := fmt.Sprintf(`{"thread_id":"thread_%d","tool_call_id":"call_%d"}`, i, i)
			h.ServeHTTP(w, post("/cancel_tool_call", body))
			if w.Code != 200 {
				t.Fatal(w.Code)
			}
		}
	}
	send(10_000)
	before := heap()
	callers = 1_000_000
	send(10_000)
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("10,000 more unknown cancels left %d bytes", grown)
	}
	if before > 64<<20 {
		t.Errorf("the first 10,000 left %d bytes", before)
	}
	runtime.KeepAlive(h)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func post(path, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

type callerFunc func(*http.Request) string

func (f callerFunc) Authenticate(r *http.Request, _ func() ([]byte, error)) (string, error) {
	return f(r), nil
}
func (callerFunc) Challenge() string { return "Test" }

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// bare is a handler without a network.
func bare(t *testing.T, who callerFunc, change ...func(*rap.HandlerOptions)) *rap.Handler {
	t.Helper()
	tools, err := rap.NewToolset(rap.Manifest{Name: "files"}, echo())
	if err != nil {
		t.Fatal(err)
	}
	o := rap.HandlerOptions{Toolset: tools, Authenticator: who}
	for _, f := range change {
		f(&o)
	}
	h, err := rap.NewHandler(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background(), belay.Cancellation{}); err != nil {
			t.Error(err)
		}
	})
	return h
}

// TestRAP97_TheMarkLastsThirtySeconds on virtual time.
func TestRAP97_TheMarkLastsThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan string, 8)
		client := &http.Client{Transport: tripper(func(r *http.Request) (*http.Response, error) {
			var m struct{ ID, Text string }
			_ = json.NewDecoder(r.Body).Decode(&m)
			got <- m.ID + ": " + m.Text
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})}
		h := bare(t, func(*http.Request) string { return "ann" }, func(o *rap.HandlerOptions) { o.Client = client })
		serve := func(path, body string) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, post(path, body))
			if w.Code != 200 {
				t.Fatal(w.Code, w.Body)
			}
		}
		invoke := func(id string) string {
			serve("/invoke", `{"operation":"echo","arguments":{"text":"ran"},"id":"`+id+`","group_id":"t","callback_url":"https://rt.test/cb"}`)
			return <-got
		}
		serve("/cancel_tool_call", `{"thread_id":"t","tool_call_id":"a"}`)
		serve("/cancel_tool_call", `{"thread_id":"t","tool_call_id":"b"}`)
		time.Sleep(29 * time.Second)
		if m := invoke("a"); m != "a: Error: Cancelled before start." {
			t.Error(m)
		}
		time.Sleep(2 * time.Second)
		if m := invoke("b"); m != "b: ran" {
			t.Error(m)
		}
	})
}

// TestRAP40_CallbackURLsStayOutOfLogs: whatever goes wrong with a callback URL, its path is
// in no log line (RAP-40).
func TestRAP40_CallbackURLsStayOutOfLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: tripper(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("dial %s failed", r.URL)
		})}
		var log lines
		h := bare(t, func(*http.Request) string { return "ann" }, func(o *rap.HandlerOptions) { o.Client, o.Log = client, log.logger() })
		w := httptest.NewRecorder()
		h.ServeHTTP(w, post("/invoke", `{"operation":"echo","arguments":{"text":"ran"},"id":"a","group_id":"t","callback_url":"https://rt.test/cb/s3cret"}`))
		time.Sleep(5 * time.Minute) // all retries
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, "could not be delivered") || strings.Contains(text, "s3cret") {
			t.Error(text)
		}
	})
}
