package auth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// sealed is a good token with other header members.
func sealed(t *testing.T, header map[string]any, c jwt.MapClaims) string {
	t.Helper()
	tok := jwt.NewWithClaims(jwt.SigningMethodHS256, c)
	maps.Copy(tok.Header, header)
	s, err := tok.SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTypeOfToken: what an issuer signs for another purpose is no credential,
// and what access tokens call themselves is fine (RFC 8725 section 3.11).
func TestTypeOfToken(t *testing.T) {
	a := newAuth(t, Config{Issuers: []Issuer{corp()}})
	for _, c := range []struct {
		typ  any
		good bool
	}{
		{"JWT", true},
		{"jwt", true},
		{"at+jwt", true},
		{"application/at+JWT", true},
		{"JOSE", true},
		{"", true},
		{nil, true},
		{"logout+jwt", false},
		{"secevent+jwt", false},
		{"dpop+jwt", false},
		{"oauth-authz-req+jwt", false},
		{"text/html", false},
		{7, false},
		{[]string{"JWT"}, false},
	} {
		_, err := a.Authenticate(request(sealed(t, map[string]any{"typ": c.typ}, claims())))
		if (err == nil) != c.good || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("typ %v: %v", c.typ, err)
		}
	}
	tok := jwt.NewWithClaims(jwt.SigningMethodHS256, claims())
	delete(tok.Header, "typ")
	if _, err := a.Authenticate(request(must(tok.SignedString(secret)))); err != nil {
		t.Errorf("no typ: %v", err)
	}
}

// TestBoundToken: a token that only the holder of a key may use is refused from
// a bearer, who may have stolen it (RFC 9449, RFC 8705).
func TestBoundToken(t *testing.T) {
	a := newAuth(t, Config{Issuers: []Issuer{corp()}})
	for _, cnf := range []any{map[string]any{"jkt": "x"}, map[string]any{"x5t#S256": "x"}, map[string]any{}, nil, "x"} {
		c := claims()
		c["cnf"] = cnf
		if _, err := a.Authenticate(request(sealed(t, nil, c))); !errors.Is(err, ErrClaims) {
			t.Errorf("cnf %v: %v", cnf, err)
		}
	}
}

// TestEmailAsName: an address that somebody only claims is nobody's name.
func TestEmailAsName(t *testing.T) {
	i := corp()
	i.Subject = "email"
	a := newAuth(t, Config{Issuers: []Issuer{i}})
	for _, c := range []struct {
		verified any
		said     bool
		good     bool
	}{
		{true, true, true}, {false, true, false}, {nil, false, false}, {"true", true, false}, {1, true, false}, {nil, true, false},
	} {
		m := claims()
		m["email"] = "ann@corp.example"
		if c.said {
			m["email_verified"] = c.verified
		}
		p, err := a.Authenticate(request(sealed(t, nil, m)))
		if c.good != (err == nil) || c.good && p.Name != "corp:ann@corp.example" || !c.good && !errors.Is(err, ErrClaims) {
			t.Errorf("email_verified %v (said %v): %v, %v", c.verified, c.said, p, err)
		}
	}
}

// TestLookalikes: nobody gets the name of somebody else, nor one that only looks
// like it by characters that cannot be seen.
func TestLookalikes(t *testing.T) {
	a := newAuth(t, Config{Issuers: []Issuer{corp()}})
	for _, sub := range []string{
		"alice\ufe0f", "alice\u3164", "alice\u115f", "ali\u034fce", "alice\u200b", "alice\u2060", "al\u00adice", "alice\ufeff",
		"alice\u00a0", "\u2003alice", "alice\u202e", "alice\U000e0061", "alice\x00", "alice\x7f", "alice\ud7ff\u0085", "\ufffd",
	} {
		c := claims()
		c["sub"] = sub
		if p, err := a.Authenticate(request(sealed(t, nil, c))); !errors.Is(err, ErrClaims) {
			t.Errorf("%q: %q, %v", sub, p.Name, err)
		}
	}
	// Invalid and half characters must not meet as U+FFFD.
	for _, sub := range []string{"alice\xff", `alice\ud800`, `alice\udfff\ud800`} {
		head, body := b64(`{"alg":"HS256"}`), b64(`{"iss":"https://id.example","aud":"belay","exp":4102444800,"sub":"`+sub+`"}`)
		sum := must(jwt.SigningMethodHS256.Sign(head+"."+body, secret))
		if p, err := a.Authenticate(request(head + "." + body + "." + base64.RawURLEncoding.EncodeToString(sum))); !errors.Is(err, ErrClaims) {
			t.Errorf("%q: %q, %v", sub, p.Name, err)
		}
	}
	// Different, and to be told apart: they stay different.
	seen := map[string]string{}
	for _, sub := range []string{"alice", "Alice", "аlice", "corp:alice", "local", "é", "e\u0301", "user name"} {
		c := claims()
		c["sub"] = sub
		p, err := a.Authenticate(request(sealed(t, nil, c)))
		if err != nil || seen[p.Name] != "" || p.Name == LocalName || p.Owns(LocalName) {
			t.Errorf("%q: %q (%q), %v", sub, p.Name, seen[p.Name], err)
		}
		seen[p.Name] = sub
	}
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// TestKidTricks: a kid chooses among the issuer's keys and does nothing else.
func TestKidTricks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, jwks(map[string]any{"one": secret, "two": append([]byte("2"), secret...)}), 0o600); err != nil {
		t.Fatal(err)
	}
	i := corp()
	i.Secret, i.KeyFile = nil, file
	a := newAuth(t, Config{Issuers: []Issuer{i}})
	for _, kid := range []any{
		"", "two", "ONE", "one ", "one\x00", "../../../../dev/null", "/dev/null", "' OR 1=1 --", "*", "one,two", "${one}", "http://127.0.0.1:1/", "оne",
	} {
		_, err := a.Authenticate(request(sealed(t, map[string]any{"kid": kid}, claims())))
		want := ErrUnknownKey
		if kid == "two" {
			want = ErrSignature
		}
		if !errors.Is(err, want) || strings.Contains(err.Error(), "dev") {
			t.Errorf("kid %q: %v", kid, err)
		}
	}
	for _, kid := range []any{nil, 1, []string{"one"}, map[string]any{"one": 1}, true} {
		if _, err := a.Authenticate(request(sealed(t, map[string]any{"kid": kid}, claims()))); !errors.Is(err, ErrMalformed) {
			t.Errorf("kid %v: %v", kid, err)
		}
	}
	// The empty secret, which is what a kid that names an empty file used to give.
	tok := jwt.NewWithClaims(jwt.SigningMethodHS256, claims())
	tok.Header["kid"] = "/dev/null"
	if _, err := a.Authenticate(request(must(tok.SignedString([]byte{})))); !errors.Is(err, ErrUnknownKey) {
		t.Error(err)
	}
	if p, err := a.Authenticate(request(sealed(t, map[string]any{"kid": "one"}, claims()))); err != nil || p.Name != "corp:alice" {
		t.Error(p, err)
	}
}

// TestNullSignatures: signatures of zeros and of nothing prove nothing, for any
// kind of key.
func TestNullSignatures(t *testing.T) {
	for _, c := range []struct {
		method jwt.SigningMethod
		public any
		sizes  []int
	}{
		{jwt.SigningMethodES256, &ecKey().PublicKey, []int{0, 63, 64, 65, 72}},
		{jwt.SigningMethodEdDSA, edKey().Public(), []int{0, 63, 64, 65}},
		{jwt.SigningMethodRS256, &rsaKey().PublicKey, []int{0, 255, 256, 257}},
	} {
		i := corp()
		i.Secret, i.PEM = nil, pemOf(c.public)
		a := newAuth(t, Config{Issuers: []Issuer{i}})
		body := must(jwt.NewWithClaims(c.method, claims()).SigningString())
		for _, size := range c.sizes {
			for _, fill := range []byte{0, 1, 0xff} {
				sum := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{fill}, size))
				if _, err := a.Authenticate(request(body + "." + sum)); !errors.Is(err, ErrSignature) {
					t.Errorf("%s, %d bytes: %v", c.method.Alg(), size, err)
				}
			}
		}
	}
}

// TestCacheIsOfWholeTokens: what was verified vouches for exactly these bytes:
// neither another signature nor other claims get in by a remembered token, and a
// refused one is never remembered.
func TestCacheIsOfWholeTokens(t *testing.T) {
	a := newAuth(t, Config{Issuers: []Issuer{corp()}})
	good := sealed(t, nil, claims())
	part := strings.Split(good, ".")
	admin := claims()
	admin["roles"], admin["sub"] = []string{"ops"}, "root"
	forged := strings.Split(sealed(t, nil, admin), ".")[1]
	bad := []string{
		part[0] + "." + forged + "." + part[2], part[0] + "." + part[1] + ".AAAA" + part[2][4:],
		part[0] + "." + part[1] + "." + part[2] + "AAAA", b64(`{"alg":"none"}`) + "." + part[1] + "." + part[2],
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				if p, err := a.Authenticate(request(good)); err != nil || p.Name != "corp:alice" {
					t.Errorf("%v, %v", p, err)
				}
				for _, token := range bad {
					if p, err := a.Authenticate(request(token)); !errors.Is(err, ErrUnauthenticated) || p.Name != "" || len(p.Permissions()) > 0 {
						t.Errorf("%q: %v, %v", token, p, err)
					}
				}
			}
		})
	}
	all.Wait()
	if n := a.jwts.cache.len(); n != 1 {
		t.Errorf("%d remembered", n)
	}
}

// TestRoleEscalation: claims that look like Belay's own words, roles by another
// spelling or in another place, give nothing.
func TestRoleEscalation(t *testing.T) {
	a := newAuth(t, Config{
		Issuers: []Issuer{corp()}, Roles: map[string][]Permission{"oncall": {RunsCancel}},
	})
	user := must(SetOf(builtin["user"]...)).List()
	for name, value := range map[string]any{
		"roles": []any{"admin", "operator", "oncall", "OPS", "ops ", "ops\x00", "оps", map[string]any{"ops": true}, []any{"ops"}, nil, 1, true},
		"role":  "ops", "Roles": []any{"ops"}, "ROLES": "ops", "permissions": []any{"admin.system_config"}, "may": 1023,
		"scope": "ops admin admin.system_config", "groups": []any{"ops"}, "realm_access": map[string]any{"roles": []any{"ops"}},
		"inside": []any{}, "Name": "local", "name": "local", "Method": "local-token", "belay": map[string]any{"roles": []any{"ops"}},
	} {
		c := claims()
		c[name] = value
		p, err := a.Authenticate(request(sealed(t, nil, c)))
		if err != nil || p.Name != "corp:alice" || p.Method != ByJWT || len(p.Permissions()) != len(user) || p.May(RunsCancel) {
			t.Errorf("%s: %v may %v, %v", name, p, p.Permissions(), err)
		}
	}
	// Beyond the bound nothing counts, wherever the good one stands.
	c := claims()
	c["roles"] = strings.Repeat("x ", maxClaims) + "ops"
	if p, err := a.Authenticate(request(sealed(t, nil, c))); err != nil || p.May(RunsCancel) {
		t.Errorf("%v may %v, %v", p, p.Permissions(), err)
	}
}

// TestInsideWhateverIsShown: an agent inside a run that found its user's token,
// a static one, a JWT or a certificate is confined by each of them, when the
// server knows where it speaks from (DESIGN 11, 10).
func TestInsideWhateverIsShown(t *testing.T) {
	local, _ := NewToken()
	text, hash := NewToken()
	i := corp()
	i.Default = []string{"admin"}
	a := newAuth(t, Config{
		LocalToken: local, Socket: true, Issuers: []Issuer{i},
		Tokens:       []Token{{Name: "op", Hash: hash, Roles: []string{"admin"}}},
		Certificates: []Certificate{{SAN: "uri:spiffe://x/op", Name: "cert", Roles: []string{"admin"}}},
	})
	signed := sealed(t, nil, claims())
	leaf := &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "x", Path: "/op"}}, NotAfter: time.Now().Add(time.Hour)}
	state := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
	for what, ask := range map[string]func() *http.Request{
		"local token": func() *http.Request { return request(local) },
		"token":       func() *http.Request { return request(text) },
		"JWT":         func() *http.Request { return request(signed) },
		"certificate": func() *http.Request { r := request(""); r.TLS = state; return r },
		"socket":      func() *http.Request { return request("") },
	} {
		for range 2 { // the second JWT is remembered
			r := ask()
			out, err := a.Authenticate(r.WithContext(WithPeer(r.Context(), Peer{UID: os.Getuid(), Known: true})))
			if err != nil || !out.May(LatchLift) || out.Inside() != nil {
				t.Errorf("%s from outside: %v may %v, %v", what, out, out.Permissions(), err)
			}
			in, err := a.Authenticate(r.WithContext(WithPeer(r.Context(), Peer{UID: os.Getuid(), Known: true, Inside: []string{"run_x"}})))
			if err != nil || in.Name != out.Name || in.Inside()[0] != "run_x" {
				t.Errorf("%s: %v, %v", what, in, err)
			}
			for _, p := range []Permission{RunsCancel, RunsCancelOwn, ToolsApprove, LatchSet, LatchLift, SystemConfig} {
				if in.May(p) {
					t.Errorf("%s from inside has %s", what, p)
				}
			}
		}
	}
}

// TestSmuggledHeaders: what other servers would take for a credential, or for
// another caller, is none here.
func TestSmuggledHeaders(t *testing.T) {
	text, hash := NewToken()
	a := newAuth(t, Config{Tokens: []Token{{Name: "op", Hash: hash, Roles: []string{"admin"}}}, Certificates: []Certificate{{SAN: "dns:op", Name: "cert"}}})
	for _, name := range []string{
		"Proxy-Authorization", "X-Authorization", "X-Api-Key", "Api-Key", "X-Forwarded-User", "X-Forwarded-Authorization", "X-Remote-User", "Remote-User",
		"X-Original-Authorization", "X-Forwarded-Client-Cert", "X-Ssl-Client-S-Dn", "X-Client-Cert", "Authorization ", "Authorization\t", "authorization_", "AUTHORIZATION_",
	} {
		r := request("")
		r.Header[name] = []string{"Bearer " + text}
		if p, err := a.Authenticate(r); !errors.Is(err, ErrNoCredentials) {
			t.Errorf("%q: %v, %v", name, p, err)
		}
	}
	// Not in a trailer, nor in the address of a proxy's request, nor in a body.
	r := request("")
	r.Trailer = http.Header{"Authorization": {"Bearer " + text}}
	r.URL.User = url.UserPassword("op", text)
	if _, err := a.Authenticate(r); !errors.Is(err, ErrNoCredentials) {
		t.Error(err)
	}
	// A certificate that nobody has verified, beside it.
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{"op"}, NotAfter: time.Now().Add(time.Hour)}}}
	if _, err := a.Authenticate(r); !errors.Is(err, ErrNoCredentials) {
		t.Error(err)
	}
	// A token as the whole query, and a JWT under any name.
	for _, query := range []string{text, "x=" + sealed(t, nil, claims()), "%65yJx.y.z", text + "=1"} {
		r := request(text)
		r.URL.RawQuery = query
		if _, err := a.Authenticate(r); !errors.Is(err, ErrTokenInQuery) {
			t.Errorf("%.30q: %v", query, err)
		}
	}
}
