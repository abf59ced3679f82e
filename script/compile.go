package script

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dop251/goja"
	"github.com/evanw/esbuild/pkg/api"
)

// MaxBundle bounds the compiled program of a tool (AT-88).
const MaxBundle = 4 << 20

// ErrSource is wrapped by what keeps a script from being compiled; the message has
// the file, the line and the column of each mistake.
var ErrSource = errors.New("the script cannot be compiled")

// sources are the names that a script may have, in this order.
var sources = []string{"assistant_tool.tsx", "assistant_tool.ts", "assistant_tool.jsx", "assistant_tool.js"}

// sourceOf finds the script in a project's folder.
func sourceOf(dir string) (string, error) {
	for _, name := range sources {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: %s has none of %s", ErrSource, dir, strings.Join(sources, ", "))
}

// bundle compiles a project's script, with what it imports from its own folder,
// into one piece of ES2017 (AT-82 to AT-84).
func bundle(dir, source string) (string, error) {
	result := api.Build(api.BuildOptions{
		EntryPoints:   []string{filepath.Join(dir, source)},
		AbsWorkingDir: dir,
		Bundle:        true,
		Write:         false,
		Outdir:        dir, // nothing is written; a bundle wants a place for its name
		Format:        api.FormatIIFE,
		Target:        api.ES2017, // newer output has async generators, which the interpreter cannot parse
		Platform:      api.PlatformNeutral,
		JSX:           api.JSXTransform,
		JSXFactory:    "__scripting.h",
		JSXFragment:   "__scripting.Fragment",
		TsconfigRaw:   "{}", // of the project alone, never what lies above it
		Charset:       api.CharsetUTF8,
		Supported:     map[string]bool{"regexp-unicode-property-escapes": true}, // they are spelled out behind the compiler
		Sourcemap:     api.SourceMapInline,                                      // so that a stack names the author's lines
		LogLevel:      api.LogLevelSilent,
		LogLimit:      10,
		Plugins:       []api.Plugin{inside(dir)},
	})
	if len(result.Errors) > 0 {
		return "", fmt.Errorf("%w: %w", ErrSource, mistakes(result.Errors))
	}
	if len(result.OutputFiles) != 1 {
		return "", fmt.Errorf("%w: it compiled to %d files, not to one", ErrSource, len(result.OutputFiles))
	}
	text := string(result.OutputFiles[0].Contents)
	if len(text) > MaxBundle {
		return "", fmt.Errorf("%w: it is %d bytes long when compiled, at most %d", ErrSource, len(text), MaxBundle)
	}
	return text, nil
}

// inside resolves imports: "scripting" is the host, everything else must lie in the
// project's folder, links followed (AT-83, AT-84).
func inside(dir string) api.Plugin {
	const host = "belay-host"
	return api.Plugin{Name: "belay", Setup: func(b api.PluginBuild) {
		b.OnResolve(api.OnResolveOptions{Filter: `.*`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			switch {
			case a.Path == "scripting":
				return api.OnResolveResult{Path: a.Path, Namespace: host}, nil
			case a.Kind == api.ResolveEntryPoint, a.PluginData == host:
				return api.OnResolveResult{}, nil
			case !strings.HasPrefix(a.Path, "./") && !strings.HasPrefix(a.Path, "../"):
				return api.OnResolveResult{}, fmt.Errorf("%q is not a file of this project: only \"scripting\" and relative paths can be imported", a.Path)
			}
			found := b.Resolve(a.Path, api.ResolveOptions{ResolveDir: a.ResolveDir, Importer: a.Importer, Kind: a.Kind, PluginData: host})
			if len(found.Errors) > 0 {
				return api.OnResolveResult{Errors: found.Errors}, nil
			}
			if !within(dir, found.Path) {
				return api.OnResolveResult{}, fmt.Errorf("%q lies outside of the project", a.Path)
			}
			if info, err := os.Stat(found.Path); err != nil || !info.Mode().IsRegular() { // the compiler would wait for a pipe
				return api.OnResolveResult{}, fmt.Errorf("%q is no regular file", a.Path)
			}
			return api.OnResolveResult{Path: found.Path, Namespace: found.Namespace}, nil
		})
		loadSources(b, dir)
		b.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: host}, func(api.OnLoadArgs) (api.OnLoadResult, error) {
			text := "module.exports = globalThis.__scripting" // CommonJS: a name that it lacks is undefined, and no error
			return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}, nil
		})
	}}
}

// within reports whether a file lies below a folder when all links are followed.
func within(dir, path string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return false
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// Mistake is one message of the compiler, with its place; Line and Column count from
// 1, and are 0 where there is no place.
type Mistake struct {
	File         string
	Line, Column int
	Text         string
}

// Mistakes are what keeps a script from being compiled, as an error.
type Mistakes []Mistake

func (list Mistakes) Error() string {
	lines := make([]string, 0, len(list))
	for _, m := range list {
		text := m.Text
		if m.Line > 0 {
			text = fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Text)
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "; ")
}

// mistakes are the compiler's messages.
func mistakes(list []api.Message) Mistakes {
	all := make(Mistakes, 0, len(list))
	for _, m := range list {
		mistake := Mistake{Text: m.Text}
		if l := m.Location; l != nil {
			mistake.File, mistake.Line, mistake.Column = l.File, l.Line, l.Column+1
		}
		all = append(all, mistake)
	}
	return all
}

// program turns a bundle into what the interpreter runs. A text that the
// interpreter's compiler fails on is refused like one that it does not understand.
func program(name, text string) (p *goja.Program, err error) {
	defer func() {
		if bug := recover(); bug != nil {
			p, err = nil, fmt.Errorf("%w: the interpreter's compiler failed: %v", ErrSource, bug)
		}
	}()
	tree, err := goja.Parse(name, text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSource, err)
	}
	if strings.Contains(text, `\p{`) || strings.Contains(text, `\P{`) {
		spellLiterals(tree)
	}
	if p, err = goja.CompileAST(tree, false); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSource, err)
	}
	return p, nil
}
