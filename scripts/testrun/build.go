package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pkg is a package that has tests.
type pkg struct {
	path, dir string
	binary    string   // empty if it did not build
	targets   []string // its fuzz targets
}

// build builds the tests of every package into the folder and says where they
// are. go test builds them, as many at once as there are cores, and runs this
// program in place of each, which keeps the binary.
func build(ctx context.Context, s *settings) ([]*pkg, error) {
	packages, err := list(ctx, s)
	if err != nil {
		return nil, err
	}
	to, err := filepath.Abs(s.keep)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o700)); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append([]string{"test", "-race", "-vet=off", "-count=1", "-exec", "'" + self + "'"}, s.packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), keepEnv+"="+to)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil { // the packages without a binary will be counted
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "ok  \t") && !strings.Contains(line, "[no test files]") {
				fmt.Fprint(os.Stderr, line)
			}
		}
	}
	for _, p := range packages {
		if built, _ := filepath.Glob(filepath.Join(to, nameOf(p.dir), "*")); len(built) == 1 {
			p.binary = built[0]
		}
	}
	return packages, nil
}

// list names the packages with tests.
func list(ctx context.Context, s *settings) ([]*pkg, error) {
	const form = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{"\t"}}{{.Dir}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-f", form}, s.packages...)...)
	cmd.Dir, cmd.Stderr = s.dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []*pkg
	for line := range strings.Lines(string(out)) {
		if path, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			targets, err := fuzzTargets(dir)
			if err != nil {
				return nil, err
			}
			packages = append(packages, &pkg{path: path, dir: dir, targets: targets})
		}
	}
	if len(packages) == 0 {
		return nil, errors.New("no package has a test")
	}
	return packages, nil
}

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// fuzzTargets finds the fuzz targets of a folder, so that none is forgotten.
func fuzzTargets(dir string) (targets []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
			targets = append(targets, string(m[1]))
		}
	}
	slices.Sort(targets)
	return targets, nil
}

// nameOf is the name of what is kept for a package's folder.
func nameOf(dir string) string {
	return strings.NewReplacer("%", "%25", "/", "%2f", `\`, "%5c", ":", "%3a").Replace(dir)
}

// keep is what this program does in place of a test binary: the working folder
// is that of the package, and go test is about to delete the binary.
func keep(to, binary string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	to = filepath.Join(to, nameOf(dir))
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	to = filepath.Join(to, filepath.Base(binary)) // tests see their own program's name
	if os.Link(binary, to) == nil {
		return nil
	}
	in, err := os.Open(binary) // on another file system
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// converter is the program that turns the output of a test into events.
func converter(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "tool", "-n", "test2json").Output()
	if err != nil {
		return "", fmt.Errorf("go tool test2json: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
