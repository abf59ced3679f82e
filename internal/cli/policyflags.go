package cli

import (
	"time"

	"github.com/belayhq/belay/proc"
)

// policyFlags say how calls are stopped: of wrap for its server, of serve for all
// servers whose definition does not say.
type policyFlags struct {
	Grace     time.Duration `default:"2s" help:"Time between the Stop and the first force."`
	KillAfter time.Duration `default:"3s" help:"Time between asking by force (SIGTERM) and the kill."`
	Enforce   string        `default:"auto" enum:"auto,strict,lenient,never" help:"When force is used: ${enum}."`
	Isolation string        `default:"shared" enum:"shared,call" help:"One process for a session, or one for each tool call: ${enum}."`
	Deadline  time.Duration `placeholder:"DURATION" help:"Stop each tool call after this time; 0: never."`
	Drain     time.Duration `default:"30s" help:"How long force, or a reload, waits for calls in flight."`
	Restart   string        `default:"known" enum:"known,safe,drain" help:"Whether a server loses nothing by a restart: ${enum} (known: as listed in Belay's data)."`
	Observe   bool          `help:"Tell and record, never use force."`
	Cgroup    string        `default:"auto" enum:"auto,off" help:"Whether a cgroup is used where there can be one: ${enum}."`
	Label     []string      `short:"l" placeholder:"KEY=VALUE" sep:"none" help:"Give every run this label."`
}

// check refuses times that cannot be.
func (f *policyFlags) check(verb string) error {
	if f.Grace <= 0 || f.KillAfter <= 0 || f.Drain <= 0 || f.Deadline < 0 {
		return usagef("%s: --grace, --kill-after and --drain must be above 0, --deadline not below it (got %v, %v, %v, %v)",
			verb, f.Grace, f.KillAfter, f.Drain, f.Deadline)
	}
	return nil
}

func (f *policyFlags) cgroup() proc.CgroupMode {
	if f.Cgroup == "off" {
		return proc.CgroupOff
	}
	return proc.CgroupAuto
}
