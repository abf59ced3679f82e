package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a compiler for another system would refuse is found in packages, in their
// tests, in external tests, and nowhere else; what others wrote is not judged.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module example.test/m\n\ngo 1.26\n",
		"m.go":                "package m\n\nimport \"os\"\n\nfunc F() *os.File { return handle() }\n",
		"m_unix.go":           "//go:build unix\n\npackage m\n\nimport \"os\"\n\nfunc handle() *os.File { return os.Stdout }\n",
		"m_windows.go":        "package m\n\nimport (\n\t\"os\"\n\t\"io\"\n)\n\nfunc handle() *os.File { return 1 }\n",
		"m_test.go":           "package m\n\nconst inner = 1\n",
		"x_test.go":           "package m_test\n\nimport \"example.test/m\"\n\nvar _ = m.F()\n",
		"sub/s.go":            "package sub\n\nimport _ \"example.test/m\"\n",
		"sub/s_darwin.go":     "package sub\n\nimport _ \"embed\"\n\n//go:embed none\nvar none string\n",
		"sub/s_linux_test.go": "package sub\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { x := 1 }\n",
		"only/o_windows.go":   "package only\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for system, want := range map[string][]string{
		"freebsd/arm64": nil,
		"linux/amd64":   {"declared and not used: x"},
		"windows":       {`"io" imported and not used`, "cannot use 1"},
		"darwin":        {"pattern none: no matching files found"},
	} {
		faults, checked, err := check(dir, system)
		if err != nil || checked < 3 {
			t.Errorf("%s: %d checked, %v", system, checked, err)
		}
		text := fmt.Sprint(faults)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %q in %s", system, w, text)
			}
		}
		if len(want) == 0 && len(faults) > 0 {
			t.Errorf("%s: %s", system, text)
		}
	}
}

// A folder without a module is no success.
func TestCheckNothing(t *testing.T) {
	if faults, checked, err := check(t.TempDir(), "linux"); err == nil && len(faults) == 0 {
		t.Errorf("%d checked", checked)
	}
}
