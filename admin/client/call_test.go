package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/admin/client"
)

// fake is a server with one answer.
func fake(t *testing.T, token string, h http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := client.New(client.Options{Server: server.URL, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

// TestErrorsKeepTheirClass: each refusal of a server is the sentinel that it
// means, with the server's words.
func TestErrorsKeepTheirClass(t *testing.T) {
	for _, c := range []struct {
		status int
		kind   string
		body   string
		is     error
		says   string
	}{
		{404, "application/problem+json", `{"type":"urn:belay:error:not_found","detail":"no such run"}`, belay.ErrNotFound, "no such run"},
		{409, "application/problem+json", `{"type":"urn:belay:error:ended","detail":"run has ended"}`, belay.ErrEnded, "run has ended"},
		{503, "application/problem+json", `{"type":"urn:belay:error:too_many","detail":"full"}`, belay.ErrTooMany, "full"},
		{503, "application/problem+json", `{"type":"urn:belay:error:latched","detail":"stopped by ann"}`, belay.ErrForbidden, "stopped by ann"},
		{401, "application/problem+json", `{"type":"about:blank","detail":"Authorization token required"}`, client.ErrUnauthorized, "token required"},
		{403, "application/problem+json", `{"type":"about:blank","detail":"this needs the permission runs.cancel"}`, belay.ErrForbidden, "runs.cancel"},
		{404, "application/problem+json", `{"type":"about:blank","detail":"there is nothing at this path"}`, belay.ErrUnsupported, "does not offer"},
		{404, "text/html", "<h1>nginx</h1>", belay.ErrUnsupported, "does not offer"},
		{404, "application/json", `{"detail":"Run not found"}`, belay.ErrNotFound, "Run not found"},
		{422, "application/problem+json", `{"detail":"validation failed","errors":[{"message":"expected number <= 30","location":"body.wait"}]}`, belay.ErrBadRequest, "body.wait: expected number"},
		{422, "application/json", `{"detail":[{"msg":"x"}]}`, belay.ErrBadRequest, "unprocessable"},
		{502, "text/plain", "bad\x1b[31m", belay.ErrUnreachable, "bad gateway (HTTP 502)"},
		{500, "application/problem+json", `{"type":"urn:belay:error:internal","detail":"a\u001b[31mb\nc"}`, nil, "a[31mb c"},
	} {
		cl := fake(t, "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		})
		_, err := cl.Get(t.Context(), belay.NewRunID())
		if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d %s: %v, want %v and %q", c.status, c.body, err, c.is, c.says)
		}
		if strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%q moves the cursor", err)
		}
	}
}

// TestNoTokenLeaves: no error of any kind holds the token, and no other host
// gets it.
func TestNoTokenLeaves(t *testing.T) {
	const token = "blt_very-secret-indeed"
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked.Store(true)
	}))
	defer other.Close()
	for name, h := range map[string]http.HandlerFunc{
		"redirect to another host": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
		},
		"a redirect kept": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"broken JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{")
		},
		"gone":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
	} {
		c := fake(t, token, h)
		_, err := c.Get(t.Context(), belay.NewRunID())
		_, err2 := c.Cancel(t.Context(), belay.CancelRequest{})
		if err == nil || err2 == nil || strings.Contains(err.Error()+err2.Error(), token) {
			t.Errorf("%s: %v; %v", name, err, err2)
		}
	}
	if leaked.Load() {
		t.Error("another host was asked")
	}
	c, err := client.New(client.Options{Server: other.URL, Token: "two\nlines " + token})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Latch(t.Context()); !errors.Is(err, client.ErrUnauthorized) || strings.Contains(err.Error(), token) {
		t.Errorf("a token of two lines: %v", err)
	}
	if _, err := client.New(client.Options{Server: "http://me:" + token + "@host"}); err == nil || strings.Contains(err.Error(), token) {
		t.Errorf("a password in the address: %v", err)
	}
}

// TestRedirectWithin: a read may be moved within its own server.
func TestRedirectWithin(t *testing.T) {
	c := fake(t, "t", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/latch" {
			http.Redirect(w, r, "/new/latch", http.StatusPermanentRedirect)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"engaged":%v}`, r.Header.Get("Authorization") == "Bearer t")
	})
	if s, err := c.Latch(t.Context()); err != nil || !s.Engaged {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := c.EngageLatch(t.Context(), client.Engaging{}, nil); err == nil {
		t.Error("a POST was redirected")
	}
}

// TestRetryAfter: 429 is tried again when the server says so, within the context.
func TestRetryAfter(t *testing.T) {
	var tries atomic.Int32
	c := fake(t, "", func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) < 3 {
			w.Header().Set("Retry-After", "0.05")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"engaged":true}`)
	})
	if s, err := c.Latch(t.Context()); err != nil || !s.Engaged || tries.Load() != 3 {
		t.Errorf("%+v %v after %d", s, err, tries.Load())
	}
	slow := fake(t, "", func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	ctx, end := context.WithTimeout(t.Context(), 2*time.Second)
	defer end()
	tries.Store(0)
	var e *client.Error
	if _, err := slow.Latch(ctx); !errors.Is(err, belay.ErrTooMany) || !errors.As(err, &e) || e.RetryAfter != 7*time.Second || tries.Load() != 1 || ctx.Err() != nil {
		t.Errorf("%v after %d", err, tries.Load())
	}
}

// TestCancelIsLimited: the real limiter's refusal is waited out, so that a Stop
// arrives.
func TestCancelIsLimited(t *testing.T) {
	r := newRig(t, admin.Options{Limiter: admin.NewRates(10, 1)}, nil)
	c := r.as("op")
	for n := range 4 {
		run := r.call(fmt.Sprint(n), "bob")
		if _, err := c.Cancel(t.Context(), belay.CancelRequest{Filter: belay.Filter{IDs: []belay.RunID{run.ID()}}}); err != nil || run.Cancellation() == nil {
			t.Fatal(err)
		}
	}
}

// TestUnreachable: nobody there, a silent one, and an answer without a bound.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	_ = l.Close()
	c, err := client.New(client.Options{Server: address})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Latch(t.Context()); !errors.Is(err, belay.ErrUnreachable) || !strings.Contains(err.Error(), address) {
		t.Errorf("nobody there: %v", err)
	}
	late := errors.New("no more time")
	ctx, end := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer end()
	silent := fake(t, "", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if _, err := silent.Latch(ctx); !errors.Is(err, late) {
		t.Errorf("silent: %v", err)
	}
	endless := fake(t, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		blanks := strings.Repeat(" ", 1<<20)
		for {
			if _, err := io.WriteString(w, blanks); err != nil {
				return
			}
		}
	})
	if _, err := endless.Latch(t.Context()); err == nil || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("endless: %v", err)
	}
}

// TestExport: what the server streams is what is written; a writer that fails and
// a server that breaks off are told apart.
func TestExport(t *testing.T) {
	c := fake(t, "", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("format") != "csv" || r.URL.Query().Get("owner") != "ann" {
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		w.Header().Set("Content-Type", "text/csv")
		fmt.Fprint(w, "run,kind\nrun_1,call\n")
		if r.URL.Query().Get("server") == "breaks" {
			w.Header().Set("Content-Length", "1000")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	var got strings.Builder
	if err := c.Export(t.Context(), &got, client.CSV, client.ReceiptQuery{Owner: "ann"}); err != nil || got.String() != "run,kind\nrun_1,call\n" {
		t.Errorf("%q %v", got.String(), err)
	}
	if err := c.Export(t.Context(), &got, client.Lines, client.ReceiptQuery{}); !errors.Is(err, belay.ErrUnsupported) {
		t.Errorf("without a ledger: %v", err)
	}
	if err := c.Export(t.Context(), &got, client.CSV, client.ReceiptQuery{Owner: "ann", Server: "breaks"}); !errors.Is(err, belay.ErrUnreachable) {
		t.Errorf("broken off: %v", err)
	}
	if err := c.Export(t.Context(), full{}, client.CSV, client.ReceiptQuery{Owner: "ann"}); !errors.Is(err, errFull) {
		t.Errorf("a full disk: %v", err)
	}
	if err := c.Export(t.Context(), &got, client.CSV, client.ReceiptQuery{Since: time.Now()}); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("limited: %v", err)
	}
}

var errFull = errors.New("the disk is full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestPagesEnd: a server whose cursor does not move is left.
func TestPagesEnd(t *testing.T) {
	var asked atomic.Int32
	c := fake(t, "", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"runs":[],"next":"run_00000000000000000000000001","incomplete":true}`)
	})
	if _, err := c.List(t.Context(), belay.Filter{}); !errors.Is(err, client.ErrIncomplete) || asked.Load() != 2 {
		t.Errorf("%v after %d pages", err, asked.Load())
	}
}

// TestUnixSocket: a server on a unix socket is spoken to like any other.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"engaged":true}`)
	}))
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	for _, address := range []string{"unix:" + path, "unix://" + path} {
		c, err := client.New(client.Options{Server: address})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := c.Latch(t.Context()); err != nil || !s.Engaged {
			t.Errorf("%s: %+v %v", address, s, err)
		}
		c.CloseIdle()
	}
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []client.Options{
		{},
		{Server: "127.0.0.1:7777"},
		{Server: "ftp://x"},
		{Server: "http://"},
		{Server: "unix:here"},
		{Server: "http://x?token=y"},
		{Server: "http://x", HTTP: &http.Client{Timeout: time.Second}},
		{Server: "unix:/x", HTTP: &http.Client{}},
	} {
		if _, err := client.New(o); !errors.Is(err, belay.ErrBadRequest) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestTLSIsTheCallers: the configuration that was given stays as it was, so that the
// caller's other transports can use it, too.
func TestTLSIsTheCallers(t *testing.T) {
	ts := httptest.NewUnstartedServer(http.NotFoundHandler())
	ts.EnableHTTP2 = true
	ts.StartTLS()
	defer ts.Close()
	config := &tls.Config{RootCAs: ts.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	c, err := client.New(client.Options{Server: ts.URL, TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	if _, err := c.Latch(t.Context()); !errors.Is(err, belay.ErrUnsupported) {
		t.Error(err)
	}
	if len(config.NextProtos) > 0 {
		t.Errorf("the caller's configuration asks for %v now", config.NextProtos)
	}
}
