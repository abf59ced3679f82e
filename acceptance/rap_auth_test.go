//go:build unix

package acceptance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRAP38_Ways: a Belay proves to another who it is by a bearer token, an AWS
// signature or a certificate, for invocations and cancels alike; who proves nothing calls
// nothing (RAP-32, 38).
func TestRAP38_Ways(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate(t, dir)
	pem := func(name string) string { return filepath.Join(dir, name) }
	sign := map[string]any{"access_key": "AKIDBELAY", "secret_key": "a-secret-of-the-acceptance-tests", "region": "eu-west-1"}
	far := start(t, func(c *settings) {
		c.top["rap"] = map[string]any{"addresses": "local", "sigv4": map[string]any{
			"region": "eu-west-1", "keys": []any{map[string]any{"name": "signer", "access_key": sign["access_key"], "secret_key": sign["secret_key"]}},
		}}
	})
	secure := start(t, local, func(c *settings) {
		c.top["tls"] = map[string]any{"cert": pem("cert.pem"), "key": pem("key.pem"), "client_ca": pem("cert.pem")}
		auth := maps.Clone(c.top["auth"].(map[string]any))
		auth["certificates"] = []any{map[string]any{"san": "dns:localhost", "name": "machine", "roles": []string{"user"}}}
		c.top["auth"] = auth
	})
	u, err := url.Parse(secure.url)
	if err != nil {
		t.Fatal(err)
	}
	tls := "https://localhost:" + u.Port() + "/rap/tools"
	wrong := maps.Clone(sign)
	wrong["secret_key"] = "another-secret-of-the-acceptance-tests"
	near := start(t, local, func(c *settings) {
		c.servers = map[string]any{
			"bearer":   ofRAP(far.url+"/rap/tools", "bearer", token("ann")),
			"signed":   ofRAP(far.url+"/rap/tools", "sigv4", sign),
			"machine":  ofRAP(tls, "mtls", map[string]any{"cert": pem("cert.pem"), "key": pem("key.pem"), "ca": pem("cert.pem")}),
			"nobody":   ofRAP(far.url + "/rap/tools"),
			"forged":   ofRAP(far.url+"/rap/tools", "sigv4", wrong),
			"stranger": ofRAP(tls, "mtls", map[string]any{"ca": pem("cert.pem")}),
		}
	})
	for _, way := range []string{"bearer", "signed", "machine"} {
		t.Run(way, func(t *testing.T) {
			at := far
			if way == "machine" {
				at = secure
			}
			key := "way-" + way
			client := near.begin(t, "bob", way)
			_ = client.call(t, `"c"`, "tick", tickArgs(key))
			at.saw(t, key, "tick")
			client.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`)
			at.quiet(t, key)
		})
	}
	for _, way := range []string{"nobody", "forged", "stranger"} {
		r := wait(t, near.begin(t, "bob", way).call(t, `"c"`, "tick", tickArgs("way-"+way)))
		if !strings.Contains(r.raw, "401") || !strings.Contains(r.raw, `"isError":true`) {
			t.Errorf("%s: %s", way, r.raw)
		}
	}
}

// certificate makes a certificate of localhost that vouches for itself, for both ends.
func certificate(t testing.TB, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
