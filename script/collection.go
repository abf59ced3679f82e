package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// ErrDuplicate is wrapped by what refuses a project whose id an earlier one has.
var ErrDuplicate = errors.New("the id is taken")

// errCollectionClosed is why what is tried elsewhere ends.
var errCollectionClosed = errors.New("the collection is closed")

// CollectionOptions say where tools are. Only Dirs is required.
type CollectionOptions struct {
	Dirs   []string     // each a project, or a folder of projects
	Editor bool         // tools for an editor are loaded, too (AT-44)
	Log    *slog.Logger // nil: nothing

	// Try loads some projects elsewhere, where they can do no harm, as LoadFor does, and
	// calls said for each in their order with why it is refused, or nil (AT-86). One
	// that it says nothing of is tried again the next time. It returns when ctx ends.
	// Nil: that is done in this process.
	Try func(ctx context.Context, dirs []string, said func(i int, err error))
}

// Collection is the tools of some folders, as they are now: what has changed is
// read again whenever somebody asks (AT-86). A project that cannot be loaded is
// refused by itself; one that could be before keeps its last good program, as long
// as its folder is a project. Nothing is loaded before it is asked for, and for a call
// only its own tool is compiled, whose top level the call itself runs: those of others
// may never end, or take the process along. All methods may be called concurrently.
type Collection struct {
	o   CollectionOptions
	log *slog.Logger

	life  context.Context // ends with Close
	end   context.CancelCauseFunc
	trial sync.Mutex // held while top levels are tried; before mu

	mu         sync.Mutex
	projects   map[string]*member // by folder
	order      []*member          // as they were found last
	complaints map[string]string  // what was said last of each folder
}

// member is one project, with the program that it is served by.
type member struct {
	dir string

	mu    sync.Mutex // held while it is looked at, and loaded
	known bool
	stamp stamp
	next  *Tool // the newest, compiled; nil: it cannot be
	tried bool  // next was
	tool  *Tool // the last good one
	fault error // why the newest is not good
	said  string

	manifest *Manifest // as it stands in the file; nil if it is none
	size     int64     // of the file then
	written  time.Time
}

// Refusal is a project that is not served as it is, and why.
type Refusal struct {
	Dir string
	Err error
}

// OpenCollection makes a collection. Folders may come and go while it is used.
func OpenCollection(o CollectionOptions) *Collection {
	c := &Collection{o: o, log: o.Log, projects: map[string]*member{}, complaints: map[string]string{}}
	c.life, c.end = context.WithCancelCause(context.Background())
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.o.Dirs = make([]string, 0, len(o.Dirs))
	for _, dir := range o.Dirs {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		c.o.Dirs = append(c.o.Dirs, dir)
	}
	return c
}

// Close ends what is tried elsewhere: nobody wants to know any more.
func (c *Collection) Close() { c.end(errCollectionClosed) }

// Tools are the tools that there are now, in the order of the folders, and the
// projects that are not among them as they are. Of two with one id the later is
// refused. Each refusal is logged once.
func (c *Collection) Tools() ([]*Tool, []Refusal) {
	all := c.find()
	c.try(all)
	var tools []*Tool
	var refused []Refusal
	for _, p := range all {
		tool, fault := p.good()
		if tool != nil {
			if at := slices.IndexFunc(tools, func(t *Tool) bool { return t.Manifest.ID == tool.Manifest.ID }); at >= 0 {
				tool, fault = nil, duplicate(p.dir, tools[at])
			}
		}
		if tool != nil {
			tools = append(tools, tool)
		}
		if fault != nil {
			refused = append(refused, Refusal{p.dir, fault})
		}
		c.say(p, fault, tool != nil)
	}
	return tools, refused
}

// try finds out which of those that have changed can be served.
func (c *Collection) try(all []*member) {
	c.trial.Lock()
	defer c.trial.Unlock()
	var list []*member
	var stamps []stamp
	var dirs []string
	for _, p := range all {
		if now, due := p.due(); due {
			list, stamps, dirs = append(list, p), append(stamps, now), append(dirs, p.dir)
		}
	}
	switch {
	case len(list) == 0:
	case c.o.Try == nil:
		for _, p := range list {
			if t := p.look(c.o.Editor); t != nil {
				p.found(t, t.tryHere())
			}
		}
	default:
		c.o.Try(c.life, dirs, func(i int, err error) {
			if err != nil {
				list[i].refuse(stamps[i], err)
				return
			}
			// The compiler has survived it there: not before is it let in here.
			if t := list[i].look(c.o.Editor); t != nil {
				list[i].found(t, nil)
			}
		})
	}
}

// Tool is the tool with this id as it is now; nil if there is none. Only its own
// project is compiled, and nothing is run.
func (c *Collection) Tool(id string) *Tool {
	if tool := c.among(c.last(), id); tool != nil {
		return tool
	}
	return c.among(c.find(), id) // it may be new
}

func (c *Collection) among(list []*member, id string) *Tool {
	for _, p := range list {
		if !p.mayBe(id) {
			continue
		}
		tool := p.look(c.o.Editor)
		if tool == nil {
			var fault error
			if tool, fault = p.good(); fault != nil {
				c.say(p, fault, tool != nil)
			}
		}
		if tool != nil && tool.Manifest.ID == id && isProject(p.dir) {
			return tool
		}
	}
	return nil
}

// Manifests are those of the projects as they stand in the files, the first of each
// id: what there may be, without running any of it.
func (c *Collection) Manifests() []*Manifest {
	var all []*Manifest
	for _, p := range c.find() {
		p.mu.Lock()
		m := p.readLocked()
		p.mu.Unlock()
		if m != nil && !slices.ContainsFunc(all, func(o *Manifest) bool { return o.ID == m.ID }) {
			all = append(all, m)
		}
	}
	return all
}

// Watched are the folders in which a change may be one of the tools: those that
// were given, or what they would lie in, and those of the projects.
func (c *Collection) Watched() []string {
	var dirs []string
	for _, dir := range c.o.Dirs {
		for range maxMissing {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				dirs = append(dirs, dir)
				break
			}
			dir = filepath.Dir(dir)
		}
	}
	for _, p := range c.find() {
		dirs = append(dirs, p.folders()...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// maxMissing bounds how far above a missing folder one is looked for that is there.
const maxMissing = 3

// say logs what is wrong with a project, once.
func (c *Collection) say(p *member, fault error, serves bool) {
	p.mu.Lock()
	text := ""
	if fault != nil {
		text = fault.Error()
	}
	before := p.said
	p.said = text
	p.mu.Unlock()
	switch {
	case text == before:
	case fault == nil:
		c.log.Info("a script is good again", "project", p.dir)
	case serves:
		c.log.Error("a script has changed and cannot be loaded; its last good program goes on", "error", fault)
	default:
		c.log.Error("a script is refused", "error", fault)
	}
}

func duplicate(dir string, of *Tool) error {
	return fmt.Errorf("load %s: %w: id %q is that of %s", dir, ErrDuplicate, of.Manifest.ID, of.Dir)
}

// last are the projects that were found last.
func (c *Collection) last() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order
}

// maxProjects bounds the projects of a collection.
const maxProjects = 1000

// find looks for projects, in the order of the folders and of their names.
func (c *Collection) find() []*member {
	var dirs []string
	for _, dir := range c.o.Dirs {
		if isProject(dir) {
			dirs = append(dirs, dir)
			continue
		}
		entries, err := os.ReadDir(dir)
		c.complain(dir, err)
		for _, e := range entries {
			if sub := filepath.Join(dir, e.Name()); isProject(sub) {
				dirs = append(dirs, sub)
			}
		}
	}
	if len(dirs) > maxProjects {
		c.complain("", fmt.Errorf("%d projects, at most %d are served", len(dirs), maxProjects))
		dirs = dirs[:maxProjects]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	order := make([]*member, 0, len(dirs))
	projects := make(map[string]*member, len(dirs))
	for _, dir := range dirs {
		if projects[dir] != nil {
			continue
		}
		p := c.projects[dir]
		if p == nil {
			p = &member{dir: dir}
		}
		projects[dir], order = p, append(order, p)
	}
	c.projects, c.order = projects, order
	return order
}

// complain logs what is wrong with a folder, or with all of them, once for each
// reason.
func (c *Collection) complain(dir string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	c.mu.Lock()
	before := c.complaints[dir]
	c.complaints[dir] = text
	c.mu.Unlock()
	if text != "" && text != before {
		c.log.Error("not all scripts are served", "error", err)
	}
}

// isProject reports whether a folder means to be a project: it has one of its two
// files.
func isProject(dir string) bool {
	is := func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && !info.IsDir()
	}
	return is(ManifestFile) || slices.ContainsFunc(sources, is)
}

// mayBe reports whether the project's tool may have this id, without loading it.
func (p *member) mayBe(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tool != nil && p.tool.Manifest.ID == id || p.next != nil && p.next.Manifest.ID == id {
		return true
	}
	m := p.readLocked()
	return m != nil && m.ID == id
}

// readLocked is the manifest as it is now; nil if it is none.
func (p *member) readLocked() *Manifest {
	info, err := os.Stat(filepath.Join(p.dir, ManifestFile))
	if err != nil {
		p.manifest, p.written = nil, time.Time{}
		return nil
	}
	if info.Size() == p.size && info.ModTime().Equal(p.written) {
		return p.manifest
	}
	p.manifest, p.size, p.written = nil, info.Size(), info.ModTime()
	if time.Since(p.written) < freshFor {
		p.written = time.Time{} // it is read again the next time
	}
	if text, err := readManifest(p.dir); err == nil {
		p.manifest, _ = ParseManifest(text)
	}
	return p.manifest
}

// look compiles the project if its files have changed. It returns the newest program
// as long as nobody has tried it; nil: what there is to say of it, good says.
func (p *member) look(editor bool) *Tool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := stampOf(p.dir)
	if !p.known || p.stamp.sum != now.sum || p.stamp.fresh {
		p.known, p.stamp = true, now // as it was before it was read: a change meanwhile is found the next time
		next, err := compileFor(p.dir, editor)
		switch {
		case err != nil:
			p.next, p.tried, p.fault = nil, false, err
		case p.next == nil || p.next.Hash != next.Hash:
			p.next, p.tried, p.fault = next, false, nil
		}
	}
	if p.tried {
		return nil
	}
	return p.next
}

// due reports whether the project has to be tried, as it looks now.
func (p *member) due() (stamp, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := stampOf(p.dir)
	return now, !p.known || p.stamp.sum != now.sum || p.stamp.fresh || p.fault == nil && !p.tried
}

// refuse takes what was found out elsewhere, without looking itself.
func (p *member) refuse(now stamp, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.stamp, p.next, p.tried, p.fault = true, now, nil, false, err
}

// found takes what came of the trial of a program.
func (p *member) found(t *Tool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next != t {
		return // it has changed meanwhile
	}
	p.tried, p.fault = true, err
	if err == nil {
		p.tool = t
	}
}

// good is the last good program, and what is wrong with the newest.
func (p *member) good() (*Tool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tool, p.fault
}

// maxFolders bounds the folders of one project that are watched.
const maxFolders = 256

// folders are those of the project in which its files lie.
func (p *member) folders() []string {
	dirs := []string{p.dir}
	for i := 0; i < len(dirs) && len(dirs) < maxFolders; i++ {
		entries, err := os.ReadDir(dirs[i])
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && !skipped(e.Name()) {
				dirs = append(dirs, filepath.Join(dirs[i], e.Name()))
			}
		}
	}
	return dirs
}
