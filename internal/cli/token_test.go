package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/internal/config"
)

// TestTokenNewIsTaken: what belay token new prints on standard error is a
// belay.yaml that lets in whoever has what it prints on standard output, with
// its roles and until its end; names that look like something else included.
func TestTokenNewIsTaken(t *testing.T) {
	for _, name := range []string{"ci", "1e3", "true", "@home", "a.b-c_d", "-x", "null"} {
		var out, errs bytes.Buffer
		if code := Main([]string{"token", "new", "--role", "operator", "--expires", "48h", "--", name}, os.Getenv, strings.NewReader(""), &out, &errs); code != 0 {
			t.Fatalf("exit code %d: %s", code, errs.String())
		}
		token := strings.TrimSuffix(out.String(), "\n")
		if strings.Contains(errs.String(), token) {
			t.Errorf("the token is on standard error too")
		}
		file := filepath.Join(t.TempDir(), "belay.yaml")
		if err := os.WriteFile(file, errs.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Options{File: file})
		if err != nil {
			t.Fatal(err)
		}
		a, err := auth.New(c.Auth.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		r := httptest.NewRequest(http.MethodGet, "/v1/runs", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		p, err := a.Authenticate(r)
		if err != nil || p.Name != name || !p.May(auth.RunsCancel) || p.May(auth.SystemConfig) {
			t.Errorf("%s: %v, %v may %v", name, err, p, p.Permissions())
		}
		if left := time.Until(p.Expires); left < 47*time.Hour || left > 48*time.Hour {
			t.Errorf("%s: good for %v", name, left)
		}
	}
}

// TestExpiry: the forms of --expires.
func TestExpiry(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 5, time.UTC)
	for text, want := range map[string]string{
		"720h": "2026-12-21T12:00:00Z", "30d": "2026-12-21T12:00:00Z", "2027-01-31": "2027-01-31T00:00:00Z",
		"2027-01-31T18:00:00+02:00": "2027-01-31T16:00:00Z",
		"0s":                        "", "-1h": "", "0d": "", "-3d": "", "2026-11-21": "", "tomorrow": "", "": "", "d": "", "999999999d": "",
	} {
		got, err := expiry(text, now)
		if want == "" && err == nil || want != "" && (err != nil || got.Format(time.RFC3339) != want) {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
}
