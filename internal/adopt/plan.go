package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/tailscale/hujson"

	"github.com/belayhq/belay/internal/peers"
)

// DefaultServe is where `belay serve` listens unless told otherwise.
const DefaultServe = "http://127.0.0.1:7474"

// Options say what is to be done. Belay and Editors are required.
type Options struct {
	Belay   string       // what entries start: an absolute path (see [Self])
	Undo    bool         // take servers out again
	Remote  bool         // point remote servers at `belay serve`
	Serve   string       // where that listens, without a path; "": DefaultServe
	Only    []string     // names of servers and agents; none: all
	Skip    []string     // names of servers and agents
	Force   bool         // also files that are left alone otherwise
	Facts   *peers.Facts // nil: the built-in ones
	Editors *Editors
	Host    Host // for the paths in Editors

	taken map[string]string // addresses by the names under which they are served

	// beforeRename is called by tests at the moment in which the file is as
	// likely to be changed by somebody else as it ever is.
	beforeRename func()
}

func (o *Options) serve() string {
	if o.Serve == "" {
		return DefaultServe
	}
	return strings.TrimRight(o.Serve, "/")
}

func (o *Options) named(server string) bool { return slices.Contains(o.Only, server) }

// Action is what is done to one server.
type Action string

// The actions.
const (
	Wrap    Action = "wrap"    // run it under `belay wrap`, or `belay acp` where it is an agent
	Serve   Action = "serve"   // reach it through `belay serve`
	Restore Action = "restore" // as it was before
	Keep    Action = "keep"    // it is as it should be already
	Skip    Action = "skip"    // left alone; Why says for what reason
)

// Changes reports whether the entry is rewritten.
func (a Action) Changes() bool { return a == Wrap || a == Serve || a == Restore }

// Kind is what an entry starts.
type Kind string

// The kinds.
const (
	ToolServer Kind = "server" // an MCP server
	Agent      Kind = "agent"  // an agent that speaks ACP with the editor
)

// command is the command of Belay's that runs it.
func (k Kind) command() string {
	if k == Agent {
		return "acp"
	}
	return "wrap"
}

// Server is one server or agent of a file and what becomes of it.
type Server struct {
	Name    string        `json:"name"`
	Kind    Kind          `json:"kind"`
	Where   string        `json:"where"`             // the keys that lead to its entry, without the name
	Program string        `json:"program,omitempty"` // the innermost that can be seen; never its arguments
	Restart peers.Restart `json:"restart,omitempty"` // safe or stateful; unknown is treated as stateful; empty for agents
	Known   string        `json:"known,omitempty"`   // why it is safe or stateful
	Relay   string        `json:"relay,omitempty"`   // why its local death proves nothing; empty: it does
	Action  Action        `json:"action"`
	Why     string        `json:"why,omitempty"`
	Serve   *Upstream     `json:"serve,omitempty"`
}

// RestartUnknown is a server of which nothing is known: treated as stateful.
const RestartUnknown peers.Restart = "unknown"

// Plan is one file, what would be done to it, and what it would then be.
type Plan struct {
	Path    string   // as it was asked for
	Real    string   // the file behind symbolic links
	Forms   []string // the forms that were found, for people
	Servers []Server
	Blocked string // why the file is left alone; empty: it is not

	options *Options
	before  snapshot
	after   []byte
}

// Errors that callers may ask for.
var (
	ErrNoServers = errors.New("no MCP servers or agents in it") // the file has no form that is known
	ErrChanged   = errors.New("the file keeps being changed")   // by somebody else, until patience ran out
	ErrFile      = errors.New("not a file that can be adopted") // a folder, a device, too large
)

// Open reads a file and says what would be done. Errors name the file, and
// the line and column where there is one.
func Open(ctx context.Context, path string, o *Options) (*Plan, error) {
	s, err := take(path)
	if err != nil {
		return nil, err
	}
	p := &Plan{Path: path, Real: s.real, options: o, before: s}
	d, err := parse(s.text)
	if err == nil {
		err = p.read(d)
	}
	if err != nil {
		return nil, locate(path, err)
	}
	p.Blocked = o.blocked(ctx, &s)
	return p, nil
}

// locate puts the file before the position.
func locate(path string, err error) error {
	if _, ok := errors.AsType[*place](err); ok {
		return fmt.Errorf("%s:%w", path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Changes is the number of servers whose entries are rewritten.
func (p *Plan) Changes() int {
	n := 0
	for i := range p.Servers {
		if p.Servers[i].Action.Changes() {
			n++
		}
	}
	return n
}

// After is the text that the file would have.
func (p *Plan) After() []byte { return p.after }

// Diff is the change as a unified diff; empty if there is none. It shows lines
// of the file as they are, secrets included.
func (p *Plan) Diff() []byte {
	return diff.Diff(p.Path, p.before.text, p.Path, p.after)
}

// read finds the servers and plans each.
func (p *Plan) read(d *document) error {
	root, ok := d.root.Value.(*hujson.Object)
	if !ok {
		return d.errorAt(d.root.StartOffset, "%w: want an object { … } at the top", ErrShape)
	}
	var edits []edit
	seen := map[*hujson.Object]bool{}
	for _, form := range p.options.Editors.Forms {
		found, err := d.find(root, form.At, nil)
		if err != nil {
			return err
		}
		for _, f := range found {
			if seen[f.obj] {
				continue
			}
			seen[f.obj] = true
			if !slices.Contains(p.Forms, form.Name) {
				p.Forms = append(p.Forms, form.Name)
			}
			more, err := p.servers(d, f, or(form.Starts, ToolServer))
			if err != nil {
				return err
			}
			edits = append(edits, more...)
		}
	}
	if len(seen) == 0 {
		return ErrNoServers
	}
	if p.after, ok = d.apply(edits); !ok {
		return fmt.Errorf("%w: two forms lead to the same server", ErrShape)
	}
	return p.checked()
}

// checked reads the new text once more: what an editor could not read any more
// is never written. It fails only by a mistake in this package.
func (p *Plan) checked() error {
	if bytes.Equal(p.after, p.before.text) {
		return nil
	}
	if _, err := parse(p.after); err != nil {
		return fmt.Errorf("the change would make the file unreadable, nothing was done: %w", err)
	}
	return nil
}

// found is one object of servers.
type found struct {
	obj  *hujson.Object
	keys []string
}

// find walks along the keys. What has another shape on the way is some other
// program's business; at the end of it stands an object, or it is an error.
func (d *document) find(obj *hujson.Object, at, keys []string) ([]found, error) {
	var all []found
	var members []*hujson.ObjectMember
	if at[0] == "*" {
		if err := d.distinct(obj); err != nil {
			return nil, err
		}
		for i := range obj.Members {
			members = append(members, &obj.Members[i])
		}
	} else if m, err := d.member(obj, at[0]); err != nil {
		return nil, err
	} else if m != nil {
		members = append(members, m)
	}
	for _, m := range members {
		keys := append(slices.Clip(keys), name(m))
		in, ok := m.Value.Value.(*hujson.Object)
		switch {
		case ok && len(at) == 1:
			all = append(all, found{in, keys})
		case ok:
			more, err := d.find(in, at[1:], keys)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		case len(at) == 1 && !isNull(m.Value):
			return nil, d.errorAt(m.Value.StartOffset, "%w: %s is %s; want an object with one member for each server",
				ErrShape, strings.Join(keys, "."), shape(m.Value))
		}
	}
	return all, nil
}

func shape(v hujson.Value) string {
	switch v.Value.Kind() {
	case '[':
		return "a list"
	case '"':
		return "a text"
	case '{':
		return "an object"
	case '0':
		return "a number"
	}
	return "true, false or null"
}

// servers plans every entry of one object.
func (p *Plan) servers(d *document, f found, kind Kind) ([]edit, error) {
	if err := d.distinct(f.obj); err != nil {
		return nil, err
	}
	var edits []edit
	for i := range f.obj.Members {
		m := &f.obj.Members[i]
		s := Server{Name: name(m), Kind: kind, Where: strings.Join(f.keys, ".")}
		obj, ok := m.Value.Value.(*hujson.Object)
		if !ok {
			return nil, d.errorAt(m.Value.StartOffset, "%w: the %s %q is %s; want an object", ErrShape, kind, s.Name, shape(m.Value))
		}
		if err := d.distinct(obj); err != nil {
			return nil, err
		}
		more, err := p.server(d, obj, &s)
		if err != nil {
			return nil, err
		}
		p.Servers = append(p.Servers, s)
		edits = append(edits, more...)
	}
	return edits, nil
}
