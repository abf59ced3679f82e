package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alone fails if something lies beside the files with these names.
func alone(t *testing.T, dir string, names ...string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range all {
		have = append(have, e.Name())
	}
	if strings.Join(have, " ") != strings.Join(names, " ") {
		t.Errorf("the folder holds %q, want %q", have, names)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, text := range []string{"first\n", "", strings.Repeat("x", 1<<20)} {
		if err := Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if have := read(t, path); have != text {
			t.Errorf("%d bytes, want %d", len(have), len(text))
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("mode %s", info.Mode())
		}
		alone(t, dir, "a")
	}
}

// TestRefused: whatever fails, the old text stays and nothing lies beside it.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := Write(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "none", "a"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into no folder: %v", err)
	}
	wanted := errors.New("changed meanwhile")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	err = f.Commit(func() error {
		if have := read(t, f.Name()); have != "new" {
			t.Errorf("before the last look it holds %q", have)
		}
		return wanted
	})
	if !errors.Is(err, wanted) {
		t.Errorf("%v", err)
	}
	f.Discard() // a second time is fine
	if err := f.Commit(nil); err == nil {
		t.Error("committed after it was discarded")
	}
	if have := read(t, path); have != "old" {
		t.Errorf("it holds %q", have)
	}
	alone(t, dir, "a")
	if err := Write(dir, []byte("x")); err == nil { // a folder is not replaced
		t.Error("a folder was replaced")
	}
	alone(t, dir, "a")
}
