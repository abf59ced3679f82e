package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/belayhq/belay"
)

// TestJWT: each algorithm with its kind of key.
func TestJWT(t *testing.T) {
	for _, c := range []struct {
		method jwt.SigningMethod
		key    any
		from   func(*Issuer)
	}{
		{jwt.SigningMethodHS256, secret, func(*Issuer) {}},
		{jwt.SigningMethodRS256, rsaKey(), func(i *Issuer) { i.Secret, i.PEM = nil, pemOf(&rsaKey().PublicKey) }},
		{jwt.SigningMethodES256, ecKey(), func(i *Issuer) { i.Secret, i.PEM = nil, pemOf(&ecKey().PublicKey) }},
		{jwt.SigningMethodEdDSA, edKey(), func(i *Issuer) { i.Secret, i.PEM = nil, pemOf(edKey().Public()) }},
	} {
		t.Run(c.method.Alg(), func(t *testing.T) {
			i := corp()
			c.from(&i)
			a := newAuth(t, Config{Issuers: []Issuer{i}})
			good := claims()
			good["roles"] = []any{"ops", "admin", 7}
			token := sign(t, c.method, c.key, good, "whatever")
			for range 2 { // verified, then remembered
				p, err := a.Authenticate(request(token))
				if err != nil || p.Name != "corp:alice" || p.Method != ByJWT {
					t.Fatalf("%v, %v", p, err)
				}
				if !p.May(ToolsCall) || p.Cancels() != All || p.May(SystemConfig) {
					t.Errorf("permissions %v", p.Permissions())
				}
			}
			if n := a.jwts.cache.len(); n != 1 {
				t.Errorf("%d remembered", n)
			}
		})
	}
}

// TestJWTRefused: issue 4's security list, and what else a token can be wrong
// in. Each is refused for its own reason, twice (nothing bad is remembered),
// and neither error nor answer repeats the token.
func TestJWTRefused(t *testing.T) {
	hs := func(change func(jwt.MapClaims)) string {
		c := claims()
		change(c)
		return sign(t, jwt.SigningMethodHS256, secret, c, "")
	}
	set := func(name string, v any) string { return hs(func(c jwt.MapClaims) { c[name] = v }) }
	without := func(name string) string { return hs(func(c jwt.MapClaims) { delete(c, name) }) }
	good := hs(func(jwt.MapClaims) {})
	part := strings.Split(good, ".")
	payload := string(must(base64.RawURLEncoding.DecodeString(part[1])))
	now := time.Now()
	forged := strings.Replace(payload, "alice", "admin", 1)
	sealed := func(header map[string]any) string {
		tok := jwt.NewWithClaims(jwt.SigningMethodHS256, claims())
		maps.Copy(tok.Header, header)
		return must(tok.SignedString(secret))
	}
	cases := map[string]struct {
		token string
		want  error
	}{
		"expired":                 {set("exp", now.Add(-time.Minute).Unix()), ErrExpired},
		"no exp":                  {without("exp"), ErrClaims},
		"exp is text":             {set("exp", "4102444800"), ErrClaims},
		"exp beyond all":          {set("exp", 1e300), ErrClaims},
		"exp negative":            {set("exp", -1), ErrClaims},
		"exp null":                {set("exp", nil), ErrClaims},
		"not yet":                 {set("nbf", now.Add(time.Minute).Unix()), ErrNotYetValid},
		"made in the future":      {set("iat", now.Add(time.Minute).Unix()), ErrNotYetValid},
		"wrong audience":          {set("aud", "other"), ErrAudience},
		"wrong audiences":         {set("aud", []string{"a", "Belay"}), ErrAudience},
		"no audience":             {without("aud"), ErrClaims},
		"wrong issuer":            {set("iss", "https://evil.example"), ErrIssuer},
		"issuer's slash":          {set("iss", "https://id.example/"), ErrIssuer},
		"no issuer":               {without("iss"), ErrIssuer},
		"issuers in a list":       {set("iss", []string{"https://id.example"}), ErrIssuer},
		"claim in another case":   {hs(func(c jwt.MapClaims) { delete(c, "aud"); c["AUD"] = "belay" }), ErrClaims},
		"no subject":              {without("sub"), ErrClaims},
		"subject is a number":     {set("sub", 7), ErrClaims},
		"subject too long":        {set("sub", strings.Repeat("a", maxName)), ErrClaims},
		"subject with a line":     {set("sub", "alice\nlevel=ERROR msg=pwned"), ErrClaims},
		"subject turned round":    {set("sub", "alice\u202eecila"), ErrClaims},
		"subject with an escape":  {set("sub", "alice\x1b[2J"), ErrClaims},
		"subject with a space":    {set("sub", " alice"), ErrClaims},
		"alg none":                {raw(`{"alg":"none","typ":"JWT"}`, payload, ""), ErrAlgorithm},
		"alg None":                {raw(`{"alg":"None"}`, payload, ""), ErrAlgorithm},
		"alg none, signed":        {raw(`{"alg":"none"}`, payload, part[2]), ErrAlgorithm},
		"alg missing":             {raw(`{"typ":"JWT"}`, payload, part[2]), ErrAlgorithm},
		"alg HS512":               {sign(t, jwt.SigningMethodHS512, secret, claims(), ""), ErrAlgorithm},
		"alg of another key":      {sign(t, jwt.SigningMethodRS256, rsaKey(), claims(), ""), ErrUnknownKey},
		"another secret":          {sign(t, jwt.SigningMethodHS256, append([]byte("x"), secret...), claims(), ""), ErrSignature},
		"forged claims":           {part[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(forged)) + "." + part[2], ErrSignature},
		"no signature":            {part[0] + "." + part[1] + ".", ErrSignature},
		"truncated":               {good[:len(good)-3], ErrSignature},
		"truncated within a byte": {good[:len(good)-2], ErrMalformed},
		"truncated to two":        {part[0] + "." + part[1], ErrUnknownToken},
		"truncated claims":        {part[0] + "." + part[1][:len(part[1])/2] + "." + part[2], ErrMalformed},
		"four parts":              {good + "." + part[2], ErrUnknownToken},
		"padding":                 {good + "=", ErrMalformed},
		"header no JSON":          {raw("x", payload, part[2]), ErrMalformed},
		"claims null":             {raw(`{"alg":"HS256"}`, "null", part[2]), ErrIssuer},
		"claims a list":           {raw(`{"alg":"HS256"}`, "[]", part[2]), ErrMalformed},
		"deep":                    {raw(`{"alg":"HS256"}`, strings.Repeat("[", 5000), part[2]), ErrMalformed},
		"oversized":               {set("pad", strings.Repeat("a", defaultMaxToken)), ErrTooLong},
		"critical extension":      {sealed(map[string]any{"crit": []string{"b64"}, "b64": false}), ErrMalformed},
		"kid is a number":         {sealed(map[string]any{"kid": 7}), ErrMalformed},
		"kid is long":             {sealed(map[string]any{"kid": strings.Repeat("k", maxKeyID+1)}), ErrMalformed},
	}
	a := newAuth(t, Config{Issuers: []Issuer{corp()}})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				p, err := a.Authenticate(request(c.token))
				if !errors.Is(err, c.want) || !errors.Is(err, ErrUnauthenticated) || p.Name != "" {
					t.Fatalf("got %v, %v; want %v", p, err, c.want)
				}
				answer := Describe(err)
				if answer.Status != 401 || !strings.HasPrefix(answer.Authenticate, "Bearer ") {
					t.Errorf("answer %+v", answer)
				}
				for _, text := range []string{err.Error(), answer.Authenticate, answer.Detail} {
					if strings.Contains(text, "pwned") || strings.Contains(text, "evil") || strings.Contains(text, part[0]) || strings.ContainsAny(text, "\n\x1b") {
						t.Errorf("%q repeats the token", text)
					}
				}
			}
		})
	}
	if n := a.jwts.cache.len(); n != 0 {
		t.Errorf("%d bad tokens are remembered", n)
	}
}

// TestSwappedKey: an RS256 issuer's public key, which everybody has, signs
// nothing as an HS256 secret, in whatever form somebody may have used it.
func TestSwappedKey(t *testing.T) {
	text := pemOf(&rsaKey().PublicKey)
	i := corp()
	i.Secret, i.PEM = nil, text
	a := newAuth(t, Config{Issuers: []Issuer{i}})
	for _, key := range [][]byte{text, []byte(strings.TrimSpace(string(text))), rsaKey().N.Bytes()} {
		_, err := a.Authenticate(request(sign(t, jwt.SigningMethodHS256, key, claims(), "")))
		if !errors.Is(err, ErrUnknownKey) {
			t.Fatal(err)
		}
	}
	// The other way round, and a stranger's key of the right kind.
	if _, err := a.Authenticate(request(sign(t, jwt.SigningMethodRS256, rsaOther(), claims(), ""))); !errors.Is(err, ErrSignature) {
		t.Fatal(err)
	}
	if _, err := a.Authenticate(request(sign(t, jwt.SigningMethodRS512, rsaKey(), claims(), ""))); !errors.Is(err, ErrAlgorithm) {
		t.Fatal(err)
	}
}

// TestKeyInToken: a key that the token brings with it, or points to, is not
// looked at.
func TestKeyInToken(t *testing.T) {
	i := corp()
	i.Secret, i.PEM = nil, pemOf(&rsaKey().PublicKey)
	a := newAuth(t, Config{Issuers: []Issuer{i}})
	tok := jwt.NewWithClaims(jwt.SigningMethodRS256, claims())
	var evil struct{ Keys []map[string]any }
	if err := json.Unmarshal(jwks(map[string]any{"x": &rsaOther().PublicKey}), &evil); err != nil {
		t.Fatal(err)
	}
	tok.Header["jwk"], tok.Header["jku"] = evil.Keys[0], "http://127.0.0.1:1/"
	if _, err := a.Authenticate(request(must(tok.SignedString(rsaOther())))); !errors.Is(err, ErrSignature) {
		t.Fatal(err)
	}
}

// TestOneIssuerNotAnother: the issuers' keys are not each other's, and neither
// are their subjects.
func TestOneIssuerNotAnother(t *testing.T) {
	other := corp()
	other.Name, other.Issuer, other.Secret = "other", "https://other.example", append([]byte("other"), secret...)
	a := newAuth(t, Config{Issuers: []Issuer{corp(), other}})
	c := claims()
	c["iss"] = other.Issuer
	if _, err := a.Authenticate(request(sign(t, jwt.SigningMethodHS256, secret, c, ""))); !errors.Is(err, ErrSignature) {
		t.Fatal(err)
	}
	p, err := a.Authenticate(request(sign(t, jwt.SigningMethodHS256, other.Secret, c, "")))
	if err != nil || p.Name != "other:alice" {
		t.Fatal(p, err)
	}
}

// TestLeeway: clocks may differ by the leeway and by no more; what is
// remembered ends with it too.
func TestLeeway(t *testing.T) {
	a := newAuth(t, Config{Issuers: []Issuer{corp()}}) // 30 s
	c := claims()
	c["exp"] = time.Now().Add(-25 * time.Second).Unix()
	c["nbf"] = time.Now().Add(25 * time.Second).Unix()
	token := sign(t, jwt.SigningMethodHS256, secret, c, "")
	p, err := a.Authenticate(request(token))
	if err != nil {
		t.Fatal(err)
	}
	d := digestOf(token)
	if _, ok := a.jwts.cache.get(&d, p.Expires.Add(-time.Millisecond)); !ok {
		t.Error("not remembered")
	}
	if _, ok := a.jwts.cache.get(&d, p.Expires); ok {
		t.Error("remembered after its end")
	}
}

// TestRolesClaim: roles come from where the configuration says, and a value
// that it does not map means nothing.
func TestRolesClaim(t *testing.T) {
	for _, c := range []struct {
		name  string
		path  string
		claim string
		value any
		want  Reach
	}{
		{"list", "", "roles", []any{"x", "ops"}, All},
		{"text", "scope", "scope", "openid ops", All},
		{"path", "realm_access.roles", "realm_access", map[string]any{"roles": []any{"ops"}}, All},
		{"dotted name", "https://x.example/roles", "https://x.example/roles", []any{"ops"}, All},
		{"unmapped", "", "roles", []any{"operator", "admin"}, Own},
		{"no list", "", "roles", map[string]any{"ops": true}, Own},
		{"path through a text", "a.b", "a", "ops", Own},
		{"none", "", "other", "ops", Own},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := corp()
			i.RolesClaim = c.path
			a := newAuth(t, Config{Issuers: []Issuer{i}})
			m := claims()
			m[c.claim] = c.value
			p, err := a.Authenticate(request(sign(t, jwt.SigningMethodHS256, secret, m, "")))
			if err != nil || p.Cancels() != c.want {
				t.Fatalf("%v, %v", p.Permissions(), err)
			}
		})
	}
}

// TestCacheBound: however many good tokens come, a bounded number is
// remembered, and all of them stay good.
func TestCacheBound(t *testing.T) {
	a := newAuth(t, Config{Issuers: []Issuer{corp()}, MaxCache: 10})
	var tokens []string
	for n := range 100 {
		c := claims()
		c["n"] = n
		tokens = append(tokens, sign(t, jwt.SigningMethodHS256, secret, c, ""))
	}
	for _, token := range slices.Concat(tokens, tokens) {
		if _, err := a.Authenticate(request(token)); err != nil {
			t.Fatal(err)
		}
		if n := a.jwts.cache.len(); n > 10 {
			t.Fatalf("%d remembered", n)
		}
	}
}

// FuzzJWT: whatever the three parts are, nothing panics and nobody gets in.
func FuzzJWT(f *testing.F) {
	f.Add(`{"alg":"HS256"}`, `{"iss":"https://id.example","aud":"belay","sub":"a","exp":4102444800}`, "AA")
	f.Add(`{"alg":"none"}`, `{"iss":"https://id.example"}`, "")
	f.Add(`{"alg":7,"kid":null,"crit":[]}`, `{"iss":7,"exp":1e999}`, "=")
	f.Add(`null`, `null`, ".")
	i := corp()
	a := newAuth(f, Config{Issuers: []Issuer{i}})
	f.Fuzz(func(t *testing.T, header, payload, signature string) {
		p, err := a.Authenticate(request(raw(header, payload, signature)))
		if !errors.Is(err, ErrUnauthenticated) || p.Name != "" || strings.ContainsAny(err.Error(), "\n\r\x1b") {
			t.Fatalf("%v, %v", p, err)
		}
	})
}

// FuzzName: a name that is taken stays the same as a run's owner, so that
// owners can be compared, and a log line stays one.
func FuzzName(f *testing.F) {
	for _, s := range []string{"alice", "corp:alice", " a", "a\n", "ünï", "\u202e", "\xff", "a\u200bb", "\u2028", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p, err := NewPrincipal(name, ByToken, RunsCancelOwn)
		if err != nil {
			return
		}
		tree := belay.NewTree(belay.Options{})
		run, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "x", Owner: p.Name})
		if err != nil {
			t.Fatal(err)
		}
		if owner := run.Info().Owner; !p.MayCancel(owner) || strings.ContainsAny(p.String(), "\n\r\x00\x1b") {
			t.Fatalf("%q is not the owner %q", name, owner)
		}
		run.Finish(belay.Completed)
	})
}

func BenchmarkJWT(b *testing.B) {
	a := newAuth(b, Config{Issuers: []Issuer{corp()}})
	r := request(sign(b, jwt.SigningMethodHS256, secret, claims(), ""))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
