// Package types holds what an editor or a compiler needs to know of the world that
// a script finds in Belay: declarations for TypeScript, and a tsconfig.json that
// makes them count. They are text; nothing here runs.
package types

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Declarations are the types of AssistantTool, of the module "scripting" and of the
// web's globals, complete in one file.
//
//go:embed scripting.d.ts
var Declarations string

// Config is a tsconfig.json for a project or a folder of them.
//
//go:embed tsconfig.json
var Config string

// Where [Write] puts them.
const (
	DeclarationsFile = "types/scripting.d.ts"
	ConfigFile       = "tsconfig.json"
)

// Write puts the declarations into a project, or into a folder of projects, in place
// of older ones, and a tsconfig.json beside them if there is none: that one is the
// author's as soon as it is there. It returns the names of the files that it wrote.
func Write(dir string) (written []string, err error) {
	file := filepath.Join(dir, filepath.FromSlash(DeclarationsFile))
	old, err := os.ReadFile(file)
	switch {
	case err == nil && string(old) == Declarations:
	case err == nil || errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, fmt.Errorf("write the types: %w", err)
		}
		if err := os.WriteFile(file, []byte(Declarations), 0o644); err != nil {
			return nil, fmt.Errorf("write the types: %w", err)
		}
		written = append(written, DeclarationsFile)
	default:
		return nil, fmt.Errorf("write the types: %w", err)
	}
	config, err := os.OpenFile(filepath.Join(dir, ConfigFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return written, nil
	}
	if err != nil {
		return written, fmt.Errorf("write the types: %w", err)
	}
	_, err = config.WriteString(Config)
	if err = errors.Join(err, config.Close()); err != nil {
		return written, fmt.Errorf("write the types: %w", err)
	}
	return append(written, ConfigFile), nil
}
