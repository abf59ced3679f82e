package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/belayhq/belay/script"
)

// TestFindings checks every project in testdata: a txtar file whose files are the
// project, but for "want", which lists what has to be found, each line as
// FILE:LINE:COLUMN LEVEL RULE. A manifest that is left out is a plain one; with
// "# approval" in the comment it asks.
func TestFindings(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no projects", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			dir, want := unpack(t, file)
			var got []string
			for _, f := range Project(dir, false).Findings {
				got = append(got, fmt.Sprintf("%s:%d:%d %s %s", f.File, f.Line, f.Column, f.Level, f.Rule))
				if f.Text == "" || strings.Contains(f.Text, dir) {
					t.Errorf("a finding says %q", f.Text)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				for _, f := range Project(dir, false).Findings {
					t.Logf("%s:%d %s", f.File, f.Line, f.Text)
				}
			}
		})
	}
}

// unpack writes a project of testdata into a folder.
func unpack(t *testing.T, file string) (dir string, want []string) {
	t.Helper()
	dir = t.TempDir()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	approval := strings.Contains(string(a.Comment), "# approval\n")
	put := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(script.ManifestFile, fmt.Sprintf(`{"id": "t", "description": "A tool.", "parameters": [], "requireApproval": %t}`, approval))
	for _, f := range a.Files {
		if f.Name == "want" {
			want = strings.Fields(strings.ReplaceAll(string(f.Data), " ", "\x00"))
			continue
		}
		put(f.Name, string(f.Data))
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "\x00", " ")
	}
	return dir, want
}

// TestEmptyFolder: what is no project at all is said, too.
func TestEmptyFolder(t *testing.T) {
	r := Project(t.TempDir(), false)
	if len(r.Findings) != 1 || r.Findings[0].Level != Error || r.Findings[0].File != script.ManifestFile {
		t.Errorf("an empty folder: %+v", r.Findings)
	}
}

// TestManyFindings: what is said has a bound.
func TestManyFindings(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("AssistantTool.registerExecuteTool(async () => {\n")
	for i := range 500 {
		fmt.Fprintf(&b, "if (Date.now() < 0) nothing%d()\n", i)
	}
	b.WriteString("return { success: true, message: '' } })")
	for name, text := range map[string]string{
		script.ManifestFile: `{"id": "t", "description": "A tool.", "parameters": []}`, "assistant_tool.js": b.String(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := Project(dir, false).Findings; len(got) != maxFindings+1 || got[maxFindings].Rule != "many" {
		t.Errorf("%d findings", len(got))
	}
}

// FuzzInspect: no program that the parser takes makes the rules fail.
func FuzzInspect(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, one := range a.Files {
			if strings.HasSuffix(one.Name, ".js") {
				f.Add("(() => {" + string(one.Data) + "})()")
			}
		}
	}
	for _, text := range []string{
		"", "a?.b?.[c](...d)", "class A { #x = 1; static { y } get z() { return this.#x } [k] = 2 }", "l: for (;;) { break l }",
		"const {a, b: [c = 1, ...d], ...e} = f", "async function* g() { yield* h`i${j}`; await k }", "try {} catch {} finally {}",
		"switch (a) { default: case 1: }", "with (a) b", "new.target", "({a, b() {}, get c() { return 1 }, [d]: 1, ...e})", "a => b", "fetch(`${a}`)",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, code string) {
		if len(code) > 1<<16 {
			return
		}
		for _, found := range inspect("x.js", code) {
			if found.Text == "" || found.Line < 0 {
				t.Errorf("%+v", found)
			}
		}
	})
}

// FuzzManifestPlaces: no manifest makes the search for places fail.
func FuzzManifestPlaces(f *testing.F) {
	f.Add(`{"id": "a", "parameters": [{"name": "x"}, {"name": "y", "type": "nope"}]}`, 1)
	f.Add(`{"parameters": {"parameters": [1]}}`, 0)
	f.Add(`[{`, 0)
	f.Fuzz(func(t *testing.T, text string, n int) {
		if line := itemLine([]byte(text), n); line < 0 || line > 1+strings.Count(text, "\n") {
			t.Errorf("line %d", line)
		}
	})
}
