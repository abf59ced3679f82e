package httpserver

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// oldStream opens a 2024-11-05 connection and returns its message URL's path.
func (r *rig) oldStream(ctx context.Context) (*http.Response, *bufio.Reader, string) {
	r.t.Helper()
	resp, err := r.begin(ctx, http.MethodGet, "/sse", "", "Accept: text/event-stream")
	if err != nil {
		r.t.Fatal(err)
	}
	in := bufio.NewReader(resp.Body)
	first := nextEvent(r.t, in)
	if first.name != "endpoint" || !strings.HasPrefix(first.data, "/message?session=") {
		r.t.Fatalf("first event %+v", first)
	}
	return resp, in, first.data
}

// MCP-26: messages go to the announced URL and get 202, answers and everything
// else go to the stream, in order.
func TestOldConnection(t *testing.T) {
	r := newRig(t, Config{})
	resp, in, path := r.oldStream(t.Context())
	defer resp.Body.Close()
	for _, body := range []string{call("0", "now"), call(`"0"`, "progress"), "[" + call("5", "now") + ",3]"} {
		if got := r.do(http.MethodPost, path, body); got.status != 202 || got.body != "" {
			t.Errorf("%s: %+v", body, got)
		}
	}
	for _, want := range []string{`"id":0`, "notifications/progress", `"id":"0"`, `"id":5`, "-32600"} {
		if e := nextEvent(t, in); e.name != "message" || e.id != "" || !strings.Contains(e.data, want) {
			t.Errorf("want %s, got %+v", want, e)
		}
	}
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	for _, c := range []struct {
		path, body, header string
		status             int
	}{
		{path, cancelled, "Content-Type: text/plain", 202},
		{path, strings.Replace(cancelled, "2.0", "1", 1), "", 202},
		{path, call("1", "now"), "Content-Type: text/plain", 415},
		{path, call("1", "now")[:20], "", 400},
		{path, "[]", "", 400},
		{path + "x", cancelled, "", 404},
		{"/message", cancelled, "", 404},
		{"/other", cancelled, "", 404},
		{"/sse", cancelled, "", 405},
	} {
		if got := r.do(http.MethodPost, c.path, c.body, c.header); got.status != c.status {
			t.Errorf("%s %s: %+v", c.path, c.body, got)
		}
	}
	if got := r.do(http.MethodGet, path, ""); got.status != 405 {
		t.Errorf("GET message: %+v", got)
	}
	// The two kinds of sessions are not each other's.
	_, id, _ := strings.Cut(path, "=")
	if got := r.post(call("1", "now"), "Mcp-Session-Id: "+id); got.status != 404 {
		t.Errorf("as a session id: %+v", got)
	}
	streamable := strings.TrimPrefix(r.start("2025-06-18"), "Mcp-Session-Id: ")
	if got := r.do(http.MethodPost, "/message?session="+streamable, cancelled); got.status != 404 {
		t.Errorf("a session id in the URL: %+v", got)
	}
}

// MCP-G15: the loss of the stream is a Stop of everything in the session.
func TestOldStreamLost(t *testing.T) {
	r := newRig(t, Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	resp, _, path := r.oldStream(ctx)
	defer resp.Body.Close()
	r.do(http.MethodPost, path, call("1", "later"))
	cancel(nil)
	eventually(t, "close", func() bool { return len(r.session(0).closes()) == 1 })
	if c := r.session(0).closes()[0]; c.Cause != belay.CauseDisconnect {
		t.Errorf("closed with %+v", c)
	}
	if got := r.do(http.MethodPost, path, call("2", "now")); got.status != 404 {
		t.Errorf("afterwards: %+v", got)
	}
}

// The endpoint names the path as the caller knows it, whatever was stripped.
func TestEndpointPath(t *testing.T) {
	for uri, want := range map[string]string{
		"/mcp/files/sse":            "/mcp/files/message",
		"/sse?x=1":                  "/message",
		"http://proxied/a/b/sse":    "/a/b/message",
		"http://proxied/sse?x=/sse": "/message",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RequestURI = uri
		if got := string(endpointEvent(r, "s")); got != "event: endpoint\ndata: "+want+"?session=s\n\n" {
			t.Errorf("%s: %q", uri, got)
		}
	}
}
