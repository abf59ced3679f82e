package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
)

// TestPEM: one public key or certificate, of a kind and size that we take;
// above all no private key, which has no place in a gateway's configuration.
func TestPEM(t *testing.T) {
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	public := pemOf(&rsaKey().PublicKey)
	curve := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	for name, c := range map[string]struct {
		text []byte
		alg  string // "" for refused
	}{
		"PKIX":         {public, algRS256},
		"PKCS1":        {block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)), algRS256},
		"certificate":  {block("CERTIFICATE", newAuthority().cert.Raw), algES256},
		"text before":  {append([]byte("a key\n"), public...), algRS256},
		"private":      {block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(rsaKey()))), ""},
		"old private":  {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey())), ""},
		"two":          {bytes.Repeat(public, 2), ""},
		"P-384":        {pemOf(&curve.PublicKey), ""},
		"not a key":    {block("PUBLIC KEY", []byte("x")), ""},
		"wrong header": {block("CERTIFICATE", must(x509.MarshalPKIXPublicKey(&rsaKey().PublicKey))), ""},
		"empty":        {nil, ""},
	} {
		k, err := pemKey(c.text)
		if k.alg != c.alg || (err == nil) != (c.alg != "") || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %s, %v", name, k.alg, err)
		}
		if err != nil && strings.Contains(err.Error(), "MII") {
			t.Errorf("%s: the error shows the key", name)
		}
	}
}
