package cli

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// testEnv is an environment of these variables, with its own configuration.
func testEnv(t *testing.T, vars map[string]string) *Env {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"HOME": dir, "XDG_CONFIG_HOME": dir, "BELAY_RUNTIME_DIR": dir}
	maps.Copy(all, vars)
	return &Env{Getenv: func(name string) string { return all[name] }, Stdin: strings.NewReader(""), Stdout: &strings.Builder{}, Stderr: &strings.Builder{}}
}

// TestTarget: what is typed goes before what is set, a server before a profile,
// and a profile's own token before the environment's.
func TestTarget(t *testing.T) {
	saved := profiles{Use: "work", Profiles: map[string]*profile{
		"work": {Server: "https://work", Token: "w"}, "bare": {Server: "https://bare"},
	}}
	for _, c := range []struct {
		name          string
		flags         remoteFlags
		vars          map[string]string
		server, token string
	}{
		{"in use", remoteFlags{}, nil, "https://work", "w"},
		{"own processes", remoteFlags{Profile: "local"}, nil, "", ""},
		{"own processes, by variable", remoteFlags{}, map[string]string{"BELAY_PROFILE": "local"}, "", ""},
		{"a variable before the one in use", remoteFlags{}, map[string]string{"BELAY_SERVER": "https://v", "BELAY_TOKEN": "t"}, "https://v", "t"},
		{"a server before a profile", remoteFlags{}, map[string]string{"BELAY_SERVER": "https://v", "BELAY_PROFILE": "bare"}, "https://v", ""},
		{"a flag before variables", remoteFlags{Server: "https://f", Token: "x"}, map[string]string{"BELAY_SERVER": "https://v", "BELAY_TOKEN": "t"}, "https://f", "x"},
		{"a profile by flag before a server by variable", remoteFlags{Profile: "bare"}, map[string]string{"BELAY_SERVER": "https://v"}, "https://bare", ""},
		{"a profile's own token", remoteFlags{Profile: "work"}, map[string]string{"BELAY_TOKEN": "t"}, "https://work", "w"},
		{"the variable's for a profile without", remoteFlags{Profile: "bare"}, map[string]string{"BELAY_TOKEN": "t"}, "https://bare", "t"},
		{"a token by flag", remoteFlags{Profile: "work", Token: "x"}, nil, "https://work", "x"},
	} {
		env := testEnv(t, c.vars)
		if err := env.saveProfiles(&saved); err != nil {
			t.Fatal(err)
		}
		got, err := c.flags.target(env)
		if err != nil || got.server != c.server || got.token != c.token {
			t.Errorf("%s: %+v %v", c.name, got, err)
		}
	}
}

// TestOwnTokenStaysHere: this user's own token is shown to this machine and to
// no other.
func TestOwnTokenStaysHere(t *testing.T) {
	for server, near := range map[string]bool{
		"http://127.0.0.1:7474": true, "http://localhost:1": true, "http://[::1]:7474": true, "unix:/run/belay.sock": true, "http://127.8.9.1": true,
		"https://belay.example.com": false, "http://10.0.0.1:7474": false, "http://localhost.example.com": false, "http://127.0.0.1.example.com": false, "http://0.0.0.0:1": false,
	} {
		if isNear(server) != near {
			t.Errorf("%s: %v", server, !near)
		}
	}
}

// TestPrefixes: a list from the newest on that begins behind lastOf holds every
// id with the prefix first.
func TestPrefixes(t *testing.T) {
	for range 200 {
		id := belay.NewRunID()
		text := id.String()
		for n := len("run_") + shortestPrefix; n <= len(text); n++ {
			last, ok := lastOf(text[:n])
			if !ok || last.String() <= text && n < len(text) && last != id || n == len(text) && last.String() <= text {
				t.Fatalf("%s: %s %v", text[:n], last, ok)
			}
			if n < len(text) && !strings.HasPrefix(last.String(), text[:n]) {
				t.Fatalf("%s goes as far as %s", text[:n], last)
			}
		}
	}
	for _, bad := range []string{"", "run_", "run_01", "run_u1k4x", "run_91k4x", "run_01k4x2m7z00000000000000000000", "stop_01k4x"} {
		if last, ok := lastOf(bad); ok {
			t.Errorf("%q: %s", bad, last)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 5, 3, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "7d": now.AddDate(0, 0, -7), "0.5d": now.Add(-12 * time.Hour),
		"2026-05-01T12:00:00Z": now.AddDate(0, 0, -2),
	} {
		if got, err := parseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %s %v", text, got, err)
		}
	}
	for _, bad := range []string{"d", "-3h", "-1d", "1e9d", "soon", "2026-13-01"} {
		if got, err := parseSince(bad, now); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}

// TestNoFormula: what a peer wrote is text to a spreadsheet.
func TestNoFormula(t *testing.T) {
	for text, want := range map[string]string{
		"tick": "tick", "=1+1": "'=1+1", " \t=1": "'  =1", "@x": "'@x", "＝1": "'＝1", "a=b": "a=b", "": "", "-": "'-", "two\nlines": "two lines",
	} {
		if got := noFormula(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestProfileTLS: a profile's authority and certificate are used; without the
// authority the server is not trusted.
func TestProfileTLS(t *testing.T) {
	var seen string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.TLS.PeerCertificates[0].Subject.CommonName
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"engaged":false}`)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it says that it was not trusted, which is meant
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agent7"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	files := tlsFiles{
		CA: write("ca.pem", "CERTIFICATE", server.Certificate().Raw), Cert: write("cert.pem", "CERTIFICATE", cert),
		Key: write("key.pem", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)),
	}
	env := testEnv(t, nil)
	at, err := env.dial(target{server: server.URL, tls: files})
	if err != nil {
		t.Fatal(err)
	}
	defer at.client.CloseIdle()
	if _, err := at.client.Latch(t.Context()); err != nil || seen != "agent7" {
		t.Errorf("%v, the server saw %q", err, seen)
	}
	files.CA = ""
	if at, err = env.dial(target{server: server.URL, tls: files}); err != nil {
		t.Fatal(err)
	}
	if _, err := at.client.Latch(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the authority: %v", err)
	}
	for _, wrong := range []tlsFiles{{CA: filepath.Join(dir, "no.pem")}, {CA: files.Key}, {Cert: files.Cert, Key: files.Cert}} {
		if _, err := env.dial(target{server: server.URL, tls: wrong}); err == nil {
			t.Errorf("%+v", wrong)
		}
	}
}
