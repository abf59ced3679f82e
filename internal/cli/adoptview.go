package cli

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/belayhq/belay/internal/adopt"
	"github.com/belayhq/belay/internal/peers"
)

// sayf prints one line for people.
func (a *adopting) sayf(format string, args ...any) {
	if !a.JSON {
		fmt.Fprintln(a.env.Stdout, oneLine(fmt.Sprintf(format, args...)))
	}
}

// show prints a file's servers and what becomes of each.
func (a *adopting) show(r *fileResult) {
	if a.JSON {
		return
	}
	if a.shown {
		a.sayf("")
	}
	a.shown = true
	head := r.File
	if r.Editor != "" {
		head += " (" + r.Editor + ")"
	}
	fmt.Fprintln(a.env.Stdout, a.st.paint(bold, oneLine(head)))
	if r.Blocked != "" {
		fmt.Fprintln(a.env.Stdout, a.st.paint(warn, oneLine("left alone: "+r.Blocked+" (--force does it all the same)")))
	}
	if len(r.Servers) == 0 {
		a.sayf("no servers or agents")
		return
	}
	t := table{columns: []column{{head: "NAME"}, {head: "IN"}, {head: "DO"}, {head: "IS"}, {head: "PROGRAM", min: 12}, {head: "WHY"}}}
	for _, s := range r.Servers {
		where := ""
		if s.Where != r.Servers[0].Where {
			where = s.Where
		}
		do, t1 := string(s.Action), good
		if r.Blocked != "" && s.Action.Changes() {
			do = "(" + do + ")"
		}
		switch s.Action {
		case adopt.Keep:
			do, t1 = "-", faint
		case adopt.Skip:
			t1 = warn
		}
		is := string(s.Restart)
		if s.Kind == adopt.Agent {
			is = string(adopt.Agent)
		}
		t.add(cell{oneLine(s.Name), plain}, cell{oneLine(where), faint}, cell{do, t1}, cell{is, plain},
			cell{oneLine(s.Program), plain}, cell{oneLine(why(&s)), plain})
	}
	t.print(a.env.Stdout, a.st)
}

// why is what people should know before a server or an agent is put under Belay.
func why(s *adopt.Server) string {
	var parts []string
	if s.Why != "" {
		parts = append(parts, s.Why)
	}
	if s.Action == adopt.Wrap {
		switch {
		case s.Kind == adopt.Agent:
			parts = append(parts, "a Stop ends its tools; the agent itself is kept unless it ignores the Stop")
		case s.Restart == peers.RestartSafe:
			parts = append(parts, "may be restarted: "+s.Known)
		case s.Restart == peers.RestartStateful:
			parts = append(parts, "kept, enforce auto: "+s.Known)
		default:
			parts = append(parts, "kept, enforce auto: not known to be restart safe")
		}
	}
	if s.Action == adopt.Wrap && s.Relay != "" {
		parts = append(parts, "proof ends at this machine: "+s.Relay)
	}
	if s.Serve != nil {
		parts = append(parts, "as /mcp/"+s.Serve.Name)
	}
	return strings.Join(parts, "; ")
}

// showDiff prints the change. On a terminal nothing in it may move the cursor.
func (a *adopting) showDiff(text string) {
	if a.JSON {
		return
	}
	if !a.st.terminal {
		_, _ = io.WriteString(a.env.Stdout, text)
		return
	}
	for line := range strings.Lines(text) {
		t := plain
		switch line[0] {
		case '+':
			t = good
		case '-':
			t = bad
		}
		line = strings.Map(func(r rune) rune {
			if r != '\t' && unicode.IsControl(r) {
				return -1
			}
			return r
		}, line)
		fmt.Fprintln(a.env.Stdout, a.st.paint(t, line))
	}
}

// sayDone sums up a file that was, or could be, written.
func (a *adopting) sayDone(r *fileResult) {
	n, kept := 0, 0
	done := map[adopt.Kind]int{}
	for _, s := range r.Servers {
		switch {
		case s.Action.Changes():
			n++
			done[s.Kind]++
		case s.Action == adopt.Keep:
			kept++
		}
	}
	switch {
	case r.Changed && a.Undo:
		a.sayf("%s: as before", countKinds(done))
	case r.Changed:
		a.sayf("%s: under Belay. Undo it with: belay adopt --undo %s", countKinds(done), shellWord(r.File))
	case r.Blocked == "" && n == 0 && kept > 0:
		a.sayf("nothing left to do")
	}
}

// countKinds says how many of which kind.
func countKinds(n map[adopt.Kind]int) string {
	var parts []string
	for _, kind := range []adopt.Kind{adopt.ToolServer, adopt.Agent} {
		if n[kind] > 0 {
			parts = append(parts, count(n[kind], string(kind)))
		}
	}
	return strings.Join(parts, " and ")
}

// sayServe prints what belay serve needs for the entries that lead to it.
func (a *adopting) sayServe() {
	var b strings.Builder
	said := map[string]bool{}
	for _, r := range a.files {
		if r.Blocked != "" || r.Error != "" {
			continue
		}
		for _, s := range r.Servers {
			if s.Serve != nil && !said[s.Serve.Name] {
				said[s.Serve.Name] = true
				writeUpstream(&b, s.Serve, r.File)
			}
		}
	}
	if b.Len() > 0 {
		fmt.Fprintf(a.env.Stdout, "\nbelay serve has to run for these, with this in its belay.yaml:\n\nservers:\n%s", b.String())
	}
}

var plainWord = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// writeUpstream is a server as belay.yaml has it. The values of headers are
// secrets more often than not: they stay where they are, and come from the
// environment.
func writeUpstream(b *strings.Builder, up *adopt.Upstream, file string) {
	fmt.Fprintf(b, "  %s:\n    url: %s\n", yamlWord(up.Name), strconv.QuoteToGraphic(up.URL))
	if up.Transport != "" {
		fmt.Fprintf(b, "    transport: %s\n", up.Transport)
	}
	if len(up.Headers) > 0 {
		fmt.Fprintf(b, "    headers: # the values are in %s\n", oneLine(file))
	}
	for _, h := range up.Headers {
		fmt.Fprintf(b, "      %s: ${%s}\n", yamlWord(h), variable(up.Name+"_"+h))
	}
}

// yamlWord is a key; words that YAML reads as something else get quotes, too.
func yamlWord(s string) string {
	if plainWord.MatchString(s) && !slices.Contains([]string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}

// variable is the name of an environment variable.
func variable(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return unicode.ToUpper(r)
		}
		return '_'
	}, s)
	if s[0] >= '0' && s[0] <= '9' {
		s = "_" + s
	}
	return s
}

// sayNext says what to do with a list, or after a change.
func (a *adopting) sayNext() {
	changed := false
	var todo []string
	for _, r := range a.files {
		changed = changed || r.Changed
		for _, s := range r.Servers {
			if r.Blocked == "" && s.Action.Changes() {
				todo = append(todo, shellWord(r.File))
				break
			}
		}
	}
	verb := "belay adopt "
	if a.Undo {
		verb = "belay adopt --undo "
	}
	switch {
	case a.listing && !a.DryRun && len(todo) > 0:
		fmt.Fprintf(a.env.Stdout, "\nNothing was changed. Do it with: %s\n", oneLine(verb+strings.Join(todo, " ")))
	case changed:
		a.sayf("")
		a.sayf("Editors see it when they start, or reload their MCP servers and agents.")
	}
}

var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_./~@%+=:,-]+$`)

// shellWord makes a path one word of a shell's line.
func shellWord(s string) string {
	if shellSafe.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
