package adopt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/belayhq/belay/internal/peers"
)

// server plans one entry.
func (p *Plan) server(d *document, obj *hujson.Object, s *Server) ([]edit, error) {
	o := p.options
	s.Action = Skip
	switch {
	case slices.Contains(o.Skip, s.Name):
		s.Why = "left out by --skip"
		return nil, nil
	case len(o.Only) > 0 && !o.named(s.Name):
		s.Why = "not named by --only"
		return nil, nil
	}
	l, why, err := d.findLaunch(obj, o.Editors)
	if err != nil {
		return nil, err
	}
	a, whyNot, err := d.findAddress(obj, o.Editors)
	if err != nil {
		return nil, err
	}
	transport, whyType := o.Editors.transport(obj)
	switch why = or(why, whyNot); {
	case why != "":
		s.Why = why
	case transport == "stdio":
		a = nil
	case transport != "":
		l = nil
	case whyType != "":
		s.Why = whyType
	case l != nil && a != nil:
		s.Why = "it has both a command and an address, and no type that tells which counts"
	}
	switch {
	case s.Why != "":
	case l != nil:
		return p.stdio(d, obj, l, s), nil
	case a != nil && s.Kind == Agent:
		s.Why = "it is remote: belay acp starts agents, it does not connect to them"
	case a != nil:
		if transport != "" {
			a.transport = transport
		}
		return p.remote(d, obj, a, s), nil
	case s.Kind == Agent:
		s.Why = "it has no command of its own: the editor brings this agent along"
	default:
		s.Why = "it has no command of its own"
	}
	return nil, nil
}

// stdio plans a server or an agent that the editor starts.
func (p *Plan) stdio(d *document, obj *hujson.Object, l *launch, s *Server) []edit {
	o, command := p.options, s.Kind.command()
	w, under := l.asWrapped(o.Belay, command)
	inner := l.argv
	if under && w.dashes >= 0 {
		inner = l.argv[w.dashes+2:] // an element's place in the list is one less than in argv
	}
	o.judge(inner, s)
	switch {
	case o.Undo && !under:
		s.Why = "it does not run under belay " + command
		return nil
	case o.Undo && !w.named && !o.named(s.Name):
		s.Why = "it was put under Belay by hand (--only NAME takes it out all the same)"
		return nil
	case o.Undo:
		edits, why := d.unwrap(l, w)
		if s.Why = why; why == "" {
			s.Action = Restore
		}
		return edits
	case under || wrappedInside(l.argv, command):
		s.Action, s.Why = Keep, "it runs under belay "+command+" already"
		if under && l.argv[0] != o.Belay {
			s.Why += " (" + l.argv[0] + gone(l.argv[0]) + ")"
		}
		return nil
	case isBelay(l.argv[0], o.Belay):
		s.Why = "it is Belay itself"
		return nil
	}
	if s.Why = or(o.left(obj, s.Name), o.onlyEditors(l, s.Name)); s.Why != "" {
		return nil
	}
	s.Action = Wrap
	return d.wrap(l, o.Belay, s)
}

// gone warns of an entry that cannot start any more.
func gone(program string) string {
	if _, err := os.Stat(program); filepath.IsAbs(program) && errors.Is(err, fs.ErrNotExist) {
		return ", which is not there"
	}
	return ""
}

// onlyEditors says what in the command only the editor, or its shell, would
// understand; Belay starts a program, it reads no command lines.
func (o *Options) onlyEditors(l *launch, server string) string {
	if o.named(server) {
		return ""
	}
	first, _, more := strings.Cut(strings.TrimSpace(l.argv[0]), " ")
	switch {
	case strings.HasPrefix(first, "~"):
		return "its command begins with ~, which only the editor may understand (--only NAME adopts it all the same)"
	case more && !strings.ContainsAny(first, `/\$%`):
		return "its command is a whole line, which only the editor's shell may understand; move the words into its args"
	}
	return ""
}

// wrappedInside finds a `belay wrap` or `belay acp` behind wrappers: cmd /c, env,
// a shell.
func wrappedInside(argv []string, command string) bool {
	return slices.ContainsFunc(peers.Commands(afterCmd(argv)), func(c peers.Command) bool {
		return c.Name == "belay" && len(c.Args) > 0 && c.Args[0] == command
	})
}

// afterCmd is the command line that `cmd /c` runs: on Windows npx and its like
// are scripts and need it in front.
func afterCmd(argv []string) []string {
	program := strings.ToLower(path.Base(strings.ReplaceAll(argv[0], `\`, "/")))
	if program != "cmd" && program != "cmd.exe" {
		return argv
	}
	for i, word := range argv[1:] {
		switch {
		case strings.EqualFold(word, "/c"), strings.EqualFold(word, "/k"):
			if inner := argv[i+2:]; len(inner) > 0 {
				return inner
			}
			return argv
		case !strings.HasPrefix(word, "/"):
			return argv
		}
	}
	return argv
}

// judge says what is known about the server (DESIGN 11, 2 and 4).
func (o *Options) judge(argv []string, s *Server) {
	if len(argv) == 0 {
		return
	}
	argv = afterCmd(argv)
	facts := o.Facts
	if facts == nil {
		facts = &peers.Facts{}
	}
	if seen := peers.Commands(argv); len(seen) > 0 {
		s.Program = seen[len(seen)-1].Name
	}
	if s.Kind == ToolServer {
		s.Restart = RestartUnknown
		if known, ok := facts.Server(argv); ok {
			s.Restart = known.Restart
			s.Known = known.Why
		}
	}
	if why, ok := facts.Relay(argv); ok {
		s.Relay = why
	}
}

// remote plans a server that the editor reaches by an address.
func (p *Plan) remote(d *document, obj *hujson.Object, a *address, s *Server) []edit {
	o := p.options
	if o.Undo {
		edits, ok := d.unserve(a)
		if !ok {
			s.Why = "it does not go through belay serve"
			return nil
		}
		s.Action = Restore
		return edits
	}
	if served.MatchString(a.url) {
		s.Action, s.Why = Keep, "it goes through belay serve already"
		return nil
	}
	if !o.Remote {
		s.Why = "it is remote (--remote takes it through belay serve)"
		return nil
	}
	if s.Why = a.serveBlocked(o, o.named(s.Name)); s.Why != "" {
		return nil
	}
	if s.Why = o.left(obj, s.Name); s.Why != "" {
		return nil
	}
	edits, up := d.serve(a, o.serve(), s.Name)
	if other, taken := o.taken[up.Name]; taken && other != up.URL {
		s.Why = "another server is served as " + up.Name + " already; rename one of them"
		return nil
	}
	if o.taken == nil {
		o.taken = map[string]string{}
	}
	o.taken[up.Name] = up.URL
	s.Action, s.Serve = Serve, up
	return edits
}

// left says which member of the entry is a reason to leave it alone.
func (o *Options) left(obj *hujson.Object, server string) string {
	if o.named(server) {
		return ""
	}
	decided := map[string]bool{}
	for _, rule := range o.Editors.Leave {
		if decided[rule.Key] {
			continue
		}
		for i := range obj.Members {
			m := &obj.Members[i]
			if name(m) != rule.Key || !says(m.Value, rule.Is) {
				continue
			}
			if rule.Leave != nil && !*rule.Leave {
				decided[rule.Key] = true
				continue
			}
			return or(rule.Why, "its "+rule.Key) + " (--only NAME adopts it all the same)"
		}
	}
	return ""
}

// says reports whether a value is the one asked for; nil asks for any but null
// and false.
func says(v hujson.Value, is *bool) bool {
	l, literal := v.Value.(hujson.Literal)
	if is == nil {
		return !literal || l.Kind() != 'n' && l.Kind() != 'f'
	}
	return literal && string(l) == fmt.Sprint(*is)
}

// transport is what the entry's type says: empty without one. A why instead says
// for what reason an entry of this type is left alone.
func (e *Editors) transport(obj *hujson.Object) (transport, why string) {
	for i := range obj.Members {
		m := &obj.Members[i]
		if key := name(m); key != "type" && key != "transport" {
			continue
		}
		is, ok := text(m.Value)
		if !ok {
			continue
		}
		for _, k := range e.Types {
			if strings.EqualFold(k.Is, is) {
				return k.Transport, k.Why
			}
		}
		return "", "its type is none that Belay knows"
	}
	return "", ""
}

func or[T ~string](s, otherwise T) T {
	if s == "" {
		return otherwise
	}
	return s
}
