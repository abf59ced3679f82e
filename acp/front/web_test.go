package front_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/sdkfake"
)

const hush = `{"name":"Authorization","value":"Bearer hush"},{"name":"X-Team","value":"hush"}`

// upstream is a real server by HTTP, with its witness.
func upstream(t *testing.T, kind string, modern bool) (fake, *recorder, string) {
	t.Helper()
	w := faketool.NewWitness(filepath.Join(t.TempDir(), "w"))
	o := sdkfake.Options{Witness: w.Path, Stateless: modern, Propagate: modern}
	h := &recorder{Handler: sdkfake.Handler(o)}
	if kind == "sse" {
		h.Handler = sdkfake.SSEHandler(o)
	}
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return fake{Witness: w}, h, s.URL
}

// remote is a call in flight at a server by HTTP.
type remote struct {
	result *sdk.CallToolResult
	err    error
}

func (r *rig) callRemote(s *sdk.ClientSession, f fake, key, use string) <-chan remote {
	r.t.Helper()
	done := make(chan remote, 1)
	params := &sdk.CallToolParams{Name: "tick", Arguments: map[string]any{"key": key, "n": 3000}}
	if use != "" {
		params.Meta = sdk.Meta{"claudecode/toolUseId": use}
	}
	go func() {
		result, err := s.CallTool(context.Background(), params)
		done <- remote{result, err}
	}()
	r.saw(f, key, "tick")
	return done
}

func (r *rig) answer(done <-chan remote) remote {
	r.t.Helper()
	select {
	case a := <-done:
		return a
	case <-time.After(20 * time.Second):
		r.t.Fatal("the agent is not answered")
		return remote{}
	}
}

// http and sse servers are fronted in both eras: the agent sees neither URL nor
// headers, the server gets the headers, the tools keep their names, and a Stop of
// the turn stops the calls of that turn (acceptance 14).
func TestACP_B12_StopOfATurn(t *testing.T) {
	for _, kind := range []string{"http", "sse", "modern"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t)
			form, version := kind, "2025-06-18"
			if kind == "modern" {
				form, version = "http", "2026-07-28"
			}
			f, seen, url := upstream(t, form, kind == "modern")
			session := r.session()
			list, text, passed := r.rewrite(session, array(webEntry(form, "web", url+"/mcp?token=hush", hush)))
			if len(passed) > 0 || strings.Contains(text, "hush") || strings.Contains(text, strings.TrimPrefix(url, "http://")) {
				t.Fatalf("the agent sees %s, passed %+v", text, passed)
			}
			if kind == "sse" {
				version = ""
			}
			c := r.connect(&list[0], version)
			tools, err := c.ListTools(t.Context(), nil)
			r.ok(err)
			if len(tools.Tools) != 2 || tools.Tools[0].Name != "echo" || tools.Tools[1].Name != "tick" {
				t.Errorf("tools: %+v", tools.Tools)
			}
			one := r.turn(session)
			tool := r.toolCall(one, "toolu_1", "whatever")
			first := r.callRemote(c, f, "first", "toolu_1")
			two := r.turn(session)
			second := r.callRemote(c, f, "second", "")
			calls := r.f.Calls(one)
			if len(calls) != 1 || calls[0].ToolCall != "toolu_1" || calls[0].Server != "web" || calls[0].Name != "tick" || calls[0].Receipt != nil {
				t.Fatalf("Calls: %+v", calls)
			}
			if d, err := r.tree.Get(t.Context(), calls[0].Run); err != nil || d.Parent != tool.ID() {
				t.Errorf("it hangs below %+v, %v", d.Info, err)
			}
			if calls := r.f.Calls(two); len(calls) != 1 || calls[0].ToolCall != "" {
				t.Errorf("Calls of the second: %+v", calls)
			}
			stop(one)
			if a := r.answer(first); a.err == nil && !a.result.IsError {
				t.Errorf("the agent got %+v", a.result)
			}
			r.saw(f, "first", "stopped")
			r.lives(f, "second")
			if calls := r.f.Calls(one); len(calls) != 1 || calls[0].Receipt == nil || calls[0].Receipt.Cancellation.Origin != one.ID() {
				t.Errorf("Calls after the Stop: %+v", calls)
			}
			r.turn(session)
			if got, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hi"}}); err != nil || len(got.Content) != 1 {
				t.Errorf("the next call: %+v, %v", got, err)
			}
			for _, h := range seen.headers() {
				if h.Get("Authorization") != "Bearer hush" || h.Get("X-Team") != "hush" {
					t.Errorf("the server got %v", h)
				}
			}
			stop(two)
			r.answer(second)
			r.saw(f, "second", "stopped")
		})
	}
}

// The end of a session ends its calls and takes its paths away; another session's
// live on (ACP-B32).
func TestACP_B32_PathsEnd(t *testing.T) {
	r := newRig(t)
	f, _, url := upstream(t, "http", false)
	session, other := r.session(), r.session()
	entry := array(webEntry("http", "web", url, ""))
	list, _, _ := r.rewrite(session, entry)
	beside, _, _ := r.rewrite(other, entry)
	r.turn(session)
	r.turn(other)
	c, d := r.connect(&list[0], "2025-06-18"), r.connect(&beside[0], "2025-06-18")
	first, second := r.callRemote(c, f, "first", ""), r.callRemote(d, f, "second", "")
	r.f.Close(session)
	r.saw(f, "first", "stopped")
	r.answer(first)
	r.lives(f, "second")
	if status := post(t, list[0].URL, "", ""); status != http.StatusNotFound {
		t.Errorf("a path of a closed session answers %d", status)
	}
	stop(other)
	r.saw(f, "second", "stopped")
	r.answer(second)
}

// post sends a request as somebody who is no agent does.
func post(t *testing.T, url, host, origin string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// Who does not know a path gets nowhere, a foreign web page neither, and paths are
// not alike.
func TestACP_B12_Strangers(t *testing.T) {
	r := newRig(t)
	_, seen, url := upstream(t, "http", false)
	var entries []string
	for i := range 50 {
		entries = append(entries, webEntry("http", fmt.Sprint("web", i), url, ""))
	}
	list, _, _ := r.rewrite(r.session(), array(entries...))
	paths := map[string]bool{}
	base := ""
	for i := range list {
		j := strings.LastIndex(list[i].URL, "/")
		base = list[i].URL[:j]
		paths[list[i].URL[j:]] = true
	}
	if len(paths) != len(list) || !strings.HasPrefix(base, "http://127.0.0.1:") {
		t.Errorf("%d paths at %s", len(paths), base)
	}
	good := list[0].URL
	for _, c := range []struct {
		url, host, origin string
		want              int
	}{
		{base + "/", "", "", 404},
		{base + "/mcp", "", "", 404},
		{base + "/" + strings.Repeat("a", 26), "", "", 404},
		{good[:len(good)-1], "", "", 404},
		{good, "evil.example", "", 403},
		{base + "/", "evil.example", "", 403},
		{good, "", "https://evil.example", 403},
		{good + "/elsewhere", "", "", 404},
	} {
		if got := post(t, c.url, c.host, c.origin); got != c.want {
			t.Errorf("%s, host %q, origin %q: %d, want %d", c.url, c.host, c.origin, got, c.want)
		}
	}
	if n := len(seen.headers()); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

// A call below a stopped turn never reaches a server by HTTP either.
func TestACP_B12_NeverStarts(t *testing.T) {
	r := newRig(t)
	f, _, url := upstream(t, "http", false)
	session := r.session()
	list, _, _ := r.rewrite(session, array(webEntry("http", "web", url, "")))
	c := r.connect(&list[0], "2025-06-18")
	turn := r.turn(session)
	stop(turn)
	got, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "tick", Arguments: map[string]any{"key": "w"}})
	if err == nil && !got.IsError {
		t.Errorf("the agent got %+v", got)
	}
	calls := r.f.Calls(turn)
	if len(calls) != 1 || calls[0].Receipt == nil || calls[0].Receipt.Verdict != belay.Confirmed {
		t.Errorf("Calls: %+v", calls)
	}
	if f.Count("w", "start") != 0 {
		t.Error(fmt.Errorf("it ran: %v", f.Events()))
	}
}
