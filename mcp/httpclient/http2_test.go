package httpclient

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// MCP-53 over HTTP/2, where one connection carries everything: a cancel ends its
// own stream and no other, and many requests are in flight at once.
func TestHTTP2(t *testing.T) {
	s := newServer(t, nil)
	s.Close()
	s.Server = httptest.NewUnstartedServer(handler(s, func(s *server, x *exchange) {
		if x.ProtoMajor != 2 {
			s.add("not HTTP/2")
		}
		if strings.Contains(x.body, "hang") {
			x.events()
			s.add("begun")
			x.hang(s)
			return
		}
		x.events()
		x.event("", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, x.id()))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	tr := client(t)
	tr.TLSClientConfig.RootCAs = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	c, r := open(t, Config{URL: s.URL, Client: tr})
	defer func() { _ = c.Close(within(t)) }()
	const n = 400 // more than one connection takes at once
	for i := range n {
		send(t, c, modernCall, fmt.Sprintf("hang-%d.", i))
	}
	s.wait(t, n, "begun")
	if told := cancelCall(t, c, "hang-7."); told.Means != "POST closed" {
		t.Errorf("%+v", told)
	}
	s.wait(t, 1, `gone {"jsonrpc":"2.0","id":"hang-7."`)
	send(t, c, modernCall, "b-1")
	r.wait(t, 1, `message "b-1"`)
	if s.count("gone") != 1 || s.count("not HTTP/2") != 0 || r.count("lost") != 0 {
		t.Errorf("%d gone, %d not HTTP/2, %q", s.count("gone"), s.count("not HTTP/2"), r.all())
	}
}
