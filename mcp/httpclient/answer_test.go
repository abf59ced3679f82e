package httpclient

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/belayhq/belay/jsonrpc"
)

// MCP-G28 and the brief on bad input: whatever a server answers, the call ends
// in exactly one response or one Lost that says why, and the next call works.
func TestBadAnswers(t *testing.T) {
	const next = "b-next"
	raw := func(text string) func(*server, *exchange) {
		return func(_ *server, x *exchange) {
			conn, _, err := http.NewResponseController(x.ResponseWriter).Hijack()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}
	text := func(status int, kind, body string) func(*server, *exchange) {
		return func(_ *server, x *exchange) {
			if kind != "" {
				x.Header().Set("Content-Type", kind)
			}
			x.Header().Set("WWW-Authenticate", "Bearer x")
			x.Header().Set("Location", "http://elsewhere.invalid/\xff")
			x.WriteHeader(status)
			_, _ = x.Write([]byte(body))
		}
	}
	long := strings.Repeat("x", 3000)
	for name, tc := range map[string]struct {
		handle func(*server, *exchange)
		want   string
		is     error
	}{
		"HTML":                {text(200, "text/html", "<html>\x1b[2J"+long), `lost "b-1" not an MCP server's answer: "text/html" "<html>\x1b[2J`, ErrNotMCP},
		"HTML by name":        {text(200, "application/json", "<html>"), `lost "b-1" not an MCP server's answer: "<html>"`, ErrNotMCP},
		"bad gateway":         {text(502, "text/html", "<h1>oh"), `lost "b-1" unexpected HTTP status 502: "<h1>oh"`, ErrStatus},
		"no authority":        {text(401, "", ""), `lost "b-1" unexpected HTTP status 401`, ErrStatus},
		"JSON of others":      {text(500, "application/json", `{"detail":"no"}`), `lost "b-1" unexpected HTTP status 500: "{\"detail\":\"no\"}"`, ErrStatus},
		"redirect":            {text(307, "", ""), `lost "b-1" redirects are not followed: 307 to "http://elsewhere.invalid/\xff"; `, ErrRedirect},
		"accepted":            {text(202, "", ""), `lost "b-1" connection ended before the response: the server accepted the request (202)`, ErrClosedEarly},
		"empty":               {text(200, "application/json", ""), `lost "b-1" not an MCP server's answer`, ErrNotMCP},
		"wrong id":            {text(200, "application/json", `{"jsonrpc":"2.0","id":"b-7","result":{}}`), `lost "b-1" not an MCP`, ErrNotMCP},
		"no response":         {text(200, "application/json", `{"jsonrpc":"2.0","method":"m"}`), `lost "b-1" not an MCP`, ErrNotMCP}, // the notification is passed on first
		"no jsonrpc":          {text(200, "application/json", `{"id":"b-1","result":{}}`), `lost "b-1" not an MCP`, ErrNotMCP},
		"error":               {text(400, "application/json; charset=utf-8", `{"jsonrpc":"2.0","id":"b-1","error":{"code":-32020,"message":"m"}}`), `message "b-1" 400 {"jsonrpc":"2.0","id":"b-1","error":{"code":-32020`, nil},
		"error without id":    {text(400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`), `message "b-1" 400 {"jsonrpc":"2.0","id":null`, nil},
		"error of its own id": {text(406, "application/json", `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}`), `message "b-1" 406 {"jsonrpc":"2.0","id":"server-error"`, nil},
		"no type":             {raw("HTTP/1.1 200 OK\r\n\r\n" + `{"jsonrpc":"2.0","id":"b-1","result":{}}`), `message "b-1" 200 {"jsonrpc":"2.0","id":"b-1","result":{}}`, nil},
		"closed at once":      {raw(""), `lost "b-1" connection ended before the response: `, ErrClosedEarly},
		"not HTTP":            {raw("220 smtp ready\r\n"), `lost "b-1" connection ended before the response: `, ErrClosedEarly},
		"truncated JSON":      {raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"jsonrpc\""), `lost "b-1" connection ended before the response: unexpected EOF`, ErrClosedEarly},
		"truncated chunk":     {raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"jsonrpc\""), `lost "b-1" connection ended before the response: unexpected EOF`, ErrClosedEarly},
		"truncated stream":    {raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n40\r\ndata: {\"jsonrpc\""), `lost "b-1" connection ended before the response: `, ErrClosedEarly},
		"stream without":      {text(200, "text/event-stream", ": nothing\n\ndata: noise\n\nevent: x\ndata: {}\n\n"), `lost "b-1" connection ended before the response`, ErrClosedEarly},
		"long JSON":           {text(200, "application/json", `{"jsonrpc":"2.0","id":"b-1","result":"`+long+`"}`), `lost "b-1" response is too long: at most 2000 bytes`, ErrTooLong},
		"long JSON, length":   {raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n"), `lost "b-1" response is too long: 99999999 bytes, at most 2000`, ErrTooLong},
		"long event":          {text(200, "text/event-stream", `data: {"jsonrpc":"2.0","result":"`+long+`","id":"b-1"}`+"\n\n"), `lost "b-1" response is too long: 30`, ErrTooLong},
		"long notification":   {text(200, "text/event-stream", `data: {"jsonrpc":"2.0","method":"m","params":["`+long+`"]}`+"\n\n"+`data: {"jsonrpc":"2.0","id":"b-1","result":{}}`+"\n\n"), `message "b-1" 200 {"jsonrpc":"2.0","id":"b-1","result":{}}`, nil},
		"bad event":           {text(200, "text/event-stream", `data: {"jsonrpc":"2.0","id":"b-1","result":{},"error":{}}`+"\n\n"), `lost "b-1" `, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(s *server, x *exchange) {
				if strings.Contains(x.body, next) {
					x.ok()
					return
				}
				tc.handle(s, x)
			})
			rec := &errorRecorder{}
			c, err := Open(Config{URL: s.URL, MaxMessage: 2000, Client: client(t)}, rec)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(within(t)) }()
			send(t, c, modernCall, "b-1")
			line := rec.wait(t, 1, strings.Join(strings.Fields(tc.want)[:2], " "))
			if !strings.HasPrefix(line, tc.want) || len(line) > 1100 {
				t.Errorf("got  %s\nwant %s", line, tc.want)
			}
			if err := rec.lost(); tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v is not %v", err, tc.is)
			}
			var status *StatusError
			if errors.As(rec.lost(), &status) && status.Authenticate != "Bearer x" {
				t.Errorf("%+v", status)
			}
			send(t, c, modernCall, next)
			rec.wait(t, 1, fmt.Sprintf("message %q", next))
			if n := len(rec.all()); n != 2 && name != "no response" {
				t.Errorf("%d reports:\n%s", n, strings.Join(rec.all(), "\n"))
			}
		})
	}
}

// errorRecorder keeps the error of a Lost as well.
type errorRecorder struct {
	recorder
	err error
}

func (r *errorRecorder) Lost(id jsonrpc.ID, err error) {
	r.mu.Lock()
	r.err = err
	r.mu.Unlock()
	r.recorder.Lost(id, err)
}

func (r *errorRecorder) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func client(t testing.TB) *http.Transport {
	tr := NewTransport()
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// What cannot be connected to has seen nothing.
func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	for _, kind := range []Transport{Auto, Streamable, SSE} {
		rec := &errorRecorder{}
		c, err := Open(Config{URL: "http://" + ln.Addr().String(), Transport: kind}, rec)
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, initialize)
		rec.wait(t, 1, `lost "b-0" server cannot be reached`)
		if !errors.Is(rec.lost(), ErrUnreachable) {
			t.Error(rec.lost())
		}
		if err := c.Close(within(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestConfig(t *testing.T) {
	for url, ok := range map[string]bool{
		"http://127.0.0.1:1/mcp": true, "https://x/y?z=1#f": true, "": false, "ftp://x": false, "http://": false, "http://u:p@x/": false, "::": false,
	} {
		c, err := Open(Config{URL: url}, &recorder{})
		if ok != (err == nil) || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", url, err)
		}
		if c != nil {
			_ = c.Close(within(t))
		}
	}
	for _, h := range []http.Header{{"a b": {"x"}}, {"": {"x"}}, {"a": {"x\ny"}}} {
		if _, err := Open(Config{URL: "http://x", Header: h}, &recorder{}); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", h, err)
		}
	}
	if _, err := Open(Config{URL: "http://x", Transport: 9}, &recorder{}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	for want, kind := range map[string]Transport{"auto": Auto, "streamable": Streamable, "sse": SSE} {
		same(t, kind.String(), want)
	}
}

// Bounds of what is in flight, and ids that are.
func TestSendRefuses(t *testing.T) {
	s := newServer(t, func(s *server, x *exchange) { x.hang(s) })
	c, _ := open(t, Config{URL: s.URL, MaxInFlight: 2})
	send(t, c, modernCall, "b-1")
	send(t, c, modernCall, "b-2")
	for frame, want := range map[string]error{
		fmt.Sprintf(modernCall, "b-1"):                    jsonrpc.ErrDuplicateID,
		fmt.Sprintf(modernCall, "b-3"):                    jsonrpc.ErrTooMany,
		`{"jsonrpc":"2.0","id":1`:                         jsonrpc.ErrSyntax,
		`{"id":1,"method":"m"}`:                           jsonrpc.ErrInvalid,
		fmt.Sprintf(modernCall, strings.Repeat("x", 300)): jsonrpc.ErrID,
		strings.Replace(fmt.Sprintf(modernCall, "b-4"), `"x"`, `"`+strings.Repeat("x", 5000)+`"`, 1): jsonrpc.ErrTooLong,
	} {
		if err := c.Send([]byte(frame), nil); !errors.Is(err, want) {
			t.Errorf("%.80s: %v, want %v", frame, err, want)
		}
	}
	if n := c.InFlight(); n != 2 {
		t.Error(n)
	}
}
