package rap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/rappeer"
)

// subscribes is a tool whose call becomes a subscription.
func subscribes(started chan<- *rappeer.Invoked) func(*rappeer.Invoked) {
	return func(c *rappeer.Invoked) {
		_, _ = c.Post(map[string]any{"type": "tool_result", "group_id": c.Group, "id": c.ID, "text": "watching build 9", "subscription": true})
		started <- c
	}
}

// TestRAP73_Subscription: events pass in their order, the final one ends it, and what
// comes after a cancel is discarded (RAP-65, 73 to 75, 77, 78; acceptance 11, 12).
func TestRAP73_Subscription(t *testing.T) {
	started := make(chan *rappeer.Invoked, 1)
	p := peer(t, &rappeer.ToolServer{Tools: one("watch", subscribes(started))})
	events := make(chan string, 10)
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{Events: &Events{Subscription: func(sub *Subscription, e *SubscriptionEvent) {
		events <- fmt.Sprintf("%s %s %v", sub.Tool, e.Text, e.Final)
	}}})
	other := s.thread(ThreadOptions{})

	c := s.invoke(th, "watch")
	if r, err := c.Wait(soon(t)); err != nil || !r.Subscription || r.Text != "watching build 9" {
		t.Fatalf("%v, %v", r, err)
	}
	in := <-started
	subs := th.Subscriptions()
	if len(subs) != 1 || subs[0].ID != c.ID() || subs[0].Run().Info().Work != belay.Running {
		t.Fatalf("%v", subs)
	}
	for i, final := range []bool{false, false, true, false} {
		if status, _ := in.Event(fmt.Sprint(i), final); status != http.StatusOK {
			t.Errorf("event %d: %d", i, status)
		}
	}
	for _, want := range []string{"watch 0 false", "watch 1 false", "watch 2 true"} {
		if got := <-events; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if len(th.Subscriptions()) != 0 || subs[0].Run().Info().Outcome != belay.Completed {
		t.Errorf("after the final event: %d live, outcome %s", len(th.Subscriptions()), subs[0].Run().Info().Outcome)
	}

	c = s.invoke(th, "watch")
	in = <-started
	live := th.Subscriptions()[0]
	before := len(p.Seen(PathCancel))
	if err := other.CancelSubscription(c.ID(), belay.Cancellation{}); !errors.Is(err, ErrNoSubscription) {
		t.Errorf("another thread's: %v", err)
	}
	if err := th.CancelSubscription("run_none", belay.Cancellation{}); !errors.Is(err, ErrNoSubscription) {
		t.Errorf("unknown: %v", err)
	}
	if n := len(p.Seen(PathCancel)); n != before {
		t.Error("somebody was told")
	}
	if err := th.CancelSubscription(c.ID(), belay.Cancellation{}); err != nil {
		t.Error(err)
	}
	if got := p.Await(soon(t), PathCancel, before+1); len(got) != before+1 || !strings.Contains(string(got[before].Body), c.ID()) {
		t.Errorf("the server was told %v", got)
	}
	if status, _ := in.Event("late", false); status != http.StatusOK {
		t.Errorf("a late event got %d", status)
	}
	if r := live.Run().Receipt(); !r.StillActive {
		t.Error("the receipt does not say that events go on")
	}
	if status, _ := in.Event("[cancelled]", true); status != http.StatusOK {
		t.Errorf("the last event got %d", status)
	}
	if r, err := live.Run().Wait(soon(t)); err != nil || r.Verdict != belay.Acknowledged {
		t.Errorf("%v, %v", r, err)
	}
	select {
	case e := <-events:
		t.Errorf("an event was passed on after the cancel: %s", e)
	case <-time.After(50 * time.Millisecond):
	}
}

// TestRAP41_Restart: the callback URL of a live subscription works after a restart, and
// its cancel is told; an ordinary call's does not (acceptance 11).
func TestRAP41_Restart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "subscriptions.json")
	started := make(chan *rappeer.Invoked, 2)
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"watch": subscribes(started), "work": func(c *rappeer.Invoked) { started <- c }}})
	open := func() *FileStore {
		store, err := OpenStore(file)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	s := newStage(t, func(o *RuntimeOptions) { o.Servers, o.Store = []Server{{Name: "p", Base: p.Base()}}, open() })
	th := s.thread(ThreadOptions{ID: "t", Durable: true, Owner: "ann"})
	sub := s.invoke(th, "watch")
	in := <-started
	if err := th.Keep(sub.ID(), json.RawMessage(`{"mine":1}`)); err != nil {
		t.Fatal(err)
	}
	call := s.invoke(th, "work")
	pending := <-started
	text, err := os.ReadFile(file)
	token := in.Callback[strings.LastIndexByte(in.Callback, '/')+1:]
	if err != nil || strings.Contains(string(text), token) {
		t.Errorf("the file holds the token, or is not there: %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}

	old := s.Runtime // the program ends, and another begins at the same address
	ctx, end := context.WithTimeout(t.Context(), 5*time.Second)
	defer end()
	if err := old.Close(ctx, belay.Cancellation{}); err != nil {
		t.Fatal(err)
	}
	<-call.Done()
	for _, one := range p.Seen(PathCancel) {
		if strings.Contains(string(one.Body), sub.ID()) {
			t.Error("the subscription was cancelled at the end of the program")
		}
	}
	if n := len(p.Seen(PathClose)); n != 0 {
		t.Error("the thread was closed at the end of the program")
	}
	events := make(chan string, 1)
	next, err := NewRuntime(RuntimeOptions{
		Tree: s.tree, Callback: s.web.URL + "/rap/callback", Servers: []Server{{Name: "p", Base: p.Base()}}, Store: open(),
		Events: Events{Subscription: func(sub *Subscription, e *SubscriptionEvent) { events <- string(sub.Kept()) + " " + e.Text }},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Runtime = next
	if status, _ := in.Event("after the restart", false); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	if got := <-events; got != `{"mine":1} after the restart` {
		t.Error(got)
	}
	if status, _ := pending.Text("done"); status != http.StatusNotFound {
		t.Errorf("an ordinary call's callback got %d", status)
	}
	left := next.Restored()
	if len(left) != 1 || left[0].ID != sub.ID() || left[0].Run().Info().Owner != "ann" {
		t.Fatalf("%v", left)
	}
	again, err := next.Open(ThreadOptions{ID: "t", Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.CancelSubscription(sub.ID(), belay.Cancellation{}); err != nil {
		t.Error(err)
	}
	eventually := p.Await(soon(t), PathCancel, 2)
	if last := string(eventually[len(eventually)-1].Body); !strings.Contains(last, sub.ID()) || !strings.Contains(last, `"t"`) {
		t.Errorf("told %s", last)
	}
	if list, _ := open().Load(); len(list) != 0 {
		t.Errorf("%d are stored still", len(list))
	}
}

// TestRAP79_Limit: a thread has at most 64 live subscriptions; one more is cancelled,
// and its result says so.
func TestRAP79_Limit(t *testing.T) {
	started := make(chan *rappeer.Invoked, MaxSubscriptions+1)
	p := peer(t, &rappeer.ToolServer{Tools: one("watch", subscribes(started))})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{})
	var last *Pending
	for range MaxSubscriptions + 1 {
		last = s.invoke(th, "watch")
		<-last.Done()
	}
	if n := len(th.Subscriptions()); n != MaxSubscriptions {
		t.Errorf("%d are live", n)
	}
	if r, err := last.Result(); err != nil || r.Subscription || !strings.Contains(r.Text, "64 are live") {
		t.Errorf("%v, %v", r, err)
	}
	if got := p.Await(soon(t), PathCancel, 1); !strings.Contains(string(got[0].Body), last.ID()) {
		t.Errorf("told %s", got[0].Body)
	}
	th.Close(belay.Cancellation{}) // which cancels them all (RAP-88)
	if got := p.Await(soon(t), PathCancel, MaxSubscriptions+1); len(got) != MaxSubscriptions+1 {
		t.Errorf("%d cancels", len(got))
	}
}

// TestStore: what cannot be read is refused, and changes nothing.
func TestStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(file, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(file); !errors.Is(err, ErrStore) {
		t.Errorf("%v", err)
	}
	if _, err := OpenStore(t.TempDir()); !errors.Is(err, ErrStore) {
		t.Errorf("a folder: %v", err)
	}
}

// choiceBody is a question of a call.
func choiceBody(c *rappeer.Invoked, base string) map[string]any {
	return map[string]any{
		"type": "user_choice", "group_id": c.Group, "id": c.ID, "prompt": "Write to /etc?",
		"choices": []string{"Yes", "No", "Ask later"}, "default": 1, "response_url": base + "/choice",
	}
}

// TestRAP83_Choice: what is chosen is posted, the default where the user dismisses it
// or nobody can be asked, and after a Stop nothing is; the prompt is withdrawn with the
// cancellation as its cause (RAP-82, 83, 85; R6; acceptance 9).
func TestRAP83_Choice(t *testing.T) {
	posted := make(chan string, 4)
	var p *rappeer.ToolServer
	started := make(chan *rappeer.Invoked, 1)
	p = peer(t, &rappeer.ToolServer{
		Tools: one("write", func(c *rappeer.Invoked) {
			_, _ = c.Post(choiceBody(c, p.Base()))
			started <- c
		}),
		OnChoice: func(_ context.Context, body []byte) int { posted <- string(body); return 0 },
	})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	answer := func(i int, err error) *Events {
		return &Events{Choice: func(context.Context, *Pending, *UserChoice) (int, error) { return i, err }}
	}
	for name, tt := range map[string]struct {
		events *Events
		want   int
	}{
		"chosen":       {answer(2, nil), 2},
		"dismissed":    {answer(0, errors.New("put away")), 1},
		"out of range": {answer(7, nil), 1},
		"nobody":       {&Events{}, 1},
	} {
		c, err := s.thread(ThreadOptions{Events: tt.events}).Invoke(CallOptions{Tool: "write"})
		if err != nil {
			t.Fatal(err)
		}
		in := <-started
		if got, want := <-posted, fmt.Sprintf(`{"id":%q,"selected":%d}`, in.ID, tt.want); got != want {
			t.Errorf("%s: posted %s, want %s", name, got, want)
		}
		select {
		case <-c.Done():
			t.Errorf("%s: the call is over", name)
		default:
		}
		_, _ = in.Text("done")
		<-c.Done()
	}

	shown, withdrawn := make(chan struct{}), make(chan error, 1)
	th := s.thread(ThreadOptions{Events: &Events{Choice: func(ctx context.Context, _ *Pending, _ *UserChoice) (int, error) {
		close(shown)
		<-ctx.Done()
		withdrawn <- context.Cause(ctx)
		return 0, nil // as if the user had pressed at the same moment
	}}})
	c := s.invoke(th, "write")
	<-shown
	if w := c.Run().Info().Work; w != belay.Waiting {
		t.Errorf("work %s while a person is asked", w)
	}
	look, began := calm.Start(t), time.Now()
	s.stop(c.Run())
	<-c.Done()
	look.Within(t, time.Since(began), 50*time.Millisecond, "the call's end")
	var why *belay.Cancellation
	if err := <-withdrawn; !errors.As(err, &why) || why.Reason != "enough" {
		t.Errorf("withdrawn with %v", err)
	}
	p.Await(soon(t), PathCancel, 1)
	select {
	case body := <-posted:
		t.Errorf("%s was posted after the Stop", body)
	case <-time.After(100 * time.Millisecond):
	}
}

// TestRAP82_ForeignResponse: a response_url that leads to somebody else gets neither
// the answer nor the credentials.
func TestRAP82_ForeignResponse(t *testing.T) {
	other := peer(t, &rappeer.ToolServer{})
	started := make(chan *rappeer.Invoked, 1)
	p := peer(t, &rappeer.ToolServer{Tools: one("write", func(c *rappeer.Invoked) {
		if status, _ := c.Post(choiceBody(c, other.Base())); status != http.StatusOK {
			t.Errorf("%d", status)
		}
		started <- c
	})})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	c := s.invoke(s.thread(ThreadOptions{}), "write")
	in := <-started
	_, _ = in.Text("done")
	<-c.Done()
	if n := len(other.Seen("/choice")); n != 0 {
		t.Errorf("%d answers went elsewhere", n)
	}
}

// TestRAP80_OAuth: the address is shown, the call stays pending and is not invoked
// again; a result, or a Stop, withdraws the prompt (RAP-80, 85; acceptance 9).
func TestRAP80_OAuth(t *testing.T) {
	started := make(chan *rappeer.Invoked, 2)
	p := peer(t, &rappeer.ToolServer{Tools: one("mail", func(c *rappeer.Invoked) {
		_, _ = c.Post(map[string]any{"type": "oauth", "group_id": c.Group, "id": c.ID, "auth_url": "https://id.test/authorize?state=s1"})
		started <- c
	})})
	shown, withdrawn := make(chan string, 2), make(chan error, 2)
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{Events: &Events{OAuth: func(ctx context.Context, _ *Pending, m *OAuth) {
		shown <- m.AuthURL
		<-ctx.Done()
		withdrawn <- context.Cause(ctx)
	}}})
	for _, stop := range []bool{false, true} {
		c := s.invoke(th, "mail")
		in := <-started
		if got := <-shown; got != "https://id.test/authorize?state=s1" {
			t.Error(got)
		}
		if stop {
			s.stop(c.Run())
		} else {
			_, _ = in.Text("sent")
		}
		<-c.Done()
		err := <-withdrawn
		if stopped := errors.As(err, new(*belay.Cancellation)); stopped != stop {
			t.Errorf("withdrawn with %v", err)
		}
	}
	if n := len(p.Seen("/run")); n != 2 {
		t.Errorf("%d invocations of 2 calls", n)
	}
}
