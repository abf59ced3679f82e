package httpserver

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"testing"
)

// MCP-43, MCP-G37: foreign Origins and Hosts are 403, whatever they ask for.
func TestForeignOriginsAndHosts(t *testing.T) {
	r := newRig(t, Config{AllowedOrigins: []string{"https://desk.example"}, AllowedHosts: []string{"belay.example", "pinned.example:99"}})
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	for header, want := range map[string]int{
		"Origin: http://localhost:3000":         202,
		"Origin: http://127.0.0.1":              202,
		"Origin: http://[::1]:8080":             202,
		"Origin: https://desk.example":          202,
		"Origin: https://belay.example":         202,
		"Origin: https://desk.example.evil.com": 403,
		"Origin: http://evil.com":               403,
		"Origin: null":                          403,
		"Origin: file://":                       403,
		"Origin: http://localhost.evil.com":     403,
		"Host: evil.com":                        403,
		"Host: 127.0.0.1.evil.com":              403,
		"Host: localhost:9":                     202,
		"Host: LOCALHOST":                       202,
		"Host: [::1]:7474":                      202,
		"Host: belay.example:8443":              202,
		"Host: pinned.example:99":               202,
		"Host: pinned.example:98":               403,
	} {
		if got := r.post(cancelled, header); got.status != want {
			t.Errorf("%s: %+v", header, got)
		} else if want == 403 && errorOf(got.body) == 0 {
			t.Errorf("%s: no JSON-RPC error in %+v", header, got)
		}
	}
	if got := r.post(cancelled, "Origin: http://localhost", "+Origin: http://evil.com"); got.status != 403 {
		t.Errorf("two origins: %+v", got)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
		if got := r.do(method, "/sse", "", "Origin: http://evil.com"); got.status != 403 {
			t.Errorf("%s: %+v", method, got)
		}
	}
}

// Bound to another address than loopback any Host is fine unless some are
// named, but a page's Origin never is by itself.
func TestGuardAwayFromLoopback(t *testing.T) {
	away := func(host, origin string) *http.Request {
		r := &http.Request{Host: host, Header: http.Header{}}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		return r.WithContext(contextWithLocal(t, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}))
	}
	open, named := New(Config{}), New(Config{AllowedHosts: []string{"a.example"}})
	for _, c := range []struct {
		h            *Handler
		host, origin string
		fine         bool
	}{
		{open, "x.example", "", true},
		{open, "x.example", "https://x.example", true}, // a page of this very host
		{open, "x.example:8443", "https://x.example:8443", true},
		{open, "x.example", "https://x.example:8443", false},
		{open, "x.example", "https://evil.example", false},
		{open, "x.example", "null", false},
		{open, "x.example", "http://localhost", false},
		{named, "a.example", "https://a.example:8", true},
		{named, "b.example", "", false},
		{named, "b.example", "https://b.example", false},
		{named, "localhost", "", false},
	} {
		if f := c.h.guard(away(c.host, c.origin)); (f == nil) != c.fine {
			t.Errorf("%s from %q: %+v", c.host, c.origin, f)
		}
	}
}

// TestGuardByWay: over TLS any Host is fine unless some are named, since a page
// that has re-bound its name fails at the certificate; over a unix socket in any
// case, since no page gets there. A page may ask its own host, over TLS only if
// it came over TLS itself.
func TestGuardByWay(t *testing.T) {
	loop, far, sock := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, &net.UnixAddr{Name: "/x", Net: "unix"}
	open, named := Guard{}, Guard{AllowedHosts: []string{"a.example"}, AllowedOrigins: []string{"https://desk.example"}}
	for _, c := range []struct {
		g            Guard
		at           net.Addr
		tls          bool
		host, origin string
		fine         bool
	}{
		{open, loop, false, "evil.example", "", false},
		{open, loop, true, "evil.example", "", true},
		{open, loop, true, "localhost", "https://localhost", true},
		{open, loop, true, "b.example", "https://b.example", true},
		{open, loop, true, "b.example", "https://b.example:443", true},
		{open, loop, true, "b.example", "http://b.example", false},
		{open, far, true, "b.example", "https://c.example", false},
		{open, far, true, "b.example", "null", false},
		{open, far, false, "b.example:80", "http://b.example", true},
		{named, loop, true, "b.example", "", false},
		{named, loop, true, "a.example", "", true},
		{named, loop, true, "127.0.0.1", "", true},
		{named, far, true, "b.example", "", false},
		{named, far, true, "a.example", "https://desk.example", true},
		{open, sock, false, "whatever", "", true},
		{named, sock, false, "whatever", "", true},
		{named, sock, false, "whatever", "http://evil.example", false},
		{open, far, false, "", "http://", false},
	} {
		r := &http.Request{Host: c.host, Header: http.Header{}}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		err := c.g.Check(r.WithContext(contextWithLocal(t, c.at)))
		if (err == nil) != c.fine || err != nil && !errors.Is(err, ErrForeign) {
			t.Errorf("%v TLS %v: %s from %q: %v", c.at, c.tls, c.host, c.origin, err)
		}
	}
}
