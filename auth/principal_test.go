package auth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

func principal(t *testing.T, name string, may ...Permission) Principal {
	t.Helper()
	p, err := NewPrincipal(name, ByToken, may...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestOwners: runs.*.own reaches one's own runs and nobody else's; a run
// without owner is nobody's (ORC-35, ORC-72).
func TestOwners(t *testing.T) {
	for _, c := range []struct {
		p                      Principal
		owner                  string
		mayRead, mayCancel     bool
		reachRead, reachCancel Reach
	}{
		{principal(t, "a", RunsReadOwn, RunsCancelOwn), "a", true, true, Own, Own},
		{principal(t, "a", RunsReadOwn, RunsCancelOwn), "b", false, false, Own, Own},
		{principal(t, "a", RunsReadOwn, RunsCancelOwn), "A", false, false, Own, Own},
		{principal(t, "a", RunsReadOwn, RunsCancelOwn), "", false, false, Own, Own},
		{principal(t, "a", RunsRead), "b", true, false, All, Nothing},
		{principal(t, "a", RunsCancel), "b", false, true, Nothing, All},
		{principal(t, "a", SystemConfig), "a", false, false, Nothing, Nothing},
		{principal(t, "a"), "a", false, false, Nothing, Nothing},
		{Principal{}, "", false, false, Nothing, Nothing},
		{Principal{may: everything()}, "", false, false, Nothing, Nothing},
		{LocalCaller(), "local", false, false, Nothing, Nothing},
	} {
		if c.p.MayRead(c.owner) != c.mayRead || c.p.MayCancel(c.owner) != c.mayCancel || c.p.Reads() != c.reachRead || c.p.Cancels() != c.reachCancel {
			t.Errorf("%v %v on runs of %q", c.p, c.p.Permissions(), c.owner)
		}
	}
}

// TestDoor: ORC-10, ORC-35: what opens the Orchestrate family, and how far.
func TestDoor(t *testing.T) {
	standard := []Permission{SystemConfig}
	wide := []Permission{SystemConfig, RunsCancel, RunsCancelOwn}
	ownOnly := []Permission{RunsCancelOwn}
	for _, c := range []struct {
		p    Principal
		door []Permission
		want Reach
	}{
		{principal(t, "a", SystemConfig), standard, All},
		{principal(t, "a", RunsCancel), standard, Nothing},
		{principal(t, "a", RunsCancel), wide, All},
		{principal(t, "a", RunsCancelOwn), wide, Own},
		{principal(t, "a", RunsCancel), ownOnly, Own}, // all implies own
		{principal(t, "a", RunsCancel), nil, Nothing},
		{principal(t, "a", RunsCancel), []Permission{"unknown"}, Nothing},
	} {
		if got := c.p.Reach(c.door...); got != c.want {
			t.Errorf("%v through %v: %v, want %v", c.p.Permissions(), c.door, got, c.want)
		}
	}
	err := principal(t, "a").Need(LatchLift)
	if !errors.Is(err, ErrForbidden) || !errors.Is(err, belay.ErrForbidden) || Describe(err).Status != http.StatusForbidden || Describe(err).Detail != "Access denied" {
		t.Fatal(err)
	}
}

// TestConfined: DESIGN 11, 10: whoever speaks from inside a run never
// approves, unlatches or cancels by its own right, whatever its token permits.
func TestConfined(t *testing.T) {
	p := principal(t, "a", Permissions()...).Confined("run_inner", "run_outer")
	for _, never := range []Permission{ToolsApprove, LatchLift, LatchSet, RunsCancel, RunsCancelOwn, SystemConfig} {
		if p.May(never) {
			t.Errorf("it has %s", never)
		}
	}
	if !p.May(ToolsCall) || p.Reads() != All || p.String() != "a (inside run_inner)" || !slices.Equal(p.Inside(), []string{"run_inner", "run_outer"}) {
		t.Errorf("%v %v", p, p.Permissions())
	}
	if q := principal(t, "a", LatchLift).Confined(); !q.May(LatchLift) || q.Inside() != nil {
		t.Error("confined by nothing")
	}
}

// TestRoles: each permission of the table can be given by a role, and the
// built-in ones mean what their names say.
func TestRoles(t *testing.T) {
	own := map[string][]Permission{}
	var cfg Config
	texts := map[string]Permission{}
	for _, p := range Permissions() {
		name := strings.ReplaceAll(string(p), ".", "-")
		own[name] = []Permission{p}
		text, hash := NewToken()
		cfg.Tokens = append(cfg.Tokens, Token{Name: "op", Hash: hash, Roles: []string{name}})
		texts[text] = p
	}
	cfg.Roles = own
	a := newAuth(t, cfg)
	for text, want := range texts {
		p, err := a.Authenticate(request(text))
		if err != nil || !p.May(want) || len(p.Permissions()) > 2 {
			t.Errorf("%s: %v, %v", want, p.Permissions(), err)
		}
	}
	r, err := makeRoles(nil)
	if err != nil {
		t.Fatal(err)
	}
	if r["user"].Has(RunsCancel) || r["observer"].Has(RunsCancelOwn) || r["operator"].Has(SystemConfig) || r["admin"] != everything() {
		t.Error("a built-in role says too much or too little")
	}
}

// TestCertificate: only a verified chain counts; SANs are compared exactly and
// the common name never.
func TestCertificate(t *testing.T) {
	a := newAuth(t, Config{Certificates: []Certificate{
		{SAN: "uri:spiffe://prod/agent", Name: "agent", Roles: []string{"user"}},
		{SAN: "dns:Ops.example", Name: "ops", Roles: []string{"operator"}},
		{SAN: "dns:ops2.example", Name: "ops", Roles: []string{"user"}},
		{SAN: "email:a@b.example", Name: "mail"},
	}})
	later := time.Now().Add(time.Hour)
	spiffe := []*url.URL{must(url.Parse("spiffe://prod/agent"))}
	state := func(c *x509.Certificate, verified bool) *tls.ConnectionState {
		s := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
		if verified {
			s.VerifiedChains = [][]*x509.Certificate{{c}}
		}
		return s
	}
	own, gone := &x509.Certificate{URIs: spiffe, NotAfter: later}, &x509.Certificate{NotAfter: time.Now().Add(-time.Second)}
	soon := &x509.Certificate{NotAfter: time.Now().Add(time.Minute)}
	chains := func(leaf *x509.Certificate, all ...[]*x509.Certificate) *tls.ConnectionState {
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: all}
	}
	for name, c := range map[string]struct {
		state *tls.ConnectionState
		who   string
		want  error
	}{
		"uri":           {state(&x509.Certificate{URIs: spiffe, NotAfter: later}, true), "agent", nil},
		"dns":           {state(&x509.Certificate{DNSNames: []string{"x", "OPS.example"}, NotAfter: later}, true), "ops", nil},
		"email":         {state(&x509.Certificate{EmailAddresses: []string{"a@b.example"}, NotAfter: later}, true), "mail", nil},
		"one twice":     {state(&x509.Certificate{DNSNames: []string{"ops.example", "ops2.example"}, NotAfter: later}, true), "ops", nil},
		"two people":    {state(&x509.Certificate{URIs: spiffe, DNSNames: []string{"ops.example"}, NotAfter: later}, true), "", ErrCertificate},
		"not verified":  {state(&x509.Certificate{URIs: spiffe, NotAfter: later}, false), "", ErrNoCredentials},
		"expired":       {state(&x509.Certificate{URIs: spiffe, NotAfter: time.Now().Add(-time.Second)}, true), "", ErrExpired},
		"stranger":      {state(&x509.Certificate{DNSNames: []string{"evil.example"}, NotAfter: later}, true), "", ErrCertificate},
		"no TLS":        {nil, "", ErrNoCredentials},
		"expired above": {chains(own, []*x509.Certificate{own, gone}), "", ErrExpired},
		"another way":   {chains(own, []*x509.Certificate{own, gone}, []*x509.Certificate{own, soon}), "agent", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := request("")
			r.TLS = c.state
			p, err := a.Authenticate(r)
			if !errors.Is(err, c.want) || p.Name != c.who {
				t.Fatal(p, err)
			}
			if name == "another way" && !p.Expires.Equal(soon.NotAfter) {
				t.Errorf("it ends at %v", p.Expires)
			}
			// A bad token is not made good by a certificate.
			r.Header.Set("Authorization", "Bearer x")
			if _, err := a.Authenticate(r); !errors.Is(err, ErrUnknownToken) {
				t.Fatal(err)
			}
		})
	}
}

// TestSocket: the kernel's word decides; nothing in the request does.
func TestSocket(t *testing.T) {
	a := newAuth(t, Config{Socket: true})
	ask := func(p Peer) (Principal, error) {
		r := request("")
		return a.Authenticate(r.WithContext(WithPeer(r.Context(), p)))
	}
	if p, err := ask(Peer{UID: os.Getuid(), Known: true}); err != nil || p.Name != LocalName || !p.May(LatchLift) {
		t.Fatal(p, err)
	}
	if p, err := ask(Peer{UID: os.Getuid(), Known: true, Inside: []string{"run_x"}}); err != nil || p.May(LatchLift) || p.May(ToolsApprove) {
		t.Fatal(p, err)
	}
	if _, err := ask(Peer{UID: os.Getuid() + 1, Known: true}); !errors.Is(err, ErrPeer) {
		t.Fatal(err)
	}
	if _, err := ask(Peer{UID: os.Getuid()}); !errors.Is(err, ErrPeer) {
		t.Fatal(err)
	}
	if _, err := a.Authenticate(request("")); !errors.Is(err, ErrNoCredentials) {
		t.Fatal(err)
	}
	// A server that did not ask for it does not take it.
	b := newAuth(t, Config{})
	r := request("")
	if _, err := b.Authenticate(r.WithContext(WithPeer(r.Context(), Peer{UID: os.Getuid(), Known: true}))); !errors.Is(err, ErrNoCredentials) {
		t.Fatal(err)
	}
}

// TestLogInjection: what an attacker chooses (name, token, address of a query)
// makes one log line, without what it brought.
func TestLogInjection(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a := newAuth(t, Config{Issuers: []Issuer{corp()}, Log: log})
	evil := "x\nlevel=ERROR msg=pwned\x1b[31m"
	r := request("")
	r.Header["Authorization"] = []string{"Bearer " + evil}
	r.URL.RawQuery = "q=" + url.QueryEscape(evil)
	_, _ = a.Authenticate(r)
	_, _ = a.Authenticate(request(raw(`{"alg":"HS256","kid":"x\nlevel=ERROR msg=pwned"}`, `{"iss":"x\nmsg=pwned"}`, "AA")))
	if n := strings.Count(out.String(), "\n"); n != 2 || strings.Contains(out.String(), "pwned") {
		t.Fatalf("%d lines: %s", n, &out)
	}
	out.Reset()
	p := principal(t, "ünï codé")
	log.Info("cancel", "by", p)
	if !strings.Contains(out.String(), "ünï codé") || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("%s", &out)
	}
	for _, name := range []string{"", evil, " a", "a ", "a\u202eb", "a\u2028b", "a\u200bb", "\xff", "\ufffd", strings.Repeat("a", 257)} {
		if _, err := NewPrincipal(name, ByToken); !errors.Is(err, ErrConfig) {
			t.Errorf("%q may be a name", name)
		}
	}
}

// TestDescribe: one status for each kind, and an error of somebody else says
// nothing.
func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		detail string
	}{
		{ErrNoCredentials, 401, "Authorization token required"},
		{ErrUnknownToken, 401, "Invalid authentication credentials"},
		{ErrSignature, 401, "Invalid authentication credentials"},
		{ErrExpired, 401, "Invalid authentication credentials"},
		{ErrPeer, 401, "Invalid authentication credentials"},
		{ErrCookie, 401, "Cookie authentication not allowed for API requests. Use Authorization header."},
		{ErrTokenInQuery, 401, "A token in the query string is not accepted. Use Authorization header."},
		{ErrTooManyRequests, 429, "Too many requests"},
		{ErrForbidden, 403, "Access denied"},
		{belay.ErrForbidden, 403, "Access denied"},
		{&Limited{After: 1100 * time.Millisecond}, 429, "Too many requests"},
		{ErrUnavailable, 503, "Authentication is unavailable"},
		{errors.New("the password is x"), 500, "Internal error"},
	} {
		d := Describe(c.err)
		if d.Status != c.status || d.Detail != c.detail || (d.Authenticate != "") != (c.status == 401) {
			t.Errorf("%v: %+v", c.err, d)
		}
	}
	h := http.Header{}
	Describe(&Limited{After: 1100 * time.Millisecond}).Header(h)
	Describe(ErrNoCredentials).Header(h)
	if h.Get("Retry-After") != "2" || h.Get("WWW-Authenticate") != `Bearer realm="belay"` {
		t.Error(h)
	}
}
