package script

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dop251/goja"
)

// ErrUnsupported is wrapped by what keeps a well-formed project from being a tool
// here: it needs a screen, or an editor that is not there.
var ErrUnsupported = errors.New("the tool cannot run here")

// Tool is one project, ready to be called. It never changes: a project whose files
// have changed is loaded again, and calls that run keep their program (AT-86).
// All methods may be called concurrently.
type Tool struct {
	Manifest *Manifest
	Dir      string // the project's folder
	Source   string // the script's name in it
	Hash     string // of the manifest and the compiled program

	program *goja.Program
	schema  []byte
	tests   []TestCall
}

// Load is [LoadFor] where there is no editor: a tool that is for the editor only is
// refused with [ErrUnsupported].
func Load(dir string) (*Tool, error) { return LoadFor(dir, false) }

// LoadFor reads and compiles the project in a folder and runs its top level once, to
// see that it registers what its manifest asks for (AT-86). editor says that its calls
// can have an [Editor] (AT-44). Errors wrap [ErrManifest], [ErrSource],
// [ErrRegistration] or [ErrUnsupported] and name the file, the field or the line.
func LoadFor(dir string, editor bool) (*Tool, error) {
	t, err := compileFor(dir, editor)
	if err != nil {
		return nil, err
	}
	if err := t.tryHere(); err != nil {
		return nil, err
	}
	return t, nil
}

// compileFor is LoadFor without running anything.
func compileFor(dir string, editor bool) (*Tool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	text, err := readManifest(dir)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	t := &Tool{Dir: dir}
	if t.Manifest, err = ParseManifest(text); err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	if t.Manifest.ScriptEditorOnly && !editor {
		return nil, fmt.Errorf("load %s: %w: scriptEditorOnly is true, and no folder is granted to edit (editor_root)", dir, ErrUnsupported)
	}
	if t.Source, err = sourceOf(dir); err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	code, err := bundle(dir, t.Source)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	if t.program, err = program(t.Source, code); err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	sum := sha256.New()
	sum.Write(text)
	sum.Write([]byte{0})
	sum.Write([]byte(code))
	t.Hash, t.schema = hex.EncodeToString(sum.Sum(nil)), t.Manifest.Schema()
	return t, nil
}

// Schema is the JSON Schema of the tool's parameters. It must not be changed.
func (t *Tool) Schema() []byte { return t.schema }

// readManifest reads a project's manifest, and never more than it may have.
func readManifest(dir string) ([]byte, error) {
	path := filepath.Join(dir, ManifestFile)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: there is none", ErrManifest)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	case !info.Mode().IsRegular() || info.Size() > maxManifest:
		return nil, fmt.Errorf("%w: a file of at most %d bytes", ErrManifest, maxManifest)
	case !within(dir, path):
		return nil, fmt.Errorf("%w: it lies outside of the project", ErrManifest)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return text, nil
}
