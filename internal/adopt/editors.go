package adopt

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

//go:embed editors.yaml
var builtin []byte

// PathVariable names the environment variable that names the user's file.
const PathVariable = "BELAY_EDITORS"

const maxData = 1 << 20 // bytes; the built-in file has a few KiB

// ErrBadData is wrapped by every error about a file of the user's.
var ErrBadData = errors.New("editors' data not used")

// Editors is what is known about the configuration of editors: the form of
// editors.yaml, whose comments say what the fields mean. Read-only once loaded.
type Editors struct {
	Forms    []Form    `yaml:"forms"`
	Commands []command `yaml:"commands"`
	Remotes  []remote  `yaml:"remotes"`
	Types    []kind    `yaml:"types"`
	Leave    []leave   `yaml:"leave"`
	SignIn   []string  `yaml:"signin"`
	Files    []file    `yaml:"files"`
	Managed  []managed `yaml:"managed"`
}

// Form is one place in a file where servers or agents stand.
type Form struct {
	Name   string   `yaml:"name"`
	At     []string `yaml:"at"`
	Starts Kind     `yaml:"starts"` // "" is ToolServer
}

type command struct {
	Command string `yaml:"command"`
	Args    string `yaml:"args"`
	Inside  bool   `yaml:"inside"`
}

type remote struct {
	URL       string `yaml:"url"`
	Transport string `yaml:"transport"`
}

type kind struct {
	Is        string `yaml:"is"`
	Transport string `yaml:"transport"`
	Why       string `yaml:"why"`
}

type leave struct {
	Key   string `yaml:"key"`
	Is    *bool  `yaml:"is"`
	Why   string `yaml:"why"`
	Leave *bool  `yaml:"leave"`
}

type file struct {
	Editor string   `yaml:"editor"`
	OS     []string `yaml:"os"`
	Path   string   `yaml:"path"`
}

type managed struct {
	Path string   `yaml:"path"`
	Name string   `yaml:"name"`
	OS   []string `yaml:"os"`
	Why  string   `yaml:"why"`
}

// Load returns the built-in data with the user's entries before it. A file of
// the user's that cannot be used is an error (wrapping [ErrBadData]) beside
// the built-in data, to be shown once as a warning.
func Load(getenv func(string) string) (*Editors, error) {
	own, err := parseEditors("editors.yaml", builtin)
	if err != nil {
		return nil, err // the tests find that
	}
	path, named := getenv(PathVariable), true
	if path == "" {
		path, named = usersFile(), false
	}
	if path == "" {
		return own, nil
	}
	text, err := readAll(path, maxData)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return own, nil
	case err != nil:
		return own, fmt.Errorf("%w, only the built-in ones hold: %w", ErrBadData, err)
	}
	user, err := parseEditors(path, text)
	if err != nil {
		return own, fmt.Errorf("%w, only the built-in ones hold: %w", ErrBadData, err)
	}
	return user.before(own), nil
}

// usersFile is where the user's file is looked for; empty on a system that has
// no folder for such files.
func usersFile() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "belay", "editors.yaml")
}

func (e *Editors) before(own *Editors) *Editors {
	return &Editors{
		Forms: append(e.Forms, own.Forms...), Commands: append(e.Commands, own.Commands...),
		Remotes: append(e.Remotes, own.Remotes...), Types: append(e.Types, own.Types...),
		Leave: append(e.Leave, own.Leave...), SignIn: append(e.SignIn, own.SignIn...),
		Files: append(e.Files, own.Files...), Managed: append(e.Managed, own.Managed...),
	}
}

// parseEditors reads one document strictly; errors are one line.
func parseEditors(name string, text []byte) (*Editors, error) {
	var e Editors
	err := yaml.UnmarshalWithOptions(text, &e, yaml.DisallowUnknownField())
	if err != nil && !errors.Is(err, io.EOF) {
		where, what := name, err.Error()
		if bad, ok := errors.AsType[yaml.Error](err); ok {
			what = bad.GetMessage()
			if t := bad.GetToken(); t != nil && t.Position != nil {
				where = fmt.Sprintf("%s:%d:%d", name, t.Position.Line, t.Position.Column)
			}
		}
		what, _, _ = strings.Cut(what, "\n")
		return nil, fmt.Errorf("%s: %s", where, what)
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &e, nil
}

// check holds the entries to what the comments in editors.yaml promise.
func (e *Editors) check() error {
	for _, f := range e.Forms {
		if len(f.At) == 0 || f.At[len(f.At)-1] == "*" {
			return fmt.Errorf("forms: %q: at must lead to one object of servers, such as [mcpServers]", f.Name)
		}
		if f.Starts != "" && f.Starts != ToolServer && f.Starts != Agent {
			return fmt.Errorf("forms: %q: starts %q: want %s or %s", f.Name, f.Starts, ToolServer, Agent)
		}
	}
	for _, c := range e.Commands {
		if c.Command == "" || c.Args == "" {
			return errors.New("commands: an entry without command or args")
		}
	}
	for _, r := range e.Remotes {
		if r.URL == "" || r.Transport != "http" && r.Transport != "sse" {
			return fmt.Errorf("remotes: url %q, transport %q: want a member's name, and http or sse", r.URL, r.Transport)
		}
	}
	for _, k := range e.Types {
		switch {
		case k.Transport == "" && k.Why != "":
		case k.Transport != "stdio" && k.Transport != "http" && k.Transport != "sse", k.Why != "":
			return fmt.Errorf("types: %q: transport %q, why %q: want stdio, http or sse, or why alone", k.Is, k.Transport, k.Why)
		}
	}
	for _, l := range e.Leave {
		if l.Key == "" {
			return errors.New("leave: an entry without key")
		}
	}
	for _, f := range e.Files {
		if f.Path == "" {
			return fmt.Errorf("files: an entry of %q without path", f.Editor)
		}
	}
	for _, m := range e.Managed {
		if (m.Path == "") == (m.Name == "") {
			return fmt.Errorf("managed: want one of path and name (got %q and %q)", m.Path, m.Name)
		}
	}
	return nil
}
