package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// folderOf is where the tests of a package are that docs name.
var folderOf = map[string]string{"belay": ".", "cli": "internal/cli", "arch": "internal/arch", "peers": "internal/peers", "demo": "internal/demo", "adopt": "internal/adopt", "config": "internal/config", "httpserver": "mcp/httpserver", "httpclient": "mcp/httpclient", "client": "admin/client", "agent": "acp/agent", "bridge": "acp/bridge", "front": "acp/front", "spawn": "rap/spawn", "sigv4": "rap/sigv4", "rapdoor": "internal/rapdoor", "raptools": "internal/raptools", "egress": "internal/egress", "examples": "script/examples", "worker": "script/worker", "lint": "script/lint", "memcap": "internal/memcap"}

// TestGuaranteesAreProven holds docs/guarantees.md to the tests that it names:
// a promise whose test is gone is no promise.
func TestGuaranteesAreProven(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 30 {
		t.Fatalf("docs/guarantees.md names %d tests; has its form changed?", len(named))
	}
	sources := map[string]string{}
	for _, n := range named {
		pkg, test := n[1], n[2]
		if _, ok := sources[pkg]; !ok {
			sources[pkg] = testSource(t, pkg)
		}
		if !strings.Contains(sources[pkg], "func "+test+"(") {
			t.Errorf("docs/guarantees.md names %s.%s, which does not exist", pkg, test)
		}
	}
}

func testSource(t *testing.T, pkg string) string {
	folder, ok := folderOf[pkg]
	if !ok {
		folder = pkg
	}
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("no tests of package %s in %s: %v", pkg, folder, err)
	}
	var all strings.Builder
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(raw)
	}
	return all.String()
}
