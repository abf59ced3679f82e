package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/belayhq/belay/internal/need"
)

const (
	root   = "../.."
	module = "github.com/belayhq/belay"
)

// pkg is what the files of one folder say, under all build tags at once.
type pkg struct {
	imports     map[string]string // import path -> a file that has it
	testImports map[string]string
	documented  bool
	name        string
}

// packages parses every folder of the module that has Go files of its own.
func packages(t *testing.T) map[string]*pkg {
	t.Helper()
	all := map[string]*pkg{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, file)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if base := d.Name(); rel != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" || base == "bin") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil && rel != "." {
				return fs.SkipDir // a module of its own, as a peer of interop can be
			}
			return nil
		}
		if strings.HasSuffix(rel, ".go") {
			readFile(t, all, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func readFile(t *testing.T, all map[string]*pkg, rel string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, rel), nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		t.Errorf("%s: %v", rel, err)
		return
	}
	p := all[path.Dir(rel)]
	if p == nil {
		p = &pkg{imports: map[string]string{}, testImports: map[string]string{}}
		all[path.Dir(rel)] = p
	}
	into := p.imports
	if strings.HasSuffix(rel, "_test.go") {
		into = p.testImports
	} else {
		p.name = f.Name.Name
		p.documented = p.documented || documents(f)
	}
	for _, i := range f.Imports {
		if name, err := strconv.Unquote(i.Path.Value); err == nil {
			into[name] = rel
		}
	}
}

// documents reports whether the file carries a package comment in the usual
// form, which godoc and readers rely on.
func documents(f *ast.File) bool {
	want := "Package " + f.Name.Name + " "
	if f.Name.Name == "main" {
		want = "Command "
	}
	return f.Doc != nil && strings.HasPrefix(f.Doc.Text(), want)
}

func row(folder string) *Row {
	for i := range Table {
		if Table[i].Package == folder {
			return &Table[i]
		}
	}
	return nil
}

// TestImports holds the table: DESIGN section 4, "imports point down".
func TestImports(t *testing.T) {
	for folder, p := range packages(t) {
		r := row(folder)
		if r == nil {
			t.Errorf("package %s is not in the import table: give it a row, with the reason, in internal/arch/table.go", folder)
			continue
		}
		for name, file := range p.imports {
			if why := refuse(r, name, r.Uses); why != "" {
				t.Errorf("%s imports %s: %s", file, name, why)
			}
		}
		for name, file := range p.testImports {
			if inModule(name) {
				continue // a test may use any package; Go itself refuses the cycles
			}
			if why := refuse(r, name, append(slices.Clone(r.Uses), TestOnly...)); why != "" {
				t.Errorf("%s imports %s: %s", file, name, why)
			}
		}
	}
}

func inModule(name string) bool { return name == module || strings.HasPrefix(name, module+"/") }

// refuse says why a package with row r may not import name; "" if it may.
func refuse(r *Row, name string, uses []string) string {
	if inModule(name) {
		folder := strings.TrimPrefix(strings.TrimPrefix(name, module), "/")
		if folder == "" {
			folder = "."
		}
		if !slices.Contains(r.May, folder) {
			return "not in the row of " + r.Package + " in internal/arch/table.go"
		}
		return ""
	}
	if first, _, _ := strings.Cut(name, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for _, prefix := range uses {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			return ""
		}
	}
	return "another module's package that " + r.Package + " may not use (internal/arch/table.go)"
}

// TestTable checks the table itself: every arrow points down, to a package
// with a row; the bottom row imports nothing of the module; reasons are given.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Table {
		if seen[r.Package] {
			t.Errorf("two rows for %s", r.Package)
		}
		seen[r.Package] = true
		if r.Why == "" {
			t.Errorf("the row of %s gives no reason", r.Package)
		}
		for _, below := range r.May {
			switch b := row(below); {
			case b == nil:
				t.Errorf("%s may import %s, which has no row", r.Package, below)
			case b.Layer >= r.Layer:
				t.Errorf("%s (layer %d) may import %s (layer %d): imports point down", r.Package, r.Layer, below, b.Layer)
			}
		}
	}
}

// TestPackageComments: a package says what it is for before anything else.
func TestPackageComments(t *testing.T) {
	for folder, p := range packages(t) {
		if p.name != "" && !p.documented {
			t.Errorf("package %s has no comment that begins %q", folder, "Package "+p.name)
		}
	}
}

// places are texts that belong to one machine and never to the project. The
// pieces are joined here so that this file does not match itself.
var places = regexp.MustCompile(strings.Join([]string{
	`(^|[^A-Za-z0-9_.])/` + `work/(main|shared|brief|\.library)`,
	`/` + `home/[a-z]+/(src|go|code)`,
	`/` + `Users/[a-z]+/`,
	`/` + `root/(go|\.pyenv|\.cache)`,
	`proxy` + `\.golang\.org`, `registry` + `\.npmjs`,
}, "|"))

// TestTrackedFiles: no tracked file names a place on somebody's machine or a
// particular registry; whoever clones the project has neither.
func TestTrackedFiles(t *testing.T) {
	need.Commands(t, "git")
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		need.Missing(t, "not a git checkout: git ls-files failed")
	}
	for file := range bytes.SplitSeq(bytes.TrimRight(out, "\x00"), []byte{0}) {
		text, err := os.ReadFile(filepath.Join(root, string(file)))
		if err != nil {
			continue // deleted and not yet committed
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if m := places.Find(line); m != nil {
				t.Errorf("%s:%d names a place on one machine: %q", file, i+1, m)
			}
		}
	}
}
