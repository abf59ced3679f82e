// Command crosscheck type-checks every package of this module, tests included,
// for each system that is named (GOOS, or GOOS/GOARCH), without a C compiler, as
// Belay is released. It says what a compiler would say about the code of another
// system, and takes a twentieth of the compiler's time: of what others wrote
// only the declarations are read, from source, and nothing is compiled.
//
//	go run ./scripts/crosscheck linux darwin windows
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

func main() {
	status := 0
	for _, system := range os.Args[1:] {
		faults, checked, err := check(".", system)
		if err != nil {
			faults = append(faults, err)
		}
		for _, fault := range faults {
			fmt.Fprintf(os.Stderr, "%s: %v\n", system, fault)
			status = 1
		}
		fmt.Printf("%s: %d packages of this module were checked, %d faults\n", system, checked, len(faults))
	}
	os.Exit(status)
}

// listed is a package, or the variant of one that its tests see, as go list
// tells it.
type listed struct {
	ImportPath string            `json:"ImportPath"`
	Dir        string            `json:"Dir"`
	GoFiles    []string          `json:"GoFiles"`
	Imports    []string          `json:"Imports"`
	ImportMap  map[string]string `json:"ImportMap"`
	Module     *struct {
		Main      bool   `json:"Main"`
		GoVersion string `json:"GoVersion"`
	} `json:"Module"`
	Error *struct {
		Err string `json:"Err"`
		Pos string `json:"Pos"`
	} `json:"Error"`
}

func (l *listed) ours() bool { return l.Module != nil && l.Module.Main }

// check checks the module in a folder for one system and counts its packages.
func check(dir, system string) (faults []error, checked int, err error) {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		goarch = runtime.GOARCH
	}
	packages, err := list(dir, goos, goarch)
	if err != nil {
		return nil, 0, err
	}
	c := &checker{fset: token.NewFileSet(), sizes: types.SizesFor("gc", goarch), slots: make(chan struct{}, runtime.NumCPU()), done: map[string]*result{}}
	for _, l := range packages {
		c.done[l.ImportPath] = &result{ready: make(chan struct{})}
	}
	var all sync.WaitGroup
	for _, l := range packages {
		all.Go(func() { c.check(l) })
	}
	all.Wait()
	for _, l := range packages {
		if l.Error != nil {
			faults = append(faults, fmt.Errorf("%s: %s", l.Error.Pos, l.Error.Err))
		}
		if l.ours() {
			faults = append(faults, c.done[l.ImportPath].faults...)
			checked++
		}
	}
	if checked == 0 {
		return faults, 0, errors.New("go list names no package of this module")
	}
	return faults, checked, nil
}

// list asks for every package of the module, its tests, and all that they need.
func list(dir, goos, goarch string) ([]*listed, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,EmbedFiles,Imports,ImportMap,Module,Error", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var packages []*listed
	for in := json.NewDecoder(out); ; {
		l := &listed{}
		if err = in.Decode(l); err != nil {
			break
		}
		if !strings.HasSuffix(l.ImportPath, ".test") && l.ImportPath != "unsafe" { // the main of a test is made by go test
			packages = append(packages, l)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return packages, cmd.Wait()
}

// checker checks packages at once, each when those that it imports are ready.
type checker struct {
	fset  *token.FileSet
	sizes types.Sizes
	slots chan struct{}
	done  map[string]*result // complete before the first check
}

// result is what a package came to; it may be read when ready is closed.
type result struct {
	ready  chan struct{}
	types  *types.Package
	faults []error
}

func (c *checker) check(l *listed) {
	r := c.done[l.ImportPath]
	defer close(r.ready)
	for _, name := range l.Imports { // in go list's own names: cycles are refused there
		if need := c.done[name]; need != nil {
			<-need.ready
		}
	}
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	fault := func(err error) { r.faults = append(r.faults, err) }
	var files []*ast.File
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			fault(err)
		}
		if f != nil {
			files = append(files, f)
		}
	}
	config := types.Config{
		Importer: imports{c, l}, Sizes: c.sizes, Error: fault,
		IgnoreFuncBodies: !l.ours(), // and what they import in vain
	}
	if l.Module != nil && l.Module.GoVersion != "" {
		config.GoVersion = "go" + l.Module.GoVersion
	}
	path, _, _ := strings.Cut(l.ImportPath, " ") // "p [p.test]" is p
	r.types, _ = config.Check(path, c.fset, files, nil)
}

// imports finds what one package imports among what was checked before it.
type imports struct {
	c *checker
	l *listed
}

func (i imports) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if other, ok := i.l.ImportMap[path]; ok {
		path = other
	}
	r := i.c.done[path]
	if r == nil || r.types == nil {
		return nil, fmt.Errorf("package %s is not there for this system", path)
	}
	return r.types, nil
}
