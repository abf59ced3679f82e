package config

import (
	"bufio"
	"bytes"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
)

// editorRoots are the keys below which editors keep their servers: Claude,
// Cursor, Windsurf and Gemini; VS Code; Zed; and VS Code's settings file.
var editorRoots = [][]string{{"mcpServers"}, {"servers"}, {"context_servers"}, {"mcp", "servers"}}

// editor reads an editor's file as it is.
func (l *loader) editor(name string) error {
	d, text, err := l.read(name)
	if err != nil {
		return err
	}
	d.vars.editor = true
	if root := readJSONC(d, text); root != nil {
		l.editorServers(d, root)
	}
	l.problems = append(l.problems, d.problems...)
	l.config.Notes = append(l.config.Notes, d.notes...)
	return nil
}

func (l *loader) editorServers(d *decoder, root *node) {
	var list *node
	for _, path := range editorRoots {
		at := root
		for _, key := range path {
			at = at.get(key)
		}
		if at != nil && list == nil {
			list = at
		}
	}
	switch {
	case list == nil:
		d.problems = append(d.problems, Problem{File: d.file, Text: "no servers in it: neither mcpServers, servers nor context_servers"})
		return
	case list.kind != kindMap:
		d.failf(spot{value: list, secret: true}, "the servers have to be a map, not %s", list.kind)
		return
	}
	for _, p := range list.pairs {
		if s := l.editorServer(d, p); s != nil {
			l.add(s)
		}
	}
}

// editorServer reads one server, or returns nil if it is left out.
func (l *loader) editorServer(d *decoder, p pair) *Server {
	name, n := p.key.text, p.value
	if n.kind != kindMap {
		d.failf(spot{key: p.key, secret: true}, "server %q has to be a map, not %s", name, n.kind)
		return nil
	}
	if off := n.get("disabled"); off.is(kindBool) && off.text == "true" {
		d.notef("server %q is disabled there, and left out", name)
		return nil
	}
	if on := n.get("enabled"); on.is(kindBool) && on.text == "false" {
		d.notef("server %q is disabled there, and left out", name)
		return nil
	}
	s := &Server{Name: cleanName(name), Source: d.file}
	if s.Name != name {
		d.notef("server %q is served as %q", name, s.Name)
	}
	before := len(d.problems)
	d.vars.left = nil
	e := editorEntry{d: d, n: n, s: s}
	e.read()
	switch {
	case len(d.problems) > before:
		return nil
	case len(s.Command) == 0 && s.URL == "":
		d.notef("server %q has neither a command nor a url (an editor's extension?), and is left out", name)
		return nil
	}
	for _, v := range d.vars.left {
		if strings.HasPrefix(v, "input:") || strings.HasPrefix(v, "command:") {
			d.notef("server %q wants ${%s}, which only the editor can ask for, and is left out; put it into belay.yaml", name, v)
			return nil
		}
		known, _, _ := strings.Cut(v, ":-") // what follows may be a value
		d.notef("server %q: ${%s} is not known here and stays as it is", name, known)
	}
	if s.URL != "" && badURL(s.URL) != "" {
		d.failf(spot{key: p.key, secret: true}, "the url of server %q %s", name, badURL(s.URL))
		return nil
	}
	if l.isOurs(s.URL) {
		d.notef("server %q points at Belay itself, and is left out", name)
		return nil
	}
	return s
}

// isOurs reports whether an address is where this configuration will listen: an
// editor that was pointed at Belay.
func (l *loader) isOurs(address string) bool {
	u, err := url.Parse(address)
	listen := l.config.Listen
	if listen == "" {
		listen = DefaultListen
	}
	return err == nil && u.Host != "" && strings.Replace(u.Host, "localhost", "127.0.0.1", 1) == listen && strings.HasPrefix(u.Path, "/mcp")
}

// DefaultListen is where Belay listens when nobody says otherwise.
const DefaultListen = "127.0.0.1:7474"

// editorEntry reads the keys of one server.
type editorEntry struct {
	d *decoder
	n *node
	s *Server
}

// read takes what all editors mean alike; a key that none of them knows is not
// ours to judge.
func (e *editorEntry) read() {
	from := e.n
	program := "command"
	if c := e.n.get("command"); c.is(kindMap) { // Zed's older form: {path, args, env}
		from, program = c, "path"
	}
	e.program(from, program)
	e.take(&e.s.Args, from, "args")
	e.take(&e.s.Env, from, "env")
	e.take(&e.s.Dir, e.n, "cwd")
	e.take(&e.s.Headers, e.n, "headers")
	e.s.Dir = e.d.vars.folder(e.s.Dir, e.d.dir)
	e.address()
	e.envFile()
	if len(e.s.Command) > 0 {
		e.s.Command = append(e.s.Command, e.s.Args...)
	}
	e.s.Args = nil
}

// program is one word, blanks and all: so do editors start it.
func (e *editorEntry) program(from *node, key string) {
	var path string
	e.take(&path, from, key)
	if path != "" {
		e.s.Command = commandLine{path}
	}
}

// address takes the url from whichever key the editor has for it.
func (e *editorEntry) address() {
	if len(e.s.Command) > 0 {
		return // some editors keep both, and start the command
	}
	for _, key := range []string{"httpUrl", "url", "serverUrl", "uri"} {
		if e.s.URL == "" {
			e.take(&e.s.URL, e.n, key)
		}
	}
	form := "auto"
	for _, key := range []string{"type", "transport", "transportType"} {
		if t := e.n.get(key); t.is(kindString) {
			switch strings.ToLower(t.text) {
			case "sse":
				form = "sse"
			case "http", "streamable-http", "streamablehttp", "streamable_http":
				form = "streamable"
			}
		}
	}
	e.s.Transport = Some(form)
}

// take reads one key into a field.
func (e *editorEntry) take(to any, from *node, key string) {
	for _, p := range from.pairs {
		if p.key.text == key && p.value.kind != kindNull {
			e.d.value(reflect.ValueOf(to).Elem(), spot{key: p.key, value: withoutNull(p.value), secret: true}, field{key: key, secret: true})
		}
	}
}

// withoutNull drops entries that say nothing: VS Code's way to unset one.
func withoutNull(n *node) *node {
	if !n.is(kindMap) {
		return n
	}
	kept := *n
	kept.pairs = slices.DeleteFunc(slices.Clone(n.pairs), func(p pair) bool { return p.value.kind == kindNull })
	return &kept
}

// envFile adds the variables of VS Code's envFile; env itself goes before it.
func (e *editorEntry) envFile() {
	var name string
	e.take(&name, e.n, "envFile")
	if name == "" {
		return
	}
	text, err := os.ReadFile(e.d.vars.folder(name, e.d.dir))
	if err != nil || len(text) > maxFile {
		e.d.notef("the envFile of server %q cannot be read", e.s.Name)
		return
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export ")
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !ok || key == "" || strings.HasPrefix(key, "#") {
			continue
		}
		value = strings.TrimSpace(value)
		if q := value; len(q) >= 2 && (q[0] == '"' || q[0] == '\'') && q[len(q)-1] == q[0] {
			value = q[1 : len(q)-1]
		}
		if e.s.Env == nil {
			e.s.Env = map[string]string{}
		}
		if _, said := e.s.Env[key]; !said {
			e.s.Env[key] = value
		}
	}
}

// cleanName makes a name of an editor's into one that can be part of a path.
func cleanName(name string) string {
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune(nameChars, r) {
			return r
		}
		return '-'
	}, name)
	for strings.Contains(clean, "--") && !strings.Contains(name, "--") {
		clean = strings.ReplaceAll(clean, "--", "-")
	}
	for strings.Contains(clean, "__") {
		clean = strings.ReplaceAll(clean, "__", "_")
	}
	clean = strings.Trim(clean[:min(len(clean), maxName)], "-")
	if clean == "" {
		return "server"
	}
	return clean
}
