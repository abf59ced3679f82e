package rap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/rap"
)

// TestRAP43_DiscoveryInvocationResult is a call without a Stop, as the protocol's
// page has it (RAP-54, RAP-56, RAP-62). The runtime of these tests takes JSON only
// (RAP-36).
func TestRAP43_DiscoveryInvocationResult(t *testing.T) {
	g := newRig(t, nil, echo())
	endpoint, m, err := g.Endpoint()
	if err != nil || endpoint != g.Base+"/invoke" || m["name"] != "files" || len(m["tools"].([]any)) != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	g.invoke("echo", "thread_42", "call_7f", map[string]any{"text": "hashed 812 files"})
	got := g.message("thread_42", "call_7f", 1)
	if got.Type != "tool_result" || got.GroupID != "thread_42" || got.ID != "call_7f" || got.Text != "hashed 812 files" {
		t.Errorf("%s", got.Body)
	}
	a, err := g.Do("POST", endpoint, g.Invocation("echo", "t", "c", map[string]any{"text": ""}, map[string]any{"call_id": "m-1"}))
	if got := g.message("t", "c", 1); err != nil || a.Status != 200 || got.CallID == nil || *got.CallID != "m-1" {
		t.Errorf("call_id is not echoed: %s (%+v, %v)", got.Body, a, err)
	}
	info, _ := g.receipt("thread_42", "call_7f")
	if info.Outcome != belay.Completed || info.Kind != belay.KindCall || info.Owner != "ann" || info.Server != "files" ||
		info.Address != "rap (thread_42, call_7f)" {
		t.Errorf("%+v", info)
	}
}

// TestRAP56_TheAcknowledgementDoesNotWait: the 200 comes while the work goes on.
func TestRAP56_TheAcknowledgementDoesNotWait(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"))
	g.invoke("scan", "t", "c", nil) // returns while nobody has ended the tool
	<-w.began
	close(w.end)
	if got := g.only("t", "c"); got != "done" {
		t.Error(got)
	}
}

// TestRAP57_ErrorsAreResults: unknown operation, bad arguments, failing and
// panicking tools are acknowledged and answered (RAP-51, RAP-66).
func TestRAP57_ErrorsAreResults(t *testing.T) {
	g := newRig(t, nil, echo(),
		rap.Operation{Tool: rap.Tool{Name: "fails"}, Run: func(context.Context, *rap.Job) (rap.Result, error) {
			return rap.Result{}, errors.New("the disk is full; remove something")
		}},
		rap.Operation{Tool: rap.Tool{Name: "panics"}, Run: func(context.Context, *rap.Job) (rap.Result, error) { panic("secret") }},
		rap.Operation{Tool: rap.Tool{Name: "goes"}, Run: func(context.Context, *rap.Job) (rap.Result, error) { runtime.Goexit(); return rap.Result{}, nil }},
		rap.Operation{Tool: rap.Tool{Name: "odd"}, Run: func(context.Context, *rap.Job) (rap.Result, error) {
			return rap.Result{Content: []rap.Item{{Type: "video"}}}, nil
		}},
		rap.Operation{Tool: rap.Tool{Name: "declined"}, Run: func(context.Context, *rap.Job) (rap.Result, error) {
			return rap.Result{}, fmt.Errorf("%w by the user", belay.ErrDeclined)
		}},
	)
	for i, tt := range []struct {
		operation string
		arguments any
		want      string
		outcome   belay.Outcome
	}{
		{"nothing", nil, `Error: there is no tool "nothing" here; ask for the list of tools again`, belay.Failed},
		{"echo", nil, `Error: the argument "text" is missing`, belay.Failed},
		{"echo", []int{1}, "Error: arguments must be an object, not array", belay.Failed},
		{"", nil, "Error: operation: a name of 0 characters, it must have 1 to 128", belay.Failed},
		{"fails", nil, "Error: the disk is full; remove something", belay.Failed},
		{"panics", nil, "Error: the tool failed unexpectedly; its author can find out why in the tool server's log", belay.Failed},
		{"goes", nil, "Error: the tool failed unexpectedly; its author can find out why in the tool server's log", belay.Failed},
		{"odd", nil, `Error: the tool gave a result that cannot be sent: content[0] has the type "video", there are text and image`, belay.Failed},
		{"declined", nil, "Error: declined by the user", belay.Declined},
	} {
		id := fmt.Sprint("c", i)
		g.invoke(tt.operation, "t", id, tt.arguments)
		if got := g.only("t", id); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.operation, got, tt.want)
		}
		if info, _ := g.receipt("t", id); info.Outcome != tt.outcome && tt.operation != "odd" {
			t.Errorf("%s: outcome %s", tt.operation, info.Outcome)
		}
	}
}

// TestRAP22_CancelStopsTheWork is acceptance 1: 200 with an empty body, the tool's
// own evidence stops growing, the outcome is cancelled, the work is stopped, the
// verdict is confirmed (RAP-2, RAP-3, RAP-98).
func TestRAP22_CancelStopsTheWork(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"))
	g.invoke("scan", "t", "c", nil)
	<-w.began
	g.cancel("t", "c")
	if got := g.only("t", "c"); got != "Error: Cancelled by user." {
		t.Errorf("the runtime got %q", got)
	}
	info, receipt := g.receipt("t", "c")
	if info.Outcome != belay.Cancelled || info.Work != belay.Stopped || receipt == nil || receipt.Verdict != belay.Confirmed ||
		info.Cancellation.Cause != belay.CauseUser || info.Cancellation.By != "ann" {
		t.Errorf("%+v, %+v", info, receipt)
	}
	w.stands(t)
}

// TestR5_EveryToolCanBeCancelled: there is none that ignores it by its kind, and
// annotations change nothing (RAP-4, RAP-47, RAP-52).
func TestR5_EveryToolCanBeCancelled(t *testing.T) {
	w := newWitness(t)
	var operations []rap.Operation
	for name, annotations := range map[string]string{
		"plain": "", "short": `{"longRunning":false}`, "reads": `{"readOnly":true,"idempotent":true}`, "own": `{"acme.test/uncancellable":true}`,
	} {
		o := w.op(name)
		o.Annotations, o.DisplayScript = json.RawMessage(annotations), json.RawMessage(`"cosmetic"`)
		operations = append(operations, o)
	}
	g := newRig(t, nil, operations...)
	_, m, err := g.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range m["tools"].([]any) {
		tool := one.(map[string]any)
		name := tool["name"].(string)
		if tool["displayScript"] != "cosmetic" || (tool["annotations"] == nil) != (name == "plain") {
			t.Errorf("not passed on as it was: %v", tool)
		}
		g.invoke(name, "t", name, nil)
		<-w.began
		g.cancel("t", name)
		if got := g.only("t", name); got != "Error: Cancelled by user." {
			t.Errorf("%s: %q", name, got)
		}
	}
	w.stands(t)
}

// TestRAP98_ThePartialResultComesWithTheCancel in the words of the sheet (RAP-25).
func TestRAP98_ThePartialResultComesWithTheCancel(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"), rap.Operation{
		Tool: rap.Tool{Name: "returns"},
		Run: func(ctx context.Context, _ *rap.Job) (rap.Result, error) {
			w.began <- "r"
			<-ctx.Done()
			return rap.Result{Text: "hashed 231 files"}, nil
		},
	})
	g.invoke("scan", "t", "c", map[string]string{"Partial": "hashed 230 of 812 files"})
	<-w.began
	for w.beats(t) < 20 { // it has said something by then
		time.Sleep(time.Millisecond)
	}
	g.cancel("t", "c")
	if got := g.only("t", "c"); got != "Cancelled by user. Partial results:\nhashed 230 of 812 files" {
		t.Errorf("the runtime got %q", got)
	}
	if _, receipt := g.receipt("t", "c"); receipt.Partial != "hashed 230 of 812 files" {
		t.Errorf("%+v", receipt)
	}
	g.invoke("returns", "t", "r", nil)
	<-w.began
	g.cancel("t", "r")
	if got := g.only("t", "r"); got != "Cancelled by user. Partial results:\nhashed 231 files" {
		t.Errorf("the runtime got %q", got)
	}
}

// TestR7_ADeafToolDelaysNobody: a tool that does not look at its context gets its
// caller answered all the same, and the receipt claims nothing (RAP-21, R7).
func TestR7_ADeafToolDelaysNobody(t *testing.T) {
	w := newWitness(t)
	w.deaf = true
	g := newRig(t, func(o *rap.HandlerOptions) { o.PartialWait = 20 * time.Millisecond }, w.op("scan"))
	g.invoke("scan", "t", "c", nil)
	<-w.began
	g.cancel("t", "c")
	if got := g.message("t", "c", 1).Text; got != "Error: Cancelled by user. The work may still be running; do not simply retry." {
		t.Errorf("the runtime got %q", got)
	}
	list, err := g.tree.List(g.ctx, belay.Filter{})
	if err != nil || len(list) != 1 || list[0].Work != belay.Stopping || list[0].Verdict == belay.Confirmed {
		t.Fatalf("%+v, %v", list, err)
	}
	g.cancel("t", "c") // a duplicate changes nothing (RAP-18)
	close(w.end)
	if info, receipt := g.receipt("t", "c"); receipt.Verdict != belay.Confirmed || info.Outcome != belay.Cancelled {
		t.Errorf("the late return is evidence: %+v", receipt)
	}
	if n := len(g.Messages("t", "c")); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestRAP11_EveryCancelIsAnsweredAlike is acceptance 2: unknown, ended, cancelled
// twice and malformed ones (RAP-12, RAP-13, RAP-16, RAP-18, RAP-28, RAP-33).
func TestRAP11_EveryCancelIsAnsweredAlike(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"), echo())
	g.invoke("echo", "t", "ended", map[string]string{"text": "x"})
	g.only("t", "ended")
	g.invoke("scan", "t", "live", nil)
	g.invoke("scan", "t", "other", nil)
	<-w.began
	<-w.began
	var first string
	for i, body := range []string{
		`{"thread_id":"t","tool_call_id":"live"}`, `{"thread_id":"t","tool_call_id":"live"}`,
		`{"thread_id":"t","tool_call_id":"ended"}`, `{"thread_id":"t","tool_call_id":"never"}`,
		`{"thread_id":"../x","tool_call_id":"../../etc/passwd"}`, `{"thread_id":"t","tool_call_id":"live","why":1,"x":{}}`,
		`{}`, `[]`, `x`, `{"thread_id":"t"}`, `{"thread_id":1,"tool_call_id":"other"}`, `{"thread_id":"t","tool_call_id":""}`,
		`{"thread_id":"t","tool_call_id":"other"}{}`, `{"thread_id":"t","tool_call_id":"other","tool_call_id":"other"}`,
		`{"thread_id":"t","tool_call_id":"` + strings.Repeat("o", 300) + `"}`, "{\"thread_id\":\"t\",\"tool_call_id\":\"other\xff\"}",
	} {
		a, err := g.Do("POST", "/cancel_tool_call", body)
		a.Header.Del("Date")
		if got := fmt.Sprint(a.Status, a.Header, a.Body); err != nil || i > 0 && got != first || a.Status != 200 || a.Body != "" {
			t.Errorf("%.80s: %s, %v; want %s", body, got, err, first)
		} else {
			first = got
		}
	}
	a, err := g.DoAs(g.Sign, "POST", "/cancel_tool_call", "text/plain", `{"thread_id":"t","tool_call_id":"other"}`)
	a.Header.Del("Date")
	if got := fmt.Sprint(a.Status, a.Header, a.Body); err != nil || got != first {
		t.Errorf("the wrong content type: %s, %v", got, err)
	}
	if got := g.only("t", "live"); got != "Error: Cancelled by user." {
		t.Error(got)
	}
	if list, _ := g.tree.List(g.ctx, belay.Filter{}); len(list) != 1 || list[0].Labels["tool_call_id"] != "other" {
		t.Errorf("in flight: %+v", list)
	}
	if n := len(g.Messages("t", "ended")); n != 1 {
		t.Errorf("the ended call got %d messages", n)
	}
	close(w.end)
	if got := g.only("t", "other"); got != "done" {
		t.Errorf("what was not stopped: %q", got)
	}
}

// TestRAP96_IdsMeetOnlyWithinThreadAndCaller is acceptance 3 and R2: neither two
// threads nor two callers reach each other by the same ids.
func TestRAP96_IdsMeetOnlyWithinThreadAndCaller(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"))
	asBob := g.as(bobToken)
	g.invoke("scan", "t1", "call_1", nil)
	g.invoke("scan", "t2", "call_1", nil)
	bobs := g.Invocation("scan", "t1", "call_1", nil, nil)
	if a := asBob("POST", g.Base+"/invoke", bobs); a.Status != 200 {
		t.Fatal(a)
	}
	for range 3 {
		<-w.began
	}
	live := func() (all []string) {
		list, _ := g.tree.List(g.ctx, belay.Filter{})
		for _, i := range list {
			if i.Outcome == belay.Pending {
				all = append(all, i.Owner+"/"+i.Labels["thread_id"])
			}
		}
		return all
	}
	asBob("POST", "/cancel_tool_call", `{"thread_id":"t2","tool_call_id":"call_1"}`) // the right ids, another identity
	if got := live(); len(got) != 3 {
		t.Fatalf("a stranger stopped something: %v left", got)
	}
	asBob("POST", "/close_thread", `{"thread_id":"t2"}`)
	if got := live(); len(got) != 3 {
		t.Fatalf("a stranger closed a thread: %v left", got)
	}
	asBob("POST", "/cancel_tool_call", `{"thread_id":"t1","tool_call_id":"call_1"}`)
	if got := fmt.Sprint(live()); got != "[ann/t1 ann/t2]" {
		t.Fatalf("bob stopped his own: %v left", got)
	}
	g.cancel("t2", "call_1")
	if got := fmt.Sprint(live()); got != "[ann/t1]" {
		t.Fatalf("ann stopped one of two: %v left", got)
	}
	close(w.end)
}

// TestRAP97_ACancelMayComeFirst is acceptance 4 and R8.
func TestRAP97_ACancelMayComeFirst(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"), echo())
	g.cancel("t", "c")
	g.invoke("scan", "t", "c", nil)
	if got := g.only("t", "c"); got != "Error: Cancelled before start." {
		t.Errorf("the runtime got %q", got)
	}
	info, receipt := g.receipt("t", "c")
	if info.Outcome != belay.Cancelled || receipt.Verdict != belay.Confirmed || w.beats(t) != 0 {
		t.Errorf("%+v %+v, %d bytes of evidence", info, receipt, w.beats(t))
	}
	// Bob's early cancel is no one else's.
	g.as(bobToken)("POST", "/cancel_tool_call", `{"thread_id":"t","tool_call_id":"d"}`)
	g.invoke("echo", "t", "d", map[string]string{"text": "runs"})
	if got := g.only("t", "d"); got != "runs" {
		t.Errorf("a stranger's mark stopped a call: %q", got)
	}
	// A late cancel of an ended call leaves no mark: the retry is the same call.
	g.cancel("t", "d")
	g.invoke("echo", "t", "e", map[string]string{"text": "runs"})
	if got := g.only("t", "e"); got != "runs" {
		t.Error(got)
	}
}

// TestRAP61_ARepeatedInvocationRunsOnce is acceptance 14, also when the call has
// ended in between.
func TestRAP61_ARepeatedInvocationRunsOnce(t *testing.T) {
	var runs atomic.Int32
	release := make(chan struct{})
	g := newRig(t, nil, rap.Operation{Tool: rap.Tool{Name: "count"}, Run: func(context.Context, *rap.Job) (rap.Result, error) {
		runs.Add(1)
		<-release
		return rap.Result{Text: "once"}, nil
	}})
	endpoint, _, err := g.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	body := g.Invocation("count", "t", "c", nil, nil)
	for range 5 {
		if a, err := g.Do("POST", endpoint, body); err != nil || a.Status != 200 || a.Body != "" {
			t.Fatal(a, err)
		}
	}
	close(release)
	if got := g.only("t", "c"); got != "once" {
		t.Error(got)
	}
	if a, err := g.Do("POST", endpoint, body); err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	if n := len(g.Messages("t", "c")); runs.Load() != 1 || n != 1 {
		t.Errorf("%d runs, %d results", runs.Load(), n)
	}
}

// TestRAP88_CloseThreadStopsItsCalls is acceptance 10: those of the thread and no
// other, subscriptions too.
func TestRAP88_CloseThreadStopsItsCalls(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"), rap.Operation{
		Tool: rap.Tool{Name: "watch"},
		Run: func(ctx context.Context, j *rap.Job) (rap.Result, error) {
			if err := j.Subscribe(ctx, "watching"); err != nil {
				return rap.Result{}, err
			}
			w.began <- j.ID()
			<-ctx.Done()
			return rap.Result{}, context.Cause(ctx)
		},
	})
	for _, id := range []string{"a", "b"} {
		g.invoke("scan", "t", id, nil)
	}
	g.invoke("watch", "t", "s", nil)
	g.invoke("scan", "other", "a", nil)
	for range 4 {
		<-w.began
	}
	for _, thread := range []string{"unknown", "../t", "t"} {
		if a, err := g.CloseThread(thread); err != nil || a.Status != 200 || a.Body != "" {
			t.Fatal(a, err)
		}
	}
	for _, id := range []string{"a", "b"} {
		if got := g.only("t", id); got != "Error: Cancelled by parent: the thread was closed." {
			t.Errorf("%s: %q", id, got)
		}
	}
	if m := g.message("t", "s", 2); m.Type != "subscription_event" || !m.Final || m.ToolCallID != "s" || m.Text != "[cancelled]" {
		t.Errorf("the subscription ended with %s", m.Body)
	}
	if list, _ := g.tree.List(g.ctx, belay.Filter{}); len(list) != 1 || list[0].Labels["thread_id"] != "other" {
		t.Errorf("in flight: %+v", list)
	}
	close(w.end)
}

// TestRAP92_AnOperatorsStopAnswersTheRuntime is acceptance 8.
func TestRAP92_AnOperatorsStopAnswersTheRuntime(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"))
	g.invoke("scan", "t", "c", nil)
	<-w.began
	_, err := g.tree.Cancel(g.ctx, belay.CancelRequest{
		Filter:       belay.Filter{Labels: map[string]string{"tool_call_id": "c"}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "root", Reason: "too expensive"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := g.only("t", "c"); got != "Error: Cancelled by operator: too expensive." {
		t.Error(got)
	}
	w.stands(t)
}

// TestRAP7_RacesHaveOneOutcome is acceptance 7: a cancel that races its result, a
// thousand times (RAP-19).
func TestRAP7_RacesHaveOneOutcome(t *testing.T) {
	g := newRig(t, func(o *rap.HandlerOptions) { o.MaxCalls, o.MaxCallsPerCaller = 2000, 2000 }, rap.Operation{
		Tool: rap.Tool{Name: "quick"},
		Run: func(ctx context.Context, _ *rap.Job) (rap.Result, error) {
			select {
			case <-ctx.Done():
				return rap.Result{}, context.Cause(ctx)
			case <-time.After(time.Millisecond):
				return rap.Result{Text: "done"}, nil
			}
		},
	})
	endpoint, _, err := g.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			id := fmt.Sprint("c", i)
			if a, err := g.Do("POST", endpoint, g.Invocation("quick", "t", id, nil, nil)); err != nil || a.Status != 200 {
				t.Errorf("%v %v", a, err)
			}
			// Most cancels come when the call has ended, and cost the caller's rate.
			if a, err := g.Cancel("t", id); err != nil || a.Status != 200 && a.Status != 429 {
				t.Errorf("%v %v", a, err)
			}
			if _, err := g.Wait(g.ctx, "t", id, 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	count := map[string]int{}
	for i := range n {
		id := fmt.Sprint("c", i)
		info, _ := g.receipt("t", id)
		all := g.Messages("t", id)
		if len(all) != 1 {
			t.Fatalf("%s got %d messages", id, len(all))
		}
		want := map[belay.Outcome][]string{
			belay.Completed: {"done"},
			// The tool may have been done when it was stopped.
			belay.Cancelled: {"Error: Cancelled by user.", "Cancelled by user. Partial results:\ndone"},
		}[info.Outcome]
		if !slices.Contains(want, all[0].Text) {
			t.Fatalf("%s: outcome %s, but the runtime got %q", id, info.Outcome, all[0].Text)
		}
		count[string(info.Outcome)]++
	}
	t.Logf("outcomes: %v", count)
}

// TestRAP32_NobodyUnknownStopsAnything: 401 and 403 before anything is looked up,
// on every route (RAP-38, R3).
func TestRAP32_NobodyUnknownStopsAnything(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"))
	g.invoke("scan", "t", "c", nil)
	<-w.began
	for _, path := range []string{"/cancel_tool_call", "/close_thread", "/invoke", "/migrate", "/.well-known/rap-toolset"} {
		method, body := "POST", `{"thread_id":"t","tool_call_id":"c","session_id":"t","destination_url":"http://x/"}`
		if strings.HasPrefix(path, "/.well") {
			method, body = "GET", ""
		}
		for name, sign := range map[string]func(*http.Request, []byte){
			"no":    nil,
			"wrong": bearer("ann-0123456789abcdeF"),
			"empty": bearer(""),
			"basic": func(r *http.Request, _ []byte) { r.SetBasicAuth("ann", annToken) },
			"query": func(r *http.Request, _ []byte) { r.URL.RawQuery = "access_token=" + annToken },
			"two": func(r *http.Request, _ []byte) {
				r.Header.Add("Authorization", "Bearer x")
				r.Header.Add("Authorization", "Bearer "+annToken)
			},
		} {
			a, err := g.DoAs(sign, method, path, "application/json", body)
			if err != nil || a.Status != 401 || a.Header.Get("WWW-Authenticate") == "" || a.Body != "" {
				t.Errorf("%s with %s credentials: %+v, %v", path, name, a, err)
			}
		}
	}
	if list, _ := g.tree.List(g.ctx, belay.Filter{}); len(list) != 1 || list[0].Outcome != belay.Pending {
		t.Errorf("%+v", list)
	}
	close(w.end)
}

// TestR11_RoutesAreExact: only the paths that there are, and only their methods.
func TestR11_RoutesAreExact(t *testing.T) {
	g := newRig(t, nil, echo())
	for _, path := range []string{"/cancel_tool_call", "/close_thread", "/invoke", "/migrate"} {
		for _, method := range []string{"GET", "PUT", "DELETE", "OPTIONS", "HEAD"} {
			if a, err := g.Do(method, path, ""); err != nil || a.Status != 405 || a.Header.Get("Allow") != "POST" {
				t.Errorf("%s %s: %+v, %v", method, path, a, err)
			}
		}
	}
	for _, path := range []string{
		"/cancel_tool_call/", "/x/cancel_tool_call", "/cancel_tool_call2", "/Cancel_tool_call", "/%63ancel_tool_call",
		"/", "/invoke/x", "/.well-known/rap-toolset/x", "/choice", "/choice/", "/choice/x/y",
	} {
		if a, err := g.Do("POST", path, `{"thread_id":"t","tool_call_id":"c"}`); err != nil || a.Status != 404 {
			t.Errorf("%s: %+v, %v", path, a, err)
		}
	}
}

// TestRAP37_BadInvocations is the bad-input table's rows about invocations and
// sizes: nothing is started, and the caller learns what was wrong.
func TestRAP37_BadInvocations(t *testing.T) {
	g := newRig(t, func(o *rap.HandlerOptions) { o.NoLoopback = true }, echo())
	for _, body := range []string{
		`x`, `[]`, `{}`, `{"operation":"echo","arguments":{},"id":"c","group_id":"t"}`,
		`{"operation":"echo","arguments":{},"id":"c","group_id":"t","callback_url":"ftp://x/"}`,
		`{"operation":"echo","arguments":{},"id":"c","group_id":"t","callback_url":"http://169.254.169.254/latest"}`,
		`{"operation":"echo","arguments":{},"id":"c","group_id":"t","callback_url":"https://10.0.0.1/"}`,
		`{"operation":"echo","arguments":{},"id":"c","group_id":"t","callback_url":"https://127.0.0.1/"}`,
		`{"operation":"echo","arguments":{},"id":"c","group_id":"t","callback_url":"http://rt.acme.test/"}`,
		`{"operation":"echo","arguments":{},"id":7,"group_id":"t","callback_url":"https://rt.acme.test/"}`,
	} {
		a, err := g.Do("POST", "/invoke", body)
		if err != nil || a.Status != 400 || !strings.HasPrefix(a.Body, `{"error":"`) {
			t.Errorf("%s: %+v, %v", body, a, err)
		}
	}
	if a, err := g.DoAs(g.Sign, "POST", "/invoke", "text/plain", `{"operation":"echo","arguments":{},"id":"c","group_id":"t","callback_url":"https://rt.acme.test/"}`); err != nil || a.Status != 400 {
		t.Errorf("the wrong content type: %+v, %v", a, err)
	}
	for path, size := range map[string]int{"/invoke": rap.MaxInvocation, "/cancel_tool_call": rap.MaxNotice, "/close_thread": rap.MaxNotice} {
		a, err := g.Do("POST", path, `{"thread_id":"`+strings.Repeat("x", size)+`"}`)
		if err != nil || a.Status != 413 || a.Body != "" {
			t.Errorf("%s: %d, %v", path, a.Status, err)
		}
	}
	if list, _ := g.tree.List(g.ctx, belay.Filter{Ended: true}); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// TestRAP34_TheRate is acceptance 18: the surplus gets 429, another caller is not
// affected, and no cancel of a call in flight is ever lost by it.
func TestRAP34_TheRate(t *testing.T) {
	began := make(chan struct{}, 150)
	g := newRig(t, nil, rap.Operation{Tool: rap.Tool{Name: "scan"}, Run: func(ctx context.Context, _ *rap.Job) (rap.Result, error) {
		began <- struct{}{}
		<-ctx.Done()
		return rap.Result{}, context.Cause(ctx)
	}})
	for i := range 150 {
		g.invoke("scan", "t", fmt.Sprint("c", i), nil)
	}
	for range 150 {
		<-began
	}
	at := time.Now()
	surplus := 0
	for i := range 200 {
		a, err := g.Cancel("t", fmt.Sprint("unknown", i))
		if err != nil || a.Status != 200 && a.Status != 429 || a.Body != "" || (a.Status == 429) != (a.Header.Get("Retry-After") != "") {
			t.Fatal(a, err)
		}
		if a.Status == 429 {
			surplus++
		}
	}
	if most := 100 + int(50*time.Since(at).Seconds()) + 1; surplus < 200-most {
		t.Errorf("%d of 200 were too many in %v", surplus, time.Since(at))
	}
	if a := g.as(bobToken)("POST", "/cancel_tool_call", `{"thread_id":"t","tool_call_id":"c"}`); a.Status != 200 {
		t.Errorf("another caller got %d", a.Status)
	}
	for i := range 150 {
		g.cancel("t", fmt.Sprint("c", i)) // fails unless it is 200
	}
	for i := range 150 {
		if got := g.only("t", fmt.Sprint("c", i)); got != "Error: Cancelled by user." {
			t.Fatal(got)
		}
	}
}

// TestRAP69_ResultsAreRetried after a 5xx, and not after a 4xx.
func TestRAP69_ResultsAreRetried(t *testing.T) {
	g := newRig(t, nil, echo())
	g.Status = func(id string, n int) int {
		switch {
		case id == "flaky" && n < 3:
			return 503
		case id == "gone":
			return 404
		case id == "dead":
			return 500
		}
		return 200
	}
	for _, id := range []string{"flaky", "gone", "dead"} {
		g.invoke("echo", "t", id, map[string]string{"text": "x"})
	}
	if got := g.only("t", "flaky"); got != "x" || g.Tries("t", "flaky") != 3 {
		t.Errorf("%q after %d tries", got, g.Tries("t", "flaky"))
	}
	for g.Tries("t", "dead") < 4 && g.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := g.h.Close(g.ctx, belay.Cancellation{}); err != nil {
		t.Fatal(err)
	}
	if g.Tries("t", "gone") != 1 || g.Tries("t", "dead") != 4 {
		t.Errorf("a 404 was tried %d times, a 500 %d times", g.Tries("t", "gone"), g.Tries("t", "dead"))
	}
}

// TestRAP60_CloseStopsAndWaits: everything that runs is stopped, answered and
// waited for; a tool that does not return is counted.
func TestRAP60_CloseStopsAndWaits(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, nil, w.op("scan"))
	g.invoke("scan", "t", "c", nil)
	<-w.began
	if err := g.h.Close(g.ctx, belay.Cancellation{Reason: "the server ends"}); err != nil {
		t.Fatal(err)
	}
	if got := g.only("t", "c"); got != "Error: Cancelled by shutdown: the server ends." {
		t.Error(got)
	}
	w.stands(t)
	if a, err := g.Do("POST", "/invoke", g.Invocation("scan", "t", "d", nil, nil)); err != nil || a.Status != 503 {
		t.Errorf("%+v, %v", a, err)
	}
	deaf := newWitness(t)
	deaf.deaf = true
	d := newRig(t, func(o *rap.HandlerOptions) { o.PartialWait = time.Millisecond }, deaf.op("scan"))
	d.invoke("scan", "t", "c", nil)
	<-deaf.began
	short, end := context.WithTimeout(d.ctx, 50*time.Millisecond)
	defer end()
	if err := d.h.Close(short, belay.Cancellation{}); err == nil || !strings.HasPrefix(err.Error(), "1 calls of tools have not returned") {
		t.Errorf("a deaf tool: %v", err)
	}
	close(deaf.end)
}

// TestRAP42_CallsAreBounded: what is too much is 503, which a runtime tries again,
// and one caller leaves room for others.
func TestRAP42_CallsAreBounded(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, func(o *rap.HandlerOptions) { o.MaxCalls, o.MaxCallsPerCaller = 3, 2 }, w.op("scan"))
	g.invoke("scan", "t", "a", nil)
	g.invoke("scan", "t", "b", nil)
	a, err := g.Do("POST", "/invoke", g.Invocation("scan", "t", "c", nil, nil))
	if err != nil || a.Status != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("%+v, %v", a, err)
	}
	if a := g.as(bobToken)("POST", "/invoke", g.Invocation("scan", "t", "c", nil, nil)); a.Status != 200 {
		t.Errorf("%+v", a)
	}
	close(w.end)
}

// TestRAP42_ArgumentsAreBounded: many large calls are as much too much as many calls
// are; when they are over there is room again.
func TestRAP42_ArgumentsAreBounded(t *testing.T) {
	release := make(chan struct{})
	g := newRig(t, func(o *rap.HandlerOptions) { o.MaxHeld = 64 << 10 }, rap.Operation{Tool: rap.Tool{Name: "hold"}, Run: func(context.Context, *rap.Job) (rap.Result, error) {
		<-release
		return rap.Result{Text: "done"}, nil
	}})
	large := map[string]string{"text": strings.Repeat("x", 4000)}
	refused := -1
	for i := range 30 {
		a, err := g.Do("POST", "/invoke", g.Invocation("hold", "t", fmt.Sprint("c", i), large, nil))
		if err != nil {
			t.Fatal(err)
		}
		if a.Status == http.StatusServiceUnavailable {
			refused = i
			break
		}
	}
	if refused != 16 {
		t.Errorf("the call %d of 4 KB was the first that was refused", refused)
	}
	close(release)
	for i := range refused {
		g.only("t", fmt.Sprint("c", i))
	}
	for g.ctx.Err() == nil { // the last goroutine of a call ends a moment after its answer
		if a, err := g.Do("POST", "/invoke", g.Invocation("hold", "t", "again", large, nil)); err != nil || a.Status == http.StatusOK {
			break
		}
	}
	if got := g.only("t", "again"); got != "done" {
		t.Error(got)
	}
}
