package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Scripts is a server of scripted tools, in place of a command and a URL: each is a
// folder with assistant_tool.json and assistant_tool.tsx, run by workers that Belay
// starts.
type Scripts struct {
	Dirs       []string `key:"dirs" path:"folder"` // absolute; each a project, or a folder of projects
	AllowHosts []string `key:"allow_hosts"`        // where they may connect to; none: nowhere

	AutoApprove     bool          `key:"auto_approve" default:"false"`
	ApprovalTimeout time.Duration `key:"approval_timeout" default:"10m" above:"0s"`

	Memory Size          `key:"memory"`                    // of a worker; complete: never 0
	CPU    time.Duration `key:"cpu" default:"0s" min:"0s"` // running time of one call's interpreter; 0: no bound

	EditorRoot  string `key:"editor_root" path:"folder"` // the folder that tools for the editor work on; empty: they are not loaded
	EditorWrite bool   `key:"editor_write" default:"false"`
}

// What holds for scripts where the server itself says nothing else.
const (
	scriptSpares    = 4
	approvalTimeout = 10 * time.Minute // AT-61
	scriptAtOnce    = 8                // AT-88
	memoryOfOne     = 256 << 20        // of a worker with isolation call
	memoryOfMany    = 1 << 30          // and with shared
	leastMemory     = 32 << 20         // below it a worker does not start
)

// scriptsServer checks what the keys of a server of scripts must have in common.
func (d *decoder) scriptsServer(s *Server, at spot) {
	c := s.Scripts
	if at.value.kind != kindMap || len(c.Dirs) == 0 {
		d.failf(at.atKey(), "server %q: scripts needs dirs: folders that are a project each, or hold projects", s.Name)
		return
	}
	for i, dir := range c.Dirs {
		if dir == "" {
			d.failf(at.under("dirs").item(i), "dirs: an empty name is no folder")
			continue
		}
		d.noteFolder(s, "dirs", dir)
	}
	for i, host := range c.AllowHosts {
		if bad := badHost(host); bad != "" {
			d.failf(at.under("allow_hosts").item(i), "allow_hosts: %q %s", host, bad)
		}
	}
	if c.Memory != 0 && c.Memory < leastMemory {
		d.failf(at.under("memory"), "memory: a worker needs at least 32MiB")
	}
	switch {
	case c.EditorRoot != "":
		d.noteFolder(s, "editor_root", c.EditorRoot)
	case c.EditorWrite:
		d.failf(at.under("editor_write").atKey(), "editor_write says that tools may write below editor_root, and there is none")
	}
}

// noteFolder notes a folder that is not there yet: it may come, and the scripts of
// others are served meanwhile.
func (d *decoder) noteFolder(s *Server, key, dir string) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		d.notef("server %q: %s: there is no folder %s", s.Name, key, dir)
	}
}

// badHost says what is wrong with a host that scripts may connect to.
func badHost(host string) string {
	name, port, ok := strings.Cut(host, ":")
	switch {
	case host == "*":
		return ""
	case strings.Contains(host, "/") || strings.Contains(host, "@"):
		return "is no host: leave out https:// and the path"
	case strings.HasPrefix(host, "[") || strings.Count(host, ":") > 1: // an address of IPv6
		return ""
	case name == "" || ok && port == "" || strings.ContainsAny(host, " \t"):
		return "is no host, with or without a port"
	case strings.Contains(strings.TrimPrefix(name, "*."), "*"):
		return `has a * that is not at its beginning: "*.example" is every host below example`
	}
	return ""
}

// fittingScripts reports keys that mean nothing for a server of scripts.
func (d *decoder) fittingScripts(s *Server, n *node) {
	for _, p := range n.pairs {
		switch {
		case slices.Contains([]string{"command", "args", "env", "cwd", "url", "headers", "transport", "rap"}, p.key.text):
			d.failf(spot{key: p.key, secret: true}, "%s is for servers that somebody else wrote, and %q has scripts; see the keys of scripts", p.key.text, s.Name)
		case slices.Contains([]string{"enforce", "restart"}, p.key.text):
			d.failf(spot{key: p.key, secret: true}, "scripts are always enforced strictly and can be restarted at any time: leave out %s", p.key.text)
		}
	}
	if tools := n.get("tools"); tools.is(kindMap) {
		for _, t := range tools.pairs {
			if t.value.is(kindMap) && t.value.get("enforce") != nil {
				d.failf(spot{key: t.key, value: t.value}.under("enforce").atKey(), "scripts are always enforced strictly: leave out enforce")
			}
		}
	}
}

// CompleteScripts completes a server of scripts that a command line describes, and
// refuses what a file may not say either.
func CompleteScripts(s Server) (Server, error) {
	c := *s.Scripts
	if c.ApprovalTimeout == 0 {
		c.ApprovalTimeout = approvalTimeout
	}
	for _, host := range c.AllowHosts {
		if bad := badHost(host); bad != "" {
			return s, fmt.Errorf("the host %q %s", host, bad)
		}
	}
	switch {
	case len(c.Dirs) == 0:
		return s, errors.New("a folder of scripts is missing")
	case c.Memory != 0 && c.Memory < leastMemory:
		return s, errors.New("a worker needs at least 32MiB of memory")
	case c.EditorWrite && c.EditorRoot == "":
		return s, errors.New("tools may write only below an editor's root, and there is none")
	}
	s.Scripts, s.Source = &c, "command line"
	s.complete(Defaults())
	return s, nil
}

// complete puts what holds for scripts alone before what is said of all servers: their
// workers are Belay's own, and lose nothing.
func (c *Scripts) complete(s *Server, base *Policy) {
	if !s.Isolation.Set {
		s.Isolation = Some("call")
	}
	if !s.AtOnce.Set {
		s.AtOnce = Some(scriptAtOnce)
	}
	if !s.Spares.Set {
		s.Spares = Some(0)
		if s.Isolation.Value == "call" {
			s.Spares = Some(scriptSpares)
		}
	}
	if c.Memory == 0 {
		c.Memory = memoryOfMany
		if s.Isolation.Value == "call" {
			c.Memory = memoryOfOne
		}
	}
	base.Enforce, base.Restart = Some("strict"), Some("safe")
	s.Enforce, s.Restart = base.Enforce, base.Restart
}

// uselessSpares says that spares were asked for where there can be none.
func (s *Server) uselessSpares() string {
	if !s.Spares.Set || s.Spares.Value == 0 || s.Isolation.Value == "call" && s.Restart.Value == "safe" {
		return ""
	}
	return fmt.Sprintf("%s: server %q: spares have no effect without isolation: call and restart: safe", s.Source, s.Name)
}
