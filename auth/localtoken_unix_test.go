//go:build unix

package auth

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// private is a folder that only this user can write to.
func private(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLocalToken: DESIGN 11, 10: made at the first start, 0600, the same from
// then on, and good for everything as "local".
func TestLocalToken(t *testing.T) {
	path := filepath.Join(private(t), "sub", "belay", "local-token")
	if _, err := ReadLocalToken(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a client makes none: %v", err)
	}
	text, err := LocalToken(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o700 {
		t.Fatal(dir.Mode(), err)
	}
	for _, read := range []func(string) (string, error){LocalToken, ReadLocalToken} {
		if again, err := read(path); err != nil || again != text {
			t.Fatal(again, err)
		}
	}
	a := newAuth(t, Config{LocalToken: text})
	p, err := a.Authenticate(request(text))
	if err != nil || p.Name != LocalName || p.Method != ByLocalToken || !p.May(SystemConfig) || !p.May(LatchLift) {
		t.Fatal(p, err)
	}
	if _, err := a.Authenticate(request("")); !errors.Is(err, ErrNoCredentials) {
		t.Fatal(err)
	}
	if (&Config{LocalToken: text, Socket: true}).Configured() {
		t.Error("a local token is no authentication for other machines")
	}
}

// TestFirstStarts: several first starts at once end with one token, whole, and
// nothing left beside it.
func TestFirstStarts(t *testing.T) {
	dir := filepath.Join(private(t), "belay")
	path := filepath.Join(dir, "local-token")
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		seen = map[string]bool{}
	)
	for range 50 {
		all.Go(func() {
			text, err := LocalToken(path)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			seen[text] = true
			mu.Unlock()
		})
	}
	all.Wait()
	entries, err := os.ReadDir(dir)
	if len(seen) != 1 || len(entries) != 1 || err != nil {
		t.Fatalf("%d tokens, files %v, %v", len(seen), entries, err)
	}
}

// TestTokenFileRefused: a file that others could have read or written, or that
// is something else, is refused, never repaired or replaced in silence.
func TestTokenFileRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: a foreign owner cannot be tried")
	}
	text, _ := NewToken()
	for name, spoil := range map[string]func(path string) error{
		"group reads":  func(p string) error { return os.Chmod(p, 0o640) },
		"world writes": func(p string) error { return os.Chmod(p, 0o602) },
		"symlink": func(p string) error {
			return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p))
		},
		"folder":         func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
		"empty":          func(p string) error { return os.Truncate(p, 0) },
		"torn":           func(p string) error { return os.Truncate(p, 20) },
		"two lines":      func(p string) error { return os.WriteFile(p, []byte(text+"\n"+text+"\n"), 0o600) },
		"a chosen text":  func(p string) error { return os.WriteFile(p, []byte("belay_secret\n"), 0o600) },
		"endless":        func(p string) error { return os.Truncate(p, 1<<30) },
		"FIFO":           func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) },
		"writable place": func(p string) error { return os.Chmod(filepath.Dir(p), 0o772) },
		"foreign owner": func(p string) error {
			if os.Getuid() != 0 {
				return os.Chmod(p, 0o644)
			}
			return os.Chown(p, 12345, -1)
		},
		"foreign place": func(p string) error {
			if os.Getuid() != 0 {
				return os.Chmod(filepath.Dir(p), 0o777)
			}
			return os.Chown(filepath.Dir(p), 12345, -1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(private(t), "local-token")
			if _, err := LocalToken(path); err != nil {
				t.Fatal(err)
			}
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			for _, read := range []func(string) (string, error){LocalToken, ReadLocalToken} {
				got, err := read(path)
				if !errors.Is(err, ErrTokenFile) || got != "" || strings.Contains(err.Error(), "secret") {
					t.Fatalf("%q, %v", got, err)
				}
			}
		})
	}
	if _, err := LocalToken("local-token"); !errors.Is(err, ErrTokenFile) {
		t.Error(err)
	}
}

// TestGroupFolder: a folder that a umask of 002 made is no reason not to start.
func TestGroupFolder(t *testing.T) {
	dir := private(t)
	if err := os.Chmod(dir, 0o775); err != nil {
		t.Fatal(err)
	}
	if _, err := LocalToken(filepath.Join(dir, "local-token")); err != nil {
		t.Fatal(err)
	}
}

// TestLineEnds: an editor's line end does not spoil the token.
func TestLineEnds(t *testing.T) {
	text, _ := NewToken()
	for _, end := range []string{"", "\n", "\r\n"} {
		path := filepath.Join(private(t), "local-token")
		if err := os.WriteFile(path, []byte(text+end), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := LocalToken(path); err != nil || got != text {
			t.Errorf("%q: %q, %v", end, got, err)
		}
	}
}

// TestUmask: whatever the umask of the first start, others get nothing.
func TestUmask(t *testing.T) {
	if os.Getenv("BELAY_AUTH_TEST_UMASK") != "" {
		syscall.Umask(0)
		if _, err := LocalToken(os.Getenv("BELAY_AUTH_TEST_UMASK")); err != nil {
			t.Fatal(err)
		}
		return
	}
	path := filepath.Join(private(t), "belay", "local-token")
	child := exec.Command(os.Args[0], "-test.run=^TestUmask$")
	child.Env = append(os.Environ(), "BELAY_AUTH_TEST_UMASK="+path)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := ReadLocalToken(path); err != nil {
		t.Fatal(err)
	}
}

// TestLocalTokenPath: the environment's word, else the configuration
// directory, else the runtime directory.
func TestLocalTokenPath(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{EnvTokenFile: "/x/token", "HOME": "/home/u"}, "/x/token"},
		{map[string]string{EnvTokenFile: "/x/token", EnvStateDir: "/state", "HOME": "/home/u"}, "/x/token"},
		{map[string]string{EnvStateDir: "/state", "XDG_CONFIG_HOME": "/cfg", "HOME": "/home/u"}, "/state/local-token"},
		{map[string]string{EnvStateDir: "state", "HOME": "/home/u"}, "/home/u/.config/belay/local-token"},
		{map[string]string{"XDG_CONFIG_HOME": "/cfg", "HOME": "/home/u"}, "/cfg/belay/local-token"},
		{map[string]string{"XDG_CONFIG_HOME": "cfg", "HOME": "/home/u"}, "/home/u/.config/belay/local-token"},
		{map[string]string{"HOME": "/home/u"}, "/home/u/.config/belay/local-token"},
		{map[string]string{}, "/run/belay/local-token"},
	} {
		if got := localTokenPath("linux", func(name string) string { return c.env[name] }, "/run/belay"); got != c.want {
			t.Errorf("%v: %s, want %s", c.env, got, c.want)
		}
	}
}
