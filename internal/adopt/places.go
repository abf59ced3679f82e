package adopt

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Place is a file at one of the paths that are known.
type Place struct {
	Editor string
	Path   string
}

// Host is the machine as paths see it.
type Host struct {
	OS     string              // runtime.GOOS
	Home   string              // the user's folder
	Dir    string              // the current folder, absolute
	Getenv func(string) string // required
}

// ThisHost is the machine that this process runs on.
func ThisHost(getenv func(string) string) Host {
	home, _ := os.UserHomeDir()
	dir, _ := os.Getwd()
	return Host{OS: runtime.GOOS, Home: home, Dir: dir, Getenv: getenv}
}

// Find lists the files that exist at the known paths, in the order of the
// data, each once.
func (e *Editors) Find(h Host) []Place {
	var found []Place
	for _, f := range e.Files {
		if !h.is(f.OS) {
			continue
		}
		pattern, ok := h.expand(f.Path)
		if !ok {
			continue
		}
		matches, _ := filepath.Glob(pattern)
		for _, m := range matches {
			info, err := os.Stat(m)
			if err != nil || info.IsDir() || slices.ContainsFunc(found, func(p Place) bool { return p.Path == m }) {
				continue
			}
			found = append(found, Place{f.Editor, m})
		}
	}
	return found
}

// EditorOf names the editor that keeps its configuration in a file of this
// path, or is empty. It is only for people to read.
func (e *Editors) EditorOf(h Host, path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	for _, f := range e.Files {
		if !h.is(f.OS) {
			continue
		}
		if pattern, ok := h.expand(f.Path); ok {
			if hit, _ := filepath.Match(pattern, path); hit {
				return f.Editor
			}
		}
		// A project's file, wherever the project is.
		if isProject(f.Path) && strings.HasSuffix(filepath.ToSlash(path), "/"+f.Path) {
			return f.Editor
		}
	}
	return ""
}

func isProject(path string) bool {
	return path[0] != '~' && path[0] != '{' && !filepath.IsAbs(path)
}

// managedBy says why a policy owns the file, or is empty.
func (e *Editors) managedBy(h Host, path string) string {
	for _, m := range e.Managed {
		if !h.is(m.OS) {
			continue
		}
		if m.Name != "" {
			if strings.EqualFold(filepath.Base(path), m.Name) {
				return m.Why
			}
			continue
		}
		if dir, ok := h.expand(m.Path); ok && strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator)) {
			return m.Why
		}
	}
	return ""
}

func (h Host) is(list []string) bool { return len(list) == 0 || slices.Contains(list, h.OS) }

// expand makes a path of the data one of this machine; false when there is no
// such folder here.
func (h Host) expand(path string) (string, bool) {
	head, rest, _ := strings.Cut(path, "/")
	var base string
	switch head {
	case "~":
		base = h.Home
	case "{config}":
		base = h.config()
	case "{local}":
		base = h.Getenv("LOCALAPPDATA")
	case "{programdata}":
		base = h.Getenv("PROGRAMDATA")
	case "{programfiles}":
		base = h.Getenv("PROGRAMFILES")
	case "":
		return filepath.FromSlash(path), true
	default:
		base, rest = h.Dir, path
	}
	if base == "" {
		return "", false
	}
	return filepath.Join(base, filepath.FromSlash(rest)), true
}

func (h Host) config() string {
	switch h.OS {
	case "windows":
		return h.Getenv("APPDATA")
	case "darwin":
		if h.Home == "" {
			return ""
		}
		return filepath.Join(h.Home, "Library", "Application Support")
	}
	if dir := h.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if h.Home == "" {
		return ""
	}
	return filepath.Join(h.Home, ".config")
}
