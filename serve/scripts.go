package serve

import (
	"os"
	"slices"

	"github.com/belayhq/belay/gateway"
)

// ownWorker is the command line by which this program serves scripted tools.
func ownWorker() []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return []string{self, "script-worker"}
}

// scripted makes the configuration of a session that of a server on stdio, whose
// processes are workers of Belay's own. They are forced whatever they say: whose
// code they run nobody has looked at, and nothing is lost with them.
func (d *Definition) scripted(c *gateway.Config, o *Options) {
	s := d.Scripts
	c.Command = slices.Clone(o.Worker)
	add := func(words ...string) { c.Command = append(c.Command, words...) }
	add("--grace", d.Grace.Value.String(), "--kill-after", (d.Grace.Value + d.KillAfter.Value).String())
	add("--approval-timeout", s.ApprovalTimeout.String())
	for _, host := range s.AllowHosts {
		add("--allow-host", host)
	}
	if s.AutoApprove {
		add("--auto-approve")
	}
	add("--")
	add(s.Dirs...)
	c.RestartSafe, c.Isolation = true, gateway.Isolation(d.Isolation.Value)
	c.Enforce = gateway.EnforceStrict
	for name, p := range c.Tools {
		p.Enforce = gateway.EnforceStrict
		c.Tools[name] = p
	}
}
