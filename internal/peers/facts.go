package peers

import (
	"fmt"
	"path"
	"strings"

	"github.com/belayhq/belay/proc"
)

// document is the form of every file here, and of the user's. The files here
// are read by a test, which writes builtin.go from them: no process has to parse
// them at its start.
type document struct {
	Relays  []relay  `yaml:"relays"`
	Spare   []spare  `yaml:"spare"`
	Slow    []slow   `yaml:"slow"`
	Servers []server `yaml:"servers"`
}

// match says which commands a rule is about.
type match struct {
	Command []string `yaml:"command"`
	Words   []string `yaml:"words"`
	Unless  []string `yaml:"unless"`
	Why     string   `yaml:"why"`
}

type relay struct {
	Match match `yaml:",inline"`
	Relay *bool `yaml:"relay"`
}

type slow struct {
	Match match `yaml:",inline"`
	Slow  *bool `yaml:"slow"`
}

type spare struct {
	Comm    string   `yaml:"comm"`
	Args    []string `yaml:"args"`
	NotArgs []string `yaml:"not_args"`
	Why     string   `yaml:"why"`
	Spare   *bool    `yaml:"spare"`
}

type server struct {
	Package []string `yaml:"package"`
	Restart string   `yaml:"restart"`
	Why     string   `yaml:"why"`
}

// Restart says whether a server may be killed and started again unnoticed.
type Restart string

// The values of Restart. A server that is not known is treated as stateful.
const (
	RestartSafe     Restart = "safe"
	RestartStateful Restart = "stateful"
)

// Server is what is known about an MCP server.
type Server struct {
	Package string  // the name by which it was recognized
	Restart Restart // never empty
	Why     string
}

// Facts answers questions about command lines and processes. Its zero value
// knows the built-in facts only.
type Facts struct {
	user document // looked at first
}

// Relay reports whether the work of the command line is, or may be, done
// somewhere else, so that the death of the local process proves nothing about
// it (DESIGN 11, 4). why is a clause such as "the work runs in a container".
func (f *Facts) Relay(argv []string) (why string, ok bool) {
	for _, c := range Commands(argv) {
		for _, list := range [][]relay{f.user.Relays, relays} {
			if i := first(list, func(r relay) bool { return r.Match.matches(c) }); i >= 0 {
				if said(list[i].Relay) {
					return c.Name + ": " + or(list[i].Match.Why, "the work runs elsewhere"), true
				}
				break // an exception of the user
			}
		}
	}
	return "", false
}

// Slow reports whether the command line runs a tool that needs ten seconds
// between SIGTERM and SIGKILL (DESIGN 11, 7), and what it may have to clean up.
func (f *Facts) Slow(argv []string) (why string, ok bool) {
	for _, c := range Commands(argv) {
		for _, list := range [][]slow{f.user.Slow, slows} {
			if i := first(list, func(r slow) bool { return r.Match.matches(c) }); i >= 0 {
				if said(list[i].Slow) {
					return c.Name + ": " + or(list[i].Match.Why, "it needs time to clean up"), true
				}
				break
			}
		}
	}
	return "", false
}

// Server returns what is known about the MCP server that the command line
// starts; false means that nothing is, and that it must be treated as stateful.
func (f *Facts) Server(argv []string) (Server, bool) {
	for _, c := range Commands(argv) {
		for _, list := range [][]server{f.user.Servers, servers} {
			if i := first(list, func(s server) bool { return contains(s.Package, c.Name) }); i >= 0 {
				return Server{Package: c.Name, Restart: Restart(list[i].Restart), Why: list[i].Why}, true
			}
		}
	}
	return Server{}, false
}

// SpareRules lists the programs that are not to be harmed, for proc.Config.
// The caller must not change it.
func (f *Facts) SpareRules() []proc.SpareRule {
	off := map[string]bool{}
	var rules []proc.SpareRule
	for _, list := range [][]spare{f.user.Spare, spares} {
		for _, s := range list {
			switch {
			case !said(s.Spare):
				off[s.Comm] = true
			case !off[s.Comm]:
				rules = append(rules, proc.SpareRule{Comm: s.Comm, Args: s.Args, NotArgs: s.NotArgs, Why: s.Why})
			}
		}
	}
	return rules
}

// matches reports whether the rule is about the command.
func (m *match) matches(c Command) bool {
	if !contains(m.Command, c.Name) {
		return false
	}
	for _, w := range m.Unless {
		if hasWord(c.Args, w) {
			return false
		}
	}
	for _, w := range m.Words {
		if hasWord(c.Args, w) {
			return true
		}
	}
	return len(m.Words) == 0
}

// hasWord finds a word among the arguments, or several that follow each other.
func hasWord(args []string, word string) bool {
	words := strings.Fields(word)
	for i := 0; i+len(words) <= len(args); i++ {
		all := true
		for j, w := range words {
			all = all && glob(w, args[i+j])
		}
		if all {
			return true
		}
	}
	return false
}

// glob matches a pattern in which * stands for anything, also for slashes.
func glob(pattern, s string) bool {
	before, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, before) {
		return false
	}
	s = s[len(before):]
	for i := 0; i <= len(s); i++ {
		if glob(rest, s[i:]) {
			return true
		}
	}
	return false
}

func first[T any](list []T, ok func(T) bool) int {
	for i := range list {
		if ok(list[i]) {
			return i
		}
	}
	return -1
}

func said(b *bool) bool { return b == nil || *b }

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// check holds the entries to what the comments in the files promise.
func (d *document) check() error {
	for _, r := range d.Relays {
		if err := r.Match.check("relays"); err != nil {
			return err
		}
	}
	for _, r := range d.Slow {
		if err := r.Match.check("slow"); err != nil {
			return err
		}
	}
	for _, r := range d.Spare {
		if _, err := path.Match(r.Comm, ""); r.Comm == "" || err != nil {
			return fmt.Errorf("spare: comm %q: want a name or a pattern such as \"chrom*\"", r.Comm)
		}
	}
	for _, s := range d.Servers {
		if len(s.Package) == 0 || s.Restart != string(RestartSafe) && s.Restart != string(RestartStateful) {
			return fmt.Errorf("servers: package %q, restart %q: want names, and restart: safe or stateful", s.Package, s.Restart)
		}
	}
	return nil
}

func (m *match) check(list string) error {
	if len(m.Command) == 0 {
		return fmt.Errorf("%s: an entry without command (why: %q)", list, m.Why)
	}
	return nil
}
