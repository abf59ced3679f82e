package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// report is the page that -update writes.
const report = "docs/conformance.md"

func main() {
	if len(os.Args) > 1 && os.Args[1] == betweenMarker {
		os.Exit(between(os.Args[2:]))
	}
	os.Exit(run())
}

// harness is one run of the program.
type harness struct {
	root    string // the module
	belay   string // the binary under test
	dir     string // scratch of this run
	verbose bool
	kit     kit
	table   table
}

func run() int {
	h := &harness{}
	var only, keep, belayPath string
	var update bool
	flag.StringVar(&only, "only", "", "run only the groups whose name contains this")
	flag.BoolVar(&update, "update", false, "write the table into "+report)
	flag.StringVar(&keep, "keep", "", "keep the suite's results and Belay's logs in this folder")
	flag.StringVar(&belayPath, "belay", "", "binary to test (default: built from this checkout)")
	flag.BoolVar(&h.verbose, "v", false, "show what the suite prints")
	flag.Parse()

	if err := h.prepare(belayPath, keep); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 1
	}
	if keep == "" {
		defer os.RemoveAll(h.dir)
	}
	if err := h.kit.install(filepath.Join(h.root, ".cache", "conformance")); err != nil {
		fmt.Fprintf(os.Stderr, "\n!!! conformance: NOT RUN, because the suite could not be installed (is a package registry reachable?): %v\n\n", err)
		return 0
	}
	for i := range groups {
		if strings.Contains(groups[i].name, only) {
			h.table.add(h.group(&groups[i]))
		}
	}
	fmt.Print(h.table.text())
	if update {
		if err := os.WriteFile(filepath.Join(h.root, report), []byte(h.table.markdown()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
			return 1
		}
	}
	return h.table.verdict()
}

// prepare makes the scratch directory and builds Belay.
func (h *harness) prepare(belayPath, keep string) error {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	h.root = filepath.Dir(strings.TrimSpace(string(out)))
	if keep == "" {
		h.dir, err = os.MkdirTemp("", "belay-conformance-")
	} else if h.dir, err = filepath.Abs(keep); err == nil {
		err = os.MkdirAll(h.dir, 0o755)
	}
	if err != nil {
		return err
	}
	if belayPath != "" {
		h.belay, err = filepath.Abs(belayPath)
		return err
	}
	h.belay = filepath.Join(h.dir, "belay")
	cmd := exec.Command("go", "build", "-trimpath", "-o", h.belay, "./cmd/belay")
	cmd.Dir = h.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build belay: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}
