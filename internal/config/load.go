package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// Options say what to read. No file at all is no error: the configuration then
// has no servers.
type Options struct {
	File    string   // belay.yaml; empty: none
	Editors []string // files of editors
	Listen  string   // what the command line says; goes before the file. Here only to be checked
	Flags   Policy   // what the command line says of all servers; unsaid: the built-in defaults

	Getenv func(string) string // nil: os.Getenv
}

// Config is what is to be served.
type Config struct {
	Listen  string   // from belay.yaml; empty if it does not say
	Log     string   // the same
	Servers []Server // complete: policies and tools say everything
	Files   []string // what was read, absolute: the files to watch
	Notes   []string // one line each, for the log: what was left out or changed, and why

	Settings // complete, with and without a file
}

// maxFile is the most that is read of a file, in bytes.
const maxFile = 1 << 20

// Load reads all files. An error is either that of a file that could not be
// read, or [Problems] with everything that is wrong; the configuration is then
// nil.
func Load(o Options) (*Config, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	l := loader{options: o, config: &Config{}, base: o.Flags.over(Defaults())}
	prefill(reflect.ValueOf(&l.config.Settings).Elem())
	if o.File != "" {
		if err := l.belay(o.File); err != nil {
			return nil, err
		}
	}
	for _, name := range o.Editors {
		if err := l.editor(name); err != nil {
			return nil, err
		}
	}
	switch enabled, known, err := cancellation(o.Getenv); {
	case err != nil:
		l.problems = append(l.problems, Problem{File: "environment", Text: err.Error()})
	case known:
		l.config.Cancellation.Enabled = enabled
	}
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	l.config.resolve()
	return l.config, nil
}

// resolve replaces what depends on other settings.
func (c *Config) resolve() {
	usual := "local"
	if c.Auth.Configured() {
		usual = "public"
	}
	if c.Leases.Webhooks == "auto" {
		c.Leases.Webhooks = usual
	}
	if c.RAP.Addresses == "auto" {
		c.RAP.Addresses = usual
	}
}

// loader gathers what the files say.
type loader struct {
	options  Options
	config   *Config
	base     Policy // of a server that says nothing
	problems Problems
}

// read returns a file's decoder and text.
func (l *loader) read(name string) (*decoder, []byte, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("the configuration cannot be read: %w", err)
	case len(text) > maxFile:
		return nil, nil, fmt.Errorf("%s: longer than %d bytes, which no configuration is", name, maxFile)
	}
	l.config.Files = append(l.config.Files, path)
	d := &decoder{file: name, dir: filepath.Dir(path), lines: strings.Split(string(text), "\n")}
	d.vars.getenv = l.options.Getenv
	return d, text, nil
}

// belay reads Belay's own file.
func (l *loader) belay(name string) error {
	d, text, err := l.read(name)
	if err != nil {
		return err
	}
	f := file{Settings: l.config.Settings}
	if root := readYAML(d, bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))); root != nil {
		root.dropPrivate()
		d.value(reflect.ValueOf(&f).Elem(), spot{value: root}, field{key: name})
		d.checkSettings(&f, spot{value: root}, l.options.Listen)
	}
	l.config.Files, l.config.Notes = append(l.config.Files, d.files...), append(l.config.Notes, d.notes...)
	l.problems = append(l.problems, d.problems...)
	l.base = f.Defaults.over(l.base)
	l.config.Listen, l.config.Log, l.config.Settings = f.Listen.Value, f.Log.Value, f.Settings
	for i := range f.Servers {
		l.add(&f.Servers[i])
	}
	return nil
}

// dropPrivate removes keys that begin with x-: a place for anchors.
func (n *node) dropPrivate() {
	kept := n.pairs[:0:0]
	for _, p := range n.pairs {
		if !strings.HasPrefix(p.key.text, "x-") {
			kept = append(kept, p)
		}
	}
	n.pairs = kept
}

// add completes a server and takes it in.
func (l *loader) add(s *Server) {
	for i := range l.config.Servers {
		if other := &l.config.Servers[i]; other.Name == s.Name {
			l.problems = append(l.problems, Problem{File: s.Source, Text: fmt.Sprintf("server %q is in %s already; give one of them another name", s.Name, other.Source)})
			return
		}
	}
	s.complete(l.base)
	if note := s.uselessSpares(); note != "" {
		l.config.Notes = append(l.config.Notes, note)
	}
	l.config.Servers = append(l.config.Servers, *s)
}

// complete puts what a server and its tools do not say from below.
func (s *Server) complete(base Policy) {
	if s.Scripts != nil {
		s.Scripts.complete(s, &base)
	}
	s.Policy = s.over(base)
	setDefaults(reflect.ValueOf(s).Elem())
	for name, tool := range s.Tools {
		tool = tool.over(s.ToolPolicy)
		setDefaults(reflect.ValueOf(&tool).Elem())
		s.Tools[name] = tool
	}
}

// New is a server that no file names, complete.
func New(name string, flags Policy) Server {
	s := Server{Name: name, Source: "built in"}
	s.complete(flags.over(Defaults()))
	return s
}
