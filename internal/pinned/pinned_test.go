package pinned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestInstall proves that the steps run once for each content of the pins, and
// again after they failed.
func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kit")
	files := fstest.MapFS{"p/a.json": {Data: []byte("1")}, "p/b.mjs": {Data: []byte("x")}}
	count := []string{"sh", "-c", "echo ran >>log"}
	install := func(want int, steps ...[]string) {
		t.Helper()
		err := Install(files, "p", dir, steps...)
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		if got := strings.Count(string(log), "ran"); got != want {
			t.Errorf("the step ran %d times, want %d; %v", got, want, err)
		}
	}
	install(1, count, []string{"sh", "-c", "echo said this >&2; exit 3"})
	install(2, count)
	install(2, count)
	files["p/b.mjs"] = &fstest.MapFile{Data: []byte("y")}
	install(2, count) // a script is no pin
	if data, _ := os.ReadFile(filepath.Join(dir, "b.mjs")); string(data) != "y" {
		t.Errorf("the script is %q", data)
	}
	files["p/a.json"] = &fstest.MapFile{Data: []byte("2")}
	install(3, count)
}

func TestInstallFails(t *testing.T) {
	files := fstest.MapFS{"p/a.json": {Data: []byte("1")}}
	err := Install(files, "p", t.TempDir(), []string{"sh", "-c", "echo said this >&2; exit 3"})
	if err == nil || !strings.Contains(err.Error(), "said this") {
		t.Error(err)
	}
	if err := Install(files, "nothing", t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestLocked: a lock file that needs one registry, or leaves a package open, is
// refused.
func TestLocked(t *testing.T) {
	got, err := Locked([]byte(`{"packages":{"":{"name":"x"},"node_modules/a":{"version":"1.2","integrity":"sha512-x"}}}`))
	if err != nil || got["node_modules/a"] != "1.2" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{
		`{"packages":{"node_modules/a":{"version":"1.2","integrity":"x","resolved":"somewhere"}}}`,
		`{"packages":{"node_modules/a":{"version":"1.2"}}}`,
		`{"packages":{"node_modules/a":{"integrity":"x"}}}`,
		`{"packages":`,
	} {
		if _, err := Locked([]byte(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
