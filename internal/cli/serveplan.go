package cli

import (
	"fmt"
	"net/url"
	"os/exec"
	"path"

	"github.com/belayhq/belay/internal/builtin"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/serve"
)

// servePlan is where the servers come from.
type servePlan struct {
	cmd    *serveCmd
	flags  config.Policy
	getenv func(string) string
	notes  []string // for the log, beside those of the configuration
}

// load reads the files as they are now.
func (p *servePlan) load() (*config.Config, error) {
	return config.Load(config.Options{File: p.cmd.Config, Editors: p.cmd.McpConfig, Flags: p.flags, Listen: p.cmd.Listen, Getenv: p.getenv})
}

// address is where to listen.
func (p *servePlan) address(c *config.Config) string {
	switch {
	case p.cmd.Listen != "":
		return p.cmd.Listen
	case c.Listen != "":
		return c.Listen
	}
	return config.DefaultListen
}

// definitions are the servers of the configuration, or those of the
// demonstration if no file was named.
func (p *servePlan) definitions(c *config.Config) []serve.Definition {
	if len(c.Files) == 0 {
		return p.demonstration()
	}
	defs := make([]serve.Definition, 0, len(c.Servers))
	for i := range c.Servers {
		defs = append(defs, serve.Definition{Server: c.Servers[i]})
	}
	return defs
}

// referencePackage is the official reference server, pinned as in interop.
const referencePackage = "@modelcontextprotocol/server-everything@2026.8.31"

// demonstration is served where there is no configuration.
func (p *servePlan) demonstration() []serve.Definition {
	defs := []serve.Definition{p.builtIn()}
	if own, err := p.examplesServer(); err != nil {
		p.notes = append(p.notes, fmt.Sprintf("the examples of scripts are not served: %v", err))
	} else {
		defs = append(defs, own)
	}
	if _, err := exec.LookPath("npx"); err == nil && p.cmd.Reference {
		reference := config.New("reference", p.flags)
		reference.Command = []string{"npx", "--yes", referencePackage, "stdio"}
		defs = append(defs, serve.Definition{Server: reference})
	}
	return defs
}

// builtIn are the tools that Belay brings itself.
func (p *servePlan) builtIn() serve.Definition {
	demo := config.New("demo", p.flags)
	return serve.Definition{Server: demo, Serve: builtin.Serve}
}

// behind says in a word or two what a server is, and shows nothing that may be
// secret.
func behind(d *serve.Definition) string {
	switch {
	case d.URL != "":
		if u, err := url.Parse(d.URL); err == nil {
			return u.Scheme + "://" + u.Host
		}
		return "remote"
	case d.Serve != nil:
		return "built in"
	case d.Scripts != nil:
		return behindScripts(d.Scripts)
	case d.RAP != nil && d.RAP.URL != "":
		if u, err := url.Parse(d.RAP.URL); err == nil {
			return "rap " + u.Scheme + "://" + u.Host
		}
		return "rap"
	case d.RAP != nil:
		return "rap " + path.Base(d.RAP.Command[0])
	}
	if name, program := serverName(d.Command), path.Base(d.Command[0]); name != program {
		return program + " " + name
	}
	return path.Base(d.Command[0])
}
