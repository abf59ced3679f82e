package config

import (
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belayhq/belay/hook"
)

// decode reads a command: a list, or a text with the words of a shell's line.
func (c *commandLine) decode(d *decoder, at spot, f field) {
	if at.value.kind != kindString {
		d.list(reflect.ValueOf((*[]string)(c)).Elem(), at, f)
		return
	}
	list, err := words(at.value.text)
	if err != nil {
		d.failf(at, "%s: %v", f.key, err)
		return
	}
	for i := range list { // after the splitting: what a variable holds is one word
		if list[i], err = d.vars.expand(list[i]); err != nil {
			d.failf(at, "%s: %v", f.key, err)
			return
		}
	}
	*c = list
}

// decode reads detach, cancel or {cancel-after: TIME}.
func (m *Disconnect) decode(d *decoder, at spot, f field) {
	const want = "disconnect is one of detach, cancel, or {cancel-after: 30s}"
	n := at.value
	switch {
	case n.kind == kindMap && len(n.pairs) == 1:
		p := n.pairs[0]
		if p.key.text != string(CancelAfter) {
			d.failf(spot{key: p.key, secret: true}, "unknown key %q (did you mean %q?)", p.key.text, CancelAfter)
			return
		}
		if d.scalar(reflect.ValueOf(&m.After).Elem(), spot{key: p.key, value: p.value}, field{key: string(CancelAfter), above: "0s"}) {
			m.Mode = CancelAfter
		}
	case n.kind == kindString && slices.Contains([]string{string(Detach), string(Cancel)}, n.text):
		m.Mode = DisconnectMode(n.text)
	case n.kind == kindString && strings.HasPrefix(n.text, string(CancelAfter)):
		d.failf(at, "%s needs a time: write disconnect: {cancel-after: 30s}", CancelAfter)
	case n.kind == kindString:
		d.failf(at, "disconnect cannot be %q (%s)", n.text, oneOf(n.text, []string{string(Detach), string(Cancel), "{cancel-after: 30s}"}))
	default:
		d.failf(at, "%s, not %s", want, n.kind)
	}
	_ = f
}

// decode reads the settings of a hook and what they must have in common.
func (h *Hook) decode(d *decoder, at spot, f field) {
	if at.value.kind != kindMap {
		d.failf(at, "%s has to be {command: […]} or {http: {url: …}}, not %s", f.key, at.value.kind)
		return
	}
	before := len(d.problems)
	d.fields(reflect.ValueOf(h).Elem(), spot{key: at.key, value: at.value}, f)
	if len(d.problems) > before {
		return
	}
	switch command := at.value.get("command"); {
	case command != nil && h.HTTP != nil:
		d.failf(at.atKey(), "%s has both command and http: a hook is one of them", f.key)
	case h.HTTP != nil:
		if bad := badURL(h.HTTP.URL); bad != "" {
			d.failf(at.atKey(), "%s: http: url %s", f.key, bad)
		}
	case len(h.Command) == 0 || h.Command[0] == "":
		d.failf(at.atKey(), "%s says neither command nor http", f.key)
	}
	if len(d.problems) == before {
		if err := template(f.key, at.value).Validate(); err != nil {
			text := strings.TrimPrefix(err.Error(), hook.ErrConfig.Error()+": "+f.key+": ")
			d.failf(at.atKey(), "%s: %s", f.key, text)
		}
	}
}

// template is a hook as it stands in the file, which may be shown: what a
// variable holds is not in it.
func template(step string, n *node) *hook.Hooks {
	a := &hook.Action{No: numbers(n.get("no")), Yes: numbers(n.get("yes"))}
	switch c := n.get("command"); {
	case c.is(kindString):
		a.Command, _ = words(unexpanded(c))
	case c.is(kindList):
		for _, item := range c.items {
			a.Command = append(a.Command, unexpanded(item))
		}
	}
	if h := n.get("http"); h != nil {
		address := h.get("url").scalar()
		if strings.HasPrefix(address, "${") {
			address = "http://" + address
		}
		a.HTTP = &hook.HTTP{URL: variable.ReplaceAllString(address, "x"), Body: unexpanded(h.get("body"))}
		if headers := h.get("headers"); headers != nil {
			for _, p := range headers.pairs {
				a.HTTP.Header = append(a.HTTP.Header, hook.Header{Name: p.key.text, Value: unexpanded(p.value)})
			}
		}
	}
	return map[string]*hook.Hooks{"tell": {Tell: a}, "terminate": {Terminate: a}, "kill": {Kill: a}, "alive": {Alive: a}}[step]
}

var variable = regexp.MustCompile(`\$\{[^}]*\}`)

// unexpanded is a text with its variables left out.
func unexpanded(n *node) string { return variable.ReplaceAllString(n.scalar(), "x") }

func numbers(n *node) []int {
	switch {
	case n.is(kindNumber):
		i, _ := strconv.Atoi(n.text)
		return []int{i}
	case n.is(kindList):
		var list []int
		for _, item := range n.items {
			list = append(list, numbers(item)...)
		}
		return list
	}
	return nil
}

// decode reads a rule, which must say something.
func (r *SpareRule) decode(d *decoder, at spot, f field) {
	before := len(d.problems)
	d.fields(reflect.ValueOf(r).Elem(), at, f)
	if _, err := path.Match(r.Comm, ""); len(d.problems) == before && (r.Comm == "" || err != nil) {
		d.failf(at, `a spare rule needs comm, a program's name or a pattern such as "chrom*"`)
	}
}

// decode reads the servers in their order.
func (l *serverList) decode(d *decoder, at spot, f field) {
	if at.value.kind == kindNull {
		return
	}
	if at.value.kind != kindMap {
		d.failf(at, "servers has to be a map from names to servers, not %s", at.value.kind)
		return
	}
	for _, p := range at.value.pairs {
		in := spot{key: p.key, value: p.value}
		if bad := badName(p.key.text); bad != "" {
			d.failf(in.atKey(), "the name %q %s", p.key.text, bad)
		}
		s := Server{Name: p.key.text, Source: d.file}
		d.server(&s, in, f)
		*l = append(*l, s)
	}
}

// server reads one server of belay.yaml and checks what its keys must have in
// common.
func (d *decoder) server(s *Server, at spot, _ field) {
	before := len(d.problems)
	if at.value.kind == kindNull {
		d.failf(at.atKey(), "server %q says none of command, url, rap and scripts", s.Name)
		return
	}
	d.fields(reflect.ValueOf(s).Elem(), at, field{key: s.Name})
	if len(d.problems) > before {
		return
	}
	s.Command = append(s.Command, s.Args...)
	s.Args = nil
	n := at.value
	if s.Scripts != nil {
		d.scriptsServer(s, at.under("scripts"))
		d.fitting(s, n)
		return
	}
	if s.RAP != nil {
		d.rapServer(s, at.under("rap"))
		d.fitting(s, n)
		return
	}
	switch command, address := n.get("command"), n.get("url"); {
	case command != nil && address != nil:
		d.failf(at.atKey(), "server %q has both command and url: it is reached by one of them", s.Name)
	case command == nil && address == nil:
		d.failf(at.atKey(), "server %q says none of command, url, rap and scripts", s.Name)
	case command != nil && (len(s.Command) == 0 || s.Command[0] == ""):
		d.failf(at.atKey(), "the command of server %q is empty", s.Name)
	case address != nil:
		if bad := badURL(s.URL); bad != "" {
			d.failf(at.atKey(), "the url of server %q %s", s.Name, bad)
		}
	}
	d.fitting(s, n)
	s.Dir = d.vars.folder(s.Dir, d.dir)
}

// fitting reports keys that mean nothing for the kind of server.
func (d *decoder) fitting(s *Server, n *node) {
	if s.Scripts != nil {
		d.fittingScripts(s, n)
		return
	}
	if s.RAP != nil {
		for _, p := range n.pairs {
			if slices.Contains([]string{"command", "args", "env", "cwd", "url", "headers", "transport", "isolation", "max_processes", "spares"}, p.key.text) {
				d.failf(spot{key: p.key, secret: true}, "%s is for MCP servers, and %q is a rap server; see the keys of rap", p.key.text, s.Name)
			}
		}
		return
	}
	only, kind := []string{"url", "headers", "transport"}, "reached by a url"
	if s.URL != "" {
		only, kind = []string{"command", "args", "env", "cwd", "isolation", "max_processes", "spares"}, "started by a command"
	}
	for _, p := range n.pairs {
		if slices.Contains(only, p.key.text) && n.get("command") == nil != (n.get("url") == nil) {
			d.failf(spot{key: p.key, secret: true}, "%s is for servers that are %s, and %q is not", p.key.text, kind, s.Name)
		}
	}
}

// badURL says what is wrong with an address, without showing it: it may hold a
// key.
func badURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return "is missing"
	case err != nil:
		return "cannot be read as a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "has to begin with http:// or https://"
	case u.Host == "":
		return "names no host"
	case u.Fragment != "":
		return "has a #fragment, which is never sent"
	}
	return ""
}

// maxName is the longest name of a server, in characters.
const maxName = 64

// badName says what is wrong with a server's name, which becomes part of a path
// and, before two underscores, of tool names.
func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxName:
		return "is longer than 64 characters"
	case strings.Trim(name, nameChars) != "":
		return "may hold letters, digits, - and _ only"
	case strings.Contains(name, "__"):
		return "may not hold __, which parts a server from its tool"
	}
	return ""
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
