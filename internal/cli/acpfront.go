package cli

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/bridge"
	"github.com/belayhq/belay/acp/front"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/local"
	"github.com/belayhq/belay/serve"
)

// servers are the MCP servers of the editor's sessions. The socket, by which wrap
// processes ask where their calls hang, is there before who answers them.
type servers struct{ at atomic.Pointer[front.Front] }

// where is [local.Options.Place].
func (s *servers) where(session belay.RunID, call local.Asked) []belay.RunID {
	if f := s.at.Load(); f != nil {
		return f.Where(session, call)
	}
	return nil
}

// askBy says who asks the person at the editor.
func (s *servers) askBy(ask front.Ask) {
	if f := s.at.Load(); f != nil {
		f.AskBy(ask)
	}
}

// scripts is the server of the scripts that the agent is given; nil: none.
func (c *acpCmd) scripts() (*serve.Definition, error) {
	if len(c.Scripts) == 0 {
		return nil, nil
	}
	dirs := make([]string, len(c.Scripts))
	for i, dir := range c.Scripts {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() {
			return nil, usagef("acp: --scripts %s is no folder", dir)
		}
		if dirs[i], err = filepath.Abs(dir); err != nil {
			return nil, usagef("acp: --scripts %s: %v", dir, err)
		}
	}
	d := &serve.Definition{Server: config.NewScripts("scripts", c.serverPolicy(), dirs...)}
	d.Scripts.AllowHosts = c.AllowHost
	return d, nil
}

// frontEnd is how long the end of the servers is waited for. The processes among
// them end with the agent.
const frontEnd = 2 * time.Second

// front puts the MCP servers that the editor names behind Belay, unless they are to
// pass as they are. The second value ends what it holds.
func (c *acpCmd) front(x *agency) (bridge.Front, func()) {
	if c.MCP == "pass" {
		return nil, func() {}
	}
	self, err := os.Executable()
	if err != nil {
		x.env.Warnf("acp: MCP servers pass as they are: %v", err)
		return nil, func() {}
	}
	h := x.host
	o := front.Options{
		Tree: h.tree, Agent: x.run.ID(), Belay: self, Log: h.log, Server: h.server, Owner: h.owner, Facts: h.facts,
		Wrap: c.wrapFlags(), Policy: c.serverPolicy(), Scripts: x.scripts,
	}
	if h.server != nil {
		dir := filepath.Dir(h.server.Path())
		// Agents start servers with next to no environment.
		o.Env = []string{local.EnvDir + "=" + dir}
		o.Mesh = local.NewMesh(local.MeshOptions{Dirs: []string{dir}})
	}
	for _, name := range []string{envLog, envLogFormat} {
		if value := x.env.Getenv(name); value != "" {
			o.Env = append(o.Env, name+"="+value)
		}
	}
	f := front.New(o)
	x.servers.at.Store(f)
	return f, func() {
		ctx, end := context.WithTimeoutCause(context.Background(), frontEnd, &belay.Cancellation{Cause: belay.CauseShutdown})
		defer end()
		if err := f.End(ctx); err != nil {
			h.log.Warn("MCP servers that are reached by HTTP have not ended", "error", err)
		}
	}
}

// The defaults of the flags that have others with MCP servers.
const (
	acpGrace     = 2 * time.Second
	acpKillAfter = 2 * time.Second
)

// What is said of the agent counts for the MCP servers, too, where they know the
// word. Strict is the bridge's rule for the agent's own tools; other people's
// servers are forced by signs of life (DESIGN 11, 1).

// wrapFlags are the flags of belay wrap.
func (c *acpCmd) wrapFlags() []string {
	var flags []string
	if c.Enforce != string(bridge.Strict) {
		flags = append(flags, "--enforce="+c.Enforce)
	}
	if c.Grace != acpGrace {
		flags = append(flags, "--grace="+c.Grace.String())
	}
	if c.KillAfter != acpKillAfter {
		flags = append(flags, "--kill-after="+c.KillAfter.String())
	}
	if c.Observe {
		flags = append(flags, "--observe")
	}
	if c.Cgroup == "off" {
		flags = append(flags, "--cgroup=off")
	}
	return flags
}

// serverPolicy is the same for servers that are reached by HTTP.
func (c *acpCmd) serverPolicy() (p config.Policy) {
	if c.Enforce != string(bridge.Strict) {
		p.Enforce = config.Some(c.Enforce)
	}
	if c.Grace != acpGrace {
		p.Grace = config.Some(c.Grace)
	}
	if c.KillAfter != acpKillAfter {
		p.KillAfter = config.Some(c.KillAfter)
	}
	if c.Observe {
		p.Observe = config.Some(true)
	}
	return p
}
