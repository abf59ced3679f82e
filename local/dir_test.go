package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

func TestDirs(t *testing.T) {
	uid := strconv.Itoa(os.Getuid())
	env := func(kv ...string) func(string) string {
		return func(k string) string {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == k {
					return kv[i+1]
				}
			}
			return ""
		}
	}
	if got := Dirs(env(EnvDir, "/x/y", "XDG_RUNTIME_DIR", "/run/z")); !slices.Equal(got, []string{"/x/y"}) {
		t.Errorf("with %s: %v", EnvDir, got)
	}
	full := env("XDG_RUNTIME_DIR", "/run/z", "TMPDIR", "/var/t")
	if got := Dir(full); got != "/run/z/belay" {
		t.Errorf("with XDG_RUNTIME_DIR: %s", got)
	}
	got := Dirs(full)
	for _, want := range []string{"/run/z/belay", "/var/t/belay-" + uid, "/tmp/belay-" + uid} {
		if !slices.Contains(got, want) {
			t.Errorf("Dirs = %v, want %s among them: a process with another environment is there", got, want)
		}
	}
	if got := Dirs(env()); got[len(got)-1] != "/tmp/belay-"+uid {
		t.Errorf("with nothing: %v", got)
	}
}

func TestDirIsPrivate(t *testing.T) {
	base := privateDir(t)
	good := filepath.Join(base, "deep", "good")
	if err := MakeDir(good); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(good); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v; want 0700", info.Mode(), err)
	}
	if err := MakeDir(good); err != nil {
		t.Errorf("a second time: %v", err)
	}
	open := filepath.Join(base, "open")
	link := filepath.Join(base, "link")
	file := filepath.Join(base, "file")
	other := filepath.Join(base, "other")
	must(t, os.Mkdir(open, 0o700), os.Chmod(open, 0o750), os.Symlink(good, link), os.WriteFile(file, nil, 0o600), os.Mkdir(other, 0o700))
	bad := map[string]string{open: "others have access", link: "symbolic link", file: "not a directory"}
	if os.Getuid() == 0 {
		must(t, os.Chown(other, 12345, 12345))
		bad[other] = "uid 12345"
	}
	for dir, want := range bad {
		err := MakeDir(dir)
		if !errors.Is(err, belay.ErrForbidden) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("MakeDir(%s) = %v, want ErrForbidden, %q and the place", dir, err, want)
		}
		if _, err := Listen(t.Context(), Options{Dir: dir, Control: belay.NewTree(belay.Options{})}); err == nil {
			t.Errorf("Listen in %s: no error", dir)
		}
		if list, err := NewMesh(MeshOptions{Dirs: []string{dir, good}}).List(t.Context(), belay.Filter{}); err == nil || len(list) != 0 {
			t.Errorf("List in %s: %v, %v; want an error", dir, list, err)
		}
	}
	if err := MakeDir("relative/dir"); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("relative: %v", err)
	}
	if err := CheckDir(filepath.Join(base, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if list, err := NewMesh(MeshOptions{Dirs: []string{filepath.Join(base, "none")}}).List(t.Context(), belay.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("List in a missing directory: %v, %v; want nothing and no error", list, err)
	}
}

// A socket address holds little more than 100 bytes; a directory may be deeper.
func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(privateDir(t), strings.Repeat("d", 100), strings.Repeat("e", 100))
	s, tree := serve(t, Options{Dir: dir})
	r := startRun(tree, "far", belay.RunID{}, "")
	list, err := NewMesh(MeshOptions{Dirs: []string{dir}}).List(t.Context(), belay.Filter{})
	if err != nil || len(list) != 1 {
		t.Fatalf("List = %v, %v", list, err)
	}
	p, err := Attach(t.Context(), s.Ticket(r.ID()), func(belay.CancelRequest) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
