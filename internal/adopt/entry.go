package adopt

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/tailscale/hujson"
)

// launch is how an entry starts a stdio server or an agent: the object that says it, the
// member with the command and the one with the arguments.
type launch struct {
	obj     *hujson.Object
	command *hujson.ObjectMember
	args    *hujson.ObjectMember // nil: there is none
	list    *hujson.Array        // what args holds; nil if args is
	argsKey string
	argv    []string // what is started; anything but a text as it is written
}

// findLaunch reads the stdio server of an entry. A why instead says for what
// reason this is none that can be wrapped; neither means that there is no command.
func (d *document) findLaunch(obj *hujson.Object, e *Editors) (l *launch, why string, err error) {
	return d.launchIn(obj, e, false)
}

func (d *document) launchIn(obj *hujson.Object, e *Editors, inside bool) (*launch, string, error) {
	for _, rule := range e.Commands {
		if rule.Inside && !inside {
			continue
		}
		m, err := d.member(obj, rule.Command)
		if err != nil {
			return nil, "", err
		}
		if m == nil || isNull(m.Value) {
			continue
		}
		if in, ok := m.Value.Value.(*hujson.Object); ok && !inside {
			if err := d.distinct(in); err != nil {
				return nil, "", err
			}
			return d.launchIn(in, e, true)
		}
		program, ok := text(m.Value)
		switch {
		case !ok:
			return nil, "its " + rule.Command + " is not a text", nil
		case strings.TrimSpace(program) == "":
			return nil, "its " + rule.Command + " is empty", nil
		}
		l := &launch{obj: obj, command: m, argsKey: rule.Args, argv: []string{program}}
		if l.args, err = d.member(obj, rule.Args); err != nil || l.args == nil {
			return l, "", err
		}
		if l.list, ok = l.args.Value.Value.(*hujson.Array); !ok {
			return nil, "its " + rule.Args + " is not a list", nil
		}
		for _, a := range l.list.Elements {
			s, ok := text(a)
			if !ok {
				s = d.raw(a)
			}
			l.argv = append(l.argv, s)
		}
		return l, "", nil
	}
	return nil, "", nil
}

func isNull(v hujson.Value) bool { return v.Value.Kind() == 'n' }

// wrap puts the command under Belay: belay takes its place, and it stands in
// front of its own arguments, both as they are written.
func (d *document) wrap(l *launch, belay string, s *Server) []edit {
	label, under := displayName(s.Name, s.Kind), s.Kind.command()
	edits := []edit{{l.command.Value.StartOffset, l.command.Value.EndOffset, quote(belay)}}
	command := d.raw(l.command.Value)
	if l.args == nil {
		// One word for the name: there was no list (see unwrap).
		list := quote(l.argsKey) + ": [" + strings.Join([]string{quote(under), quote("--name=" + label), quote("--"), command}, ", ") + "]"
		at := l.command.Value.EndOffset
		return append(edits, edit{at, at, "," + lead(l.command.Name.BeforeExtra, " ") + list})
	}
	words := []string{quote(under), quote("--name"), quote(label), quote("--"), command}
	if len(l.list.Elements) == 0 {
		at := l.args.Value.StartOffset + 1
		return append(edits, edit{at, at, strings.Join(words, ", ")})
	}
	first := l.list.Elements[0]
	between := "," + lead(first.BeforeExtra, " ")
	return append(edits, edit{first.StartOffset, first.StartOffset, strings.Join(words, between) + between})
}

// wrapped is an entry that runs under `belay wrap` or `belay acp`.
type wrapped struct {
	dashes int  // the "--" among the arguments; -1: there is none
	named  bool // by a name, as Belay does it when it adopts
	listed bool // the entry had a list of arguments
}

// asWrapped reports whether the entry starts this command of Belay's. belay is
// the name of this program, which people may have given another one.
func (l *launch) asWrapped(belay, under string) (wrapped, bool) {
	w := wrapped{dashes: -1}
	if len(l.argv) < 2 || !isBelay(l.argv[0], belay) || l.argv[1] != under {
		return w, false
	}
	w.dashes = slices.Index(l.argv[1:], "--") // an argument's index is one less than argv's
	end := w.dashes
	if end < 0 {
		end = len(l.argv) - 1
	}
	for _, word := range l.argv[2 : end+1] {
		switch {
		case strings.HasPrefix(word, "--name="):
			w.named = true
		case word == "--name":
			w.named, w.listed = true, true
		}
	}
	return w, true
}

func isBelay(program, own string) bool {
	base := func(s string) string {
		s = strings.ToLower(path.Base(strings.ReplaceAll(s, `\`, "/")))
		return strings.TrimSuffix(s, ".exe")
	}
	return base(program) == "belay" || own != "" && base(program) == base(own)
}

// unwrap is the opposite of wrap. Arguments that were added or changed behind
// the command stay; flags of Belay's own go. A why instead says what is amiss.
func (d *document) unwrap(l *launch, w wrapped) (edits []edit, why string) {
	elements := l.list.Elements
	if w.dashes < 0 || w.dashes+1 >= len(elements) {
		return nil, "the command of the server is not behind a \"--\" any more"
	}
	command := elements[w.dashes+1]
	if s, ok := text(command); !ok || s == "" {
		return nil, "what stands behind the \"--\" is not a command"
	}
	edits = []edit{{l.command.Value.StartOffset, l.command.Value.EndOffset, d.raw(command)}}
	if w.dashes+2 < len(elements) {
		return append(edits, edit{elements[0].StartOffset, elements[w.dashes+2].StartOffset, ""}), ""
	}
	if w.listed || !w.named {
		end := command.EndOffset
		if command.AfterExtra != nil { // somebody has put a comma behind the last one
			end = comma(command) + 1
		}
		return append(edits, edit{elements[0].StartOffset, end, ""}), ""
	}
	return append(edits, d.remove(l.obj, l.args)...), ""
}

// remove takes a member out of its object, with one comma, and keeps comments.
func (d *document) remove(obj *hujson.Object, m *hujson.ObjectMember) []edit {
	i := slices.IndexFunc(obj.Members, func(o hujson.ObjectMember) bool { return o.Name.StartOffset == m.Name.StartOffset })
	if i > 0 {
		before := obj.Members[i-1].Value
		gap := d.body[before.EndOffset:m.Name.StartOffset]
		if strings.TrimSpace(string(gap)) == "," {
			return []edit{{before.EndOffset, m.Value.EndOffset, ""}} // exactly what wrap has put there
		}
	}
	edits := []edit{{m.Name.StartOffset, m.Value.EndOffset, ""}}
	switch last := i == len(obj.Members)-1; {
	case !last || m.Value.AfterExtra != nil:
		at := comma(m.Value)
		edits = append(edits, edit{at, at + 1, ""})
	case i > 0:
		at := comma(obj.Members[i-1].Value)
		edits = append(edits, edit{at, at + 1, ""})
	}
	return edits
}

const maxName = 64 // characters of a name on a command line

// displayName makes an entry's key safe as one word of a command line: what
// people see, not what anything depends on. Editors fill in $VARIABLES, so no $.
func displayName(key string, kind Kind) string {
	var b strings.Builder
	n := 0
	for _, r := range key {
		switch {
		case n == maxName:
		case r == '$', r == unicode.ReplacementChar, !unicode.IsPrint(r), unicode.Is(unicode.Bidi_Control, r):
			continue
		default:
			b.WriteRune(r)
			n++
		}
	}
	s := strings.TrimSpace(strings.TrimLeft(b.String(), "- "))
	return or(s, string(kind))
}

func quote(s string) string { return string(hujson.String(s)) }
