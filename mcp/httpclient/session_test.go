package httpclient

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// MCP-37, MCP-38, MCP-39: the session's id and version go along with everything
// behind initialize, and the session is ended with DELETE.
func TestSession(t *testing.T) {
	for _, kind := range []string{"JSON", "stream"} {
		t.Run(kind, func(t *testing.T) {
			s := newServer(t, nil)
			inner := legacy("s-7", func(_ *server, x *exchange) { x.ok() })
			s.Config.Handler = handler(s, func(s *server, x *exchange) {
				if kind == "stream" && x.m.Method == mcp.MethodInitialize {
					x.Header().Set(headerSession, "s-7")
					x.events()
					x.event("e-1", "") // how 2025-11-25 opens a stream
					x.event("e-2", `{"jsonrpc":"2.0","id":"b-0","result":{"protocolVersion":"2025-11-25"}}`)
					return
				}
				inner(s, x)
			})
			c, r := open(t, Config{URL: s.URL + "/mcp?x=1", Header: http.Header{"authorization": {"Bearer t"}, "mcp-session-id": {"mine"}}})
			handshake(t, c, s, r)
			send(t, c, legacyCall, "b-1")
			r.wait(t, 1, `message "b-1" 200`)
			if err := c.Close(within(t)); err != nil {
				t.Error(err)
			}
			const along = "Authorization=Bearer t Session-Id=s-7 Protocol-Version=2025-11-25 "
			got := s.all()
			same(t, got[1], "POST "+along+initialized)
			same(t, s.wait(t, 1, "GET"), "GET "+along)
			same(t, s.wait(t, 1, `"b-1"`), "POST "+along+fmt.Sprintf(legacyCall, "b-1"))
			same(t, got[len(got)-1], "DELETE "+along)
			if strings.Contains(got[0], "Session-Id=s-7") || strings.Contains(got[0], "Protocol-Version") {
				t.Error(got[0])
			}
			if err := c.Close(within(t)); err != nil || s.count("DELETE") != 1 {
				t.Error(err, s.all())
			}
			if err := c.Send([]byte(fmt.Sprintf(legacyCall, "b-2")), nil); err == nil {
				t.Error("sent after Close")
			}
		})
	}
}

// MCP-58, MCP-59, MCP-61, MCP-84: what a modern request repeats in headers.
func TestModernHeaders(t *testing.T) {
	s := newServer(t, func(_ *server, x *exchange) { x.ok() })
	c, r := open(t, Config{URL: s.URL})
	in64 := func(text string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?=" }
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for i, tc := range []struct{ method, params, want string }{
		{"tools/call", `"name":"re index"`, "Name=re index "},
		{"tools/call", `"name":"na\u00efve"`, "Name=" + in64("naïve") + " "},
		{"tools/call", `"name":" x"`, "Name=" + in64(" x") + " "},
		{"tools/call", `"name":"a\nb"`, "Name=" + in64("a\nb") + " "},
		{"tools/call", `"name":"=?base64?eA==?="`, "Name=" + in64("=?base64?eA==?=") + " "},
		{"tools/call", `"name":7`, ""},
		{"prompts/get", `"name":"p"`, "Name=p "},
		{"resources/read", `"name":"no","uri":"file:///a"`, "Name=file:///a "},
		{"tasks/get", `"taskId":"t-1"`, "Name=t-1 "},
		{"tasks/update", `"taskId":"t-1"`, "Name=t-1 "},
		{"tasks/cancel", `"taskId":"t-1"`, "Name=t-1 "},
		{"tools/list", `"name":"x"`, ""},
		{"server/discover", `"x":1.50`, ""},
	} {
		id := fmt.Sprintf("b-%d", i)
		frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":{%s,%s}}`, id, tc.method, tc.params, meta)
		if err := c.Send([]byte(frame), []mcp.HeaderParam{{Name: "mcp-param-a", Value: "v"}, {Name: "Host", Value: "evil"}, {Name: "Mcp-Param-B", Value: "a\r\nb"}}); err != nil {
			t.Fatal(err)
		}
		r.wait(t, 1, fmt.Sprintf("message %q 200", id))
		same(t, s.wait(t, 1, fmt.Sprintf("%q", id)), "POST Protocol-Version=2026-07-28 Method="+tc.method+" "+tc.want+"Param-A=v "+frame)
	}
	if s.count("GET")+s.count("DELETE") != 0 {
		t.Error(s.all())
	}
}

// MCP-G2: frames pass as they are in both directions, edits applied.
func TestFramesPassUnchanged(t *testing.T) {
	const odd = `{"jsonrpc":"2.0", "id":1.50,"result":{"n":1e2,"n":9007199254740993,"s":"\u0061"},"x":[ ]}`
	s := newServer(t, func(_ *server, x *exchange) { x.json(200, "%s", odd) })
	c, r := open(t, Config{URL: s.URL})
	frame := []byte(`{"jsonrpc":"2.0", "method":"m","id":7,"params":{"big":1.0e400,"a":1,"a":2}}`)
	var m mcp.Message
	if err := m.Read(frame); err != nil {
		t.Fatal(err)
	}
	if err := c.Send(frame, nil, jsonrpc.Edit{At: m.IDAt, New: []byte("1.50")}); err != nil {
		t.Fatal(err)
	}
	same(t, r.wait(t, 1, "message"), "message 1.50 200 "+odd)
	same(t, s.all()[0], `POST {"jsonrpc":"2.0", "method":"m","id":1.50,"params":{"big":1.0e400,"a":1,"a":2}}`)
}

// MCP-36, MCP-33: the session's own stream is read, its requests belong to no
// call, and it is taken up again where it broke.
func TestOwnStream(t *testing.T) {
	s := newServer(t, nil)
	inner := legacy("s-1", nil)
	gets := 0
	s.Config.Handler = handler(s, func(s *server, x *exchange) {
		if x.Method != http.MethodGet {
			inner(s, x)
			return
		}
		x.events()
		gets++
		if gets < 3 {
			_, _ = x.Write([]byte("retry: 1\n"))
			x.event(fmt.Sprintf("e-%d", gets), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, gets))
			return
		}
		x.hang(s)
	})
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	same(t, r.wait(t, 2, "roots/list"), `message - 200 {"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
	s.wait(t, 1, "Last-Event-Id=e-1")
	s.wait(t, 1, "Last-Event-Id=e-2")
	send(t, c, `{"jsonrpc":"2.0","id":2,"result":{"roots":[]}}`)
	s.wait(t, 1, `"roots":[]`)
	_ = c.Close(within(t))
	s.wait(t, 1, "gone")
}

// MCP-37: a 404 on the session ends it for all calls.
func TestSessionOver(t *testing.T) {
	for name, how := range map[string]func(c *Conn){
		"call":         func(c *Conn) { _ = c.Send([]byte(fmt.Sprintf(legacyCall, "b-404")), nil) },
		"notification": func(c *Conn) { _ = c.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/b-404"}`), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			inner := legacy("s-1", func(s *server, x *exchange) { s.add("begun"); x.hang(s) })
			s.Config.Handler = handler(s, func(s *server, x *exchange) {
				if strings.Contains(x.body, "b-404") {
					x.json(404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
					return
				}
				inner(s, x)
			})
			c, r := open(t, Config{URL: s.URL})
			handshake(t, c, s, r)
			send(t, c, legacyCall, "b-1")
			send(t, c, legacyCall, "b-2")
			s.wait(t, 2, "begun")
			how(c)
			r.wait(t, 1, "over session is over")
			for _, id := range []string{"b-1", "b-2"} {
				if n := r.count(fmt.Sprintf("lost %q session is over", id)); n != 1 {
					t.Errorf("%s: %d", id, n)
				}
			}
			if name == "call" && r.count(`lost "b-404"`) != 1 {
				t.Error(r.all())
			}
			s.wait(t, 2, "gone")
			if err := c.Send([]byte(fmt.Sprintf(legacyCall, "b-3")), nil); err == nil || !strings.Contains(err.Error(), "session is over") {
				t.Error(err)
			}
			_ = c.Close(within(t))
			if s.count("DELETE") != 0 {
				t.Error("a session that is over was deleted")
			}
		})
	}
}

// A method that a server with sessions does not know is no end of the session.
func TestUnknownMethodIsNoEnd(t *testing.T) {
	s := newServer(t, legacy("s-1", func(_ *server, x *exchange) {
		x.json(404, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, x.id())
	}))
	c, r := open(t, Config{URL: s.URL})
	handshake(t, c, s, r)
	send(t, c, legacyCall, "b-1")
	r.wait(t, 1, `message "b-1" 404 {"jsonrpc":"2.0","id":"b-1","error"`)
	if r.count("over") != 0 {
		t.Error(r.all())
	}
}

// MCP-40: servers of 2025-03-26 may answer with a batch, on either kind of body.
func TestBatchedAnswers(t *testing.T) {
	s := newServer(t, func(_ *server, x *exchange) {
		batch := fmt.Sprintf(`[{"jsonrpc":"2.0","method":"n"},7,{"jsonrpc":"2.0","id":%s,"result":{}}]`, x.id())
		if x.id() == `"b-1"` {
			x.json(200, "%s", batch)
			return
		}
		x.events()
		x.event("", batch)
	})
	c, r := open(t, Config{URL: s.URL})
	for _, id := range []string{"b-1", "b-2"} {
		send(t, c, legacyCall, id)
		r.wait(t, 1, fmt.Sprintf(`message %q 200 {"jsonrpc":"2.0","method":"n"}`, id))
		r.wait(t, 1, fmt.Sprintf(`message %q 200 {"jsonrpc":"2.0","id":%q,"result":{}}`, id, id))
	}
}
