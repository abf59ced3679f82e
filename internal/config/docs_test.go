package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const docs = "../../docs/configuration.md"

var row = regexp.MustCompile("^\\| `([a-z_]+)` \\| (?:`([^`]*)`)?[^|]*\\| (.*) \\|$")

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

// own lists the keys of a struct itself, embedded ones excepted, and each enum.
func own(t reflect.Type) (keys, enums []string) {
	for f := range t.Fields() {
		if key := f.Tag.Get("key"); key != "" && !f.Anonymous {
			keys = append(keys, key+"="+f.Tag.Get("default"))
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
		{"## Top of the file", []reflect.Type{reflect.TypeFor[file]()}},
		{"## Server", []reflect.Type{reflect.TypeFor[Server]()}},
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
	const name = "testdata/example.yaml"
	c := load(t, Options{File: name, Getenv: env(map[string]string{"HOME": "/home/me"})})
	if len(c.Servers) != 2 {
		t.Errorf("%d servers", len(c.Servers))
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[file](), reflect.TypeFor[Server](), reflect.TypeFor[Policy](), reflect.TypeFor[ToolPolicy](),
		reflect.TypeFor[Stop](), reflect.TypeFor[Hook](), reflect.TypeFor[HTTPHook](), reflect.TypeFor[SpareRule](),
	} {
		for _, f := range fields(typ) {
			if !regexp.MustCompile(`(?m)(^|[\s{])` + f.key + `:`).Match(text) {
				t.Errorf("the example does not show %s", f.key)
			}
		}
	}
}
