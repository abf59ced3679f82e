package adopt

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what the tests of forms got into their files")

const belayPath = "/usr/local/bin/belay"

// options are what most tests want; the host is an empty one.
func options(t testing.TB) *Options {
	t.Helper()
	e, err := parseEditors("editors.yaml", builtin)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return &Options{Belay: belayPath, Editors: e, Host: Host{OS: "linux", Home: home, Dir: home, Getenv: func(string) string { return "" }}}
}

// rewrite plans one text, without a file.
func rewrite(o Options, undo bool, text []byte) (*Plan, error) {
	o.Undo, o.taken = undo, nil
	p := &Plan{Path: "x.json", options: &o, before: snapshot{text: text}}
	d, err := parse(text)
	if err != nil {
		return nil, err
	}
	return p, p.read(d)
}

func must(t testing.TB, o *Options, undo bool, text []byte) *Plan {
	t.Helper()
	p, err := rewrite(*o, undo, text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return p
}

// describe is a plan's servers as people would read them.
func describe(servers []Server) string {
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "%s/%q: %s program=%s restart=%s", s.Where, s.Name, s.Action, s.Program, s.Restart)
		if s.Kind != ToolServer {
			fmt.Fprintf(&b, " kind=%s", s.Kind)
		}
		for _, part := range []struct{ key, text string }{{"known", s.Known}, {"relay", s.Relay}, {"why", s.Why}} {
			if part.text != "" {
				fmt.Fprintf(&b, " %s=%q", part.key, part.text)
			}
		}
		if s.Serve != nil {
			fmt.Fprintf(&b, " serve=%+v", *s.Serve)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestForms: the form of each editor is adopted with everything else in the
// file as it was, and undone to the same bytes; a second time changes nothing
// (DESIGN 11, 12).
func TestForms(t *testing.T) {
	files, err := filepath.Glob("testdata/forms/*.txtar")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { testForm(t, file) })
	}
}

func testForm(t *testing.T, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := options(t)
	var in []byte
	var flags []string
	want := map[string]string{}
	for _, f := range a.Files {
		switch f.Name {
		case "flags":
			flags = strings.Fields(string(f.Data))
		case "adopted", "servers":
			want[f.Name] = string(f.Data)
		default:
			in = f.Data
		}
	}
	o.Remote = slices.Contains(flags, "remote")
	if slices.Contains(flags, "crlf") {
		in = bytes.ReplaceAll(in, []byte("\n"), []byte("\r\n"))
	}
	if slices.Contains(flags, "bom") {
		in = append(slices.Clone(byteOrderMark), in...)
	}

	p := must(t, o, false, in)
	shown := strings.ReplaceAll(strings.TrimPrefix(string(p.after), string(byteOrderMark)), "\r\n", "\n")
	got := map[string]string{"adopted": shown, "servers": describe(p.Servers)}
	if *update {
		a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { _, ok := got[f.Name]; return ok })
		a.Files = append(a.Files, txtar.File{Name: "adopted", Data: []byte(got["adopted"])}, txtar.File{Name: "servers", Data: []byte(got["servers"])})
		if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if slices.Contains(flags, "crlf") && bytes.Count(p.after, []byte("\n")) != bytes.Count(p.after, []byte("\r\n")) {
		t.Errorf("line ends are mixed:\n%q", p.after)
	}

	again := must(t, o, false, p.after)
	if again.Changes() != 0 || !bytes.Equal(again.after, p.after) {
		t.Errorf("adopting twice changes more:\n%s", describe(again.Servers))
	}
	if strings.HasSuffix(file, "already.txtar") {
		return // holds entries of an earlier adopting, which are undone too
	}
	back := must(t, o, true, p.after)
	if d := cmp.Diff(string(in), string(back.after)); d != "" {
		t.Errorf("undoing does not give the original:\n%s", d)
	}
	if back.Changes() != p.Changes() {
		t.Errorf("%d adopted, %d undone", p.Changes(), back.Changes())
	}
}

// TestFind: files are found at the known paths of an operating system, and an
// editor's name is known by them.
func TestFind(t *testing.T) {
	o := options(t)
	dir := t.TempDir()
	o.Host.Dir = dir
	for _, path := range []string{
		o.Host.Home + "/.cursor/mcp.json", o.Host.Home + "/.config/Code/User/profiles/abc/mcp.json",
		dir + "/.vscode/mcp.json", dir + "/.mcp.json", dir + "/.zed/settings.json/folder",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []Place{
		{"Claude Code", dir + "/.mcp.json"},
		{"Cursor", o.Host.Home + "/.cursor/mcp.json"},
		{"VS Code", o.Host.Home + "/.config/Code/User/profiles/abc/mcp.json"},
		{"VS Code", dir + "/.vscode/mcp.json"},
	}
	got := o.Editors.Find(o.Host)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for path, editor := range map[string]string{
		"/elsewhere/.cursor/mcp.json": "Cursor", "/x/mcp.json": "", got[2].Path: "VS Code",
	} {
		if have := o.Editors.EditorOf(o.Host, path); have != editor {
			t.Errorf("%s: %q, want %q", path, have, editor)
		}
	}
	windows := Host{OS: "windows", Home: "H", Dir: "D", Getenv: func(k string) string { return map[string]string{"APPDATA": "A", "PROGRAMDATA": "P"}[k] }}
	if p, ok := windows.expand("{config}/Claude/x.json"); !ok || filepath.ToSlash(p) != "A/Claude/x.json" {
		t.Errorf("windows: %q, %v", p, ok)
	}
	if _, ok := windows.expand("{local}/x"); ok {
		t.Error("a folder that is not there leads somewhere")
	}
	if why := o.Editors.managedBy(windows, filepath.FromSlash("P/gemini-cli/settings.json")); why == "" {
		t.Error("ProgramData is not managed")
	}
}

// TestUserData: the user's entries come before the built-in ones; a file that
// cannot be used is one line with its place, and the built-in data hold.
func TestUserData(t *testing.T) {
	file := filepath.Join(t.TempDir(), "editors.yaml")
	load := func(text string) (*Editors, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(func(k string) string { return map[string]string{PathVariable: file}[k] })
	}
	e, err := load("forms: [{name: Mine, at: [agents, tools]}]\nleave: [{key: disabled, leave: false}]\n")
	if err != nil || e.Forms[0].Name != "Mine" || len(e.Forms) < 5 {
		t.Fatalf("%v, %+v", err, e.Forms)
	}
	o := options(t)
	o.Editors = e
	p := must(t, o, false, []byte(`{"agents": {"tools": {"x": {"command": "y", "disabled": true}}}}`))
	if p.Changes() != 1 || p.Forms[0] != "Mine" {
		t.Errorf("%s", describe(p.Servers))
	}
	nested := []byte(`{"mcpServers": {"x": {"command": {"command": "y"}}}}`)
	if e, err = load("forms: [{name: Nested, at: [mcpServers, x]}]"); err != nil {
		t.Fatal(err)
	}
	o.Editors = e
	if _, err := rewrite(*o, false, nested); !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), "two forms") {
		t.Errorf("a form inside another: %v", err)
	}
	for text, want := range map[string]string{
		"forms:\n  - {nam: x}\n":                   ":2:",
		"forms: [{name: x}]\n":                     "at must lead",
		"remotes: [{url: x, transport: ws}]\n":     "want a member's name",
		"managed: [{path: /etc, name: x.json}]\n":  "want one of path and name",
		"forms: [{name: x, at: [y], starts: z}]\n": "want server or agent",
		"types: [{is: x, transport: ws}]\n":        "want stdio, http or sse",
		"types: [{is: x, transport: sse, why: y}]": "or why alone",
	} {
		e, err := load(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || e == nil || len(e.Forms) == 0 {
			t.Errorf("%q: %v", text, err)
		}
	}
	if e, err := Load(func(k string) string { return map[string]string{PathVariable: file + "x"}[k] }); err == nil || e == nil {
		t.Errorf("a missing file that was named: %v", err)
	}
}
