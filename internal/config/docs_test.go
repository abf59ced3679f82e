package config

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belayhq/belay/auth"
)

const docs = "../../docs/configuration.md"

var row = regexp.MustCompile("^\\| `([][a-z0-9_.]+)` \\| (?:`([^`]*)`)?[^|]*\\| (.*) \\|$")

// documented lists the rows of the tables below a heading: the key and its
// default, "key=default".
func documented(text, heading string) (keys, meanings []string) {
	_, text, _ = strings.Cut(text, "\n"+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		if m := row.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			keys = append(keys, m[1]+"="+m[2])
			meanings = append(meanings, m[3])
		}
	}
	return keys, meanings
}

// prefixes stand before the keys of a struct where one table has several, or a
// key occurs in more than one.
var prefixes = map[reflect.Type]string{
	reflect.TypeFor[TLS](): "tls.", reflect.TypeFor[Auth](): "auth.", reflect.TypeFor[Token](): "tokens[].",
	reflect.TypeFor[Issuer](): "issuers[].", reflect.TypeFor[Certificate](): "certificates[].",
	reflect.TypeFor[Orchestrate](): "orchestrate.", reflect.TypeFor[Cancellation](): "cancellation.",
	reflect.TypeFor[Ledger](): "ledger.", reflect.TypeFor[Metrics](): "metrics.", reflect.TypeFor[Traces](): "traces.",
	reflect.TypeFor[Latch](): "latch.", reflect.TypeFor[Leases](): "leases.", reflect.TypeFor[RAP](): "rap.",
	reflect.TypeFor[MTLS](): "mtls.", reflect.TypeFor[SigV4](): "sigv4.",
	reflect.TypeFor[RAPCallers](): "rap.sigv4.", reflect.TypeFor[RAPKey](): "rap.sigv4.keys[].",
}

// own lists the keys of a struct itself, embedded ones excepted, and each enum.
func own(t reflect.Type) (keys, enums []string) {
	for f := range t.Fields() {
		if key := f.Tag.Get("key"); key != "" && !f.Anonymous {
			keys = append(keys, prefixes[t]+key+"="+f.Tag.Get("default"))
			enums = append(enums, f.Tag.Get("enum"))
		}
	}
	return keys, enums
}

// TestDocs: docs/configuration.md has a row for every key, with its default and
// its values, and for no other.
func TestDocs(t *testing.T) {
	raw, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, s := range []struct {
		heading string
		types   []reflect.Type
	}{
		{"## Top of the file", []reflect.Type{reflect.TypeFor[file](), reflect.TypeFor[Settings]()}},
		{"## Connections: `tls`, `hosts`, `origins`", []reflect.Type{reflect.TypeFor[TLS]()}},
		{"## People: `auth`", []reflect.Type{reflect.TypeFor[Auth](), reflect.TypeFor[Token](), reflect.TypeFor[Issuer](), reflect.TypeFor[Certificate]()}},
		{"## Stopping by REST: `orchestrate`, `cancellation`, `latch`, `leases`", []reflect.Type{
			reflect.TypeFor[Orchestrate](), reflect.TypeFor[Cancellation](), reflect.TypeFor[Latch](), reflect.TypeFor[Leases](),
		}},
		{"## What is kept: `ledger`", []reflect.Type{reflect.TypeFor[Ledger]()}},
		{"## What operators see: `metrics`, `traces`", []reflect.Type{reflect.TypeFor[Metrics](), reflect.TypeFor[Traces]()}},
		{"## Server", []reflect.Type{reflect.TypeFor[Server]()}},
		{"## RAP: `rap`", []reflect.Type{reflect.TypeFor[RAP](), reflect.TypeFor[RAPServer](), reflect.TypeFor[MTLS](), reflect.TypeFor[SigV4](), reflect.TypeFor[RAPCallers](), reflect.TypeFor[RAPKey]()}},
		{"## Scripts: `scripts`", []reflect.Type{reflect.TypeFor[Scripts]()}},
		{"## Policy of a server", []reflect.Type{reflect.TypeFor[Policy]()}},
		{"## Policy of a tool", []reflect.Type{reflect.TypeFor[ToolPolicy]()}},
		{"## Hooks: `stop`", []reflect.Type{reflect.TypeFor[Stop](), reflect.TypeFor[Hook](), reflect.TypeFor[HTTPHook]()}},
		{"## Rules: `spare`", []reflect.Type{reflect.TypeFor[SpareRule]()}},
	} {
		var want, enums []string
		for _, typ := range s.types {
			k, e := own(typ)
			want, enums = append(want, k...), append(enums, e...)
		}
		got, meanings := documented(text, s.heading)
		for i, k := range want {
			at := slices.Index(got, k)
			if at < 0 {
				t.Errorf("%s: no row for %s", s.heading, k)
				continue
			}
			for value := range strings.SplitSeq(enums[i], ",") {
				if value != "" && !strings.Contains(meanings[at], "`"+value+"`") {
					t.Errorf("%s: the row of %s does not name %s", s.heading, k, value)
				}
			}
		}
		for _, k := range got {
			if !slices.Contains(want, k) {
				t.Errorf("%s: the row of %s has no key", s.heading, k)
			}
		}
	}
}

// TestExample: the example is accepted and shows every key.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	name := write(t, "belay.yaml", string(text))
	keys(t, filepath.Join(filepath.Dir(name), "tls"))
	c := load(t, Options{File: name, Getenv: env(map[string]string{"HOME": "/home/me"})})
	if len(c.Servers) != 5 {
		t.Errorf("%d servers", len(c.Servers))
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[file](), reflect.TypeFor[Server](), reflect.TypeFor[Policy](), reflect.TypeFor[ToolPolicy](),
		reflect.TypeFor[Stop](), reflect.TypeFor[Hook](), reflect.TypeFor[HTTPHook](), reflect.TypeFor[SpareRule](),
		reflect.TypeFor[TLS](), reflect.TypeFor[Auth](), reflect.TypeFor[Token](), reflect.TypeFor[Issuer](), reflect.TypeFor[Certificate](),
		reflect.TypeFor[Orchestrate](), reflect.TypeFor[Cancellation](), reflect.TypeFor[Ledger](), reflect.TypeFor[Metrics](),
		reflect.TypeFor[Traces](), reflect.TypeFor[Latch](), reflect.TypeFor[Leases](), reflect.TypeFor[Scripts](),
	} {
		for _, f := range fields(typ) {
			if !regexp.MustCompile(`(?m)(^|[\s{])` + f.key + `:`).Match(text) {
				t.Errorf("the example does not show %s", f.key)
			}
		}
	}
}

// TestDocsExamples: every example of the documentation is accepted, with
// nothing to be noted.
func TestDocsExamples(t *testing.T) {
	raw, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(raw), -1)
	if len(examples) < 4 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, e := range examples {
		name := write(t, "belay.yaml", e[1])
		keys(t, filepath.Dir(name))
		if err := os.Mkdir(filepath.Join(filepath.Dir(name), "tools"), 0o700); err != nil { // of scripts
			t.Fatal(err)
		}
		c := load(t, Options{File: name, Getenv: env(map[string]string{"SEARCH_TOKEN": "x"})})
		if len(c.Notes) > 0 {
			t.Errorf("notes %q of:\n%s", c.Notes, e[1])
		}
	}
}

// TestDocsRoles: the documentation says of each built-in role what it may do.
func TestDocsRoles(t *testing.T) {
	raw, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"admin", "operator", "user", "observer", "runtime"} {
		token, hash := auth.NewToken()
		a, err := auth.New(auth.Config{Tokens: []auth.Token{{Name: "x", Hash: hash, Roles: []string{role}}}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		p, err := a.Authenticate(r)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile("(?m)^\\| `" + role + "` \\| (.*) \\|$").FindStringSubmatch(string(raw))
		if m == nil {
			t.Fatalf("no row of %s", role)
		}
		said := auth.Permissions()
		if m[1] != "all" {
			said = nil
			for word := range strings.SplitSeq(m[1], ", ") {
				said = append(said, auth.Permission(strings.Trim(word, "`")))
			}
		}
		set, err := auth.SetOf(said...)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(set.List(), p.Permissions()) {
			t.Errorf("%s: the documentation says %v, it may %v", role, set.List(), p.Permissions())
		}
	}
	for _, p := range auth.Permissions() {
		if !strings.Contains(string(raw), "`"+string(p)+"`") {
			t.Errorf("the documentation does not name %s", p)
		}
	}
}
