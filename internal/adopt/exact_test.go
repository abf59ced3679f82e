package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/tailscale/hujson"
	"pgregory.net/rapid"
)

// exact holds one text to what the package promises: undone after adopting it
// is the same bytes, and adopting twice changes nothing. What is under Belay
// from the beginning is taken out first.
func exact(t interface {
	Fatalf(format string, args ...any)
}, o *Options, text []byte,
) {
	for range 20 {
		p, err := rewrite(*o, true, text)
		if err != nil {
			return // not what editors write: nothing would be changed
		}
		if p.Changes() == 0 {
			break
		}
		text = p.after
	}
	adopted, err := rewrite(*o, false, text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if _, err := hujson.Parse(append(bytes.TrimPrefix(adopted.after, byteOrderMark), '\n')); err != nil {
		t.Fatalf("%v in\n%s", err, adopted.after)
	}
	if adopted.Changes() == 0 != bytes.Equal(adopted.after, text) {
		t.Fatalf("%d changes, from\n%s\nto\n%s", adopted.Changes(), text, adopted.after)
	}
	twice, err := rewrite(*o, false, adopted.after)
	if err != nil || !bytes.Equal(twice.after, adopted.after) {
		t.Fatalf("%v; adopted twice\n%s\nbecomes\n%s", err, adopted.after, twice.after)
	}
	back, err := rewrite(*o, true, adopted.after)
	if err != nil || back.Changes() != adopted.Changes() || !bytes.Equal(back.after, text) {
		t.Fatalf("%v; %d changes, %d undone; from\n%q\nover\n%q\nback\n%q", err, adopted.Changes(), back.Changes(), text, adopted.after, back.after)
	}
}

// gen writes JSON as people do: white space, comments and commas anywhere.
type gen struct {
	*rapid.T
	b strings.Builder
}

var fillers = []string{"", "", " ", "\n  ", "\r\n\t", "\t", " /* c */ ", " // d\n", "\n\n    ", "/**/", " // \"x\": {\n  "}

func (g *gen) fill() { g.b.WriteString(rapid.SampledFrom(fillers).Draw(g.T, "fill")) }

func (g *gen) put(s string) { g.fill(); g.b.WriteString(s); g.fill() }

var words = []string{
	`"npx"`, `"-y"`, `"--"`, `"wrap"`, `"--name"`, `"--name=x"`, `"a b"`, `"\u0061\/b"`, `"ä\\"`, `""`, `"${input:k}"`, `"docker"`,
	`"belay"`, `"/opt/belay"`, `"cmd"`, `"/c"`, `"#"`, `"https://x.example.com/mcp"`, `"http://127.0.0.1:1/mcp/x#https:\/\/y.example.com\/"`,
}

func (g *gen) word() string { return rapid.SampledFrom(words).Draw(g.T, "word") }

// members writes what stands between braces or brackets.
func (g *gen) members(open, end string, n int, one func(i int)) {
	g.put(open)
	for i := range n {
		one(i)
		if i < n-1 || rapid.Bool().Draw(g.T, "trailing") {
			g.put(",")
		}
	}
	g.put(end)
}

func (g *gen) key(k string) { g.put(fmt.Sprintf("%q", k)); g.b.WriteString(":") }

func (g *gen) entry(older bool) {
	keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"command", "args", "env", "type", "url", "disabled", "cwd"}), 0, 6, rapid.ID[string]).Draw(g.T, "keys")
	g.members("{", "}", len(keys), func(i int) {
		key := keys[i]
		switch key {
		case "command":
			if older {
				g.key(key)
				g.launch()
				return
			}
			g.key(key)
			g.put(g.word())
		case "args":
			g.key(key)
			g.list()
		case "env":
			g.key(key)
			g.put(`{"A": "b"}`)
		case "type":
			g.key(key)
			g.put(rapid.SampledFrom([]string{`"stdio"`, `"http"`, `"sse"`, `"odd"`, `3`}).Draw(g.T, "type"))
		case "url":
			g.key(key)
			g.put(g.word())
		case "disabled":
			g.key(key)
			g.put(rapid.SampledFrom([]string{"true", "false", "null"}).Draw(g.T, "off"))
		default:
			g.key(key)
			g.put(g.word())
		}
	})
}

func (g *gen) launch() {
	keys := rapid.SampledFrom([][]string{{"path"}, {"path", "args"}, {"args", "path", "env"}, {"env"}}).Draw(g.T, "older")
	g.members("{", "}", len(keys), func(i int) {
		g.key(keys[i])
		if keys[i] == "args" {
			g.list()
			return
		}
		g.put(g.word())
	})
}

func (g *gen) list() {
	g.members("[", "]", rapid.IntRange(0, 4).Draw(g.T, "args"), func(int) { g.put(g.word()) })
}

// TestAdoptUndoIsExact: for any file of the known forms, undoing gives back
// its bytes (DESIGN 11, 12).
func TestAdoptUndoIsExact(t *testing.T) {
	o := options(t)
	o.Remote = true
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{T: t}
		if rapid.IntRange(0, 9).Draw(t, "mark") == 0 {
			g.b.Write(byteOrderMark)
		}
		form := rapid.SampledFrom([]string{"mcpServers", "servers", "context_servers", "mcp.servers"}).Draw(t, "form")
		g.members("{", "}", 2, func(i int) {
			if i == 0 {
				g.key("other")
				g.put("[1, {}]")
				return
			}
			g.key(form)
			g.members("{", "}", rapid.IntRange(0, 3).Draw(t, "servers"), func(n int) {
				g.key(fmt.Sprint(rapid.SampledFrom([]string{"s", "-s ", "$", "ä/b"}).Draw(t, "name"), n))
				g.entry(rapid.IntRange(0, 3).Draw(t, "older") == 0)
			})
		})
		exact(t, o, []byte(g.b.String()))
	})
}

// FuzzAdoptUndo holds any bytes to the same, and to no panic.
func FuzzAdoptUndo(f *testing.F) {
	files, _ := filepath.Glob("testdata/forms/*.txtar")
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range a.Files {
			f.Add(part.Data)
		}
	}
	f.Add([]byte(`{"mcpServers":{"a":{"command":"b","args":["wrap","--name=x","--","c",],}}}`))
	f.Add([]byte("{\"servers\":{\"\":{\"command\":\"\xff\"}}}//"))
	o := options(f)
	o.Remote = true
	f.Fuzz(func(t *testing.T, text []byte) { exact(t, o, text) })
}

// TestEditedSince: entries that somebody has edited after they were adopted
// are undone with their edits.
func TestEditedSince(t *testing.T) {
	o := options(t)
	for _, c := range []struct{ name, in, want string }{
		{
			"more arguments, fewer arguments",
			`{"mcpServers": {"a": {"command": "/x/belay", "args": ["wrap", "--name", "a", "--", "npx", "-y", "b", "more"]}}}`,
			`{"mcpServers": {"a": {"command": "npx", "args": ["-y", "b", "more"]}}}`,
		},
		{
			"flags of Belay",
			`{"mcpServers": {"a": {"command": "/x/belay", "args": ["wrap", "--enforce", "strict", "--name", "a", "--grace=1s", "--", "npx", "b"]}}}`,
			`{"mcpServers": {"a": {"command": "npx", "args": ["b"]}}}`,
		},
		{
			"written anew by a program, with indentation",
			"{\"mcpServers\": {\"a\": {\n  \"command\": \"/x/belay\",\n  \"args\": [\n    \"wrap\",\n    \"--name=a\",\n    \"--\",\n    \"npx\"\n  ],\n  \"env\": {}\n}}}",
			"{\"mcpServers\": {\"a\": {\n  \"command\": \"npx\",\n  \"env\": {}\n}}}",
		},
		{
			"a trailing comma in the list and behind it, a comment before it",
			`{"mcpServers": {"a": {"command": "belay", /* why */ "args": ["wrap", "--name=a", "--", "npx",],}}}`,
			`{"mcpServers": {"a": {"command": "npx", /* why */ }}}`,
		},
		{
			"the list first, then commas",
			`{"mcpServers": {"a": {"args": ["wrap", "--name=a", "--", "npx"], "command": "belay"}}}`,
			`{"mcpServers": {"a": { "command": "npx"}}}`,
		},
		{
			"an argument for one that had no list",
			`{"mcpServers": {"a": {"command": "belay", "args": ["wrap", "--name=a", "--", "npx", "new"]}}}`,
			`{"mcpServers": {"a": {"command": "npx", "args": ["new"]}}}`,
		},
		{
			"switched off since",
			`{"mcpServers": {"a": {"disabled": true, "command": "belay", "args": ["wrap", "--name", "a", "--", "npx"]}}}`,
			`{"mcpServers": {"a": {"disabled": true, "command": "npx", "args": []}}}`,
		},
		{
			"another port",
			`{"mcpServers": {"a": {"url": "http://localhost:9/mcp/b/sse#https://x.example.com/sse"}}}`,
			`{"mcpServers": {"a": {"url": "https://x.example.com/sse"}}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if p := must(t, o, true, []byte(c.in)); string(p.after) != c.want {
				t.Errorf("have %s\nwant %s\n%s", p.after, c.want, describe(p.Servers))
			}
		})
	}
	for name, in := range map[string]string{
		"by hand":                    `{"mcpServers": {"a": {"command": "belay", "args": ["wrap", "--", "npx"]}}}`,
		"without its dashes":         `{"mcpServers": {"a": {"command": "belay", "args": ["wrap", "--name=a", "npx"]}}}`,
		"without its command":        `{"mcpServers": {"a": {"command": "belay", "args": ["wrap", "--name=a", "--"]}}}`,
		"another program":            `{"mcpServers": {"a": {"command": "npx", "args": ["wrap", "--name=a", "--", "npx"]}}}`,
		"another subcommand":         `{"mcpServers": {"a": {"command": "belay", "args": ["exec", "--name=a", "--", "npx"]}}}`,
		"somebody else's fragment":   `{"mcpServers": {"a": {"url": "http://localhost:9/mcp#https://x.example.com/sse"}}}`,
		"a number where it belonged": `{"mcpServers": {"a": {"command": "belay", "args": ["wrap", "--name=a", "--", 1]}}}`,
	} {
		if p := must(t, o, true, []byte(in)); string(p.after) != in || p.Servers[0].Why == "" {
			t.Errorf("%s: %s\n%s", name, p.after, describe(p.Servers))
		}
	}
	byHand := *o
	byHand.Only = []string{"a"}
	if p := must(t, &byHand, true, []byte(`{"mcpServers": {"a": {"command": "belay", "args": ["wrap", "--", "npx"]}}}`)); p.Changes() != 1 {
		t.Errorf("--only does not take out what was put in by hand: %s", describe(p.Servers))
	}
}

// TestBadText: what is not an editor's JSON is one error with its place, and
// no value of the file in it.
func TestBadText(t *testing.T) {
	o := options(t)
	for _, c := range []struct {
		name, in, want string
		is             error
	}{
		{"empty", "", "1:1: not valid JSON: the file is empty", ErrSyntax},
		{"blank with a mark", "\xef\xbb\xbf \n", "the file is empty", ErrSyntax},
		{"utf-16", "\xff\xfe{\x00}\x00", "UTF-16", ErrSyntax},
		{"cut", "{\n  \"mcpServers\": {", "2:18: not valid JSON: the file ends too early", ErrSyntax},
		{"comma", "{\n  \"a\": 1\n  \"b\": 2}", "3:3: not valid JSON: invalid character", ErrSyntax},
		{"literal", "{\"a\": s3cret}", "1:7: not valid JSON: invalid literal", ErrSyntax},
		{"rest", "{} {}", "after top-level value", ErrSyntax},
		{"comment", "{/* {}", "ends too early", ErrSyntax},
		{"deep", strings.Repeat("[", 1000000), "1:257: not valid JSON: more than 256 levels", ErrSyntax},
		{"deep in comments", "{} /*" + strings.Repeat("[", 500) + "*/ //" + strings.Repeat("{", 500), "no MCP servers", ErrNoServers},
		{"list", "[1]", "1:1: not as an editor writes it: want an object", ErrShape},
		{"servers as a list", "{\"mcpServers\":\n [{}]}", "2:2: not as an editor writes it: mcpServers is a list", ErrShape},
		{"servers as a text", `{"mcp": {"servers": "x"}}`, "mcp.servers is a text", ErrShape},
		{"server as a text", `{"mcpServers": {"a": "npx"}}`, `1:22: not as an editor writes it: the server "a" is a text`, ErrShape},
		{"servers twice", `{"mcpServers": {}, "mcpServers": {}}`, `1:20: not as an editor writes it: the key "mcpServers" is there twice`, ErrShape},
		{"server twice", `{"mcpServers": {"a": {}, "\u0061": {}}}`, `the key "a" is there twice`, ErrShape},
		{"command twice", `{"mcpServers": {"a": {"command": "x", "command": "y"}}}`, `the key "command" is there twice`, ErrShape},
		{"path twice", `{"context_servers": {"a": {"command": {"path": "x", "path": "y"}}}}`, `the key "path" is there twice`, ErrShape},
		{"nothing", `{"a": 1}`, "no MCP servers or agents in it", ErrNoServers},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := rewrite(*o, false, []byte(c.in))
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestSelf: a path in PATH that leads to this program is better than the
// folder of its version; one of "go run" is none.
func TestSelf(t *testing.T) {
	dir := t.TempDir()
	exe := filepath.Join(dir, "Cellar", "belay", "1.2", "belay")
	link := filepath.Join(dir, "bin", "belay")
	other := filepath.Join(dir, "other", "belay")
	for _, f := range []string{exe, link, other} {
		if err := os.MkdirAll(filepath.Dir(f), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{exe, other} {
		if err := os.WriteFile(f, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	list := strings.Join([]string{"bin", filepath.Dir(other), filepath.Dir(link), filepath.Dir(exe)}, string(os.PathListSeparator))
	if p, err := selfFrom(exe, list); p != link || err != nil {
		t.Errorf("%q, %v; want %q", p, err, link)
	}
	if p, err := selfFrom(exe, filepath.Dir(other)); p != exe || err != nil {
		t.Errorf("%q, %v; want %q", p, err, exe)
	}
	gone := filepath.Join(dir, "go-build123", "exe", "belay")
	if err := os.MkdirAll(filepath.Dir(gone), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gone, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if p, err := selfFrom(gone, ""); !errors.Is(err, ErrNoSelf) {
		t.Errorf("%q, %v", p, err)
	}
}
