package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// authority makes certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority() authority {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key))
	return authority{key, must(x509.ParseCertificate(der))}
}

func (a authority) issue(usage x509.ExtKeyUsage, common string, dns ...string) tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	form := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: common}, DNSNames: dns,
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der := must(x509.CreateCertificate(rand.Reader, form, a.cert, &key.PublicKey, a.key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestMutualTLS: over real connections: a certificate of the trusted authority
// names its principal; one of a stranger, one for servers, and a common name
// do not get in.
func TestMutualTLS(t *testing.T) {
	trusted, stranger := newAuthority(), newAuthority()
	a := newAuth(t, Config{Certificates: []Certificate{{SAN: "dns:ops.example", Name: "ops", Roles: []string{"operator"}}}})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := a.Authenticate(r)
		if err != nil {
			answer := Describe(err)
			answer.Header(w.Header())
			w.WriteHeader(answer.Status)
			return
		}
		_, _ = io.WriteString(w, p.Name)
	}))
	pool := x509.NewCertPool()
	pool.AddCert(trusted.cert)
	server.TLS = &tls.Config{ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that fail on purpose
	server.StartTLS()
	defer server.Close()
	for name, c := range map[string]struct {
		cert   *tls.Certificate
		status int // 0: no connection at all
		body   string
	}{
		"good":        {new(trusted.issue(x509.ExtKeyUsageClientAuth, "x", "ops.example")), 200, "ops"},
		"other name":  {new(trusted.issue(x509.ExtKeyUsageClientAuth, "ops.example", "other.example")), 401, ""},
		"common name": {new(trusted.issue(x509.ExtKeyUsageClientAuth, "ops.example")), 401, ""},
		"none":        {nil, 401, ""},
		"stranger":    {new(stranger.issue(x509.ExtKeyUsageClientAuth, "x", "ops.example")), 0, ""},
		"for servers": {new(trusted.issue(x509.ExtKeyUsageServerAuth, "x", "ops.example")), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			settings := &tls.Config{RootCAs: x509.NewCertPool()}
			settings.RootCAs.AddCert(server.Certificate())
			if c.cert != nil {
				// Sent whatever authorities the server names.
				settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.cert, nil }
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}}
			resp, err := client.Get(server.URL)
			if c.status == 0 {
				if err == nil {
					resp.Body.Close()
					t.Fatalf("status %d", resp.StatusCode)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body := must(io.ReadAll(resp.Body))
			if resp.StatusCode != c.status || string(body) != c.body || (resp.Header.Get("WWW-Authenticate") != "") != (c.status == 401) {
				t.Fatalf("%d %q %v", resp.StatusCode, body, resp.Header)
			}
		})
	}
}
