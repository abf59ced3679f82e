package examples_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/examples"
	"github.com/belayhq/belay/script/lint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unpacked writes the examples to a folder of the test's own.
func unpacked(t *testing.T) examples.Places {
	t.Helper()
	p, err := examples.Unpack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func load(t *testing.T, p examples.Places, name string) *script.Tool {
	t.Helper()
	tool, err := script.LoadFor(filepath.Join(p.Tools, name), true)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// edit opens the folder of the sample.
func edit(t *testing.T, p examples.Places, write bool) *script.Editor {
	t.Helper()
	e, err := script.OpenEditor(p.Sample, write)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// run is one call to its end.
func run(t *testing.T, ctx context.Context, tool *script.Tool, o script.Options, params any) script.Ended { //nolint:revive // t goes first
	t.Helper()
	text, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	call, err := tool.Call(text, o)
	if err != nil {
		t.Fatal(err)
	}
	return call.Run(ctx)
}

func said(e script.Ended) string {
	var parts []string
	for _, p := range e.Result.Assistant {
		parts = append(parts, p.Text)
	}
	return strings.Join(parts, "|")
}

type fields = map[string]any

// TestUnpack writes what is embedded, and puts back what was changed.
func TestUnpack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	p, err := examples.Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(p.Tools, "own.txt")
	changed := filepath.Join(p.Sample, "README.md")
	for _, name := range []string{own, changed} {
		if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := examples.Unpack(dir); err != nil || again != p {
		t.Fatalf("again: %v, %v", again, err)
	}
	if text, err := os.ReadFile(own); err != nil || string(text) != "mine" {
		t.Errorf("a file of somebody's own: %q, %v", text, err)
	}
	if text, err := os.ReadFile(changed); err != nil || string(text) == "mine" {
		t.Errorf("an example was not put back: %q, %v", text, err)
	}
	entries, err := fs.ReadDir(examples.FS(), ".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := slices.Sorted(slices.Values(examples.Names())); !slices.Equal(names, want) {
		t.Errorf("the folders are %q, the names %q", names, want)
	}
}

// TestLoad holds each example to its name, and the hosts to what the script asks.
func TestLoad(t *testing.T) {
	p := unpacked(t)
	for _, name := range examples.Names() {
		if id := load(t, p, name).Manifest.ID; id != name {
			t.Errorf("%s has the id %q", name, id)
		}
	}
	text, err := fs.ReadFile(examples.FS(), "search_sources/sources.ts")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range examples.Hosts() {
		if !strings.Contains(string(text), `base: "https://`+host+`"`) {
			t.Errorf("no source is on %s", host)
		}
	}
	if bases := strings.Count(string(text), "base: \"https://"); bases != len(examples.Hosts()) {
		t.Errorf("%d sources, %d hosts", bases, len(examples.Hosts()))
	}
}

// TestAT44_WithoutEditor serves the search alone where no folder is granted, and says
// of the others why they are missing.
func TestAT44_WithoutEditor(t *testing.T) {
	p := unpacked(t)
	for _, editor := range []bool{false, true} {
		tools, refused := script.OpenCollection(script.CollectionOptions{Dirs: []string{p.Tools}, Editor: editor}).Tools()
		want := map[bool]int{false: 1, true: 3}[editor]
		if len(tools) != want || len(tools)+len(refused) != 3 {
			t.Errorf("editor %t: %d tools, refused %v", editor, len(tools), refused)
		}
		for _, r := range refused {
			if !errors.Is(r.Err, script.ErrUnsupported) || !strings.Contains(r.Err.Error(), "editor_root") {
				t.Errorf("editor %t: %v", editor, r)
			}
		}
	}
}

// TestLint finds nothing to say of an example: authors copy it.
func TestLint(t *testing.T) {
	p := unpacked(t)
	for _, name := range examples.Names() {
		for _, f := range lint.Project(filepath.Join(p.Tools, name), true).Findings {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// answers is what the public sources say, in short.
var answers = map[string]string{
	"/w/api.php":             `{"query":{"search":[{"title":"Stop sign","snippet":"A <span>stop</span> sign &amp; more"},{"title":"Full stop","snippet":""}]}}`,
	"/api/v1/search":         `{"hits":[{"title":"Why stop?","url":null,"objectID":"7","points":3,"num_comments":2}]}`,
	"/search/repositories":   `{"items":[{"full_name":"a/stop","html_url":"https://github.com/a/stop","description":null,"stargazers_count":9}]}`,
	"/2.3/search/advanced":   `{"items":[{"title":"How to stop","link":"https://so.example/1","answer_count":4,"is_answered":true}]}`,
	"/works":                 `{"message":{"items":[{"title":["On stopping"],"URL":"https://doi.example/1","container-title":["Journal"]}]}}`,
	"/empty/w/api.php":       `{"query":{"search":[]}}`,
	"/nonsense/w/api.php":    `{"query":7}`,
	"/html/api/v1/search":    `<html>`,
	"/html/w/api.php":        `<html>`,
	"/closed/w/api.php":      "",
	"/slow/2.3/search/above": "",
}

// web answers for all sources; "/slow" never does, and counts who left.
type web struct {
	at    string
	hosts *script.Network

	mu    sync.Mutex
	asked []string
	slow  chan struct{} // filled when "/slow" is asked
	gone  chan struct{} // and when who asked has left
}

func open(t *testing.T) *web {
	t.Helper()
	w := &web{slow: make(chan struct{}, 100), gone: make(chan struct{}, 100)}
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, r.URL.RequestURI())
		w.mu.Unlock()
		if strings.HasPrefix(r.URL.Path, "/slow") {
			w.slow <- struct{}{}
			<-r.Context().Done()
			w.gone <- struct{}{}
			return
		}
		text, ok := answers[r.URL.Path]
		if !ok || text == "" {
			out.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprint(out, text)
	}))
	t.Cleanup(s.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w.at, w.hosts = s.URL, &script.Network{Hosts: []string{strings.TrimPrefix(s.URL, "http://")}, Transport: transport}
	return w
}

// mirrors are addresses of this server for sources, all with the same beginning of
// their path unless another is named.
func (w *web) mirrors(begin map[string]string) fields {
	m := fields{}
	for _, name := range []string{"wikipedia", "hackernews", "github", "stackoverflow", "crossref"} {
		m[name] = w.at + begin[name]
	}
	return m
}

// TestSearch asks all sources and lists what they have, in the order they were named.
func TestSearch(t *testing.T) {
	w, tool := open(t), load(t, unpacked(t), "search_sources")
	e := run(t, t.Context(), tool, script.Options{Network: w.hosts}, fields{"query": " stop ", "limit": 1, "mirrors": w.mirrors(nil)})
	want := `5 hits for "stop":

## wikipedia
1. Stop sign
   https://en.wikipedia.org/wiki/Stop_sign
   A stop sign & more

## hackernews
1. Why stop?
   https://news.ycombinator.com/item?id=7
   3 points, 2 comments

## github
1. a/stop
   https://github.com/a/stop
   no description (9 stars)

## stackoverflow
1. How to stop
   https://so.example/1
   4 answers, solved

## crossref
1. On stopping
   https://doi.example/1
   Journal`
	if diff := cmp.Diff(want, said(e)); diff != "" || !e.Result.Success {
		t.Errorf("success %t\n%s", e.Result.Success, diff)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Sort(w.asked); w.asked[len(w.asked)-1] != "/works?query=stop&rows=1&select=title%2CURL%2Ccontainer-title" {
		t.Errorf("asked %q", w.asked)
	}
}

// TestSearchFailures says of each source why it could not be asked, and fails only if
// none could.
func TestSearchFailures(t *testing.T) {
	w, tool := open(t), load(t, unpacked(t), "search_sources")
	for name, test := range map[string]struct {
		params  fields
		network *script.Network
		success bool
		want    []string
	}{
		"some":     {fields{"query": "x", "sources": []string{"hackernews", "wikipedia"}, "mirrors": w.mirrors(map[string]string{"wikipedia": "/closed"})}, w.hosts, true, []string{"## hackernews\n1. Why", "## wikipedia\ncould not be asked: HTTP 503"}},
		"not JSON": {fields{"query": "x", "sources": []string{"wikipedia"}, "mirrors": w.mirrors(map[string]string{"wikipedia": "/html"})}, w.hosts, false, []string{"could not be asked: "}},
		"other":    {fields{"query": "x", "sources": []string{"wikipedia"}, "mirrors": w.mirrors(map[string]string{"wikipedia": "/nonsense"})}, w.hosts, false, []string{"could not be asked: "}},
		"empty":    {fields{"query": "x", "sources": []string{"wikipedia"}, "mirrors": w.mirrors(map[string]string{"wikipedia": "/empty"})}, w.hosts, true, []string{"0 hits", "found nothing"}},
		"closed":   {fields{"query": "x", "sources": []string{"github"}}, nil, false, []string{"api.github.com is not among the hosts"}},
		"unknown":  {fields{"query": "x", "sources": []string{"altavista"}}, nil, false, []string{"Unknown: altavista. There are: wikipedia"}},
		"nothing":  {fields{"query": "  "}, nil, false, []string{"The query is empty."}},
	} {
		e := run(t, t.Context(), tool, script.Options{Network: test.network}, test.params)
		for _, want := range test.want {
			if !strings.Contains(said(e), want) || e.Result.Success != test.success {
				t.Errorf("%s: success %t, %q, want %q in it", name, e.Result.Success, said(e), want)
			}
		}
	}
}

var theStop = &belay.Cancellation{Cause: belay.CauseUser, Reason: "enough"}

// stopAt runs a call and stops it at a report.
func stopAt(t *testing.T, tool *script.Tool, o script.Options, params any, when func(report string) bool) (script.Ended, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(theStop)
	var at time.Time
	o.Report = func(message, _ string) {
		if at.IsZero() && when(message) {
			at = time.Now()
			cancel(theStop)
		}
	}
	e := run(t, ctx, tool, o, params)
	if at.IsZero() {
		t.Fatal("it was never stopped")
	}
	return e, time.Since(at)
}

// TestSearchStop hands back the answers that are there, names the sources that are
// missing, and leaves them at once: the server is the witness (AT-16, AT-18).
func TestSearchStop(t *testing.T) {
	w, tool := open(t), load(t, unpacked(t), "search_sources")
	params := fields{"query": "stop", "mirrors": w.mirrors(map[string]string{"github": "/slow", "crossref": "/slow"})}
	// The grace is longer than the test may run: only the script itself leaves them.
	e, _ := stopAt(t, tool, script.Options{Network: w.hosts, Grace: time.Minute, KillAfter: 2 * time.Minute}, params, func(report string) bool {
		if !strings.HasPrefix(report, "3 of 5") {
			return false
		}
		<-w.slow // both have been asked, so that there is somebody to see the connection end
		<-w.slow
		return true
	})
	for range 2 {
		select {
		case <-w.gone:
		case <-time.After(30 * time.Second):
			t.Fatal("a server still has its connection")
		}
	}
	if !e.Cancelled || !e.Partial || e.Ending != script.Returned {
		t.Fatalf("ended %+v", e)
	}
	for _, want := range []string{"cancelled by the user.\nPartial results for \"stop\" (3 of 5 sources):", "Stop sign", "Why stop?", "How to stop", "Not answered yet: github, crossref"} {
		if !strings.Contains(e.Message, want) {
			t.Errorf("handed back %q, want %q in it", e.Message, want)
		}
	}
}

// TestScan finds what the sample has, once each.
func TestScan(t *testing.T) {
	p := unpacked(t)
	tool, editor := load(t, p, "scan_project"), edit(t, p, false)
	e := run(t, t.Context(), tool, script.Options{Editor: editor}, fields{"text": "GREY"})
	want := `sample: 6 files.
- syntax: 1
- marks: 3
- secrets: 1
- text: 1

syntax: src/broken.ts:3: Unexpected end of file
marks: notes/plan.md:2: - TODO: ask whether "late" should be a colour of its own
secrets: settings.json:1: a line that looks like a secret (not shown)
marks: src/colour.ts:1: // TODO: read the colours from the settings
marks: src/colour.ts:5: return colours[state] ?? "grey" // FIXME: a colour for states that nobody knows
text: src/colour.ts:5: return colours[state] ?? "grey" // FIXME: a colour for states that nobody knows`
	if diff := cmp.Diff(want, said(e)); diff != "" || !e.Result.Success {
		t.Errorf("success %t\n%s", e.Result.Success, diff)
	}
	if strings.Contains(said(e), "not-a-real-secret") {
		t.Error("a secret is shown")
	}
	for name, test := range map[string]struct {
		params fields
		want   string
	}{
		"below":   {fields{"look_for": []string{"marks"}, "below": "/src/"}, "sample: 3 files.\n- marks: 2"},
		"limit":   {fields{"look_for": []string{"marks"}, "limit": 1}, "… and 2 more"},
		"clean":   {fields{"look_for": []string{"conflicts", "long"}}, "nothing was found"},
		"unknown": {fields{"look_for": []string{"bugs"}}, "Unknown: bugs"},
	} {
		if e := run(t, t.Context(), tool, script.Options{Editor: editor}, test.params); !strings.Contains(said(e), test.want) {
			t.Errorf("%s: %q, want %q in it", name, said(e), test.want)
		}
	}
}

// TestScanStop hands back what was found until then, and how far it came.
func TestScanStop(t *testing.T) {
	p := unpacked(t)
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(p.Sample, fmt.Sprintf("n%03d.txt", i)), []byte("TODO\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, _ := stopAt(t, load(t, p, "scan_project"), script.Options{Editor: edit(t, p, false), Grace: time.Minute, KillAfter: 2 * time.Minute},
		fields{"look_for": []string{"marks"}}, func(report string) bool { return strings.HasPrefix(report, "40 of") })
	if !e.Cancelled || !e.Partial || e.Ending != script.Returned {
		t.Fatalf("ended %+v", e)
	}
	var looked, all, marks int
	head, rest, _ := strings.Cut(e.Message, "\n")
	if _, err := fmt.Sscanf(rest, "Partial results (%d of %d files):\n- marks: %d", &looked, &all, &marks); err != nil || head != "The scan of sample was cancelled by the user." {
		t.Fatalf("handed back %q: %v", e.Message, err)
	}
	if looked < 40 || looked >= all || all != 106 || marks < looked-6 {
		t.Errorf("%d of %d files, %d marks", looked, all, marks)
	}
}

// asking answers a dialog and remembers it.
type asking struct {
	dialog  script.Dialog
	preview string
	answer  script.Answer
	before  func()
}

func (a *asking) ask(ctx context.Context, d script.Dialog) (script.Answer, error) {
	a.dialog = d
	if d.OnPreview != nil {
		a.preview = d.OnPreview(ctx)
	}
	if a.before != nil {
		a.before()
	}
	return a.answer, nil
}

// tree is every file of a folder with its text.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReplace asks, shows, and then changes what was shown (AT-58, AT-60 to AT-62).
func TestReplace(t *testing.T) {
	for name, test := range map[string]struct {
		params  fields
		answer  script.Answer
		want    string
		success bool
		changed []string
		message string // of the dialog
	}{
		"agreed":     {fields{"find": "colour", "replace": "color", "whole_words": true}, script.Primary, "Changed 4 files:\nREADME.md (2)\nnotes/plan.md (2)\nsrc/colour.ts (1)\nsrc/label.tsx (1)", true, []string{"README.md", "notes/plan.md", "src/colour.ts", "src/label.tsx"}, "in 6 places of sample:\nREADME.md (2)\nnotes/plan.md (2)\nsrc/colour.ts (1)\nsrc/label.tsx (1)"},
		"below":      {fields{"find": "colour", "replace": "color", "below": "notes"}, script.Primary, "Changed 1 file:\nnotes/plan.md (2)", true, []string{"notes/plan.md"}, "in 2 places"},
		"declined":   {fields{"find": "colour", "replace": "color"}, script.Secondary, "The person left everything as it is.", false, nil, "Replace \"colour\" by \"color\""},
		"no answer":  {fields{"find": "colour", "replace": "color"}, script.Dismissed, "Nobody agreed, so nothing was changed.", false, nil, ""},
		"not there":  {fields{"find": "violet", "replace": "x"}, script.Primary, `"violet" is in no file. Nothing was changed.`, false, nil, `"violet" is in no file of sample.`},
		"same":       {fields{"find": "colour", "replace": "colour"}, script.Primary, `"colour" is in no file. Nothing was changed.`, false, nil, ""},
		"empty find": {fields{"find": "", "replace": "x"}, script.Primary, `"" is in no file. Nothing was changed.`, false, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := unpacked(t)
			before := tree(t, p.Sample)
			a := &asking{answer: test.answer}
			e := run(t, t.Context(), load(t, p, "replace_in_project"), script.Options{Editor: edit(t, p, true), Hooks: script.Hooks{Ask: a.ask}}, test.params)
			if said(e) != test.want || e.Result.Success != test.success || e.Declined == test.success {
				t.Errorf("ended %+v, want %q", e, test.want)
			}
			if !strings.Contains(a.dialog.Message, test.message) {
				t.Errorf("asked %q, want %q in it", a.dialog.Message, test.message)
			}
			var changed []string
			for name, text := range tree(t, p.Sample) {
				if before[name] != text {
					changed = append(changed, name)
				}
			}
			if slices.Sort(changed); !slices.Equal(changed, test.changed) {
				t.Errorf("changed %q, want %q", changed, test.changed)
			}
			if name == "agreed" && (!strings.Contains(a.preview, "-- choose one colour per state\n") || !strings.Contains(a.preview, "+- choose one color per state\n")) {
				t.Errorf("the preview shows %q", a.preview)
			}
		})
	}
}

// TestReplaceMeanwhile leaves a file alone that is another one than the person saw.
func TestReplaceMeanwhile(t *testing.T) {
	p := unpacked(t)
	plan := filepath.Join(p.Sample, "notes", "plan.md")
	a := &asking{answer: script.Primary, before: func() {
		if err := os.WriteFile(plan, []byte("another colour\n"), 0o600); err != nil {
			t.Error(err)
		}
	}}
	e := run(t, t.Context(), load(t, p, "replace_in_project"), script.Options{Editor: edit(t, p, true), Hooks: script.Hooks{Ask: a.ask}}, fields{"find": "colour", "replace": "color"})
	if text, err := os.ReadFile(plan); err != nil || string(text) != "another colour\n" {
		t.Errorf("the file is %q, %v", text, err)
	}
	if e.Result.Success || !strings.Contains(said(e), "Left alone:\nnotes/plan.md: changed since the question was asked") {
		t.Errorf("ended %+v", e)
	}
}

// TestReplaceReadOnly changes nothing where writing is not granted, and asks nobody for
// what cannot be done.
func TestReplaceReadOnly(t *testing.T) {
	p := unpacked(t)
	before := tree(t, p.Sample)
	a := &asking{answer: script.Primary}
	e := run(t, t.Context(), load(t, p, "replace_in_project"), script.Options{Editor: edit(t, p, false), Hooks: script.Hooks{Ask: a.ask}}, fields{"find": "colour", "replace": "color"})
	if e.Result.Success || said(e) != "Error: sample may only be read: the configuration must grant writing." || a.dialog.Message != "" || cmp.Diff(before, tree(t, p.Sample)) != "" {
		t.Errorf("ended %+v\n%s", e, cmp.Diff(before, tree(t, p.Sample)))
	}
}

// TestReplaceStop names the files that are done: the folder is the witness that these
// are changed, each completely, and no other (AT-14, AT-20).
func TestReplaceStop(t *testing.T) {
	for _, auto := range []bool{false, true} {
		p := unpacked(t)
		const line = "colour colour\n"
		for i := range 120 {
			if err := os.WriteFile(filepath.Join(p.Sample, fmt.Sprintf("n%03d.txt", i)), []byte(strings.Repeat(line, 50)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := &asking{answer: script.Primary}
		e, _ := stopAt(t, load(t, p, "replace_in_project"), script.Options{
			Editor: edit(t, p, true), Hooks: script.Hooks{Ask: a.ask}, AutoApprove: auto, Grace: time.Minute, KillAfter: 2 * time.Minute,
		}, fields{"find": "colour", "replace": "color", "below": ""}, func(report string) bool { return strings.HasPrefix(report, "n020.txt") })
		if !e.Cancelled || !e.Partial || e.Ending != script.Returned || e.Declined {
			t.Fatalf("auto %t: ended %+v", auto, e)
		}
		if auto != (a.dialog.Message == "") {
			t.Errorf("auto %t: asked %+v", auto, a.dialog)
		}
		changed := 0
		for name, text := range tree(t, p.Sample) {
			if !strings.HasPrefix(name, "n") || !strings.HasSuffix(name, ".txt") {
				continue
			}
			done := text == strings.Repeat("color color\n", 50)
			if !done && text != strings.Repeat(line, 50) {
				t.Errorf("auto %t: %s is half changed", auto, name)
			}
			if done {
				changed++
			}
			// What was under way when onCancel had its turn may be done and not named.
			if named := strings.Contains(e.Message, name+" (100)"); named && !done {
				t.Errorf("auto %t: %s is named, and not changed", auto, name)
			}
		}
		if named := strings.Count(e.Message, " (100)"); named < 20 || named > changed || changed > named+1 || changed >= 120 {
			t.Errorf("auto %t: %d files are named, %d changed", auto, named, changed)
		}
	}
}
