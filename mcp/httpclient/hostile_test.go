package httpclient

import (
	"net/http"
	"strings"
	"testing"

	"github.com/belayhq/belay/mcp"
)

// MCP-36: a server without a stream of its own may say so in its router's words.
// A 404 to the first GET, a moment after the session began, is that; the session
// goes on, as it does for other clients.
func TestNoStreamIs404(t *testing.T) {
	inner := legacy("s-1", func(_ *server, x *exchange) { x.ok() })
	s := newServer(t, func(s *server, x *exchange) {
		if x.Method == http.MethodGet {
			x.Header().Set("Content-Type", "text/html")
			x.WriteHeader(http.StatusNotFound)
			_, _ = x.Write([]byte("<pre>Cannot GET /mcp</pre>"))
			return
		}
		inner(s, x)
	})
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, legacyCall, "b-1")
	r.wait(t, 1, `"b-1"`)
	if r.count("over") != 0 || r.count(`message "b-1" 200`) != 1 {
		t.Error(r.all())
	}
}

// Where a server redirects to is told to callers, what the operator put into the
// URL is not: a redirect repeats it.
func TestRedirectTellsNoSecret(t *testing.T) {
	s := newServer(t, func(s *server, x *exchange) {
		x.Header().Set("Location", "https://user:hunter2@elsewhere.example/mcp/?api_key=hunter2#hunter2")
		x.WriteHeader(http.StatusPermanentRedirect)
	})
	c, r := open(t, Config{URL: s.URL + "/?api_key=hunter2", Header: http.Header{"Authorization": {"Bearer hunter2"}}})
	send(t, c, initialize)
	line := r.wait(t, 1, "lost")
	if strings.Contains(line, "hunter2") || !strings.Contains(line, "https://elsewhere.example/mcp/") {
		t.Error(line)
	}
}

// A URL that cannot be used is named without the secrets in it.
func TestBadURLTellsNoSecret(t *testing.T) {
	for _, text := range []string{
		"htp://user:hunter2@host/?key=hunter2", "http://user:hunter2@host/?key=hunter2", "http://host:x/?key=hunter2", "/?key=hunter2",
		"http://user:hunter2@ho st/", "http://[::1/?key=hunter2", "http://host/%zz?key=hunter2", "http:///x?key=hunter2",
	} {
		if _, err := Open(Config{URL: text}, &recorder{t: t}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A hostile name cannot add a header to the request of another server, nor end it.
func TestNoHeaderInjection(t *testing.T) {
	s := newServer(t, func(_ *server, x *exchange) {
		if x.Request.Header.Get("X-Evil") != "" || x.Request.Header.Get("Authorization") != "Bearer ours" {
			t.Errorf("%v", x.Request.Header)
		}
		x.ok()
	})
	c, r := open(t, Config{URL: s.URL, Header: http.Header{"Authorization": {"Bearer ours"}}})
	for i, name := range []string{`a\r\nX-Evil: 1`, `a\nX-Evil: 1`, `=?base64?eA==?=`, `a\u0000b`, "\u00e9", ` a `} {
		id := string(rune('a' + i))
		frame := `{"jsonrpc":"2.0","id":"` + id + `","method":"tools/call","params":{"name":"` + name + `","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
		params := []mcp.HeaderParam{
			{Name: "Mcp-Param-A\r\nX-Evil", Value: "1"},
			{Name: "Authorization", Value: "Bearer theirs"},
			{Name: "Mcp-Param-B", Value: "x\r\nX-Evil: 1"},
			{Name: "Mcp-Session-Id", Value: "x"},
			{Name: "X-Evil", Value: "1"},
			{Name: "Mcp-Param-", Value: "1"},
			{Name: "mcp-param-é", Value: "1"},
		}
		if err := c.Send([]byte(frame), params); err != nil {
			t.Fatal(err)
		}
		r.wait(t, 1, `message "`+id+`" 200`)
	}
}

// A second initialize belongs to the session like everything else: the server
// gets it there, a call before it can still be cancelled, and the session is
// ended by its end (MCP-37, MCP-38).
func TestInitializeTwice(t *testing.T) {
	for name, again := range map[string]string{"no id": "", "its id": "s-1"} {
		t.Run(name, func(t *testing.T) {
			inner := legacy("s-1", func(s *server, x *exchange) {
				x.events()
				x.hang(s)
			})
			s := newServer(t, func(s *server, x *exchange) {
				if x.id() != `"b-9"` {
					inner(s, x)
					return
				}
				if again != "" {
					x.Header().Set(headerSession, again)
				}
				x.json(200, `{"jsonrpc":"2.0","id":"b-9","result":{"protocolVersion":"2025-11-25"}}`)
			})
			c, r := open(t, Config{URL: s.URL})
			handshake(t, c, s, r)
			send(t, c, legacyCall, "b-1")
			s.wait(t, 1, `"b-1"`)
			send(t, c, "%s", strings.Replace(initialize, "b-0", "b-9", 1))
			r.wait(t, 1, `"b-9"`)
			if s.count(`Session-Id=s-1 Protocol-Version=2025-11-25 {"jsonrpc":"2.0","id":"b-9"`) != 1 {
				t.Error("it was sent outside of the session", s.all())
			}
			cancelCall(t, c, "b-1")
			s.wait(t, 1, `POST Session-Id=s-1 Protocol-Version=2025-11-25 {"jsonrpc":"2.0","method":"notifications/cancelled"`)
			c.Forget(mustID(`"b-1"`))
			if err := c.Close(within(t)); err != nil {
				t.Error(err)
			}
			s.wait(t, 1, "DELETE Session-Id=s-1")
		})
	}
}
