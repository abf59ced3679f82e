package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// put writes a project below a folder, which says what it is told to.
func put(t *testing.T, dir, name, id, says string) string {
	t.Helper()
	return putCode(t, dir, name, id, fmt.Sprintf("AssistantTool.registerExecuteTool(async () => ({success: true, message: %q}))", says))
}

func putCode(t *testing.T, dir, name, id, code string) string {
	t.Helper()
	dir = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		ManifestFile:        fmt.Sprintf(`{"id":%q,"displayName":"A","description":"B","parameters":[]}`, id),
		"assistant_tool.ts": code,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// said runs a tool and returns the text of its result.
func said(t *testing.T, tool *Tool) string {
	t.Helper()
	if tool == nil {
		return "(none)"
	}
	call, err := tool.Call([]byte("{}"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return call.Run(t.Context()).Result.Assistant[0].Text
}

func idsOf(tools []*Tool) string {
	var ids []string
	for _, tool := range tools {
		ids = append(ids, tool.Manifest.ID)
	}
	return strings.Join(ids, " ")
}

// TestAT46_Collection loads what can be loaded, refuses the later of two with one id,
// and says why.
func TestAT46_Collection(t *testing.T) {
	dir, lone := t.TempDir(), t.TempDir()
	put(t, dir, "b", "beta", "b")
	put(t, dir, "a", "alpha", "a")
	put(t, dir, "c", "alpha", "the later")
	putCode(t, dir, "d", "delta", "let let = 1 +")
	if err := os.MkdirAll(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, lone, "", "lone", "l")
	var log strings.Builder
	c := OpenCollection(CollectionOptions{
		Dirs: []string{dir, lone, dir, filepath.Join(dir, "missing")},
		Log:  slog.New(slog.NewTextHandler(&log, nil)),
	})
	for range 2 { // the second time nothing is logged again
		tools, refused := c.Tools()
		if got := idsOf(tools); got != "alpha beta lone" {
			t.Errorf("tools %q", got)
		}
		if len(refused) != 2 || !errors.Is(refused[0].Err, ErrDuplicate) || !errors.Is(refused[1].Err, ErrSource) {
			t.Errorf("refused %v", refused)
		}
	}
	if got := said(t, c.Tool("alpha")); got != "a" {
		t.Errorf("alpha says %q", got)
	}
	if c.Tool("delta") != nil || c.Tool("gamma") != nil {
		t.Error("there are tools that cannot be")
	}
	for _, words := range []string{ErrDuplicate.Error(), "the script cannot be compiled", "missing"} {
		if n := strings.Count(log.String(), words); n != 1 {
			t.Errorf("%q is logged %d times:\n%s", words, n, log.String())
		}
	}
}

// TestAT86_Reload: a changed file is read again, and the tool that is in somebody's
// hands stays as it is.
func TestAT86_Reload(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a", "alpha", "one")
	c := OpenCollection(CollectionOptions{Dirs: []string{dir}})
	first := c.Tool("alpha")
	if said(t, first) != "one" || c.Tool("alpha") != first {
		t.Fatal("an unchanged project is another tool")
	}
	put(t, dir, "a", "alpha", "two") // as long as before, and at once: only what is in it tells
	second := c.Tool("alpha")
	if got := said(t, second); got != "two" {
		t.Errorf("after the change it says %q", got)
	}
	if said(t, first) != "one" {
		t.Error("a tool has changed in somebody's hands")
	}
	put(t, dir, "a", "gamma", "two")
	put(t, dir, "b", "beta", "new")
	if c.Tool("alpha") != nil || said(t, c.Tool("gamma")) != "two" || said(t, c.Tool("beta")) != "new" {
		t.Error("a new id, or a new project, is not found")
	}
	if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if c.Tool("beta") != nil {
		t.Error("a project that is gone is served")
	}
	if tools, refused := c.Tools(); idsOf(tools) != "gamma" || len(refused) != 0 {
		t.Errorf("%q, refused %v", idsOf(tools), refused)
	}
}

// TestAT86_LastGood: a project that was good is served as it was while it has a
// mistake, until its folder is none any more.
func TestAT86_LastGood(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a", "alpha", "good")
	var log strings.Builder
	c := OpenCollection(CollectionOptions{Dirs: []string{dir}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	c.Tools()
	for _, bad := range []string{"let let = 1 +", `throw new Error("at the top")`, "1"} {
		putCode(t, dir, "a", "alpha", bad)
		tools, refused := c.Tools()
		if len(tools) != 1 || said(t, tools[0]) != "good" || len(refused) != 1 {
			t.Errorf("%s: %q, refused %v", bad, idsOf(tools), refused)
		}
		if said(t, c.Tool("alpha")) != "good" {
			t.Errorf("%s: the last good program is not called", bad)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "a", ManifestFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said(t, c.Tool("alpha")) != "good" {
		t.Error("with a broken manifest the last good program is not called")
	}
	put(t, dir, "a", "alpha", "better")
	if tools, refused := c.Tools(); len(refused) != 0 || said(t, tools[0]) != "better" {
		t.Errorf("refused %v", refused)
	}
	if !strings.Contains(log.String(), "its last good program goes on") || !strings.Contains(log.String(), "good again") {
		t.Error(log.String())
	}
	for _, file := range []string{ManifestFile, "assistant_tool.ts"} {
		if err := os.Remove(filepath.Join(dir, "a", file)); err != nil {
			t.Fatal(err)
		}
	}
	if tools, _ := c.Tools(); len(tools) != 0 || c.Tool("alpha") != nil {
		t.Error("what is no project any more is served")
	}
}

// TestAT86_Imports: a change of what a script imports is a change of the script.
func TestAT86_Imports(t *testing.T) {
	dir := t.TempDir()
	a := putCode(t, dir, "a", "alpha", `import {word} from "./lib/word"
		AssistantTool.registerExecuteTool(async () => ({success: true, message: word}))`)
	lib := filepath.Join(a, "lib", "word.ts")
	if err := os.MkdirAll(filepath.Dir(lib), 0o700); err != nil {
		t.Fatal(err)
	}
	c := OpenCollection(CollectionOptions{Dirs: []string{a}})
	for _, word := range []string{"one", "three"} {
		if err := os.WriteFile(lib, []byte("export const word = \""+word+"\""), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := said(t, c.Tool("alpha")); got != word {
			t.Errorf("says %q, not %q", got, word)
		}
	}
	found := false
	for _, watched := range c.Watched() {
		found = found || watched == filepath.Dir(lib)
	}
	if !found {
		t.Errorf("%q are watched", c.Watched())
	}
}

// TestCollectionQuick: a project that has been left alone is looked at, not loaded.
func TestCollectionQuick(t *testing.T) {
	dir := t.TempDir()
	a := put(t, dir, "a", "alpha", "one")
	old := time.Now().Add(-time.Hour)
	for _, file := range []string{ManifestFile, "assistant_tool.ts"} {
		if err := os.Chtimes(filepath.Join(a, file), old, old); err != nil {
			t.Fatal(err)
		}
	}
	c := OpenCollection(CollectionOptions{Dirs: []string{dir}})
	c.Tools()
	if s := stampOf(a); s.fresh || s != stampOf(a) {
		t.Error("an old project is new")
	}
	p := c.last()[0]
	p.mu.Lock()
	p.tool = nil // whoever loads it again makes one
	p.mu.Unlock()
	if tools, _ := c.Tools(); len(tools) > 0 || c.Tool("alpha") != nil {
		t.Error("it was loaded again")
	}
}

func BenchmarkCollectionTool(b *testing.B) {
	dir := b.TempDir()
	for i := range 20 {
		name := fmt.Sprintf("p%d", i)
		sub := filepath.Join(dir, name)
		_ = os.MkdirAll(sub, 0o700)
		_ = os.WriteFile(filepath.Join(sub, ManifestFile), fmt.Appendf(nil, `{"id":%q,"displayName":"A","description":"B","parameters":[]}`, name), 0o600)
		_ = os.WriteFile(filepath.Join(sub, "assistant_tool.ts"), []byte("AssistantTool.registerExecuteTool(async () => ({success: true, message: ''}))"), 0o600)
	}
	time.Sleep(2 * freshFor)
	c := OpenCollection(CollectionOptions{Dirs: []string{dir}})
	c.Tools()
	b.ResetTimer()
	for b.Loop() {
		if c.Tool("p19") == nil {
			b.Fatal("none")
		}
	}
}

// TestAT86_Untried: a call meets what its own tool's top level does, nobody else's.
func TestAT86_Untried(t *testing.T) {
	dir := t.TempDir()
	putCode(t, dir, "a", "alpha", "export {}")
	putCode(t, dir, "b", "beta", `throw new Error("at the top")`)
	put(t, dir, "c", "gamma", "well")
	c := OpenCollection(CollectionOptions{Dirs: []string{dir}, Try: func(context.Context, []string, func(int, error)) {
		t.Error("somebody was tried for a call")
	}})
	for id, want := range map[string]string{
		"alpha": "Error: the script does not register its tool", "beta": "Error: at the top", "gamma": "well",
	} {
		if got := said(t, c.Tool(id)); got != want {
			t.Errorf("%s: %q, not %q", id, got, want)
		}
	}
}

// TestAT86_TriedElsewhere: what was tried elsewhere counts as if it was here, and what
// nobody has said anything of is tried again.
func TestAT86_TriedElsewhere(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a", "alpha", "a")
	put(t, dir, "b", "beta", "b")
	put(t, dir, "c", "gamma", "c")
	old := time.Now().Add(-time.Hour) // what was written just now is looked at twice
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
	}
	var tried []string
	bad := errors.New("it looks bad")
	c := OpenCollection(CollectionOptions{Dirs: []string{dir}, Try: func(_ context.Context, dirs []string, said func(int, error)) {
		for i, dir := range dirs {
			tried = append(tried, filepath.Base(dir))
			switch filepath.Base(dir) {
			case "a":
				said(i, nil)
			case "b":
				said(i, bad)
			}
		}
	}})
	defer c.Close()
	for range 2 {
		tools, refused := c.Tools()
		if idsOf(tools) != "alpha" || len(refused) != 1 || !errors.Is(refused[0].Err, bad) {
			t.Errorf("%q, refused %v", idsOf(tools), refused)
		}
	}
	if got := strings.Join(tried, " "); got != "a b c c" {
		t.Errorf("tried %q", got)
	}
	if c.Tool("beta") != nil {
		t.Error("a refused tool is called")
	}
}
