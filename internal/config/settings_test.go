package config

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belayhq/belay/auth"
)

// hashA is the hash of the token "a", which nobody makes.
var hashA = auth.HashToken("a")

// TestSettingsDefaults: without a file, and with one that says nothing, every
// setting has the default of its tag (ORC-35, 36, 44, 52, 53, 64, 65).
func TestSettingsDefaults(t *testing.T) {
	want := Settings{
		LogFormat:    "text",
		Orchestrate:  Orchestrate{Enabled: true, Permissions: Permissions{"admin.system_config"}, Rate: 20, Burst: 40, Broadcast: "owner"},
		Cancellation: Cancellation{Enabled: true},
		Ledger:       Ledger{Enabled: true, Keep: 7 * 24 * time.Hour, KeepRuns: 1_000_000, KeepBytes: 1 << 30},
		Metrics:      Metrics{Enabled: true}, Traces: Traces{Enabled: true},
		Leases: Leases{Enabled: true, Webhooks: "local"},
		RAP:    RAP{Addresses: "local", Offer: true},
	}
	for name, o := range map[string]Options{
		"none": {}, "empty": {File: write(t, "belay.yaml", "# nothing\n")},
		"sections": {File: write(t, "belay.yaml", "orchestrate:\nledger: {}\nauth: {}\ntls: {}\nmetrics:\n")},
	} {
		o.Getenv = env(nil)
		c := load(t, o)
		if diff := cmp.Diff(want, c.Settings, cmp.AllowUnexported(Issuer{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if c.Auth.Configured() || c.TLS.On() {
			t.Errorf("%s: somebody is configured", name)
		}
	}
}

// TestSettings: what the file says, in its units; files lie beside it.
func TestSettings(t *testing.T) {
	file := write(t, "belay.yaml", `
hosts: belay.example
orchestrate: {enabled: false, rate: 0.5, permissions: runs.cancel, broadcast: off}
ledger: {path: state/l.db, keep: 0s, keep_runs: 0, keep_bytes: 1.5 GiB}
latch: {file: ~/latch.json}
leases: {webhooks: private}
`)
	c := load(t, Options{File: file, Getenv: env(map[string]string{"HOME": "/home/u"})})
	for _, check := range []struct {
		what      string
		got, want any
	}{
		{"hosts", c.Hosts, []string{"belay.example"}},
		{"orchestrate", c.Orchestrate, Orchestrate{Permissions: Permissions{"runs.cancel"}, Rate: 0.5, Burst: 40, Broadcast: "off"}},
		{"ledger", c.Ledger, Ledger{Enabled: true, Path: filepath.Join(filepath.Dir(file), "state/l.db"), KeepBytes: 3 << 29}},
		{"latch", c.Latch.File, "/home/u/latch.json"},
		{"webhooks", c.Leases.Webhooks, "private"},
	} {
		if diff := cmp.Diff(check.want, check.got); diff != "" {
			t.Errorf("%s: %s", check.what, diff)
		}
	}
}

// TestAuthConfig: the file becomes what package auth takes, key files included,
// and is watched with them.
func TestAuthConfig(t *testing.T) {
	file := write(t, "belay.yaml", `
auth:
  tokens: [{name: ci, hash: "`+hashA+`", roles: oncall, expires: 2096-02-29T12:00:00+02:00}]
  issuers:
    - {name: a, issuer: "https://a.example", audience: belay, secret: "${SECRET}", default_roles: user}
    - {name: b, issuer: "https://b.example", audience: [x, y], key: k/plain.pem, subject: oid, roles: {g: [admin, oncall], h: user}, leeway: 5s}
  certificates: [{san: "uri:spiffe://x/y", name: agent7, roles: user}]
  roles: {oncall: [runs.read, runs.cancel]}
tls: {cert: k/belay.pem, key: k/belay-key.pem, client_ca: k/agents-ca.pem}
`)
	keys(t, filepath.Join(filepath.Dir(file), "k"))
	secret := strings.Repeat("s", 32)
	c := load(t, Options{File: file, Getenv: env(map[string]string{"SECRET": secret})})
	pem, err := os.ReadFile(filepath.Join(filepath.Dir(file), "k/plain.pem"))
	if err != nil {
		t.Fatal(err)
	}
	want := auth.Config{
		Tokens: []auth.Token{{Name: "ci", Hash: hashA, Roles: []string{"oncall"}, Expires: time.Date(2096, 2, 29, 10, 0, 0, 0, time.UTC)}},
		Issuers: []auth.Issuer{
			{
				Name: "a", Issuer: "https://a.example", Audience: []string{"belay"}, Secret: []byte(secret), Subject: "sub", RolesClaim: "roles", Default: []string{"user"},
				Leeway: 30 * time.Second, Refresh: 15 * time.Minute, Again: 10 * time.Second, MaxStale: 24 * time.Hour, Timeout: 5 * time.Second,
			},
			{
				Name: "b", Issuer: "https://b.example", Audience: []string{"x", "y"}, Secret: []byte{}, PEM: pem, Subject: "oid", RolesClaim: "roles",
				Roles:  map[string][]string{"g": {"admin", "oncall"}, "h": {"user"}},
				Leeway: 5 * time.Second, Refresh: 15 * time.Minute, Again: 10 * time.Second, MaxStale: 24 * time.Hour, Timeout: 5 * time.Second,
			},
		},
		Certificates: []auth.Certificate{{SAN: "uri:spiffe://x/y", Name: "agent7", Roles: []string{"user"}}},
		Roles:        map[string][]auth.Permission{"oncall": {auth.RunsRead, auth.RunsCancel}},
	}
	if diff := cmp.Diff(want, c.Auth.Config()); diff != "" {
		t.Error(diff)
	}
	if c.Leases.Webhooks != "public" {
		t.Errorf("webhooks of whoever comes in may go to %s addresses", c.Leases.Webhooks)
	}
	if !c.Auth.Configured() || !slices.Contains(c.Files, filepath.Join(filepath.Dir(file), "k/plain.pem")) {
		t.Errorf("files %q", c.Files)
	}
}

// TestAuthEqual: a reload sees every change of who there is, a key file's
// content included, and no other.
func TestAuthEqual(t *testing.T) {
	text := `
auth:
  tokens: [{name: ci, hash: "` + hashA + `", roles: user}]
  issuers: [{name: b, issuer: "https://b.example", audience: x, key: plain.pem, default_roles: user}]
`
	file := write(t, "belay.yaml", text)
	keys(t, filepath.Dir(file))
	read := func() *Config { t.Helper(); return load(t, Options{File: file, Getenv: env(nil)}) }
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := read()
	put("# another line\nlog: debug\nmetrics: {public: true}\norchestrate: {rate: 21}\nledger: {keep: 1h}\n" + text)
	two := read()
	if !one.Auth.Equal(&two.Auth) {
		t.Error("differs though auth is the same")
	}
	if got, want := one.Restart(two), []string{"orchestrate", "ledger", "metrics"}; !slices.Equal(got, want) {
		t.Errorf("a restart is needed for %q, want %q (ORC-66)", got, want)
	}
	if got := one.Restart(read()); len(two.Notes) != 0 || len(got) != 3 {
		t.Errorf("%q", got)
	}
	keys(t, filepath.Dir(file)) // the same names, other keys
	if three := read(); three.Auth.Equal(&two.Auth) {
		t.Error("another key in the file is not seen")
	}
	put(strings.Replace(text, "roles: user", "roles: admin", 1))
	if four := read(); four.Auth.Equal(&one.Auth) || len(one.Restart(four)) != 0 {
		t.Error("another role is not seen, or takes a restart")
	}
	put("listen: 127.0.0.1:1\n" + text)
	if got := one.Restart(read()); !slices.Equal(got, []string{"listen"}) {
		t.Errorf("%q", got)
	}
}

// TestOpenNeedsPeople: an address that other machines reach is refused without
// anybody in auth, wherever it is said; with somebody and without TLS it is
// noted (DESIGN section 8).
func TestOpenNeedsPeople(t *testing.T) {
	people := "auth: {tokens: [{name: ci, hash: \"" + hashA + "\", roles: user}]}\n"
	for _, tt := range []struct {
		file, flag string
		ok         bool
		note       string
	}{
		{"listen: 127.0.0.1:1", "", true, ""},
		{"listen: \"[::1]:1\"", "", true, ""},
		{"listen: LocalHost:1", "", true, ""},
		{"listen: unix:/run/b.sock", "", true, ""},
		{"listen: 0.0.0.0:1", "", false, ""},
		{"listen: :1", "", false, ""},
		{"listen: \"[::]:1\"", "", false, ""},
		{"listen: belay.example:1", "", false, ""},
		{"listen: 127.0.0.1.example:1", "", false, ""},
		{"listen: \"[::ffff:10.0.0.1]:1\"", "", false, ""},
		{"listen: 0.0.0.0:1", "127.0.0.1:1", true, ""},
		{"listen: 127.0.0.1:1", "0.0.0.0:1", false, ""},
		{people + "listen: 0.0.0.0:1", "", true, "travel in the clear"},
		{people, "0.0.0.0:1", true, "travel in the clear"},
		{"hosts: belay.example", "", true, "if a proxy lets others in"},
		{"hosts: belay.example\n" + people, "", true, ""},
		{people + "listen: 127.0.0.1:1", "", true, ""},
	} {
		c, err := Load(Options{File: write(t, "belay.yaml", tt.file+"\n"), Listen: tt.flag, Getenv: env(nil)})
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "nobody has to say who they are") {
			t.Errorf("%q and --listen %q: %v", tt.file, tt.flag, err)
			continue
		}
		if err != nil {
			continue
		}
		if tt.note == "" && len(c.Notes) > 0 || tt.note != "" && (len(c.Notes) != 1 || !strings.Contains(c.Notes[0], tt.note)) {
			t.Errorf("%q and --listen %q: notes %q, want %q", tt.file, tt.flag, c.Notes, tt.note)
		}
	}
}

// TestAuthNotes: what is allowed and rarely meant is said.
func TestAuthNotes(t *testing.T) {
	file := write(t, "belay.yaml", `
auth:
  tokens:
    - {name: old, hash: "`+hashA+`", roles: user, expires: 2001-01-01}
    - {name: idle, hash: "`+auth.HashToken("b")+`"}
  issuers:
    - {name: b, issuer: "https://b.example", audience: x, discover: true}
    - {name: c, issuer: "https://c.example", audience: x, discover: true, default_roles: admin}
tls: {cert: belay.pem, key: belay-key.pem, client_ca: agents-ca.pem}
`)
	keys(t, filepath.Dir(file))
	notes := strings.Join(load(t, Options{File: file, Getenv: env(nil)}).Notes, "\n")
	for _, want := range []string{"token of old has expired", "token of idle has no roles", "issuer b gives nobody a role", "issuer c makes everybody an admin", "names no certificates"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in\n%s", want, notes)
		}
	}
}

// TestAuthShowsNoVariable: whatever a variable holds, and wherever it is put by
// mistake, no message shows it.
func TestAuthShowsNoVariable(t *testing.T) {
	const secret = "hush hush: -----BEGIN"
	for _, text := range []string{
		`auth: {tokens: [{name: "${X}", hash: "` + hashA + `"}]}`,
		`auth: {tokens: [{name: ci, hash: "${X}"}]}`,
		`auth: {tokens: [{name: ci, hash: "` + hashA + `", roles: ["${X}"]}]}`,
		`auth: {tokens: [{name: ci, hash: "` + hashA + `", expires: "${X}"}]}`,
		`auth: {issuers: [{name: "${X}", issuer: a, audience: b, discover: true}]}`,
		`auth: {issuers: [{name: a, issuer: "${X}", audience: b, discover: true}]}`,
		`auth: {issuers: [{name: a, issuer: a, audience: b, jwks_url: "${X}"}]}`,
		`auth: {issuers: [{name: a, issuer: a, audience: b, secret: "${X}"}]}`,
		`auth: {issuers: [{name: a, issuer: a, audience: b, key: "${X}"}]}`,
		`auth: {issuers: [{name: a, issuer: a, audience: b, jwks_file: "${X}"}]}`,
		`auth: {issuers: [{name: a, issuer: a, audience: b, secret: "0123456789012345678901234567890123", default_roles: "${X}"}]}`,
		`auth: {issuers: [{name: a, issuer: a, audience: b, secret: "0123456789012345678901234567890123", roles: {x: "${X}"}}]}`,
		`auth: {certificates: [{san: "${X}", name: ci}]}`,
		`auth: {certificates: [{san: "dns:a", name: "${X}"}]}`,
		`auth: {certificates: [{san: "dns:a", name: a, roles: "${X}"}]}`,
		`auth: {roles: {a: ["${X}"]}}`,
		`tls: {cert: "${X}", key: a}`,
		`tls: {cert: a}`,
		`hosts: "${X}"`,
		`origins: "${X}"`,
		`log_format: "${X}"`,
		`orchestrate: {permissions: "${X}"}`,
	} {
		_, err := Load(Options{File: write(t, "belay.yaml", text), Getenv: env(map[string]string{"X": secret})})
		if err == nil {
			t.Errorf("%s: accepted", text)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestCancellationByEnvironment: the environment goes before the file, and one
// that is neither true nor false is not taken for either (ORC-64).
func TestCancellationByEnvironment(t *testing.T) {
	on, off := write(t, "belay.yaml", "cancellation: {enabled: true}"), write(t, "belay.yaml", "cancellation: {enabled: false}")
	for _, tt := range []struct {
		file   string
		env    map[string]string
		want   bool
		refuse bool
	}{
		{"", nil, true, false},
		{off, nil, false, false},
		{on, map[string]string{EnvCancellation: "false"}, false, false},
		{off, map[string]string{EnvCancellation: "TRUE"}, true, false},
		{"", map[string]string{EnvToolCancellation: "0"}, false, false},
		{"", map[string]string{EnvToolCancellation: "false", EnvCancellation: "1"}, true, false},
		{"", map[string]string{EnvCancellation: "maybe"}, false, true},
		{on, map[string]string{EnvToolCancellation: "nein"}, false, true},
	} {
		c, err := Load(Options{File: tt.file, Getenv: env(tt.env)})
		if (err != nil) != tt.refuse || err == nil && c.Cancellation.Enabled != tt.want {
			t.Errorf("%q %v: %+v, %v", tt.file, tt.env, c, err)
		}
	}
}

// TestSizes: sizes and their units.
func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "0B": 0, "1B": 1, "1kB": 1000, "1KB": 1000, "1KiB": 1024, "500MB": 500e6, "1GiB": 1 << 30, "1.5GiB": 3 << 29, "2 TiB": 2 << 40, "1e3B": 1000,
		"": -1, "1": -1, "1G": -1, "-1B": -1, "-0B": -1, "NaNB": -1, "InfB": -1, "0x10B": -1, "1_000B": -1, "1e30TiB": -1, "GiB": -1, "1GiBB": -1, "1 gib": -1,
	} {
		got, err := parseSize(text)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

// TestStateDir: where the ledger lies if nobody says.
func TestStateDir(t *testing.T) {
	for _, tt := range []struct {
		system string
		env    map[string]string
		want   string
	}{
		{"linux", map[string]string{"HOME": "/home/u"}, "/home/u/.local/state/belay"},
		{"linux", map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/s"}, "/s/belay"},
		{"linux", map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "s"}, "/home/u/.local/state/belay"},
		{"linux", nil, ""},
		{"linux", map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/s", EnvStateDir: "/b"}, "/b"},
		{"linux", map[string]string{"HOME": "/home/u", EnvStateDir: "b"}, "/home/u/.local/state/belay"},
		{"darwin", map[string]string{"HOME": "/home/u"}, "/home/u/Library/Application Support/belay"},
		{"darwin", nil, ""},
		{"windows", map[string]string{"LocalAppData": "/l"}, "/l/belay"},
		{"windows", nil, ""},
	} {
		if got := stateDir(tt.system, env(tt.env)); got != tt.want {
			t.Errorf("%s %v: %q", tt.system, tt.env, got)
		}
	}
}

// TestTLSServer: what the files say really encrypts, asks clients for a
// certificate, and a renewed certificate is shown without a reload; one that
// cannot be read changes nothing.
func TestTLSServer(t *testing.T) {
	file := write(t, "belay.yaml", "tls: {cert: belay.pem, key: belay-key.pem, client_ca: agents-ca.pem}\nauth: {certificates: [{san: \"dns:localhost\", name: a, roles: user}]}\n")
	dir := filepath.Dir(file)
	keys(t, dir)
	c := load(t, Options{File: file, Getenv: env(nil)})
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "belay.pem"), filepath.Join(dir, "belay-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	asked, err := c.TLS.Server()
	if err != nil {
		t.Fatal(err)
	}
	server.Listener = tls.NewListener(server.Listener, asked)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	l := server.Listener
	ask := func(certificates ...tls.Certificate) (status int, shown *x509.Certificate, err error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}, DisableKeepAlives: true}
		r, err := (&http.Client{Transport: transport}).Get("https://" + l.Addr().String())
		if err != nil {
			return 0, nil, err
		}
		defer r.Body.Close()
		return r.StatusCode, r.TLS.PeerCertificates[0], nil
	}
	if status, _, err := ask(); err != nil || status != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d, %v", status, err)
	}
	if status, _, err := ask(own); err != nil || status != http.StatusOK {
		t.Errorf("with a certificate: %d, %v", status, err)
	}
	other := t.TempDir()
	keys(t, other)
	foreign, err := tls.LoadX509KeyPair(filepath.Join(other, "belay.pem"), filepath.Join(other, "belay-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(foreign); err == nil {
		t.Error("a certificate that nobody vouches for is accepted")
	}
	if conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
}

// TestTLSRenewed: see TestTLSServer.
func TestTLSRenewed(t *testing.T) {
	dir := t.TempDir()
	keys(t, dir)
	p := &renewed{files: TLS{Cert: filepath.Join(dir, "belay.pem"), Key: filepath.Join(dir, "belay-key.pem")}}
	synctest.Test(t, func(t *testing.T) {
		leaf := func() string {
			c, err := p.certificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			return string(c.Certificate[0])
		}
		first := leaf()
		keys(t, dir)
		if leaf() != first {
			t.Error("the files are looked at for every connection")
		}
		time.Sleep(lookEvery)
		second := leaf()
		if second == first {
			t.Error("a renewed certificate is not shown")
		}
		keys(t, dir)
		if err := os.WriteFile(p.files.Key, []byte("half of it"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		if leaf() != second {
			t.Error("a certificate without its key is shown")
		}
		keys(t, dir)
		time.Sleep(lookEvery)
		if leaf() == second {
			t.Error("the renewal is never finished")
		}
	})
}
