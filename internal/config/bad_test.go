package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what the files make into them")

// TestBadFiles: each file of testdata/bad is refused with the problems in it,
// and no value that starts with "hush" is shown.
func TestBadFiles(t *testing.T) {
	list, _ := filepath.Glob("testdata/bad/*.txtar")
	if len(list) == 0 {
		t.Fatal("no files")
	}
	for _, name := range list {
		name, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := badOne(t, ar)
			last := &ar.Files[len(ar.Files)-1]
			if *update {
				last.Data = []byte(got)
				if err := os.WriteFile(name, txtar.Format(ar), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(last.Data) {
				t.Errorf("got:\n%swant:\n%s", got, last.Data)
			}
			if strings.Contains(got, "hush") {
				t.Errorf("a secret is shown:\n%s", got)
			}
		})
	}
}

// badOne loads the files of an archive, the last of which is what is wanted.
func badOne(t *testing.T, ar *txtar.Archive) string {
	t.Helper()
	t.Chdir(t.TempDir())
	o := Options{Getenv: func(string) string { return "" }}
	for _, f := range ar.Files[:len(ar.Files)-1] {
		if err := os.WriteFile(f.Name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name, ".yaml") {
			o.File = f.Name
		} else {
			o.Editors = append(o.Editors, f.Name)
		}
	}
	c, err := Load(o)
	if !errors.Is(err, ErrInvalid) || c != nil {
		t.Fatalf("got %+v, %v; want problems", c, err)
	}
	return err.Error() + "\n"
}
