package raptools

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
	"github.com/belayhq/belay/rap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a session of a toolset, with a raw MCP caller.
type rig struct {
	t     *testing.T
	tree  *belay.Tree
	peer  *rappeer.ToolServer
	in    *io.PipeWriter
	lines chan string
	done  chan error
}

func newRig(t *testing.T, p *rappeer.ToolServer) *rig {
	t.Helper()
	if _, err := p.Start(); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, tree: belay.NewTree(belay.Options{}), peer: p, lines: make(chan string, 100), done: make(chan error, 1)}
	var rt *rap.Runtime
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { rt.ServeHTTP(w, req) }))
	client := &http.Client{Transport: &http.Transport{}}
	rt, err := rap.NewRuntime(rap.RuntimeOptions{Tree: r.tree, Callback: web.URL, Servers: []rap.Server{{Name: "p", Base: p.Base(), Client: client}}})
	if err != nil {
		t.Fatal(err)
	}
	toServer, in := io.Pipe()
	fromServer, out := io.Pipe()
	r.in = in
	set := &Toolset{Runtime: rt, Tree: r.tree, Server: "p", Log: slog.New(slog.DiscardHandler), Version: "1"}
	go func() {
		r.done <- set.Serve(context.Background(), toServer, out)
		_ = out.Close()
	}()
	go func() {
		defer close(r.lines)
		for scan := bufio.NewScanner(fromServer); scan.Scan(); {
			r.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		for range r.lines {
		}
		ctx, end := context.WithTimeout(context.Background(), 5*time.Second)
		defer end()
		if err := rt.Close(ctx, belay.Cancellation{}); err != nil {
			t.Error(err)
		}
		web.Close()
		now, over := context.WithTimeout(ctx, time.Millisecond)
		defer over()
		_ = r.tree.Close(now)
		client.CloseIdleConnections()
		p.Stop()
	})
	return r
}

func (r *rig) send(format string, args ...any) {
	r.t.Helper()
	if _, err := fmt.Fprintf(r.in, format+"\n", args...); err != nil {
		r.t.Fatal(err)
	}
}

// next is the next line that has this in it; others are passed over.
func (r *rig) next(part string) string {
	r.t.Helper()
	for {
		select {
		case line, ok := <-r.lines:
			if !ok {
				r.t.Fatalf("ended without %s", part)
			}
			if strings.Contains(line, part) {
				return line
			}
		case <-time.After(10 * time.Second):
			r.t.Fatalf("no %s", part)
		}
	}
}

func (r *rig) silent() {
	r.t.Helper()
	select {
	case line := <-r.lines:
		r.t.Errorf("said %s", line)
	case <-time.After(50 * time.Millisecond):
	}
}

func (r *rig) hello(capabilities string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":%s,"clientInfo":{"name":"c","version":"1"}}}`, capabilities)
	if line := r.next(`"id":0`); !strings.Contains(line, `"protocolVersion":"2025-06-18"`) {
		r.t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s`

// TestMethods: what is answered beside tools, in both eras.
func TestMethods(t *testing.T) {
	r := newRig(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"a": func(c *rappeer.Invoked) { _, _ = c.Text("got " + string(c.Arguments)) }}})
	r.hello(`{}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if line := r.next(`"id":1`); !strings.Contains(line, `"result":{}`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"prompts/list"}`)
	if line := r.next(`"id":2`); !strings.Contains(line, `-32601`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	if line := r.next(`"id":3`); !strings.Contains(line, `"name":"a"`) || !strings.Contains(line, cancelSubscription) || strings.Contains(line, "resultType") {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"b"}}`)
	if line := r.next(`"id":4`); !strings.Contains(line, `-32602`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a","arguments":{"x":1}}}`)
	if line := r.next(`"id":5`); !strings.Contains(line, `got {\"x\":1}`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"a","arguments":[1]}}`)
	if line := r.next(`"id":6`); !strings.Contains(line, `"isError":true`) {
		t.Error(line)
	}
	meta := fmt.Sprintf(modernMeta, `{}`)
	r.send(`{"jsonrpc":"2.0","id":"m1","method":"server/discover","params":{"_meta":{%s}}}`, meta)
	if line := r.next(`"id":"m1"`); !strings.Contains(line, `"supportedVersions":["2026-07-28"]`) || !strings.Contains(line, `"resultType":"complete"`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":"m2","method":"tools/call","params":{"name":"a","requestState":"rap-none","_meta":{%s}}}`, meta)
	if line := r.next(`"id":"m2"`); !strings.Contains(line, `-32602`) {
		t.Error(line)
	}
	r.send(`nonsense`)
	r.send(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
	r.next(`"id":7`)
}

// TestManifestFails: a server whose manifest is bad has no tools, its error names it, and
// the next question asks again (RAP-48).
func TestManifestFails(t *testing.T) {
	status := make(chan int, 3)
	for _, s := range []int{404, 404, 200} {
		status <- s
	}
	r := newRig(t, &rappeer.ToolServer{
		Tools:       map[string]func(*rappeer.Invoked){"a": func(c *rappeer.Invoked) { _, _ = c.Text("done") }},
		OnDiscovery: func(context.Context, []byte) int { return <-status },
	})
	r.hello(`{}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if line := r.next(`"id":1`); !strings.Contains(line, `"error"`) || !strings.Contains(line, "manifest is refused") {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}`)
	if line := r.next(`"id":2`); !strings.Contains(line, `"isError":true`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a"}}`)
	if line := r.next(`"id":3`); !strings.Contains(line, "done") {
		t.Error(line)
	}
}

// TestCancelled: the caller's own cancel is passed to the tool server and never answered,
// but with a late result, of which the gateway makes evidence; a Stop of the call below
// alone is answered.
func TestCancelled(t *testing.T) {
	started := make(chan *rappeer.Invoked, 1)
	r := newRig(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"a": func(c *rappeer.Invoked) { started <- c }}})
	r.hello(`{}`)
	above, err := r.tree.Register(belay.Spec{Kind: belay.KindCall, Name: "a", Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"io.github.belayhq/run":%q}}}`, above.ID())
	in := <-started
	below, err := r.tree.List(t.Context(), belay.Filter{Under: above.ID()})
	if err != nil || len(below) != 2 || below[0].Owner != "ann" || below[1].Owner != "ann" {
		t.Fatalf("%+v, %v", below, err)
	}
	above.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	<-in.Cancelled
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`) // which comes after the tree
	r.silent()
	if _, err := in.Text("half of it"); err != nil {
		t.Fatal(err)
	}
	if line := r.next(`"id":1`); !strings.Contains(line, "half of it") {
		t.Error(line)
	}
	if n := len(r.peer.Seen("/cancel_tool_call")); n != 1 {
		t.Errorf("%d cancels", n)
	}

	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}`)
	in = <-started
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`) // where Belay acts on no cancel itself
	<-in.Cancelled
	r.next(`"id":2`) // there is no run above that would be stopped: the caller is told

	other, err := r.tree.Register(belay.Spec{Kind: belay.KindCall, Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a","_meta":{"io.github.belayhq/run":%q}}}`, other.ID())
	in = <-started
	list, err := r.tree.List(t.Context(), belay.Filter{Under: other.ID()})
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	run, err := r.tree.Run(list[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	run.Cancel(belay.Cancellation{Cause: belay.CauseOperator, Reason: "cost"})
	<-in.Cancelled
	if line := r.next(`"id":3`); !strings.Contains(line, "-32800") || !strings.Contains(line, "cost") {
		t.Error(line)
	}
}

// TestAsks: an authorisation is shown by URL elicitation where the caller takes it, else
// by a log message; with the result the prompt is withdrawn (RAP-80).
func TestAsks(t *testing.T) {
	for _, urls := range []bool{false, true} {
		started := make(chan *rappeer.Invoked, 1)
		r := newRig(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"mail": func(c *rappeer.Invoked) {
			_, _ = c.Post(map[string]any{"type": "oauth", "group_id": c.Group, "id": c.ID, "auth_url": "https://id.test/authorize?state=s1"})
			started <- c
		}}})
		capabilities := `{}`
		if urls {
			capabilities = `{"elicitation":{"form":{},"url":{}}}`
		}
		r.hello(capabilities)
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mail"}}`)
		in := <-started
		if !urls {
			if line := r.next("notifications/message"); !strings.Contains(line, "https://id.test/authorize?state=s1") {
				t.Error(line)
			}
			_, _ = in.Text("sent")
			r.next(`"id":1`)
			continue
		}
		var ask struct {
			ID     string `json:"id"`
			Params struct{ Mode, URL string }
		}
		if err := json.Unmarshal([]byte(r.next("elicitation/create")), &ask); err != nil || ask.Params.Mode != "url" || ask.Params.URL != "https://id.test/authorize?state=s1" {
			t.Errorf("%+v, %v", ask, err)
		}
		_, _ = in.Text("sent")
		if line := r.next("notifications/cancelled"); !strings.Contains(line, ask.ID) {
			t.Error(line)
		}
	}
}

// TestRounds: a modern caller is asked between two legs; the retry brings the answer, and
// gets the result (RAP-82, MCP-65).
func TestRounds(t *testing.T) {
	posted := make(chan string, 1)
	started := make(chan *rappeer.Invoked, 1)
	var p *rappeer.ToolServer
	p = &rappeer.ToolServer{
		Tools: map[string]func(*rappeer.Invoked){"write": func(c *rappeer.Invoked) {
			_, _ = c.Post(map[string]any{"type": "user_choice", "group_id": c.Group, "id": c.ID, "prompt": "Sure?", "choices": []string{"Yes", "Yes"}, "default": 0, "response_url": p.Base() + "/choice"})
			started <- c
		}},
		OnChoice: func(_ context.Context, body []byte) int { posted <- string(body); return 0 },
	}
	r := newRig(t, p)
	meta := fmt.Sprintf(modernMeta, `{"elicitation":{}}`)
	r.send(`{"jsonrpc":"2.0","id":"l1","method":"tools/call","params":{"name":"write","_meta":{%s}}}`, meta)
	in := <-started
	var leg struct {
		Result struct {
			Type  string `json:"resultType"`
			State string `json:"requestState"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(r.next(`"id":"l1"`)), &leg); err != nil || leg.Result.Type != "input_required" || leg.Result.State == "" {
		t.Fatalf("%+v, %v", leg, err)
	}
	r.send(`{"jsonrpc":"2.0","id":"l2","method":"tools/call","params":{"name":"write","requestState":%q,"inputResponses":{"choice":{"action":"accept","content":{"choice":"2. Yes"}}},"_meta":{%s}}}`, leg.Result.State, meta)
	if got := <-posted; !strings.Contains(got, `"selected":1`) {
		t.Error(got)
	}
	_, _ = in.Text("written")
	if line := r.next(`"id":"l2"`); !strings.Contains(line, "written") || !strings.Contains(line, `"resultType":"complete"`) {
		t.Error(line)
	}
}

// TestSubscription: events become log messages, and the tool ends them (RAP-77, 78).
func TestSubscription(t *testing.T) {
	started := make(chan *rappeer.Invoked, 1)
	r := newRig(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"watch": func(c *rappeer.Invoked) {
		_, _ = c.Post(map[string]any{"type": "tool_result", "group_id": c.Group, "id": c.ID, "text": "watching", "subscription": true})
		started <- c
	}}})
	r.hello(`{}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"watch"}}`)
	in := <-started
	if line := r.next(`"id":1`); !strings.Contains(line, in.ID) || !strings.Contains(line, cancelSubscription) {
		t.Error(line)
	}
	_, _ = in.Event("red", false)
	if line := r.next("notifications/message"); !strings.Contains(line, `"text":"red"`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"cancel_subscription","arguments":{"tool_call_id":"run_other"}}}`)
	if line := r.next(`"id":2`); !strings.Contains(line, `"isError":true`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"cancel_subscription","arguments":{"tool_call_id":%q}}}`, in.ID)
	if line := r.next(`"id":3`); strings.Contains(line, `"isError":true`) {
		t.Error(line)
	}
	<-in.Cancelled
	_, _ = in.Event("green", false)
	r.silent()
}

// TestEnd: the end of the session stops its calls and closes its thread (RAP-87).
func TestEnd(t *testing.T) {
	started := make(chan *rappeer.Invoked, 1)
	r := newRig(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"a": func(c *rappeer.Invoked) { started <- c }}})
	r.hello(`{}`)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
	in := <-started
	_ = r.in.Close()
	<-in.Cancelled
	<-in.Closed
}
