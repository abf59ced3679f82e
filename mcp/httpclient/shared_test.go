package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/belayhq/belay/jsonrpc"
)

// older is a server of 2024-11-05: a stream at /sse, messages at the endpoint.
type older struct {
	mu     sync.Mutex
	stream *exchange
	end    chan struct{} // closed to end the stream
	name   string        // what it says its endpoint is
}

func (o *older) handle(s *server, x *exchange) {
	switch {
	case x.Method == http.MethodGet:
		o.mu.Lock()
		o.stream = x
		x.events()
		_, _ = fmt.Fprintf(x, "event: endpoint\ndata: %s\n\n", o.name)
		x.flush()
		o.mu.Unlock()
		select {
		case <-o.end:
		case <-x.Context().Done():
			s.add("gone stream")
		}
	case x.URL.Path != "/message":
		x.WriteHeader(http.StatusMethodNotAllowed)
	default:
		x.WriteHeader(http.StatusAccepted)
		if x.m.Kind == jsonrpc.Request && !strings.Contains(x.body, "slow") {
			o.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2024-11-05"}}`, x.id()))
		}
	}
}

func (o *older) say(frame string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stream.event("", frame)
}

// MCP-26, MCP-G20: one shared stream, found out or configured; a cancel is a
// notification to the endpoint and leaves the stream alone; a lost stream is the
// end of the session.
func TestSharedStream(t *testing.T) {
	for _, kind := range []Transport{Auto, SSE} {
		t.Run(kind.String(), func(t *testing.T) {
			o := &older{name: "/message?s=1", end: make(chan struct{})}
			s := newServer(t, o.handle)
			c, r := open(t, Config{URL: s.URL + "/sse", Transport: kind, Header: http.Header{"Authorization": {"t"}}})
			send(t, c, initialize)
			r.wait(t, 1, `message "b-0" 200`)
			send(t, c, initialized)
			send(t, c, legacyCall, "b-1")
			r.wait(t, 1, `message "b-1" 200`)
			s.wait(t, 1, "initialized")
			send(t, c, `{"jsonrpc":"2.0","id":"b-2","method":"tools/call","params":{"name":"slow"}}`)
			send(t, c, `{"jsonrpc":"2.0","id":"b-3","method":"tools/call","params":{"name":"slow"}}`)
			s.wait(t, 2, "slow")
			told := cancelCall(t, c, "b-2")
			same(t, told.Means, "notification, 202")
			s.wait(t, 1, `POST Authorization=t Protocol-Version=2024-11-05 {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"b-2"`)
			o.say(`{"jsonrpc":"2.0","id":"s-1","method":"ping"}`)
			r.wait(t, 1, `message - 200 {"jsonrpc":"2.0","id":"s-1","method":"ping"}`)
			if want := map[Transport]int{Auto: 1, SSE: 0}[kind]; s.count("initialize\",") != 1+want || s.count("GET") != 1 {
				t.Error(s.all())
			}
			close(o.end)
			r.wait(t, 1, "over connection ended before the response: the server's stream ended")
			if r.count(`lost "b-3" connection ended`) != 1 || r.count("lost") != 1 || c.InFlight() != 0 {
				t.Error(r.all())
			}
			if err := c.Send([]byte(fmt.Sprintf(legacyCall, "b-4")), nil); !errors.Is(err, ErrClosedEarly) {
				t.Error(err)
			}
		})
	}
}

// The endpoint must be where the configured headers may go.
func TestSharedStreamElsewhere(t *testing.T) {
	for name, want := range map[string]string{
		"http://elsewhere.invalid/message": "the endpoint lies on another server",
		"//elsewhere.invalid/message":      "the endpoint lies on another server",
		"http://u@%s/message":              "the endpoint lies on another server",
		"http://[":                         "endpoint",
	} {
		o := &older{end: make(chan struct{})}
		s := newServer(t, o.handle)
		o.name = strings.ReplaceAll(name, "%s", strings.TrimPrefix(s.URL, "http://"))
		c, r := open(t, Config{URL: s.URL + "/sse", Transport: SSE})
		send(t, c, initialize)
		if line := r.wait(t, 1, `lost "b-0" not an MCP server's answer: `); !strings.Contains(line, want) {
			t.Errorf("%s: %s", name, line)
		}
		s.wait(t, 1, "gone stream")
		if s.count("POST") != 0 || r.count("over") != 0 {
			t.Error(s.all(), r.all())
		}
	}
}

// A server that is neither says so in one error; nothing falls back on an answer
// that is a JSON-RPC message.
func TestNoFallback(t *testing.T) {
	s := newServer(t, func(_ *server, x *exchange) {
		x.Header().Set("Content-Type", "text/html")
		x.WriteHeader(http.StatusNotFound)
		_, _ = x.Write([]byte("<h1>lost</h1>"))
	})
	c, r := open(t, Config{URL: s.URL})
	send(t, c, initialize)
	same(t, r.wait(t, 1, "lost"), `lost "b-0" unexpected HTTP status 404: "<h1>lost</h1>" (nor is it a server of 2024-11-05: unexpected HTTP status 404: "<h1>lost</h1>")`)
	if s.count("GET") != 1 || s.count("POST") != 1 {
		t.Error(s.all())
	}

	for _, tc := range []struct {
		kind   Transport
		status int
		body   string
	}{
		{Auto, 400, `{"jsonrpc":"2.0","id":"b-0","error":{"code":-32022,"message":"m"}}`},
		{Streamable, 404, `no`},
		{Auto, 503, `no`},
	} {
		s := newServer(t, func(_ *server, x *exchange) { x.json(tc.status, "%s", tc.body) })
		c, r := open(t, Config{URL: s.URL, Transport: tc.kind})
		send(t, c, initialize)
		r.wait(t, 1, `"b-0"`)
		if s.count("GET") != 0 {
			t.Errorf("%+v: %q", tc, s.all())
		}
	}
}
