package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// serves starts the hub's own HTTP server at an address and points the rig's
// client to it.
func (r *rig) serves(o ListenOptions, change func(*http.Server)) net.Addr {
	r.t.Helper()
	l, err := Listen(r.t.Context(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	web := r.hub.Server()
	if change != nil {
		change(web)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			r.t.Errorf("Serve: %v", err)
		}
	}()
	r.t.Cleanup(func() {
		r.client.CloseIdleConnections()
		_ = web.Close()
		<-done
	})
	return l.Addr()
}

// certificate is one for example.com with who vouches for it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.TLS.Certificates[0], pool
}

// TestOverTLS: both versions of HTTP are served over TLS, with streams that are
// written as they come and end a call when they are broken off (MCP-54), as many
// at once on one connection as a client has.
func TestOverTLS(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	for _, version := range []string{"h2", "http/1.1"} {
		t.Run(strings.ReplaceAll(version, "/", " "), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.apply(r.fake("tools"))
			var conns atomic.Int32
			at := r.serves(ListenOptions{Address: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}, func(web *http.Server) {
				web.ConnState = func(_ net.Conn, s http.ConnState) {
					if s == http.StateNew {
						conns.Add(1)
					}
				}
			})
			tr := r.client.Transport.(*http.Transport)
			tr.TLSClientConfig = &tls.Config{RootCAs: pool, ServerName: "example.com", NextProtos: []string{version}}
			tr.ForceAttemptHTTP2 = version == "h2"
			r.web.URL = "https://" + at.String()

			session := r.begin("tools")
			l := r.listens(Path("tools"), "")
			if _, err := r.hub.Tell(t.Context(), "", "x", frameOf("over "+version)); err != nil {
				t.Error(err)
			}
			r.eventually("the stream carries it", func() bool { return l.count("over "+version) == 1 })

			ctx, leave := context.WithCancel(t.Context())
			got := async(func() (answer, error) { return r.modernIn(ctx, "tools", "tick", `{"key":"a","n":500}`) })
			r.event("a", "tick")
			leave()
			<-got
			r.event("a", "stopped")

			// More than the 250 that HTTP/2 servers in Go take at once: a cancel must
			// not wait until one of the calls that it is to stop is over.
			const calls = 300
			var wg sync.WaitGroup
			var stopped atomic.Int32
			for i := range calls {
				wg.Go(func() {
					body := call(1000+i, "tick", fmt.Sprintf(`{"key":"many%d","n":2000}`, i))
					if a, err := r.post(Path("tools"), session, body); err == nil && a.status == 200 {
						stopped.Add(1)
					}
				})
			}
			r.eventually("all are in flight", func() bool { return r.tree.InFlight() >= calls })
			at0 := time.Now()
			for i := range calls {
				if a := r.must(r.post(Path("tools"), session, cancelOf(fmt.Sprint(1000+i)))); a.status != 202 {
					t.Fatalf("cancel: %+v", a)
				}
			}
			wg.Wait()
			if took := time.Since(at0); took > 20*time.Second {
				t.Errorf("%d cancels took %v", calls, took)
			}
			if n := stopped.Load(); n != calls {
				t.Errorf("%d of %d were ended in good order", n, calls)
			}
			if n := conns.Load(); version == "h2" && n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestLateHandshake: whoever connects and says nothing is gone after a while,
// also where the TLS handshake comes first, and keeps nobody else from coming.
func TestLateHandshake(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	r := newRig(t, nil)
	at := r.serves(ListenOptions{Address: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}, func(web *http.Server) {
		web.ReadHeaderTimeout = 200 * time.Millisecond
	})
	var silent []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	r.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool, ServerName: "example.com"}
	r.web.URL = "https://" + at.String()
	if h := r.health(); h.Status != "ok" {
		t.Errorf("%+v", h)
	}
	for _, c := range silent {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("it is still there: %v", err)
		}
	}
}

// TestOverUnixSocket: the hub over a unix socket, where a hook sees the
// connection that the requests come by; a call runs, and a broken connection
// stops it.
func TestOverUnixSocket(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("tools"))
	type key struct{}
	r.hub.Handle("GET /who", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, req.Context().Value(key{}))
	}))
	l, err := Listen(t.Context(), ListenOptions{Address: "unix:" + t.TempDir() + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	web := r.hub.Server(func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, key{}, c.LocalAddr().Network())
	})
	done := make(chan error, 1)
	go func() { done <- web.Serve(l) }()
	r.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}
	r.web.URL = "http://any.host.will.do"
	resp, err := r.client.Get(r.web.URL + "/who")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(text) != "unix" {
		t.Errorf("the socket's other end is %q", text)
	}
	ctx, leave := context.WithCancel(t.Context())
	got := async(func() (answer, error) { return r.modernIn(ctx, "tools", "tick", `{"key":"a","n":500}`) })
	r.event("a", "tick")
	leave()
	<-got
	r.event("a", "stopped")
	r.client.CloseIdleConnections()
	_ = web.Close()
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// TestBodyThatNobodyWants: a caller that announces a body and sends none of it
// keeps no connection open, whatever it asks for.
func TestBodyThatNobodyWants(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("tools"))
	r.hub.Handle("/unread", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	at := r.serves(ListenOptions{Address: "127.0.0.1:0"}, nil)
	var all sync.WaitGroup
	for _, path := range []string{"/healthz", "/readyz", "/unread", "/nothing", "/mcp/nothing", "//"} {
		for _, length := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			all.Go(func() {
				c, err := net.Dial("tcp", at.String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(4 * unreadWait))
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n1", path, at, length)
				if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%s, %s: %v", path, length, err)
				}
			})
		}
	}
	all.Wait()
}
