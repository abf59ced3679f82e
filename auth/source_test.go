package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// keyServer is an issuer's JWKS endpoint.
type keyServer struct {
	*httptest.Server

	reads atomic.Int32
	asked chan struct{} // one for each read that has begun

	mu   sync.Mutex
	text []byte
	hang chan struct{} // not nil: reads wait for it, or for the client to go
	code int
}

func newKeyServer(t *testing.T, text []byte) *keyServer {
	k := &keyServer{text: text, asked: make(chan struct{}, 1000), code: 200}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.reads.Add(1)
		k.mu.Lock()
		body, hang, code := k.text, k.hang, k.code
		k.mu.Unlock()
		k.asked <- struct{}{}
		if hang != nil {
			select {
			case <-hang:
			case <-r.Context().Done():
				return
			}
		}
		w.WriteHeader(code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(k.Close)
	return k
}

func (k *keyServer) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// remote is an issuer with that endpoint.
func remote(url string) Issuer {
	i := corp()
	i.Secret, i.KeyURL, i.Again = nil, url, time.Hour
	return i
}

// age lets time pass for an issuer's keys.
func age(a *Authenticator, d time.Duration) *source {
	s := a.jwts.issuers[corp().Issuer].keys
	s.mu.Lock()
	s.good, s.tried = s.good.Add(-d), s.tried.Add(-d)
	s.mu.Unlock()
	return s
}

func rs(t testing.TB, key any, kid string) *http.Request {
	return request(sign(t, jwt.SigningMethodRS256, key, claims(), kid))
}

// TestRotation: a new key is fetched when a token names it; the withdrawn one
// vouches for nobody afterwards, not even for a token that was verified before.
func TestRotation(t *testing.T) {
	k := newKeyServer(t, jwks(map[string]any{"one": &rsaKey().PublicKey}))
	a := newAuth(t, Config{Issuers: []Issuer{remote(k.URL)}})
	old, young := rs(t, rsaKey(), "one"), rs(t, rsaOther(), "two")
	for range 3 {
		if _, err := a.Authenticate(old); err != nil {
			t.Fatal(err)
		}
	}
	if n := k.reads.Load(); n != 1 {
		t.Fatalf("%d reads", n)
	}
	k.set(func() { k.text = jwks(map[string]any{"two": &rsaOther().PublicKey}) })
	if _, err := a.Authenticate(young); !errors.Is(err, ErrUnknownKey) {
		t.Fatalf("a second read came too early, or %v", err)
	}
	age(a, 2*time.Hour)
	if _, err := a.Authenticate(young); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Authenticate(old); !errors.Is(err, ErrUnknownKey) {
		t.Fatalf("the withdrawn key still vouches: %v", err)
	}
}

// TestUnknownKids: however many made-up kids come, and from how many
// connections, the issuer is asked once in Again.
func TestUnknownKids(t *testing.T) {
	k := newKeyServer(t, jwks(map[string]any{"one": &rsaKey().PublicKey}))
	a := newAuth(t, Config{Issuers: []Issuer{remote(k.URL)}})
	var all sync.WaitGroup
	for n := range 64 {
		r := rs(t, rsaKey(), fmt.Sprintf("made-up-%d", n))
		all.Go(func() {
			if _, err := a.Authenticate(r); !errors.Is(err, ErrUnknownKey) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := k.reads.Load(); n != 1 {
		t.Fatalf("%d reads", n)
	}
	if _, err := a.Authenticate(rs(t, rsaKey(), "")); err != nil {
		t.Fatalf("no kid, and one key: %v", err)
	}
}

// TestHang: an issuer that hangs costs a token with an unknown key at most the
// time-out, is no 401, and delays nobody whose key is known.
func TestHang(t *testing.T) {
	k := newKeyServer(t, jwks(map[string]any{"one": &rsaKey().PublicKey}))
	k.hang = make(chan struct{})
	i := remote(k.URL)
	i.Timeout = 100 * time.Millisecond
	a := newAuth(t, Config{Issuers: []Issuer{i}})
	good := rs(t, rsaKey(), "one")
	_, err := a.Authenticate(good)
	if d := Describe(err); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnauthenticated) || d.Status != 503 || d.RetryAfter == "" {
		t.Fatalf("%v: %+v", err, Describe(err))
	}
	// Asked again at once: no second read, no second wait.
	if _, err := a.Authenticate(good); !errors.Is(err, ErrUnavailable) || k.reads.Load() != 1 {
		t.Fatal(err, k.reads.Load())
	}
	// The issuer is back, then hangs when its keys are due again.
	s := age(a, 2*time.Hour)
	s.timeout = time.Hour // from here on nobody waits for time
	k.set(func() { close(k.hang); k.hang = nil })
	if _, err := a.Authenticate(good); err != nil {
		t.Fatal(err)
	}
	age(a, 2*time.Hour)
	k.set(func() { k.hang = make(chan struct{}) })
	for range 100 {
		if _, err := a.Authenticate(good); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // that read has really begun, and is the only one
		<-k.asked
	}
	if n := k.reads.Load(); n != 3 {
		t.Fatalf("%d reads", n)
	}
	// The caller's own patience counts too.
	ctx, end := context.WithCancelCause(t.Context())
	end(errors.New("went away"))
	if _, err := a.Authenticate(rs(t, rsaKey(), "two").WithContext(ctx)); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	a.Close() // ends the read that hangs; goleak sees the rest
	if _, err := a.Authenticate(rs(t, rsaKey(), "two")); err == nil {
		t.Fatal("after Close")
	}
}

// TestStale: keys that cannot be read again are trusted for MaxStale and no
// longer, verified tokens included.
func TestStale(t *testing.T) {
	k := newKeyServer(t, jwks(map[string]any{"one": &rsaKey().PublicKey}))
	var out bytes.Buffer
	a := newAuth(t, Config{Issuers: []Issuer{remote(k.URL)}, Log: slog.New(slog.NewTextHandler(&out, nil))})
	good := rs(t, rsaKey(), "one")
	if _, err := a.Authenticate(good); err != nil {
		t.Fatal(err)
	}
	k.set(func() { k.code = 500 })
	s := age(a, 23*time.Hour)
	if _, err := a.Authenticate(good); err != nil {
		t.Fatal(err)
	}
	s.busy.Wait() // the read in the background has failed
	age(a, 2*time.Hour)
	if _, err := a.Authenticate(good); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	s.busy.Wait()
	if !strings.Contains(out.String(), "status 500") {
		t.Errorf("log: %s", &out)
	}
}

// TestBadKeys: what an endpoint may send instead of keys; each is an issuer
// whose keys cannot be had, and none is followed or read without end.
func TestBadKeys(t *testing.T) {
	elsewhere := newKeyServer(t, jwks(map[string]any{"one": &rsaKey().PublicKey}))
	for name, handler := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"error":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"no JSON":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"empty":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) },
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for range 2 * maxKeyBody / 1024 {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 1024)); err != nil {
					return
				}
			}
		},
		"too many": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[{}` + strings.Repeat(",{}", maxKeys) + `]}`))
		},
		"published secret": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(jwks(map[string]any{"one": secret})) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handler)
			defer server.Close()
			a := newAuth(t, Config{Issuers: []Issuer{remote(server.URL)}})
			if _, err := a.Authenticate(rs(t, rsaKey(), "one")); !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
		})
	}
	if elsewhere.reads.Load() != 0 {
		t.Error("the redirect was followed")
	}
}

// TestJWK: keys that are for something else are left out; the usable ones
// beside them stay.
func TestJWK(t *testing.T) {
	good := string(jwks(map[string]any{"g": edKey().Public()}))
	one := strings.TrimSuffix(strings.TrimPrefix(good, `{"keys":[`), `]}`)
	for name, other := range map[string]string{
		"encryption":   strings.Replace(one, `"kid"`, `"use":"enc","kid"`, 1),
		"signing only": strings.Replace(one, `"kid"`, `"key_ops":["sign"],"kid"`, 1),
		"another alg":  strings.Replace(one, `"kid"`, `"alg":"ES256","kid"`, 1),
		"curve":        `{"kty":"EC","crv":"P-384","x":"AA","y":"AA"}`,
		"off curve":    `{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}`,
		"small RSA":    `{"kty":"RSA","n":"` + strings.Repeat("_", 171) + `","e":"AQAB"}`,
		"even e":       `{"kty":"RSA","n":"` + strings.Repeat("_", 342) + `","e":"Ag"}`,
		"huge RSA":     `{"kty":"RSA","n":"` + strings.Repeat("_", 4000) + `","e":"AQAB"}`,
		"short secret": `{"kty":"oct","k":"AAAA"}`,
		"no object":    `7`,
		"null":         `null`,
		"not base64":   `{"kty":"OKP","crv":"Ed25519","x":"*"}`,
		"short key":    `{"kty":"OKP","crv":"Ed25519","x":"AA"}`,
	} {
		keys, err := parseJWKS([]byte(`{"keys":[`+other+","+one+`]}`), true)
		if err != nil || len(keys) != 1 || keys[0].id != "g" || keys[0].alg != algEdDSA {
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		}
	}
}

// TestChoice: with several keys, a token without kid names none of them; a key
// found by its kid is still for its own algorithm only.
func TestChoice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	set := jwks(map[string]any{"r": &rsaKey().PublicKey, "r2": &rsaOther().PublicKey, "e": &ecKey().PublicKey, "s": secret})
	if err := os.WriteFile(file, set, 0o600); err != nil {
		t.Fatal(err)
	}
	i := corp()
	i.Secret, i.KeyFile = nil, file
	a := newAuth(t, Config{Issuers: []Issuer{i}})
	for _, c := range []struct {
		method jwt.SigningMethod
		key    any
		kid    string
		want   error
	}{
		{jwt.SigningMethodRS256, rsaKey(), "r", nil},
		{jwt.SigningMethodRS256, rsaOther(), "r2", nil},
		{jwt.SigningMethodRS256, rsaKey(), "r2", ErrSignature},
		{jwt.SigningMethodRS256, rsaKey(), "", ErrUnknownKey},
		{jwt.SigningMethodES256, ecKey(), "", nil},
		{jwt.SigningMethodES256, ecKey(), "e", nil},
		{jwt.SigningMethodHS256, secret, "s", nil},
		{jwt.SigningMethodHS256, rsaKey().N.Bytes(), "r", ErrUnknownKey},
		{jwt.SigningMethodES256, ecKey(), "../../etc/passwd", ErrUnknownKey},
	} {
		if _, err := a.Authenticate(request(sign(t, c.method, c.key, claims(), c.kid))); !errors.Is(err, c.want) {
			t.Errorf("%s %q: %v, want %v", c.method.Alg(), c.kid, err, c.want)
		}
	}
	// The file has a new key; a token that names it makes us read it.
	if err := os.WriteFile(file, jwks(map[string]any{"new": edKey().Public()}), 0o600); err != nil {
		t.Fatal(err)
	}
	age(a, time.Minute)
	if _, err := a.Authenticate(request(sign(t, jwt.SigningMethodEdDSA, edKey(), claims(), "new"))); err != nil {
		t.Fatal(err)
	}
}

// TestDiscovery: the document has to be the issuer's own, and may not lead from
// https to http.
func TestDiscovery(t *testing.T) {
	k := newKeyServer(t, jwks(map[string]any{"one": &rsaKey().PublicKey}))
	var iss, uri string
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.well-known/openid-configuration" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, iss, uri)
	}))
	defer home.Close()
	for name, c := range map[string]struct {
		iss, uri string
		want     error
	}{
		"good":           {home.URL, k.URL, nil},
		"another issuer": {"https://evil.example", k.URL, ErrUnavailable},
		"plain http":     {home.URL, "http://keys.example/", ErrUnavailable},
		"a file":         {home.URL, "file:///etc/passwd", ErrUnavailable},
		"nothing":        {home.URL, "", ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			iss, uri = c.iss, c.uri
			i := corp()
			i.Secret, i.Discover, i.Issuer = nil, true, home.URL
			a := newAuth(t, Config{Issuers: []Issuer{i}})
			m := claims()
			m["iss"] = home.URL
			_, err := a.Authenticate(request(sign(t, jwt.SigningMethodRS256, rsaKey(), m, "one")))
			if !errors.Is(err, c.want) {
				t.Fatal(err)
			}
		})
	}
}

// FuzzJWKS: whatever an issuer sends, each key that is taken is whole and for
// one algorithm, and nothing panics.
func FuzzJWKS(f *testing.F) {
	f.Add(jwks(map[string]any{"r": &rsaKey().PublicKey}))
	f.Add(jwks(map[string]any{"e": &ecKey().PublicKey, "d": edKey().Public(), "s": secret}))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"","e":""},{"kty":"EC","crv":"P-256"},null]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseJWKS(text, false)
		if (err == nil) != (len(keys) > 0) || len(keys) > maxKeys {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, k := range keys {
			again, err := keyOf(k.public)
			if err != nil || again.alg != k.alg || k.alg == algHS256 || k.only {
				t.Fatalf("%+v, %v", k, err)
			}
		}
	})
}
