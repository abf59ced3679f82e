package script

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// named are the requirements that a test says it proves: AT-7, AT-7 to AT-9, and
// TestAT07_….
var named = regexp.MustCompile(`AT-?(\d+)(?: to AT-(\d+))?`)

// TestEveryRequirementIsNamed: each of the 89 requirements of scripted tools is named
// by a test that proves it, somewhere in this module. What a test says it proves is for
// its reader to judge; that nobody has forgotten one is for this.
func TestEveryRequirementIsNamed(t *testing.T) {
	const last = 89
	var by [last + 1][]string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "node_modules" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go") || d.Name() == "coverage_test.go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			from, _ := strconv.Atoi(m[1])
			to := from
			if m[2] != "" {
				to, _ = strconv.Atoi(m[2])
			}
			for n := from; n <= to && n <= last; n++ {
				by[n] = append(by[n], path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= last; n++ {
		if len(by[n]) == 0 {
			t.Errorf("no test names AT-%d", n)
		}
		if testing.Verbose() {
			t.Logf("AT-%d: %s", n, strings.Join(by[n], " "))
		}
	}
}
