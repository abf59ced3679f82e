package rap

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/rappeer"
)

// refusing is the address of nobody.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// TestRAP90_FiveServers: a hung, a refusing, a 500-ing and a slow server among five
// delay neither the caller nor the healthy one; each is told once, of the right call,
// and the receipt says what came of it (RAP-1, 2, 5, 7 to 10, 12 to 15, 17, 27, 29 to
// 31, 90; R1; acceptance 5, 6).
func TestRAP90_FiveServers(t *testing.T) {
	started := make(chan *rappeer.Invoked, 1)
	healthy := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": func(c *rappeer.Invoked) { started <- c }}})
	hung := peer(t, &rappeer.ToolServer{OnCancel: waits})
	broken := peer(t, &rappeer.ToolServer{OnCancel: func(context.Context, []byte) int { return http.StatusInternalServerError }})
	slow := peer(t, &rappeer.ToolServer{OnCancel: func(ctx context.Context, _ []byte) int {
		select {
		case <-time.After(400 * time.Millisecond):
		case <-ctx.Done():
		}
		return 0
	}})
	s := newStage(t, func(o *RuntimeOptions) {
		o.NotifyTimeout = time.Second
		o.Servers = []Server{
			{Name: "hung", Base: hung.Base()},
			{Name: "refusing", Base: refusing(t)},
			{Name: "broken", Base: broken.Base()},
			{Name: "slow", Base: slow.Base()},
			{Name: "healthy", Base: healthy.Base()},
		}
	})
	th := s.thread(ThreadOptions{ID: "thread_42", Servers: []string{"healthy"}})
	c := s.invoke(th, "work")
	in := <-started
	w, began := calm.Start(t), time.Now()
	s.stop(c.Run())
	<-c.Done()
	w.Within(t, time.Since(began), 50*time.Millisecond, "the caller was settled")
	got := healthy.Await(soon(t), PathCancel, 1)
	if len(got) != 1 {
		t.Fatal("the healthy server was not told")
	}
	w.Within(t, got[0].At.Sub(began), 100*time.Millisecond, "the healthy server was told")
	if _, err := c.Result(); belay.CancellationOf(c.Run().Context()) == nil || !errors.As(err, new(*belay.Cancellation)) {
		t.Errorf("the call ended with %v, want its cancellation", err)
	}
	until(t, "what came of all five", func() bool {
		r := c.Run().Receipt()
		return steps(r, SeenServerTold)+steps(r, SeenServerNotTold) == 5
	})
	r := c.Run().Receipt()
	if r.Verdict != belay.Signalled || steps(r, SeenServerTold) != 2 {
		t.Errorf("verdict %s with %d servers told, want signalled with 2: %+v", r.Verdict, steps(r, SeenServerTold), r.Steps)
	}
	for name, p := range map[string]*rappeer.ToolServer{"hung": hung, "broken": broken, "slow": slow, "healthy": healthy} {
		list := p.Seen(PathCancel)
		if len(list) != 1 {
			t.Errorf("%s got %d cancels, want one", name, len(list))
			continue
		}
		var body map[string]string
		if err := json.Unmarshal(list[0].Body, &body); err != nil || len(body) != 2 || body["thread_id"] != "thread_42" || body["tool_call_id"] != in.ID {
			t.Errorf("%s got %s, want thread_42 and %s", name, list[0].Body, in.ID)
		}
		if list[0].Method != http.MethodPost || list[0].ContentType != ContentType {
			t.Errorf("%s got a %s of %s", name, list[0].Method, list[0].ContentType)
		}
	}
}

// TestRAP94_Unreachable: where no server took the POST nobody was told, and the
// receipt says so.
func TestRAP94_Unreachable(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{
		Tools:    map[string]func(*rappeer.Invoked){"work": func(*rappeer.Invoked) {}},
		OnCancel: func(context.Context, []byte) int { return http.StatusBadGateway },
	})
	s := newStage(t, func(o *RuntimeOptions) {
		o.Servers = []Server{{Name: "p", Base: p.Base()}, {Name: "gone", Base: refusing(t)}}
	})
	th := s.thread(ThreadOptions{Servers: []string{"p"}})
	c := s.invoke(th, "work")
	if p.AwaitCall(soon(t), "work") == nil {
		t.Fatal("not called")
	}
	s.stop(c.Run())
	until(t, "the tell", func() bool {
		r := c.Run().Receipt()
		return len(r.Steps) > 0 && steps(r, SeenServerNotTold) == 2 && told(r) != ""
	})
	if r := c.Run().Receipt(); r.Verdict != belay.Unreachable {
		t.Errorf("verdict %s, want unreachable", r.Verdict)
	}
	if n := len(p.Seen(PathCancel)); n != 1 {
		t.Errorf("%d cancels, want one: it is never repeated", n)
	}
}

// told is the error of the step by which a run was told.
func told(r *belay.Receipt) string {
	for _, s := range r.Steps {
		if s.Step == belay.StepTold {
			return s.Error
		}
	}
	return ""
}

// TestRAP93_LateResult: a result after the Stop is acknowledged with 200, is kept as
// partial result and evidence, and reopens nothing; neither does a duplicate (RAP-20,
// 25, 26, 68, 93; acceptance 7).
func TestRAP93_LateResult(t *testing.T) {
	statuses := make(chan int, 2)
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": func(c *rappeer.Invoked) {
		<-c.Cancelled
		for range 2 {
			status, _ := c.Text("Cancelled by user. Partial results:\nhashed 230 of 812 files")
			statuses <- status
		}
	}}})
	late := make(chan *ToolResult, 2)
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{})
	c, err := th.Invoke(CallOptions{Tool: "work", Late: func(r *ToolResult) { late <- r }})
	if err != nil {
		t.Fatal(err)
	}
	if p.AwaitCall(soon(t), "work") == nil {
		t.Fatal("not called")
	}
	s.stop(c.Run())
	for range 2 {
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("a late result got %d, want 200", status)
		}
	}
	r, err := c.Run().Wait(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != belay.Acknowledged || r.Outcome != belay.Cancelled || r.Partial != "hashed 230 of 812 files" {
		t.Errorf("verdict %s, outcome %s, partial %q", r.Verdict, r.Outcome, r.Partial)
	}
	if got := <-late; got.Text == "" {
		t.Error("the late result was not handed over")
	}
	if result, err := c.Result(); result != nil || !errors.As(err, new(*belay.Cancellation)) {
		t.Errorf("the call was reopened: %v, %v", result, err)
	}
	select {
	case <-late:
		t.Error("a duplicate was handed over")
	default:
	}
}

// TestRAP68_OneOutcome: a result that races a Stop gives exactly one outcome,
// whichever is first, and 200 in any case (RAP-19, 20, 68; acceptance 7).
func TestRAP68_OneOutcome(t *testing.T) {
	statuses := make(chan int, 1)
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": func(c *rappeer.Invoked) {
		status, _ := c.Text("done")
		statuses <- status
	}}})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{})
	outcomes := map[belay.Outcome]int{}
	for i := range 60 {
		c := s.invoke(th, "work")
		time.Sleep(time.Duration(i%12) * 100 * time.Microsecond)
		c.Run().Cancel(belay.Cancellation{Cause: belay.CauseUser})
		<-c.Done()
		outcome := c.Run().Info().Outcome
		outcomes[outcome]++
		result, err := c.Result()
		if (result != nil) == (err != nil) || (outcome == belay.Completed) != (result != nil) {
			t.Fatalf("outcome %s with result %v and error %v", outcome, result, err)
		}
		if c.Run().Receipt() != nil && steps(c.Run().Receipt(), belay.SeenNotStarted) > 0 {
			continue // it was never sent
		}
		select {
		case status := <-statuses:
			if status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
		case <-time.After(100 * time.Millisecond): // the invocation was broken off before it was read
		}
	}
	t.Log(outcomes)
}

// TestRAP17_NotStarted: a call that is stopped before it was sent is never sent,
// and proven to be over.
func TestRAP17_NotStarted(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": func(*rappeer.Invoked) {}}})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{})
	th.mu.Lock() // it cannot be sent as long as the thread is busy
	run, err := s.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "turn"})
	if err != nil {
		t.Fatal(err)
	}
	th.mu.Unlock()
	run.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	if _, err := th.Invoke(CallOptions{Tool: "work", Parent: run}); err == nil {
		t.Error("a call was registered below a run that is cancelled")
	}
	if n := len(p.Seen("/run")); n != 0 {
		t.Errorf("%d invocations", n)
	}
}

// TestRAP29_StopOfATurn: the Stop of a run above reaches the calls below it, on every server,
// and a session's Stop all of its calls (R10; acceptance 17, second half).
func TestRAP29_StopOfATurn(t *testing.T) {
	tools := map[string]func(*rappeer.Invoked){"work": func(*rappeer.Invoked) {}}
	a, b := peer(t, &rappeer.ToolServer{Tools: tools}), peer(t, &rappeer.ToolServer{Tools: tools})
	s := newStage(t, func(o *RuntimeOptions) {
		o.Servers = []Server{{Name: "a", Base: a.Base()}, {Name: "b", Base: b.Base()}}
	})
	turn, err := s.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "turn"})
	if err != nil {
		t.Fatal(err)
	}
	onA, onB := s.thread(ThreadOptions{Servers: []string{"a"}, Parent: turn}), s.thread(ThreadOptions{Servers: []string{"b"}, Parent: turn})
	calls := []*Pending{s.invoke(onA, "work"), s.invoke(onA, "work"), s.invoke(onB, "work")}
	a.Await(soon(t), "/run", 2)
	b.Await(soon(t), "/run", 1)
	s.stop(turn)
	for _, c := range calls {
		<-c.Done()
		if got := c.Run().Cancellation(); got == nil || got.Cause != belay.CauseParent {
			t.Errorf("cancelled with %v, want the parent", got)
		}
	}
	for _, p := range []*rappeer.ToolServer{a, b} {
		got := p.Await(soon(t), PathCancel, 3)
		ids := map[string]bool{}
		for _, one := range got {
			n, err := ParseCancel(one.Body)
			if err != nil {
				t.Fatal(err)
			}
			ids[n.ToolCallID] = true
		}
		if len(got) != 3 || len(ids) != 3 {
			t.Errorf("%d cancels of %d calls, want 3 of 3", len(got), len(ids))
		}
	}
}

// TestRAP71_CallTimeout: the time that a call is given ends it with the cause
// deadline, and the servers are told.
func TestRAP71_CallTimeout(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": func(*rappeer.Invoked) {}}})
	s := newStage(t, func(o *RuntimeOptions) {
		o.Servers = []Server{{Name: "p", Base: p.Base(), CallTimeout: 100 * time.Millisecond}}
	})
	th := s.thread(ThreadOptions{})
	_, err := th.Do(soon(t), CallOptions{Tool: "work"})
	var c *belay.Cancellation
	if !errors.As(err, &c) || c.Cause != belay.CauseDeadline {
		t.Errorf("the call ended with %v, want the deadline", err)
	}
	if len(p.Await(soon(t), PathCancel, 1)) != 1 {
		t.Error("the server was not told")
	}
}

// TestDo: the end of the context stops the call, with its cause.
func TestDo(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": func(*rappeer.Invoked) {}}})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{})
	ctx, end := context.WithCancelCause(t.Context())
	go func() {
		p.AwaitCall(soon(t), "work")
		end(&belay.Cancellation{Cause: belay.CauseOperator, Reason: "cost"})
	}()
	_, err := th.Do(ctx, CallOptions{Tool: "work"})
	var c *belay.Cancellation
	if !errors.As(err, &c) || c.Cause != belay.CauseOperator || c.Reason != "cost" {
		t.Errorf("%v", err)
	}
	p.Await(soon(t), PathCancel, 1)
}

// TestRAP97_Order: a cancel does not overtake its invocation at a tool server that would
// forget it (R8), and no Stop is lost when the acknowledgement comes in its very moment.
func TestRAP97_Order(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{
		Tools: map[string]func(*rappeer.Invoked){"work": func(*rappeer.Invoked) {}},
		OnInvoke: func(context.Context, []byte) int {
			time.Sleep(time.Millisecond)
			return 0
		},
	})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{})
	const n = 200
	sent := 0
	for i := range n {
		c := s.invoke(th, "work")
		p.Await(soon(t), "/run", sent+1) // it has been read, and is being acknowledged
		sent++
		time.Sleep(time.Duration(i%8) * 200 * time.Microsecond)
		s.stop(c.Run())
		<-c.Done()
		in := p.Call(th.ID(), c.ID())
		select {
		case <-in:
		case <-time.After(5 * time.Second):
			t.Fatalf("the Stop of call %d was lost: %+v", i, c.Run().Receipt().Steps)
		}
	}
	if got := len(p.Seen(PathCancel)); got != n {
		t.Errorf("%d cancels of %d calls", got, n)
	}
}

// TestCloseAfterTree: a runtime ends also when its tree was closed before it, with calls
// that were never sent and calls that were.
func TestCloseAfterTree(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": func(*rappeer.Invoked) {}}})
	s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
	th := s.thread(ThreadOptions{})
	s.invoke(th, "work")
	p.Await(soon(t), "/run", 1)
	for range 10 {
		s.invoke(th, "work")
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	_ = s.tree.Close(ctx)
	w, began := calm.Start(t), time.Now()
	s.shut()
	w.Within(t, time.Since(began), 4*time.Second, "the end")
}

// TestRAP1_StopJustBeforeTheEnd: whoever presses Stop and then ends the program has
// stopped the work: the cancel is on its way before the runtime is gone.
func TestRAP1_StopJustBeforeTheEnd(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": func(*rappeer.Invoked) {}}})
	const n = 200
	for i := range n {
		s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
		th := s.thread(ThreadOptions{})
		c := s.invoke(th, "work")
		if len(p.Await(soon(t), "/run", i+1)) != i+1 {
			t.Fatal("not called")
		}
		c.Run().Cancel(belay.Cancellation{Cause: belay.CauseUser})
		if i%2 == 1 {
			th.Close(belay.Cancellation{})
		}
		s.shut()
	}
	if got := len(p.Seen(PathCancel)); got != n {
		t.Errorf("%d of %d calls were cancelled", got, n)
	}
}

// TestRAP77_StopJustBeforeTheEnd is the same for subscriptions.
func TestRAP77_StopJustBeforeTheEnd(t *testing.T) {
	p := peer(t, &rappeer.ToolServer{Tools: one("watch", func(c *rappeer.Invoked) {
		_, _ = c.Post(map[string]any{"type": "tool_result", "group_id": c.Group, "id": c.ID, "text": "watching", "subscription": true})
	})})
	const n = 100
	for range n {
		s := newStage(t, func(o *RuntimeOptions) { o.Servers = []Server{{Name: "p", Base: p.Base()}} })
		th := s.thread(ThreadOptions{})
		c := s.invoke(th, "watch")
		if _, err := c.Wait(soon(t)); err != nil {
			t.Fatal(err)
		}
		if err := th.CancelSubscription(c.ID(), belay.Cancellation{}); err != nil {
			t.Fatal(err)
		}
		s.shut()
	}
	if got := len(p.Seen(PathCancel)); got != n {
		t.Errorf("%d of %d subscriptions were cancelled", got, n)
	}
}
