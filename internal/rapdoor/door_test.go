package rapdoor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/rapdoor"
	"github.com/belayhq/belay/rap"
	"github.com/belayhq/belay/serve"
)

// TestRAP43_AServerIsAToolset: what tools/list says is discovered, called, and
// answered, in both eras of MCP (RAP-45, RAP-46, RAP-54, RAP-62).
func TestRAP43_AServerIsAToolset(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			r := newRig(t, tools("-era", era), nil)
			endpoint, m, err := r.Endpoint()
			if err != nil || endpoint != r.Base+"/invoke" || m["name"] != "tools" {
				t.Fatalf("%v, %v", m, err)
			}
			names := map[string]bool{}
			for _, tool := range m["tools"].([]any) {
				names[tool.(map[string]any)["name"].(string)] = true
			}
			if !names["echo"] || !names["tick"] {
				t.Errorf("%v", names)
			}
			r.invoke("echo", "t", "c", map[string]any{"text": "fine"})
			if got := r.message("t", "c"); !strings.Contains(got.Text, "fine") || got.Type != "tool_result" {
				t.Errorf("%s", got.Body)
			}
			own, receipt := r.receipt("t", "c")
			_, below := r.runs("t", "c")
			if own.Outcome != belay.Completed || own.Owner != "ann" || own.Kind != belay.KindCall || own.Address != "rap (t, c)" || receipt != nil ||
				len(below) != 1 || below[0].Name != "echo" || below[0].Owner != "ann" || below[0].Parent != own.ID {
				t.Errorf("%+v, below %+v", own, below)
			}
			r.invoke("nothing", "t", "d", nil)
			if got := r.message("t", "d").Text; !strings.HasPrefix(got, `Error: there is no tool "nothing"`) {
				t.Error(got)
			}
		})
	}
}

// TestR9_ACancelIsTheMCPCallsOwn is acceptance 16: the server sees its own request
// cancelled, its work stops, and what is proven of it is proven of the call. A call
// beside it, on the same server, goes on (RAP-96).
func TestR9_ACancelIsTheMCPCallsOwn(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			r := newRig(t, tools("-era", era), nil)
			r.invoke("tick", "t", "a", map[string]any{"key": "a", "n": 1000})
			r.invoke("tick", "t", "b", map[string]any{"key": "b", "n": 1000})
			r.event("a", "tick")
			r.event("b", "tick") // side by side: one stuck call blocks nobody
			r.cancel("t", "a")
			r.event("a", "stopped")
			if era == "legacy" {
				r.event("a", "signal")
			}
			if got := r.message("t", "a").Text; !strings.HasPrefix(got, "Cancelled by user. Partial results:\n") && !strings.HasPrefix(got, "Error: Cancelled by user.") {
				t.Errorf("the runtime got %q", got)
			}
			if r.wit.StillTicking("a", 200*time.Millisecond) || !r.wit.StillTicking("b", 200*time.Millisecond) {
				t.Errorf("a ticks: %v, b ticks: %v", r.wit.StillTicking("a", 200*time.Millisecond), r.wit.StillTicking("b", 200*time.Millisecond))
			}
			own, below := r.runs("t", "a")
			if own.Outcome != belay.Cancelled || len(below) != 1 || below[0].Outcome != belay.Cancelled || below[0].Cancellation.Cause != belay.CauseParent {
				t.Errorf("%+v, below %+v", own, below)
			}
			r.cancel("t", "b")
			r.event("b", "stopped")
			if v := r.wit.Violations(); len(v) != 0 {
				t.Errorf("the server saw %v", v)
			}
			if n := len(r.Messages("t", "a")); n != 1 {
				t.Errorf("%d messages", n)
			}
		})
	}
}

// TestRAP24_ADeafServersProcessIsDead: a tool that does not listen is stopped by the
// ladder of its server, and only then the receipt says confirmed (acceptance 1).
func TestRAP24_ADeafServersProcessIsDead(t *testing.T) {
	r := newRig(t, func(r *rig) []serve.Definition {
		d := r.fake("tools")
		d.Enforce = config.Some("strict")
		return []serve.Definition{d}
	}, nil)
	r.invoke("tick", "t", "a", map[string]any{"key": "a", "n": 3000, "deaf": true, "quiet": true})
	r.event("a", "tick")
	at := time.Now()
	r.cancel("t", "a")
	// Whether the process was dead by then is a matter of moments.
	if got := r.message("t", "a").Text; !strings.HasPrefix(got, "Error: Cancelled by user.") || time.Since(at) > 5*time.Second {
		t.Errorf("the runtime got %q after %v", got, time.Since(at))
	}
	own, receipt := r.receipt("t", "a")
	if r.wit.StillTicking("a", 200*time.Millisecond) {
		t.Error("the process behind the tool is alive")
	}
	if own.Work != belay.Stopped || receipt.Verdict != belay.Confirmed {
		t.Errorf("%+v: %+v", own, receipt)
	}
	r.invoke("echo", "t", "next", map[string]any{"text": "fine"})
	if got := r.message("t", "next").Text; !strings.Contains(got, "fine") {
		t.Errorf("the next call: %q", got)
	}
}

// TestRAP94_NothingIsClaimedWithoutProof: where force is never used, a deaf tool
// works on, and the receipt says no more than that it was told.
func TestRAP94_NothingIsClaimedWithoutProof(t *testing.T) {
	r := newRig(t, func(r *rig) []serve.Definition {
		d := r.fake("tools")
		d.Enforce = config.Some("never")
		return []serve.Definition{d}
	}, nil)
	r.invoke("tick", "t", "a", map[string]any{"key": "a", "n": 150, "deaf": true, "quiet": true})
	r.event("a", "tick")
	r.cancel("t", "a")
	r.message("t", "a")
	own, _ := r.runs("t", "a")
	d, err := r.tree.Get(r.ctx, own.ID)
	if err != nil || d.Receipt == nil || d.Receipt.Verdict == belay.Confirmed || !r.wit.StillTicking("a", 100*time.Millisecond) {
		t.Errorf("%+v, %v", d.Receipt, err)
	}
}

// TestRAP32_StrangersReachNothing: no credentials, another identity, another
// server's name (RAP-96, acceptance 3).
func TestRAP32_StrangersReachNothing(t *testing.T) {
	r := newRig(t, tools(), nil)
	r.invoke("tick", "t", "a", map[string]any{"key": "a", "n": 1000})
	r.event("a", "tick")
	body := `{"thread_id":"t","tool_call_id":"a"}`
	for who, want := range map[string]int{"": 401, bobToken: 200, "wrong-0123456789abcdef": 401} {
		sign := bearer(who)
		if who == "" {
			sign = nil
		}
		for _, path := range []string{"/cancel_tool_call", "/close_thread"} {
			if a, err := r.DoAs(sign, "POST", path, "application/json", body); err != nil || a.Status != want || a.Body != "" {
				t.Errorf("%q %s: %+v, %v", who, path, a, err)
			}
		}
	}
	for path, want := range map[string]int{"/rap/other/cancel_tool_call": 404, "/rap/tools/x/cancel_tool_call": 404, "/rap/": 404, "/rap/tools": 404, "/rap/to%6Fls/cancel_tool_call": 404} {
		if a, err := r.Do("POST", r.web.URL+path, body); err != nil || a.Status != want {
			t.Errorf("%s: %+v, %v", path, a, err)
		}
	}
	if a, err := r.DoAs(nil, "POST", r.web.URL+"/rap/other/cancel_tool_call", "application/json", body); err != nil || a.Status != 401 {
		t.Errorf("which servers there are is said to a stranger: %+v, %v", a, err)
	}
	if !r.wit.StillTicking("a", 200*time.Millisecond) {
		t.Error("a stranger stopped the call")
	}
	// Bob's calls have a process of their own.
	a, err := r.DoAs(bearer(bobToken), "POST", "/invoke", "application/json", r.Invocation("tick", "t", "b", map[string]any{"key": "bob", "n": 1000}, nil))
	if err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	if _, err := r.wit.WaitFor("bob", "tick", 5*time.Second); err != nil {
		t.Fatalf("%v: bob got %+v", err, r.Messages("t", "b"))
	}
	if n := r.wit.Count("server", "initialize"); n != 2 {
		t.Errorf("%d sessions for two principals", n)
	}
	if a, err := r.DoAs(bearer(annToken), "POST", "/close_thread", "application/json", `{"thread_id":"t"}`); err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	r.event("a", "stopped")
	if !r.wit.StillTicking("bob", 200*time.Millisecond) {
		t.Error("closing a thread stopped another caller's call")
	}
}

// TestRAP92_AnOperatorStopsTheMCPCall below the runtime's: the runtime gets its one
// result.
func TestRAP92_AnOperatorStopsTheCall(t *testing.T) {
	r := newRig(t, tools(), nil)
	r.invoke("tick", "t", "a", map[string]any{"key": "a", "n": 1000})
	r.event("a", "tick")
	own, _ := r.runs("t", "a")
	_, err := r.tree.Cancel(r.ctx, belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{own.ID}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "root", Reason: "too expensive"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.event("a", "stopped")
	if got := r.message("t", "a").Text; !strings.Contains(got, "Cancelled by operator: too expensive.") {
		t.Errorf("the runtime got %q", got)
	}
}

// TestRAP97_EarlyCancel reaches nothing: no server is started for a call that was
// stopped before it came.
func TestRAP97_EarlyCancel(t *testing.T) {
	r := newRig(t, tools(), nil)
	r.cancel("t", "a")
	r.invoke("tick", "t", "a", map[string]any{"key": "a"})
	if got := r.message("t", "a").Text; got != "Error: Cancelled before start." {
		t.Errorf("%q", got)
	}
	if n := r.wit.Count("server", "start"); n != 0 {
		t.Errorf("%d processes were started", n)
	}
}

// TestRAP46_OddToolsAreLeftOut, named in the log, and the others are offered; a
// server without any has no manifest.
func TestRAP46_OddToolsAreLeftOut(t *testing.T) {
	listing := func(list string) serve.Definition {
		return serve.Definition{Server: config.New("tools", config.Policy{}), Serve: scripted(list)}
	}
	r := newRig(t, func(*rig) []serve.Definition {
		return []serve.Definition{listing(`[
			{"name":"good","title":"A good one","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}},"annotations":{"readOnlyHint":true,"openWorldHint":true}},
			{"name":"has space","description":"d","inputSchema":{"type":"object"}},
			{"name":"good","description":"again","inputSchema":{"type":"object"}},
			{"name":"odd","description":"d","inputSchema":{"type":"thing"}},
			{"name":"none","description":"d"}]`)}
	}, nil)
	_, m, err := r.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(m["tools"])
	if want := `[{"annotations":{"readOnly":true},"description":"A good one","inputSchema":{"properties":{"n":{"type":"integer"}},"type":"object"},"name":"good"}]`; string(got) != want {
		t.Errorf("%s", got)
	}
	for _, name := range []string{"has space", "odd", "two tools are named"} {
		if !strings.Contains(r.logs.String(), name) {
			t.Errorf("the log does not name %q", name)
		}
	}
	r.invoke("good", "t", "a", map[string]any{"n": "one"})
	if got := r.message("t", "a").Text; !strings.HasPrefix(got, "Error: the arguments do not fit the tool's schema") {
		t.Errorf("%q", got)
	}
	empty := newRig(t, func(*rig) []serve.Definition { return []serve.Definition{listing(`[]`)} }, nil)
	if a, err := empty.Do("GET", "/.well-known/rap-toolset", ""); err != nil || a.Status != 503 {
		t.Errorf("%+v, %v", a, err)
	}
}

// scripted is an MCP server in this process that lists these tools and answers calls
// with what it got.
func scripted(list string) func(context.Context, io.Reader, io.Writer) error {
	return func(_ context.Context, in io.Reader, out io.Writer) error {
		d := json.NewDecoder(in)
		for {
			var m struct {
				ID     json.RawMessage
				Method string
				Params json.RawMessage
			}
			if err := d.Decode(&m); err != nil {
				return nil //nolint:nilerr // the pipe has ended
			}
			result := ""
			switch m.Method {
			case "initialize":
				result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"scripted","version":"1"}}`
			case "tools/list":
				result = `{"tools":` + strings.Join(strings.Fields(list), " ") + `}`
			case "tools/call":
				result = `{"content":[{"type":"text","text":"one picture"},{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"audio","data":"aGk=","mimeType":"audio/wav"},{"type":"resource_link","uri":"file:///a"}]}`
			}
			if strings.Contains(string(m.Params), `"draw"`) {
				result = `{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}`
			}
			if result != "" && m.ID != nil {
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
			}
		}
	}
}

// TestRAP67_WhatAServerAsksIsRefused, so that its call ends and does not hang: there
// is nobody to ask.
func TestRAP67_WhatAServerAsksIsRefused(t *testing.T) {
	r := newRig(t, tools(), nil)
	for id, method := range map[string]string{"a": "ping", "b": "elicitation/create", "c": "roots/list"} {
		r.invoke("ask", "t", id, map[string]any{"method": method, "params": map[string]any{"message": "name?"}})
		if got := r.message("t", id); got.Type != "tool_result" {
			t.Errorf("%s: %s", method, got.Body)
		} else {
			t.Logf("%s: %s", method, got.Text)
		}
	}
}

// TestRAP63_ContentIsTranslated: text and images as they are, the rest as a text
// that says what it was.
func TestRAP63_ContentIsTranslated(t *testing.T) {
	r := newRig(t, func(*rig) []serve.Definition {
		return []serve.Definition{{Server: config.New("tools", config.Policy{}), Serve: scripted(`[{"name":"show","description":"d","inputSchema":{"type":"object"}},{"name":"draw","description":"d","inputSchema":{"type":"object"}}]`)}}
	}, nil)
	r.invoke("show", "t", "a", nil)
	got, _ := json.Marshal(r.message("t", "a").Raw["content"])
	want := `[{"text":"one picture","type":"text"},{"data":"aGk=","mediaType":"image/png","type":"image"},{"text":"[audio of about 3 bytes, which cannot be shown here]","type":"text"},{"text":"[resource file:///a]","type":"text"}]`
	if string(got) != want {
		t.Errorf("%s", got)
	}
	r.invoke("draw", "t", "b", nil)
	got, _ = json.Marshal(r.message("t", "b").Raw["content"])
	if want := `[{"text":"The tool answered with an image.","type":"text"},{"data":"aGk=","mediaType":"image/png","type":"image"}]`; string(got) != want {
		t.Errorf("%s", got)
	}
}

// far is a server that speaks the protocol itself.
type far struct {
	rap.Toolset
	moved chan rap.Migration
}

func (f far) Migrate(_ context.Context, caller string, m rap.Migration) error {
	f.moved <- m
	if m.SessionID == "bad" || caller != "ann" {
		return &rap.MigrateError{Server: "far", Status: http.StatusConflict}
	}
	return nil
}

// TestRAP89_MigrationIsRelayed to a server that speaks the protocol itself, with its
// status; there is none of an MCP server.
func TestRAP89_MigrationIsRelayed(t *testing.T) {
	set, err := rap.NewToolset(rap.Manifest{Name: "far", NeedsMigration: true}, rap.Operation{
		Tool: rap.Tool{Name: "own"},
		Run: func(ctx context.Context, _ *rap.Job) (rap.Result, error) {
			<-ctx.Done()
			time.Sleep(2 * time.Second) // longer than others wait
			return rap.Result{Text: "its one result"}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := far{set, make(chan rap.Migration, 4)}
	r := newRig(t, tools(), func(o *rapdoor.Options) {
		o.Relay = func(name string) (rapdoor.Relay, bool) { return f, name == "far" }
	})
	const body = `{"session_id":"root","destination_url":"https://gw2.acme.test/rap/far"}`
	for _, tt := range []struct {
		path, body string
		sign       func(*http.Request, []byte)
		status     int
	}{
		{"/rap/far/migrate", body, r.Sign, 200},
		{"/rap/far/migrate", strings.Replace(body, "root", "bad", 1), r.Sign, 409},
		{"/rap/far/migrate", body, nil, 401},
		{"/rap/far/migrate", `{}`, r.Sign, 400},
		{"/rap/tools/migrate", body, r.Sign, 404},
		{"/rap/tools/migrate", `{}`, r.Sign, 400},
	} {
		a, err := r.DoAs(tt.sign, "POST", r.web.URL+tt.path, "application/json", tt.body)
		if err != nil || a.Status != tt.status || tt.status > 401 && !strings.HasPrefix(a.Body, `{"error":`) {
			t.Errorf("%s %s: %+v, %v; want %d", tt.path, tt.body, a, err, tt.status)
		}
	}
	if m := <-f.moved; m.SessionID != "root" {
		t.Errorf("%+v", m)
	}
	// Its call is answered by its own result, for which the runtime that has stopped it
	// can wait (RAP-92).
	r.Base = r.web.URL + "/rap/far"
	r.invoke("own", "t", "a", nil)
	r.cancel("t", "a")
	if got := r.message("t", "a").Text; got != "Cancelled by user. Partial results:\nits one result" && got != "Error: Cancelled by user." {
		t.Errorf("%q", got)
	}
}
