package auth

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestNewToken: 256 bits, the prefix, and the hash that the configuration takes.
func TestNewToken(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		text, hash := NewToken()
		if !wellFormed(text) || len(text) != len(TokenPrefix)+43 || hash != HashToken(text) || seen[text] {
			t.Fatalf("%q, %q", text, hash)
		}
		seen[text] = true
		if _, err := parseHash(hash); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDigestCannotBeCompared: constant time by construction. Were the type
// comparable, a == somewhere would compile.
func TestDigestCannotBeCompared(t *testing.T) {
	if reflect.TypeFor[digest]().Comparable() {
		t.Fatal("digest can be compared by ==")
	}
	a, b, c := digestOf("x"), digestOf("x"), digestOf("y")
	if !a.equal(&b) || a.equal(&c) {
		t.Fatal("equal is wrong")
	}
}

// TestSamePlace: tokens at one place of the table are told apart by all of the
// digest.
func TestSamePlace(t *testing.T) {
	set := newTokens()
	one, two := digestOf("one"), digestOf("two")
	at := two.place(set.seed)
	set.table[at] = []known{{one, Principal{Name: "one"}}, {two, Principal{Name: "two"}}}
	if p, err := set.find(&two, time.Now()); err != nil || p.Name != "two" {
		t.Fatal(p, err)
	}
	set.table[at] = set.table[at][:1]
	if _, err := set.find(&two, time.Now()); !errors.Is(err, ErrUnknownToken) {
		t.Fatal(err)
	}
}

// TestStaticExpires: a static token may have an end; a second one with the
// same name replaces it without a gap.
func TestStaticExpires(t *testing.T) {
	old, oldHash := NewToken()
	young, youngHash := NewToken()
	a := newAuth(t, Config{Tokens: []Token{
		{Name: "op", Hash: oldHash, Expires: time.Now().Add(-time.Second)},
		{Name: "op", Hash: youngHash, Expires: time.Now().Add(time.Hour)},
	}})
	if _, err := a.Authenticate(request(old)); !errors.Is(err, ErrExpired) {
		t.Fatal(err)
	}
	if p, err := a.Authenticate(request(young)); err != nil || p.Name != "op" || p.Expires.IsZero() {
		t.Fatal(p, err)
	}
}

// TestConfigRefused: what would believe too much is an error at the start, and
// the error never shows a secret.
func TestConfigRefused(t *testing.T) {
	text, hash := NewToken()
	with := func(change func(*Issuer)) Config {
		i := corp()
		change(&i)
		return Config{Issuers: []Issuer{i}}
	}
	for name, cfg := range map[string]Config{
		"the token itself":      {Tokens: []Token{{Name: "op", Hash: text}}},
		"not hexadecimal":       {Tokens: []Token{{Name: "op", Hash: hash[:len(hash)-1] + "g"}}},
		"no name":               {Tokens: []Token{{Hash: hash}}},
		"local":                 {Tokens: []Token{{Name: "Local", Hash: hash}}},
		"an issuer's name":      {Tokens: []Token{{Name: "corp:alice", Hash: hash}}},
		"a line in a name":      {Tokens: []Token{{Name: "a\nb", Hash: hash}}},
		"one token, two people": {Tokens: []Token{{Name: "a", Hash: hash}, {Name: "b", Hash: hash}}},
		"unknown role":          {Tokens: []Token{{Name: "a", Hash: hash, Roles: []string{"root"}}}},
		"unknown permission":    {Roles: map[string][]Permission{"x": {"runs.*"}}},
		"built-in role":         {Roles: map[string][]Permission{"observer": {SystemConfig}}},
		"weak local token":      {LocalToken: "belay_secret"},
		"no audience":           with(func(i *Issuer) { i.Audience = nil }),
		"empty audience":        with(func(i *Issuer) { i.Audience = []string{""} }),
		"no iss":                with(func(i *Issuer) { i.Issuer = "" }),
		"no name for issuer":    with(func(i *Issuer) { i.Name = "" }),
		"no keys":               with(func(i *Issuer) { i.Secret = nil }),
		"two sources":           with(func(i *Issuer) { i.KeyURL = "https://x.example/keys" }),
		"short secret":          with(func(i *Issuer) { i.Secret = secret[:31] }),
		"public key as secret":  with(func(i *Issuer) { i.Secret = pemOf(&rsaKey().PublicKey) }),
		"leeway":                with(func(i *Issuer) { i.Leeway = time.Hour }),
		"keys over http":        with(func(i *Issuer) { i.Secret, i.KeyURL = nil, "http://id.example/keys" }),
		"discovery over http":   with(func(i *Issuer) { i.Secret, i.Discover, i.Issuer = nil, true, "http://id.example" }),
		"no such file":          with(func(i *Issuer) { i.Secret, i.KeyFile = nil, "/nonexistent/keys" }),
		"not a PEM":             with(func(i *Issuer) { i.Secret, i.PEM = nil, []byte("x") }),
		"one iss twice":         {Issuers: []Issuer{corp(), corp()}},
		"wildcard certificate":  {Certificates: []Certificate{{SAN: "dns:*.example", Name: "a"}}},
		"issuer's roles":        with(func(i *Issuer) { i.Roles = map[string][]string{"x": {"root"}} }),
		"issuer's default":      with(func(i *Issuer) { i.Default = []string{"root"} }),
		"a negative time":       with(func(i *Issuer) { i.Again = -1 }),
		"password in address":   with(func(i *Issuer) { i.Secret, i.KeyURL = nil, "https://u:p@id.example/keys" }),
		"keys in a folder":      with(func(i *Issuer) { i.Secret, i.KeyFile = nil, "/" }),
		"role's name":           {Roles: map[string][]Permission{"a b": nil}},
		"one SAN, two people":   {Certificates: []Certificate{{SAN: "dns:a.example", Name: "a"}, {SAN: "dns:A.example", Name: "b"}}},
		"certificate's role":    {Certificates: []Certificate{{SAN: "dns:a.example", Name: "a", Roles: []string{"root"}}}},
		"common name":           {Certificates: []Certificate{{SAN: "cn:a", Name: "a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := New(cfg)
			if err == nil {
				a.Close()
			}
			if !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), text) || strings.Contains(err.Error(), string(secret[:31])) {
				t.Fatalf("%v", err)
			}
		})
	}
}

// TestHotPath: among a thousand tokens, one costs one small allocation (its
// bytes, to hash them), so that authentication does not show on a call's
// critical path. BenchmarkStatic and BenchmarkJWT have the times.
func TestHotPath(t *testing.T) {
	text, hash := NewToken()
	cfg := Config{Tokens: []Token{{Name: "op", Hash: hash, Roles: []string{"user"}}}, Issuers: []Issuer{corp()}}
	for range 1000 {
		_, h := NewToken()
		cfg.Tokens = append(cfg.Tokens, Token{Name: "other", Hash: h})
	}
	a := newAuth(t, cfg)
	r := request(text)
	n := testing.AllocsPerRun(100, func() {
		if p, err := a.Authenticate(r); err != nil || !p.May(ToolsCall) {
			t.Fatal(p, err)
		}
	})
	if n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkStatic(b *testing.B) {
	text, hash := NewToken()
	a := newAuth(b, Config{Tokens: []Token{{Name: "op", Hash: hash, Roles: []string{"user"}}}})
	r := request(text)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
