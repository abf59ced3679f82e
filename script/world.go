package script

import (
	"fmt"
	"path/filepath"
	"slices"
)

// World is what every script finds, for whoever reads scripts without running them.
type World struct {
	Globals []string // names of the global object, the language's own included
	Exports []string // of the module "scripting"
	Missing []string // of both, what exists only to say that it is not available
}

// TheWorld looks into a virtual machine that has no script.
func TheWorld() (*World, error) {
	c := (&Tool{Manifest: &Manifest{ID: "world"}}).call([]byte("{}"), Options{})
	defer c.close()
	if err := c.machine(); err != nil {
		return nil, err
	}
	w := &World{Missing: slices.Clone(missing)}
	err := c.do(func() error {
		for text, into := range map[string]*[]string{
			"Object.getOwnPropertyNames(globalThis)":             &w.Globals,
			"Object.getOwnPropertyNames(globalThis.__scripting)": &w.Exports,
		} {
			names, err := c.vm.RunString(text)
			if err != nil {
				return err
			}
			if err := c.vm.ExportTo(names, into); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look at the script's world: %w", err)
	}
	return w, nil
}

// Bundle compiles the script of a project without loading it: the name of the script
// in its folder, and the one piece of code that every call runs, with its source map.
// Errors wrap [ErrSource].
func Bundle(dir string) (source, code string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrSource, err)
	}
	if source, err = sourceOf(dir); err != nil {
		return "", "", err
	}
	code, err = bundle(dir, source)
	return source, code, err
}

// IsProject reports whether a folder means to be a project: it has one of its two
// files.
func IsProject(dir string) bool { return isProject(dir) }

// ReadManifest reads the text of a project's manifest, and never more than one may
// have. Errors wrap [ErrManifest].
func ReadManifest(dir string) ([]byte, error) { return readManifest(dir) }
