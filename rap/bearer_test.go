package rap_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
	"github.com/belayhq/belay/rap"
)

// issue makes a certificate for a URI, signed by the authority, or an authority.
func issue(t *testing.T, uri string, by *tls.Certificate) tls.Certificate {
	t.Helper()
	return issueUntil(t, uri, by, time.Now().Add(time.Hour))
}

func issueUntil(t *testing.T, uri string, by *tls.Certificate, end time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: by == nil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	parent, signer := c, any(key)
	if by != nil {
		u, _ := url.Parse(uri)
		c.URIs = []*url.URL{u}
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestRAP38_MutualTLS: a certificate names its caller, for calls and cancels alike;
// one of nobody, and none, stop nothing (RAP-32).
func TestRAP38_MutualTLS(t *testing.T) {
	authority := issue(t, "", nil)
	w := newWitness(t)
	set, err := rap.NewToolset(rap.Manifest{Name: "files"}, w.op("scan"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := rap.NewHandler(rap.HandlerOptions{Toolset: set, PartialWait: 10 * time.Second, Authenticator: rap.Certificates(map[string]string{
		"uri:spiffe://acme/ann": "ann", "uri:spiffe://acme/bob": "bob",
	})})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	web := httptest.NewUnstartedServer(h)
	web.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	web.StartTLS()
	defer web.Close()
	runtimeOf := func(uri string) *rappeer.Runtime {
		conf := web.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		if uri != "" {
			conf.Certificates = []tls.Certificate{issue(t, uri, &authority)}
		}
		p := &rappeer.Runtime{Base: web.URL, Client: &http.Client{Transport: &http.Transport{TLSClientConfig: conf}}}
		p.Start()
		t.Cleanup(p.Stop)
		return p
	}
	ann := runtimeOf("spiffe://acme/ann")
	if a, err := ann.Invoke("scan", "t", "c", nil); err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	<-w.began
	for uri, want := range map[string]int{"": 401, "spiffe://acme/eve": 401, "spiffe://acme/bob": 200} {
		if a, err := runtimeOf(uri).Cancel("t", "c"); err != nil || a.Status != want || a.Body != "" {
			t.Errorf("%q: %+v, %v", uri, a, err)
		}
	}
	before := w.beats(t)
	for w.beats(t) == before { // it goes on
		time.Sleep(time.Millisecond)
	}
	if a, err := ann.Cancel("t", "c"); err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	if m, err := ann.Wait(ctx, "t", "c", 1); err != nil || m.Text != "Error: Cancelled by user." {
		t.Errorf("%s, %v", m.Body, err)
	}
	if err := h.Close(ctx, belay.Cancellation{}); err != nil {
		t.Error(err)
	}
	w.stands(t)
}

// TestRAP38_ExpiredCertificates: no connection is made with one, and one that expires
// while its connection is open is worth nothing on it from then on (RAP-32).
func TestRAP38_ExpiredCertificates(t *testing.T) {
	authority := issue(t, "", nil)
	set, err := rap.NewToolset(rap.Manifest{Name: "files"}, echo())
	if err != nil {
		t.Fatal(err)
	}
	h, err := rap.NewHandler(rap.HandlerOptions{Toolset: set, Authenticator: rap.Certificates(map[string]string{"uri:spiffe://acme/ann": "ann"})})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	var connections atomic.Int32
	web := httptest.NewUnstartedServer(h)
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // about the handshake that fails
	web.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	web.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	web.StartTLS()
	defer web.Close()
	cancelWith := func(c tls.Certificate) func() (int, error) {
		conf := web.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		conf.Certificates = []tls.Certificate{c}
		transport := &http.Transport{TLSClientConfig: conf}
		t.Cleanup(transport.CloseIdleConnections)
		return func() (int, error) {
			resp, err := (&http.Client{Transport: transport}).Post(web.URL+rap.PathCancel, rap.ContentType, strings.NewReader(`{"thread_id":"t","tool_call_id":"c"}`))
			if err != nil {
				return 0, err
			}
			return resp.StatusCode, resp.Body.Close()
		}
	}
	if status, err := cancelWith(issueUntil(t, "spiffe://acme/ann", &authority, time.Now().Add(-time.Minute)))(); err == nil {
		t.Errorf("an expired certificate: %d", status)
	}
	end := time.Now().Add(3 * time.Second).Truncate(time.Second) // certificates know no parts of a second
	cancel := cancelWith(issueUntil(t, "spiffe://acme/ann", &authority, end))
	if status, err := cancel(); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	before := connections.Load()
	time.Sleep(time.Until(end) + 10*time.Millisecond)
	if status, err := cancel(); err != nil || status != http.StatusUnauthorized {
		t.Errorf("a certificate that has expired since: %d, %v", status, err)
	}
	if connections.Load() != before {
		t.Error("the connection was not kept; this says nothing")
	}
	if err := h.Close(t.Context(), belay.Cancellation{}); err != nil {
		t.Error(err)
	}
}

// TestRAP38_WithoutCredentials only this machine itself is served: connections that
// begin or end elsewhere are not.
func TestRAP38_WithoutCredentials(t *testing.T) {
	l := rap.Loopback("me")
	for _, tt := range []struct {
		local, remote string
		ok            bool
	}{
		{"127.0.0.1:80", "127.0.0.1:9", true},
		{"[::1]:80", "[::1]:9", true},
		{"127.0.0.1:80", "10.0.0.1:9", false},
		{"10.0.0.2:80", "127.0.0.1:9", false},
		{"10.0.0.2:80", "10.0.0.1:9", false},
		{"127.0.0.1:80", "", false},
	} {
		to, err := net.ResolveTCPAddr("tcp", tt.local)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(to)))
		r.RemoteAddr = tt.remote
		if who, err := l.Authenticate(r, nil); (err == nil) != tt.ok || tt.ok && who != "me" || !tt.ok && !errors.Is(err, rap.ErrUnauthenticated) {
			t.Errorf("%s from %s: %q, %v", tt.local, tt.remote, who, err)
		}
	}
	if _, err := l.Authenticate(httptest.NewRequest(http.MethodPost, "/", nil), nil); err == nil {
		t.Error("a request of which nothing is known is let in")
	}
}

// TestRAP38_SeveralSchemes: the first for which there are credentials decides.
func TestRAP38_SeveralSchemes(t *testing.T) {
	one, err := rap.Bearer(map[string]string{annToken: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	both := rap.AnyOf(rap.Certificates(map[string]string{}), one, rap.Loopback("me"))
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Authorization", "Bearer wrong-0123456789abcdef")
	if who, err := both.Authenticate(r, nil); !errors.Is(err, rap.ErrUnauthenticated) || errors.Is(err, rap.ErrNoCredentials) {
		t.Errorf("a wrong token was made good: %q, %v", who, err)
	}
	r.Header.Set("Authorization", "Bearer "+annToken)
	if who, err := both.Authenticate(r, nil); who != "ann" || err != nil {
		t.Errorf("%q, %v", who, err)
	}
	for _, bad := range []map[string]string{{"short": "ann"}, {annToken: ""}} {
		if _, err := rap.Bearer(bad); !errors.Is(err, belay.ErrBadRequest) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := rap.NewHandler(rap.HandlerOptions{}); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("a handler that anybody may call: %v", err)
	}
}

// TestRAP21_ATimeoutIsACancel: the tool server's own limit ends a call for which
// nobody sends one, and says so (RAP-6, RAP-17).
func TestRAP21_ATimeoutIsACancel(t *testing.T) {
	w := newWitness(t)
	g := newRig(t, func(o *rap.HandlerOptions) { o.Timeout = 100 * time.Millisecond }, w.op("scan"))
	g.invoke("scan", "t", "c", nil)
	if got := g.only("t", "c"); got != "Error: Cancelled by deadline: its time was up." && got != "Error: Cancelled by deadline." {
		t.Errorf("%q", got)
	}
	if info, receipt := g.receipt("t", "c"); info.Cancellation.Cause != belay.CauseDeadline || receipt.Verdict != belay.Confirmed {
		t.Errorf("%+v", info)
	}
	w.stands(t)
}
