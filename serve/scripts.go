package serve

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/memcap"
	"github.com/belayhq/belay/script"
)

// ownWorker is the command line by which this program serves scripted tools.
func ownWorker() []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return []string{self, "script-worker"}
}

// workerMargin is what a worker's processes may have beyond the bound that the worker
// itself keeps, which knows better what to say.
const workerMargin = 64 << 20

// scripted makes the configuration of a session that of a server on stdio, whose
// processes are workers of Belay's own. They are forced whatever they say: nobody
// has looked at the code that they run, and nothing is lost with them.
func (d *Definition) scripted(c *gateway.Config, o *Options) {
	c.Command = append(slices.Clone(o.Worker), WorkerArgs(&d.Server)...)
	c.Asks = true
	c.RestartSafe, c.Isolation = true, gateway.Isolation(d.Isolation.Value)
	c.Enforce = gateway.EnforceStrict
	for name, p := range c.Tools {
		p.Enforce = gateway.EnforceStrict
		c.Tools[name] = p
	}
	memory := int64(d.Scripts.Memory)
	c.IdleMemory, c.Memory = memory/2, memory+workerMargin
	c.Epitaph = func(died gateway.Death) string {
		if died.OutOfMemory || memcap.Died(died.Exit.Code, died.Stderr) {
			return script.TextMemory
		}
		return ""
	}
}

// Gateway is the configuration of a session with a server of scripts, for whoever
// serves one by something else than HTTP. An error matches [ErrDefinition].
func Gateway(o Options, d Definition) (gateway.Config, error) {
	if d.Scripts == nil {
		return gateway.Config{}, fmt.Errorf("%w: server %q has no scripts", ErrDefinition, d.Name)
	}
	o = o.withDefaults()
	return d.gateway(&o), nil
}

// unlimited is what a worker is told that any number of calls may be at once.
const unlimited = 1 << 30

// WorkerArgs are the arguments of a worker for a server of scripts.
func WorkerArgs(s *config.Server) []string {
	c := s.Scripts
	atOnce := s.AtOnce.Value
	if atOnce == 0 {
		atOnce = unlimited
	}
	args := []string{
		"--grace", s.Grace.Value.String(), "--kill-after", (s.Grace.Value + s.KillAfter.Value).String(),
		"--approval-timeout", c.ApprovalTimeout.String(), "--memory", c.Memory.String(), "--cpu", c.CPU.String(),
		"--at-once", strconv.Itoa(atOnce),
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tools)) {
		t := s.Tools[name]
		args = append(args, "--tool-grace", name+"="+t.Grace.Value.String(), "--tool-kill-after", name+"="+(t.Grace.Value+t.KillAfter.Value).String())
	}
	for _, host := range c.AllowHosts {
		args = append(args, "--allow-host", host)
	}
	if c.AutoApprove {
		args = append(args, "--auto-approve")
	}
	if c.EditorRoot != "" {
		args = append(args, "--editor-root", c.EditorRoot)
	}
	if c.EditorWrite {
		args = append(args, "--editor-write")
	}
	return append(append(args, "--"), c.Dirs...)
}
