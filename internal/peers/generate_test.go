package peers

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"go/format"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write builtin.go from the data files")

//go:embed relays.yaml
var relaysYAML []byte

//go:embed spare.yaml
var spareYAML []byte

//go:embed slow.yaml
var slowYAML []byte

//go:embed servers.yaml
var serversYAML []byte

// TestBuiltinIsGenerated: builtin.go says what the data files say. After a
// change of one of them run the tests of this package with -update.
func TestBuiltinIsGenerated(t *testing.T) {
	want := generate(t)
	if *update {
		if err := os.WriteFile("builtin.go", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("builtin.go")
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("builtin.go is not what the data files make it (%v); run go test ./internal/peers -run Generated -update", err)
	}
}

func generate(t *testing.T) []byte {
	must := func(name string, text []byte) document {
		d, err := parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	var b bytes.Buffer
	b.WriteString("// Code generated from the data files beside it by go test -run Generated -update; DO NOT EDIT.\n\npackage peers\n")
	b.WriteString("\nvar relays = []relay{\n")
	for _, r := range must("relays.yaml", relaysYAML).Relays {
		fmt.Fprintf(&b, "{%s%s},\n", inMatch(r.Match), flagged("Relay", r.Relay))
	}
	b.WriteString("}\n\nvar spares = []spare{\n")
	for _, s := range must("spare.yaml", spareYAML).Spare {
		fmt.Fprintf(&b, "{%s},\n", join(text("Comm", s.Comm), list("Args", s.Args), list("NotArgs", s.NotArgs), text("Why", s.Why))+flagged("Spare", s.Spare))
	}
	b.WriteString("}\n\nvar slows = []slow{\n")
	for _, s := range must("slow.yaml", slowYAML).Slow {
		fmt.Fprintf(&b, "{%s%s},\n", inMatch(s.Match), flagged("Slow", s.Slow))
	}
	b.WriteString("}\n\nvar servers = []server{\n")
	for _, s := range must("servers.yaml", serversYAML).Servers {
		fmt.Fprintf(&b, "{%s},\n", join(list("Package", s.Package), text("Restart", s.Restart), text("Why", s.Why)))
	}
	b.WriteString("}\n")
	out, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func inMatch(m match) string {
	return "Match: match{" + join(list("Command", m.Command), list("Words", m.Words), list("Unless", m.Unless), text("Why", m.Why)) + "}"
}

// flagged is a *bool member: absent, or one of yes and no.
func flagged(name string, p *bool) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(", %s: new(%v)", name, *p)
}

func text(name, s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%s: %q", name, s)
}

func list(name string, l []string) string {
	if len(l) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %#v", name, l)
}

func join(parts ...string) string {
	var there []string
	for _, p := range parts {
		if p != "" {
			there = append(there, p)
		}
	}
	return strings.Join(there, ", ")
}
