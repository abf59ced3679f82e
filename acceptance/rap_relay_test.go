//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/rappeer"
)

// local lets tests' addresses be posted to, although somebody is in auth.
func local(c *settings) { c.top["rap"] = map[string]any{"addresses": "local"} }

// rapRuntime is an independent runtime of a server's.
func rapRuntime(t testing.TB, s *server, who, name string) *rappeer.Runtime {
	t.Helper()
	r := &rappeer.Runtime{Base: s.url + "/rap/" + name, Sign: func(r *http.Request, _ []byte) {
		r.Header.Set("Authorization", "Bearer "+token(who))
	}}
	r.Start()
	t.Cleanup(r.Stop)
	return r
}

// TestRAP_TwoBelays: an MCP client of one Belay calls a tool that another offers as a
// RAP tool server; its cancel stops the process behind both, and the MCP server there
// sees its own request cancelled (RAP-8, 27, 43; R9; acceptance
// 1, 16).
func TestRAP_TwoBelays(t *testing.T) {
	t.Parallel()
	far := start(t, local)
	near := start(t, local, func(c *settings) {
		c.servers = map[string]any{"far": ofRAP(far.url+"/rap/tools", "bearer", token("ann"))}
	})
	for i, stop := range []string{"client", "operator", "turn it off"} {
		t.Run(stop, func(t *testing.T) {
			key := fmt.Sprintf("two-%d", i)
			client := near.begin(t, "bob", "far")
			got := client.call(t, fmt.Sprintf(`"far-%d"`, i), "tick", tickArgs(key))
			far.saw(t, key, "tick")
			pending(t, got)
			switch stop {
			case "client":
				client.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"far-%d","reason":"enough"}}`, i))
			case "operator":
				near.cancel(t, "op", fmt.Sprintf("far-%d", i), `"reason":"cost"`)
				if r := wait(t, got); r.code() != -32800 && !strings.Contains(r.raw, "Cancelled by operator") {
					t.Errorf("the caller got %s", r.raw)
				}
			default:
				near.do(t, "DELETE", "/mcp/far", "bob", "", client.headers()...) // the end of the session ends its calls
			}
			far.quiet(t, key)
			// The run of the call and the MCP call below it, by the far Belay's own evidence.
			eventually(t, "the far Belay's verdicts", func() bool {
				return strings.Count(far.log.String(), "call=tick verdict=confirmed") == 2*(i+1)
			})
		})
	}
}

// TestRAP_Relay: a runtime reaches a RAP tool server through Belay: the manifest with
// another endpoint, ids and callback URLs of Belay's, messages mapped back, and a Stop
// that goes on to the tool server (RAP-76, 86, 91 to 93; R2; acceptance 3, 7, 8).
func TestRAP_Relay(t *testing.T) { //nolint:gocyclo // one long session, in the order in which it happens
	t.Parallel()
	started := make(chan *rappeer.Invoked, 8)
	selections := make(chan string, 8)
	var p *rappeer.ToolServer
	p = rapPeer(t, &rappeer.ToolServer{
		Manifest: `{"name":"files","description":"some files","endpoint":"ENDPOINT","tools":[
			{"name":"work","description":"works","inputSchema":{"type":"object"},"annotations":{"longRunning":true,"x:y":1},"displayScript":"print(1)"},
			{"name":"ask","description":"asks","inputSchema":{"type":"object"}},
			{"name":"watch","description":"watches","inputSchema":{"type":"object"}}]}`,
		Tools: map[string]func(*rappeer.Invoked){
			"work": func(c *rappeer.Invoked) { started <- c },
			"ask": func(c *rappeer.Invoked) {
				started <- c
				_, _ = c.Post(map[string]any{
					"type": "user_choice", "group_id": c.Group, "id": c.ID, "call_id": c.CallID, "prompt": "Sure?", "choices": []string{"Yes", "No"}, "default": 1,
					"response_url": p.Base() + "/choice",
				})
			},
			"watch": func(c *rappeer.Invoked) {
				_, _ = c.Post(map[string]any{"type": "tool_result", "group_id": c.Group, "id": c.ID, "text": "watching", "subscription": true})
				started <- c
			},
		},
		OnChoice: func(_ context.Context, body []byte) int { selections <- string(body); return 0 },
	})
	s := start(t, local, func(c *settings) { c.servers = map[string]any{"files": ofRAP(p.Base())} })
	rt := rapRuntime(t, s, "ann", "files")
	stranger := rapRuntime(t, s, "bob", "files")
	soon, end := context.WithTimeout(t.Context(), 60*time.Second)
	defer end()

	endpoint, manifest, err := rt.Endpoint()
	if err != nil || !strings.HasPrefix(endpoint, s.url+"/rap/files/") {
		t.Fatalf("endpoint %s, %v", endpoint, err)
	}
	tools, _ := json.Marshal(manifest["tools"])
	if manifest["name"] != "files" || !strings.Contains(string(tools), `"x:y":1`) || !strings.Contains(string(tools), "print(1)") {
		t.Errorf("manifest %v", manifest)
	}

	invoke := func(r *rappeer.Runtime, tool, thread, id string, more map[string]any) *rappeer.Invoked {
		t.Helper()
		a, err := r.Do("POST", endpoint, r.Invocation(tool, thread, id, nil, more))
		if err != nil || a.Status != 200 {
			t.Fatalf("%d %v", a.Status, err)
		}
		return <-started
	}

	// A result: the call's ids on the way back, Belay's on the way there.
	in := invoke(rt, "work", "thread_42", "call_1", map[string]any{"call_id": "m-1", "thread_ancestors": []string{"root"}, "user_id": "u_9"})
	if in.ID == "call_1" || !strings.HasPrefix(in.ID, "run_") || in.Group == "thread_42" || !strings.HasSuffix(in.Group, "thread_42") ||
		in.CallID == nil || *in.CallID != "m-1" || len(in.Ancestors) != 1 || !strings.HasSuffix(in.Ancestors[0], "root") || in.User != "u_9" ||
		!strings.HasPrefix(in.Callback, s.url+"/rap-callback/") {
		t.Errorf("upstream got %+v", in)
	}
	theirs := invoke(stranger, "work", "thread_42", "call_1", nil)
	if theirs.Group == in.Group || theirs.ID == in.ID {
		t.Error("two callers are one upstream")
	}
	if status, _ := in.Post(map[string]any{"type": "view_update", "group_id": in.Group, "view_type": "diff", "content": map[string]any{"patch": "x"}}); status != 200 {
		t.Errorf("a view got %d", status)
	}
	if m, err := rt.Wait(soon, "thread_42", "call_1", 1); err != nil || m.Type != "view_update" || m.GroupID != "thread_42" {
		t.Errorf("%+v, %v", m, err)
	}
	_, _ = in.Post(map[string]any{"type": "tool_result", "group_id": in.Group, "id": in.ID, "call_id": in.CallID, "text": "hashed 812 files", "display_as": []any{map[string]any{"type": "text", "content": "812"}}})
	if m, err := rt.Wait(soon, "thread_42", "call_1", 2); err != nil || m.Text != "hashed 812 files" || m.GroupID != "thread_42" || m.ID != "call_1" || *m.CallID != "m-1" || m.Raw["display_as"] == nil {
		t.Errorf("%+v, %v", m, err)
	}

	// A stranger with the right ids stops nothing; the runtime itself does, and gets the one result that comes.
	in = invoke(rt, "work", "thread_42", "call_2", nil)
	if a, err := stranger.Cancel("thread_42", "call_2"); err != nil || a.Status != 200 {
		t.Errorf("%v %v", a, err)
	}
	select {
	case <-in.Cancelled:
		t.Fatal("a stranger has stopped it")
	case <-time.After(100 * time.Millisecond):
	}
	if a, err := rt.Cancel("thread_42", "call_2"); err != nil || a.Status != 200 || a.Body != "" {
		t.Errorf("%v %v", a, err)
	}
	<-in.Cancelled
	time.Sleep(500 * time.Millisecond) // longer than anybody else's Stop would wait
	if status, _ := in.Text("Cancelled by user. Partial results:\nhashed 230 of 812 files"); status != 200 {
		t.Errorf("a late result got %d", status)
	}
	if m, err := rt.Wait(soon, "thread_42", "call_2", 1); err != nil || !strings.HasPrefix(m.Text, "Cancelled by user. Partial results:\nhashed 230 of 812 files") {
		t.Errorf("%+v, %v", m, err)
	}

	// Stopped by an operator: told at once, and what comes later goes nowhere (acceptance 8).
	in = invoke(rt, "work", "thread_42", "call_3", nil)
	var run belay.RunID
	eventually(t, "the run", func() bool {
		for _, r := range s.runs(t, "op", "?kind=call") {
			if r.Outcome == belay.Pending && r.Owner == "ann" && r.Parent.IsZero() {
				run = r.ID
			}
		}
		return !run.IsZero()
	})
	w, began := calm.Start(t), time.Now()
	s.cancel(t, "op", run.String(), `"reason":"cost"`)
	m, err := rt.Wait(soon, "thread_42", "call_3", 1)
	if err != nil || !strings.HasPrefix(m.Text, "Error: Cancelled by operator: cost") {
		t.Errorf("%+v, %v", m, err)
	}
	w.Within(t, time.Since(began), 5*time.Second, "the runtime's answer")
	<-in.Cancelled
	if status, _ := in.Text("too late"); status != 200 {
		t.Errorf("a late result got %d", status)
	}

	// A choice: answered at Belay's URL, with the call's own id.
	in = invoke(rt, "ask", "thread_42", "call_4", nil)
	m, err = rt.Wait(soon, "thread_42", "call_4", 1)
	if err != nil || m.Type != "user_choice" || m.Raw["prompt"] != "Sure?" {
		t.Fatalf("%+v, %v", m, err)
	}
	answer, _ := m.Raw["response_url"].(string)
	if !strings.HasPrefix(answer, s.url+"/rap/files/") {
		t.Errorf("response_url %s", answer)
	}
	if a, err := rt.Do("POST", answer, `{"id":"call_4","selected":0}`); err != nil || a.Status != 200 {
		t.Errorf("%v %v", a, err)
	}
	if got, want := <-selections, fmt.Sprintf(`{"id":%q,"selected":0}`, in.ID); got != want {
		t.Errorf("upstream got %s, want %s", got, want)
	}
	_, _ = in.Text("done")
	if m, err := rt.Wait(soon, "thread_42", "call_4", 2); err != nil || m.Text != "done" {
		t.Errorf("%+v, %v", m, err)
	}

	// A subscription: its events, and its end.
	in = invoke(rt, "watch", "thread_42", "call_5", nil)
	if m, err := rt.Wait(soon, "thread_42", "call_5", 1); err != nil || !m.Subscription || m.Text != "watching" {
		t.Errorf("%+v, %v", m, err)
	}
	_, _ = in.Post(map[string]any{"type": "subscription_event", "group_id": in.Group, "tool_call_id": in.ID, "text": "red", "associative": true})
	if m, err := rt.Wait(soon, "thread_42", "call_5", 2); err != nil || m.Text != "red" || !m.Associative || m.ToolCallID != "call_5" || m.GroupID != "thread_42" {
		t.Errorf("%+v, %v", m, err)
	}
	if a, err := rt.Cancel("thread_42", "call_5"); err != nil || a.Status != 200 {
		t.Errorf("%v %v", a, err)
	}
	<-in.Cancelled
	if m, err := rt.Wait(soon, "thread_42", "call_5", 3); err != nil || !m.Final {
		t.Errorf("%+v, %v", m, err)
	}

	// The end of a thread reaches the tool server, too.
	in = invoke(rt, "work", "thread_43", "call_6", nil)
	if a, err := rt.CloseThread("thread_43"); err != nil || a.Status != 200 {
		t.Errorf("%v %v", a, err)
	}
	<-in.Closed
	<-in.Cancelled
}

// TestRAP_RestartKeepsSubscriptions: the callback URL of a runtime's subscription works
// after a restart of the Belay between (RAP-41; acceptance 11).
func TestRAP_RestartKeepsSubscriptions(t *testing.T) {
	t.Parallel()
	started := make(chan *rappeer.Invoked, 1)
	p := rapPeer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"watch": func(c *rappeer.Invoked) {
		_, _ = c.Post(map[string]any{"type": "tool_result", "group_id": c.Group, "id": c.ID, "text": "watching", "subscription": true})
		started <- c
	}}})
	port, err := faketool.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, local, func(c *settings) {
		c.top["listen"] = fmt.Sprint("127.0.0.1:", port)
		c.servers = map[string]any{"ci": ofRAP(p.Base())}
	})
	rt := rapRuntime(t, s, "ann", "ci")
	if a, err := rt.Invoke("watch", "t", "c", nil); err != nil || a.Status != 200 {
		t.Fatalf("%v %v", a, err)
	}
	in := <-started
	soon, end := context.WithTimeout(t.Context(), 60*time.Second)
	defer end()
	if _, err := rt.Wait(soon, "t", "c", 1); err != nil {
		t.Fatal(err)
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	before := len(rt.Messages("t", "c"))
	_ = s.again(t)
	eventually(t, "an event to be taken", func() bool {
		status, _ := in.Event("after the restart", false)
		return status == 200
	})
	m, err := rt.Wait(soon, "t", "c", before+1)
	if err != nil || m.Text != "after the restart" || m.ToolCallID != "c" || m.GroupID != "t" {
		t.Errorf("%+v, %v", m, err)
	}
}
