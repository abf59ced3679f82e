package config

import (
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
}

// scriptsServer checks what the keys of a server of scripts must have in common.
func (d *decoder) scriptsServer(s *Server, at spot) {
	if at.value.kind != kindMap || len(s.Scripts.Dirs) == 0 {
		d.failf(at.atKey(), "server %q: scripts needs dirs: folders that are a project each, or hold projects", s.Name)
	}
}

// complete puts what holds for scripts alone before what the command line says of
// all servers: their workers are Belay's own, and lose nothing.
func (*Scripts) complete(s *Server, base *Policy) {
	if !s.Isolation.Set {
		s.Isolation = Some("call")
	}
	base.Enforce, base.Restart = Some("strict"), Some("safe")
}
