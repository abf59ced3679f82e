//go:build unix

package acceptance

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// jwt makes tokens by hand, so that they can be made wrongly.
type jwt struct {
	head, claims map[string]any
	sign         func(text string) []byte
}

func (j jwt) String() string {
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(j.head) + "." + part(j.claims)
	return text + "." + base64.RawURLEncoding.EncodeToString(j.sign(text))
}

// with is the token with other claims; nil takes one away.
func (j jwt) with(claims map[string]any) jwt {
	j.claims = maps.Clone(j.claims)
	for k, v := range claims {
		if v == nil {
			delete(j.claims, k)
		} else {
			j.claims[k] = v
		}
	}
	return j
}

func (j jwt) by(alg string, sign func(string) []byte) jwt {
	j.head = maps.Clone(j.head)
	j.head["alg"] = alg
	if sign != nil {
		j.sign = sign
	}
	return j
}

func hs256(secret []byte) func(string) []byte {
	return func(text string) []byte {
		m := hmac.New(sha256.New, secret)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
}

func rs256(key *rsa.PrivateKey) func(string) []byte {
	return func(text string) []byte {
		sum := sha256.Sum256([]byte(text))
		sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		if err != nil {
			panic(err)
		}
		return sig
	}
}

func es256(key *ecdsa.PrivateKey) func(string) []byte {
	return func(text string) []byte {
		sum := sha256.Sum256([]byte(text))
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			panic(err)
		}
		sig := make([]byte, 64)
		r.FillBytes(sig[:32])
		s.FillBytes(sig[32:])
		return sig
	}
}

func eddsa(key ed25519.PrivateKey) func(string) []byte {
	return func(text string) []byte { return ed25519.Sign(key, []byte(text)) }
}

func none(string) []byte { return nil }

// keys are those of the issuers, and their public halves as the configuration
// has them.
type keys struct {
	secret []byte
	rsa    *rsa.PrivateKey
	ec     *ecdsa.PrivateKey
	ed     ed25519.PrivateKey
	pem    map[string][]byte
}

func newKeys(t *testing.T) *keys {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	k := &keys{secret: make([]byte, 32), pem: map[string][]byte{}}
	_, _ = rand.Read(k.secret)
	var err error
	k.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	k.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	_, k.ed, err = ed25519.GenerateKey(rand.Reader)
	must(err)
	for name, public := range map[string]any{"rsa": k.rsa.Public(), "ec": k.ec.Public(), "ed": k.ed.Public()} {
		der, err := x509.MarshalPKIXPublicKey(public)
		must(err)
		k.pem[name] = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}
	return k
}

// issuers puts them into the configuration: one for each kind of key.
func (k *keys) issuers(c *settings) {
	secret := base64.RawURLEncoding.EncodeToString(k.secret) // the text is the secret
	list := []map[string]any{{"name": "hmac", "secret": secret}}
	for name, text := range k.pem {
		file := filepath.Join(c.dir, name+".pem")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			panic(err)
		}
		list = append(list, map[string]any{"name": name, "key": file})
	}
	for _, i := range list {
		i["issuer"], i["audience"] = "https://"+i["name"].(string)+".example", []string{"belay"}
		i["roles"] = map[string]any{"belay-admins": []string{"admin"}}
		i["default_roles"] = []string{"user"}
	}
	c.top["auth"].(map[string]any)["issuers"] = list
	k.secret = []byte(secret)
}

// token is a good one of that issuer.
func (k *keys) token(issuer string) jwt {
	alg := map[string]string{"hmac": "HS256", "rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}[issuer]
	sign := map[string]func(string) []byte{"hmac": hs256(k.secret), "rsa": rs256(k.rsa), "ec": es256(k.ec), "ed": eddsa(k.ed)}[issuer]
	now := time.Now().Unix()
	return jwt{
		head: map[string]any{"alg": alg, "typ": "JWT"}, sign: sign,
		claims: map[string]any{
			"iss": "https://" + issuer + ".example", "aud": "belay", "sub": "alice", "iat": now, "nbf": now, "exp": now + 600, "roles": []string{"belay-admins"},
		},
	}
}

// Expired, for others, unsigned, signed by somebody else, cut off: each is 401 at
// the REST doors and at the MCP endpoints alike, and cancels nothing (ORC-34).
func TestTokens(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	s := start(t, k.issuers)
	got := s.begin(t, "ann", "tools").tick(t, `"tokens"`, "tokens")
	now := time.Now().Unix()
	for _, issuer := range []string{"hmac", "rsa", "ec", "ed"} {
		good := k.token(issuer)
		if a := s.tryStatus(t, good.String(), "tokens"); a.status != 200 {
			t.Fatalf("%s: a good token: %d %s", issuer, a.status, a.body)
		}
		text := good.String()
		head, rest, _ := strings.Cut(text, ".")
		claims, sig, _ := strings.Cut(rest, ".")
		otherKeys := newKeys(t)
		other := otherKeys.token(issuer)
		bad := map[string]string{
			"expired":                 good.with(map[string]any{"exp": now - 3600}).String(),
			"without end":             good.with(map[string]any{"exp": nil}).String(),
			"end is a text":           good.with(map[string]any{"exp": "tomorrow"}).String(),
			"not yet":                 good.with(map[string]any{"nbf": now + 3600}).String(),
			"for another audience":    good.with(map[string]any{"aud": "elsewhere"}).String(),
			"for other audiences":     good.with(map[string]any{"aud": []string{"elsewhere", "Belay"}}).String(),
			"for nobody":              good.with(map[string]any{"aud": nil}).String(),
			"another issuer":          good.with(map[string]any{"iss": "https://other.example"}).String(),
			"an issuer with a slash":  good.with(map[string]any{"iss": good.claims["iss"].(string) + "/"}).String(),
			"without subject":         good.with(map[string]any{"sub": nil}).String(),
			"a control in subject":    good.with(map[string]any{"sub": "a\nlevel=ERROR"}).String(),
			"none":                    good.by("none", none).String(),
			"None":                    good.by("None", none).String(),
			"none, but signed":        good.by("none", nil).String(),
			"no alg":                  good.by("", nil).String(),
			"signed by another key":   other.with(nil).String(),
			"no signature":            head + "." + claims + ".",
			"two parts":               head + "." + claims,
			"cut off":                 text[:len(text)-5],
			"cut off in the claims":   head + "." + claims[:len(claims)-7] + "." + sig,
			"four parts":              text + ".x",
			"changed":                 head + "." + good.with(map[string]any{"sub": "root"}).claimsText() + "." + sig,
			"padded":                  text + "==",
			"brings its key":          withHead(other, "jwk", map[string]any{"kty": "oct", "k": "AAAA"}).String(),
			"points to its key":       withHead(other, "jku", s.url+"/healthz").String(),
			"critical extension":      withHead(good, "crit", []string{"exp"}).String(),
			"very long":               good.with(map[string]any{"x": strings.Repeat("x", 16<<10)}).String(),
			"another issuer's key":    jwt{good.head, k.token("hmac").claims, good.sign}.String(),
			"encrypted (five parts)":  text + "." + sig + "." + sig,
			"nothing":                 "..",
			"the token and something": text + " x",
		}
		if issuer == "hmac" {
			delete(bad, "another issuer's key")
		} else {
			bad["public key as a secret"] = good.by("HS256", hs256(k.pem[issuer])).String()
			bad["public key, trimmed, as a secret"] = good.by("HS256", hs256([]byte(strings.TrimSpace(string(k.pem[issuer]))))).String()
			bad["the HMAC issuer's secret"] = good.by("HS256", hs256(k.secret)).String()
		}
		for name, token := range bad {
			want(t, issuer+": "+name, s.tryCancel(t, token, "tokens"), 401, `{"detail":"Invalid authentication credentials"}`)
			c := &session{s: s, who: token, path: "/mcp/tools"}
			if a := c.post(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`); a.status != 401 {
				t.Errorf("%s: %s at /mcp: %d %s", issuer, name, a.status, a.body)
			}
		}
		// A good token of somebody without the role: known, and not permitted.
		plain := good.with(map[string]any{"roles": []string{"admin", "operators"}}).String()
		want(t, issuer+": another service's admin", s.tryCancel(t, plain, "tokens"), 403, `{"detail":"Access denied"}`)
	}
	s.still(t, "tokens")
	pending(t, got)
	if text := s.log.String(); strings.Contains(text, "level=ERROR") {
		t.Error("a subject got into the log")
	}
	if a := s.cancel(t, k.token("ed").String(), "tokens", `"wait":10`); !a.Affected {
		t.Errorf("%+v", a)
	}
	r := s.receipt(t, "op", *s.cancel(t, "op", "tokens").Run)
	if r.Cancellation.By != "ed:alice" {
		t.Errorf("by %q", r.Cancellation.By)
	}
	wait(t, got)
}

func (j jwt) claimsText() string {
	parts := strings.Split(j.String(), ".")
	return parts[1]
}

func withHead(j jwt, key string, value any) jwt {
	j.head = maps.Clone(j.head)
	j.head[key] = value
	return j
}

// A token in the query string is refused wherever it is, beside a good one as
// well: it would stand in logs and histories.
func TestTokenInQuery(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"query"`, "query")
	for _, name := range []string{"access_token", "token"} {
		for _, who := range []string{"", "op"} {
			for _, path := range []string{"/orchestrate/cancel", "/v1/cancellation/cancel", "/notifications", "/rpc"} {
				a := s.do(t, "POST", path+"?"+name+"="+token("op"), who, notified(`"query"`))
				if who == "" && a.status != 401 || a.status == 200 && name == "access_token" || strings.Contains(a.body, token("op")) {
					t.Errorf("%s?%s as %q: %d %s", path, name, who, a.status, a.body)
				}
			}
			for _, path := range []string{"/v1/runs", "/orchestrate/status/query", "/mcp/tools"} {
				if a := s.do(t, "GET", path+"?"+name+"="+token("op"), "", "", "Accept", "text/event-stream"); a.status != 401 {
					t.Errorf("%s?%s: %d %s", path, name, a.status, a.body)
				}
			}
		}
	}
	s.still(t, "query")
	pending(t, got)
	if strings.Contains(s.log.String(), token("op")) {
		t.Error("a token is in the log")
	}
	s.cancel(t, "op", "query")
}
