package script

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/evanw/esbuild/pkg/api"
)

// maxNesting bounds how deep a script's brackets, arrows and prefixes may be nested. The
// compiler and the interpreter walk a program by recursion, and a stack that is full
// ends the whole process: the project's mistake must not be its neighbours'.
const maxNesting = 5000

// sourceMapURL is the comment by which a file names another, wherever that lies, which
// the compiler would read.
var sourceMapURL = regexp.MustCompile(`[#@]\s*sourceMappingURL`)

// readSource reads one file of a project for the compiler: never one outside of the
// folder, links followed, and never more than the bundle may have.
func readSource(dir, path string) ([]byte, error) {
	if !within(dir, path) {
		return nil, fmt.Errorf("%q lies outside of the project", filepath.Base(path))
	}
	switch info, err := os.Stat(path); { // before it is opened: a pipe would wait for its other end
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is no file", filepath.Base(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxBundle+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > MaxBundle:
		return nil, fmt.Errorf("%q is longer than a compiled script may be, at most %d bytes", filepath.Base(path), MaxBundle)
	}
	if line, deep := tooDeep(text); deep {
		return nil, fmt.Errorf("%q is nested more than %d deep at line %d", filepath.Base(path), maxNesting, line)
	}
	return sourceMapURL.ReplaceAllFunc(text, func(found []byte) []byte {
		return bytes.Repeat([]byte{' '}, len(found)) // of the same length, so that places stay
	}), nil
}

// tooDeep looks for nesting without parsing: what stands in strings and comments counts
// as well, which no script that people write comes near.
func tooDeep(text []byte) (line int, deep bool) {
	line = 1
	var open, prefixes, arrows int
	for i, c := range text {
		switch c {
		case '(', '[', '{':
			open++
		case ')', ']', '}':
			open = max(open-1, 0)
		case '\n':
			line++
		}
		switch c {
		case '!', '~', '+', '-':
			prefixes++
		case ' ', '\t', '\r', '\n':
		default:
			prefixes = 0
		}
		switch {
		case c == ';', c == ',', c == '}':
			arrows = 0
		case c == '>' && i > 0 && text[i-1] == '=', c == 'f' && i > 0 && text[i-1] == 'i', c == '?':
			arrows++
		}
		if open > maxNesting || prefixes > maxNesting || arrows > maxNesting {
			return line, true
		}
	}
	return 0, false
}

// loadSources makes the compiler read a project's files by readSource.
func loadSources(b api.PluginBuild, dir string) {
	b.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: "file"}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		text, err := readSource(dir, a.Path)
		if err != nil {
			return api.OnLoadResult{}, err
		}
		contents := string(text)
		return api.OnLoadResult{Contents: &contents, Loader: api.LoaderDefault, ResolveDir: filepath.Dir(a.Path)}, nil
	})
}
