package script

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// ErrDuplicate is wrapped by what refuses a project whose id another has already.
var ErrDuplicate = errors.New("the id is taken")

// Collection is the tools of some folders, each of which is a project or holds
// projects. A project that cannot be loaded is refused by itself; the others load.
// All methods may be called concurrently.
type Collection struct {
	dirs []string
	log  *slog.Logger

	mu    sync.Mutex
	tools []*Tool
}

// OpenCollection loads the projects of some folders. What is refused is logged.
func OpenCollection(dirs []string, log *slog.Logger) *Collection {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Collection{dirs: dirs, log: log}
	c.Refresh()
	return c
}

// Tools are the tools that there are, in the order of the folders.
func (c *Collection) Tools() []*Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tools)
}

// Refresh reads the folders again, and reports whether a tool is different now.
func (c *Collection) Refresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var tools []*Tool
	for _, dir := range c.projects() {
		tool, err := Load(dir)
		if err == nil {
			if at := slices.IndexFunc(tools, func(t *Tool) bool { return t.Manifest.ID == tool.Manifest.ID }); at >= 0 {
				err = fmt.Errorf("load %s: %w: %q is that of %s", dir, ErrDuplicate, tool.Manifest.ID, tools[at].Dir)
			}
		}
		if err != nil {
			c.log.Error("a script is refused", "error", err)
			continue
		}
		tools = append(tools, tool)
	}
	same := slices.EqualFunc(c.tools, tools, func(a, b *Tool) bool { return a.Dir == b.Dir && a.Hash == b.Hash })
	c.tools = tools
	return !same
}

// projects are the folders of projects, in order, each once.
func (c *Collection) projects() []string {
	var all []string
	add := func(dir string) {
		if !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	for _, dir := range c.dirs {
		if isProject(dir) {
			add(dir)
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			c.log.Error("a folder of scripts cannot be read", "error", err)
			continue
		}
		for _, e := range entries {
			if sub := filepath.Join(dir, e.Name()); isProject(sub) {
				add(sub)
			}
		}
	}
	return all
}

// isProject reports whether a folder means to be a project: it has one of its two
// files.
func isProject(dir string) bool {
	return slices.ContainsFunc(append([]string{ManifestFile}, sources...), func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	})
}
