package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The keys of the tests; making RSA keys takes time.
var (
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	rsaOther = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey    = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	edKey    = sync.OnceValue(func() ed25519.PrivateKey { _, k, err := ed25519.GenerateKey(rand.Reader); return must(k, err) })
	secret   = []byte("0123456789abcdef0123456789abcdef")
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// pemOf is a public key as PEM.
func pemOf(public any) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(public))})
}

// newAuth is an Authenticator that the test closes.
func newAuth(t testing.TB, cfg Config) *Authenticator {
	t.Helper()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// corp is an issuer with the secret.
func corp() Issuer {
	return Issuer{
		Name: "corp", Issuer: "https://id.example", Audience: []string{"belay"}, Secret: secret,
		Roles: map[string][]string{"ops": {"operator"}}, Default: []string{"user"},
	}
}

// claims are good ones.
func claims() jwt.MapClaims {
	now := time.Now()
	return jwt.MapClaims{
		"iss": "https://id.example", "aud": "belay", "sub": "alice",
		"exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "nbf": now.Unix(),
	}
}

// sign makes a token; kid "" leaves it out.
func sign(t testing.TB, m jwt.SigningMethod, key any, c jwt.MapClaims, kid string) string {
	t.Helper()
	tok := jwt.NewWithClaims(m, c)
	if kid != "" {
		tok.Header["kid"] = kid
	}
	s, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request has the token in its header; "" for none.
func request(token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orchestrate/cancel", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// raw is a token of these texts, unsigned.
func raw(header, payload, signature string) string {
	b := base64.RawURLEncoding
	return b.EncodeToString([]byte(header)) + "." + b.EncodeToString([]byte(payload)) + "." + signature
}

// jwks is a set of public keys by kid.
func jwks(keys map[string]any) []byte {
	b := base64.RawURLEncoding
	var list []map[string]any
	for kid, k := range keys {
		switch k := k.(type) {
		case *rsa.PublicKey:
			list = append(list, map[string]any{
				"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256",
				"n": b.EncodeToString(k.N.Bytes()), "e": b.EncodeToString(big.NewInt(int64(k.E)).Bytes()),
			})
		case *ecdsa.PublicKey:
			point := must(k.Bytes())
			list = append(list, map[string]any{
				"kty": "EC", "crv": "P-256", "kid": kid,
				"x": b.EncodeToString(point[1:33]), "y": b.EncodeToString(point[33:]),
			})
		case ed25519.PublicKey:
			list = append(list, map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": b.EncodeToString(k)})
		case []byte:
			list = append(list, map[string]any{"kty": "oct", "kid": kid, "k": b.EncodeToString(k)})
		}
	}
	return must(json.Marshal(map[string]any{"keys": list}))
}
