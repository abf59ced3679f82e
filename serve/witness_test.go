package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/sdkfake"
)

// behind is a kind of server behind the hub.
type behind struct {
	name   string
	modern bool
	remote bool // nothing here can see its work end
	define func(r *rig) Definition
}

func (r *rig) remote(o sdkfake.Options) Definition {
	o.Witness = r.wit.Path
	return r.at(sdkfake.Handler(o))
}

// at defines a remote server.
func (r *rig) at(h http.Handler) Definition {
	web := httptest.NewServer(h)
	r.t.Cleanup(func() {
		r.close(belay.Cancellation{Cause: belay.CauseShutdown}) // or the server would wait for the hub's streams
		web.Close()
	})
	s := config.New("tools", config.Policy{})
	s.URL = web.URL
	s.Grace, s.KillAfter = config.Some(200*time.Millisecond), config.Some(300*time.Millisecond)
	return Definition{Server: s}
}

var kinds = []behind{
	{"stdio legacy", false, false, func(r *rig) Definition { return r.fake("tools", "-era", "legacy") }},
	{"stdio modern", true, false, func(r *rig) Definition { return r.fake("tools", "-era", "modern") }},
	{"http session", false, true, func(r *rig) Definition { return r.remote(sdkfake.Options{}) }},
	{"http session json", false, true, func(r *rig) Definition { return r.remote(sdkfake.Options{JSON: true}) }},
	{"http+sse", false, true, func(r *rig) Definition { return r.at(sdkfake.SSEHandler(sdkfake.Options{Witness: r.wit.Path})) }},
	{"http heeds notification", false, true, func(r *rig) Definition {
		return r.at(&plain{witness: r.wit.Path, notice: true, calls: map[string]chan struct{}{}})
	}},
	{"http heeds close", false, true, func(r *rig) Definition {
		return r.at(&plain{witness: r.wit.Path, calls: map[string]chan struct{}{}})
	}},
	{"http modern", true, true, func(r *rig) Definition { return r.remote(sdkfake.Options{Stateless: true, Propagate: true}) }},
	{"http modern json", true, true, func(r *rig) Definition {
		return r.remote(sdkfake.Options{Stateless: true, Propagate: true, JSON: true})
	}},
}

// each runs a test for the servers of one era.
func each(t *testing.T, modern bool, f func(t *testing.T, r *rig, k behind)) {
	for _, k := range kinds {
		if k.modern == modern {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel() // most of the time is a ladder's
				r := newRig(t, nil)
				r.apply(k.define(r))
				f(t, r, k)
			})
		}
	}
}

const tickForever = `{"key":%q,"n":500,"deaf":%v}`

// tick begins a tick tool, in the way of the era, and waits for its first tick.
// The returned function is the caller going away.
func (r *rig) tick(modern bool, session, key string, deaf bool) (<-chan answer, context.CancelFunc) {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	args := fmt.Sprintf(tickForever, key, deaf)
	got := async(func() (answer, error) {
		if modern {
			return r.modernIn(ctx, "tools", "tick", args)
		}
		return r.postIn(ctx, Path("tools"), session, call(7, "tick", args))
	})
	r.event(key, "tick")
	return got, leave
}

// enter is what a caller of an era does first: it opens a session, or nothing.
func (r *rig) enter(modern bool) (session string) {
	r.t.Helper()
	if modern {
		return ""
	}
	return r.begin("tools")
}

func (r *rig) works(modern bool, session string) {
	r.t.Helper()
	var a answer
	if modern {
		a = r.must(r.modern("tools", "echo", `{"text":"fine"}`))
	} else {
		a = r.must(r.post(Path("tools"), session, call(99, "echo", `{"text":"fine"}`)))
	}
	if a.status != 200 || !strings.Contains(a.body, "fine") {
		r.t.Errorf("the next call does not work: %+v", a)
	}
}

// stoppedSoon holds that a good tool stops at most one tick after its Stop.
func (r *rig) stoppedSoon(key string, since time.Time) {
	r.t.Helper()
	r.sky.Within(r.t, r.event(key, "stopped").Time.Sub(since), 400*time.Millisecond*loadFactor, "the end of the tool "+key) // 25 ms is usual
}

func cancelOf(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"enough"}}`
}

// TestWitnessNotification: a legacy caller's cancel stops its call, its POST
// ends without a message, and the call of another session that has the same id
// is not hit (MCP-32, MCP-G7, MCP-G12, MCP-G24).
func TestWitnessNotification(t *testing.T) {
	t.Parallel()
	each(t, false, func(t *testing.T, r *rig, k behind) {
		one, two := r.begin("tools"), r.begin("tools")
		got, _ := r.tick(false, one, "a", false)
		other, leave := r.tick(false, two, "b", false)
		at := time.Now()
		if a := r.must(r.post(Path("tools"), one, cancelOf("7"))); a.status != 202 || a.body != "" {
			t.Errorf("the cancel: %+v", a)
		}
		if a := r.wait(got, 2*time.Second); a.status != 200 || strings.Contains(a.body, `"id":7`) {
			t.Errorf("the cancelled call: %+v", a)
		}
		r.stoppedSoon("a", at)
		r.works(false, one)
		ticks := r.wit.Count("b", "tick")
		r.eventually("the other session's call goes on", func() bool { return r.wit.Count("b", "tick") > ticks+2 })
		if a := r.must(r.post(Path("tools"), two, cancelOf("7"))); a.status != 202 {
			t.Errorf("the cancel: %+v", a)
		}
		r.wait(other, 2*time.Second)
		leave()
		for _, id := range []string{"7", `"7"`, "null", "{}"} { // repeated, unknown, malformed (MCP-G10)
			if a := r.must(r.post(Path("tools"), one, cancelOf(id))); a.status != 202 || a.body != "" {
				t.Errorf("a cancel of %s: %+v", id, a)
			}
		}
	})
}

// TestWitnessDisconnect: a modern caller who closes the stream stops its call
// and no other, though all have the same id (MCP-53, MCP-54, MCP-G7, A3).
func TestWitnessDisconnect(t *testing.T) {
	t.Parallel()
	each(t, true, func(t *testing.T, r *rig, k behind) {
		_, leave := r.tick(true, "", "a", false)
		other, leaveOther := r.tick(true, "", "b", false)
		at := time.Now()
		leave()
		r.stoppedSoon("a", at)
		r.works(true, "")
		ticks := r.wit.Count("b", "tick")
		r.eventually("the other caller's call goes on", func() bool { return r.wit.Count("b", "tick") > ticks+2 })
		at = time.Now()
		leaveOther()
		r.stoppedSoon("b", at)
		r.wait(other, 2*time.Second)
	})
}

// TestWitnessOperator: an operator's Stop ends the work and gives the caller
// exactly one answer, at once, in either era; the POST ends (MCP-G25, MCP-G26).
func TestWitnessOperator(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		each(t, modern, func(t *testing.T, r *rig, k behind) {
			session := r.enter(modern)
			got, leave := r.tick(modern, session, "a", false)
			defer leave()
			at := time.Now()
			run := r.stop("tick")
			a := r.wait(got, 450*time.Millisecond)
			if !strings.Contains(a.body, "-32800") && !strings.Contains(a.body, "Cancelled") || strings.Count(a.body, `"id":`) != 1 {
				t.Errorf("%+v", a)
			}
			r.stoppedSoon("a", at)
			if v := r.receipt(run).Verdict; v == belay.Unreachable || k.remote && v == belay.Confirmed {
				t.Errorf("the verdict is %s", v)
			}
			r.works(modern, session)
		})
	}
}

// TestWitnessDeaf: a tool that ignores everything. A process of Belay's is
// killed, the receipt says confirmed, and the session goes on; a remote one is
// told, and never said to have stopped (MCP-G30, MCP-G31, MCP-G33).
func TestWitnessDeaf(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		each(t, modern, func(t *testing.T, r *rig, k behind) {
			d := k.define(r)
			d.Enforce = config.Some("strict")
			r.apply(d)
			session := r.enter(modern)
			_, leave := r.tick(modern, session, "a", true)
			defer leave()
			w, at := calm.Start(t), time.Now()
			if modern {
				leave()
			} else {
				r.must(r.post(Path("tools"), session, cancelOf("7")))
			}
			receipt := r.receipt(r.find("tick"))
			if !k.remote {
				if receipt.Verdict != belay.Confirmed {
					t.Errorf("the verdict is %s: %+v", receipt.Verdict, receipt.Steps)
				}
				last := at
				for _, e := range r.wit.Of("a", "tick") {
					last = e.Time
				}
				w.Within(t, last.Sub(at), 500*time.Millisecond+250*time.Millisecond, "the last tick after the Stop")
			} else if receipt.Verdict != belay.Signalled {
				t.Errorf("the verdict is %s: %+v", receipt.Verdict, receipt.Steps)
			}
			r.works(modern, session)
		})
	}
}

// TestWitnessPolicy: what a dropped connection of a legacy caller means is a
// setting: the call goes on and its result waits for a resume, or it is stopped,
// at once or if nobody resumes (MCP-31, MCP-33, MCP-G15).
func TestWitnessPolicy(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.DisconnectMode{config.Detach, config.Cancel, config.CancelAfter} {
		each(t, false, func(t *testing.T, r *rig, k behind) {
			d := k.define(r)
			d.Disconnect = config.Some(config.Disconnect{Mode: mode, After: 300 * time.Millisecond})
			r.apply(d)
			session := r.begin("tools")
			ctx, leave := context.WithCancel(t.Context())
			resp := r.open(ctx, session, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tick","arguments":{"key":"a","n":40},"_meta":{"progressToken":1}}}`)
			id := lastEventID(t, resp)
			r.event("a", "tick")
			at := time.Now()
			leave()
			resp.Body.Close()
			switch mode {
			case config.Cancel:
				r.stoppedSoon("a", at)
			case config.CancelAfter:
				if took := r.event("a", "stopped").Time.Sub(at); took < 250*time.Millisecond {
					t.Errorf("it was stopped %v after the disconnect, want 300 ms", took)
				}
			case config.Detach:
				r.event("a", "done")
				if text := r.resume(session, id); !strings.Contains(text, `"id":7`) {
					t.Errorf("the resume brought %s", text)
				}
			}
			r.works(false, session)
		})
	}
}

// TestWitnessDelete: the end of a session stops all of its calls (A10,
// MCP-G15), and nobody else's; afterwards it is not found (MCP-37).
func TestWitnessDelete(t *testing.T) {
	t.Parallel()
	each(t, false, func(t *testing.T, r *rig, k behind) {
		session := r.begin("tools")
		got, leave := r.tick(false, session, "a", false)
		defer leave()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, r.web.URL+Path("tools"), nil)
		req.Header.Set("Mcp-Session-Id", session)
		at := time.Now()
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			t.Errorf("DELETE: %s", resp.Status)
		}
		if k.remote { // the session's end is all that a remote server is told
			r.event("a", "stopped")
		} else if left := faketool.WaitDead(r.wit.Pids("server"), 20*time.Second); len(left) > 0 {
			t.Errorf("%v are left %v after DELETE", left, time.Since(at))
		}
		r.wait(got, 2*time.Second)
		if a := r.must(r.post(Path("tools"), session, call(8, "echo", `{}`))); a.status != 404 {
			t.Errorf("after DELETE: %+v", a)
		}
	})
}

// TestWitnessEarly: a cancel that overtakes its request stops it before it
// begins (A9, MCP-G17).
func TestWitnessEarly(t *testing.T) {
	t.Parallel()
	each(t, false, func(t *testing.T, r *rig, k behind) {
		session := r.begin("tools")
		r.must(r.post(Path("tools"), session, cancelOf("7")))
		if a := r.must(r.post(Path("tools"), session, call(7, "tick", `{"key":"a","n":5}`))); a.status != 200 || strings.Contains(a.body, `"id"`) {
			t.Errorf("%+v", a)
		}
		r.works(false, session)
		if e := r.wit.Of("a", ""); len(e) > 0 {
			t.Errorf("the tool ran: %+v", e)
		}
		if v := r.receipt(r.find("tick")).Verdict; v != belay.Confirmed {
			t.Errorf("the verdict is %s", v)
		}
	})
}

// TestWitnessBehind: two hubs in a row. The outer one cannot see the work end
// and says signalled; the inner one started the process, ends it, and says
// confirmed (MCP-G30, MCP-G31).
func TestWitnessBehind(t *testing.T) {
	t.Parallel()
	inner, outer := newRig(t, nil), newRig(t, nil)
	outer.wit = inner.wit
	d := inner.fake("tools")
	d.Enforce = config.Some("strict")
	inner.apply(d)
	far := config.New("tools", config.Policy{})
	far.URL = inner.web.URL + Path("tools")
	far.Grace, far.KillAfter = config.Some(200*time.Millisecond), config.Some(300*time.Millisecond)
	outer.apply(Definition{Server: far})
	for _, modern := range []bool{false, true} {
		session, key := "", "modern"
		if !modern {
			session, key = outer.begin("tools"), "legacy"
		}
		_, leave := outer.tick(modern, session, key, true)
		if modern {
			leave()
		} else {
			outer.must(outer.post(Path("tools"), session, cancelOf("7")))
		}
		if v := inner.receipt(inner.find("tick")).Verdict; v != belay.Confirmed {
			t.Errorf("%s: the inner verdict is %s", key, v)
		}
		if v := outer.receipt(outer.find("tick")).Verdict; v == belay.Unreachable {
			t.Errorf("%s: the outer verdict is %s", key, v)
		}
		ticks := inner.wit.Count(key, "tick")
		outer.works(modern, session)
		if now := inner.wit.Count(key, "tick"); now != ticks {
			t.Errorf("%s: the tool goes on", key)
		}
		leave()
	}
}

// open sends a call and returns its stream.
func (r *rig) open(ctx context.Context, session, body string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.web.URL+Path("tools"), strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", session)
	req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// lastEventID reads until an event with an id came.
func lastEventID(t *testing.T, resp *http.Response) string {
	t.Helper()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			return id
		}
		if id, ok := strings.CutPrefix(lines.Text(), "id:"); ok {
			return id
		}
	}
	t.Fatal("no event has an id")
	return ""
}

// resume reads what a stream still has.
func (r *rig) resume(session, id string) string {
	r.t.Helper()
	req, _ := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.web.URL+Path("tools"), nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", session)
	req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	req.Header.Set("Last-Event-ID", id)
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// find returns the newest run with that name.
func (r *rig) find(name string) *belay.Run {
	r.t.Helper()
	var found *belay.Run
	r.eventually("a run of "+name, func() bool {
		list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}, Ended: true})
		if err != nil {
			r.t.Fatal(err)
		}
		var newest time.Time
		for _, info := range list {
			if info.Name == name && !info.Started.Before(newest) {
				if run, err := r.tree.Run(info.ID); err == nil {
					found, newest = run, info.Started
				}
			}
		}
		return found != nil
	})
	return found
}

// stop is an operator's Stop.
func (r *rig) stop(name string) *belay.Run {
	r.t.Helper()
	run := r.find(name)
	_, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{run.ID()}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test", Reason: "cost limit"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

func (r *rig) receipt(run *belay.Run) *belay.Receipt {
	r.t.Helper()
	ctx, end := context.WithTimeout(context.Background(), 40*time.Second)
	defer end()
	receipt, err := run.Wait(ctx)
	if err != nil {
		r.t.Fatalf("the run does not end: %v (%+v)", err, receipt)
	}
	return receipt
}
