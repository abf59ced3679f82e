package cli

import (
	"context"
	"net"
	"path/filepath"
	"time"

	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/lease"
	"github.com/belayhq/belay/ledger"
	"github.com/belayhq/belay/local"
	"github.com/belayhq/belay/node"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/serve"
	"github.com/belayhq/belay/tracing"
)

// listen binds the address, open to other machines only where somebody is
// configured who may come in.
func (p *servePlan) listen(ctx context.Context, c *config.Config) (net.Listener, error) {
	t, err := c.TLS.Server()
	if err != nil {
		return nil, err
	}
	return serve.Listen(ctx, serve.ListenOptions{Address: p.address(c), Open: c.Auth.Configured(), TLS: t})
}

// node is what the configuration says of the server as a whole.
func (p *servePlan) node(env *Env, h *host, c *config.Config, traces tracing.Config, at net.Addr) node.Options {
	o := node.Options{
		Serve: serve.Options{
			Tree: h.tree, Parent: h.parent.Run(), Log: h.log, Facts: h.facts,
			Ticket: h.ticket(), Idle: seldom(giveBack), Version: Version(), Cgroup: p.cmd.cgroup(),
			AllowedHosts: c.Hosts, AllowedOrigins: c.Origins,
			RAP: rapOptions(env, h, c, at),
		},
		Auth: c.Auth.Config(), TokenFile: auth.LocalTokenPath(env.Getenv, local.Dir(env.Getenv)), InTree: proc.InTree,
		LatchFile: latchFile(env, c), Permissions: c.Orchestrate.Permissions,
		Rate: c.Orchestrate.Rate, Burst: c.Orchestrate.Burst,
		Broadcast: admin.Audience(c.Orchestrate.Broadcast), ExposeOwner: c.Orchestrate.ExposeOwner,
		NoOrchestrate: !c.Orchestrate.Enabled, NoCancellation: !c.Cancellation.Enabled,
	}
	if hooks := c.Leases.Webhooks; c.Leases.Enabled {
		o.Leases = &lease.Options{Hooks: lease.Hooks{Private: hooks == "private", Plain: hooks == "private", NoLoopback: hooks == "public", Off: hooks == "off"}}
	}
	if c.RAP.Offer {
		o.RAP = rapDoor(&c.RAP)
	}
	if c.Traces.Enabled && traces.On() {
		o.Traces = &traces
	}
	if c.Metrics.Enabled {
		o.Metrics = &node.MetricsOptions{Public: c.Metrics.Public}
	}
	if c.Ledger.Enabled {
		o.Ledger = ledgerOf(env, &c.Ledger)
	}
	return o
}

// latchFile is where the latch is kept: beside the ledger, if nobody says
// otherwise. Whoever keeps two servers apart by ledger.path means the latch, too.
func latchFile(env *Env, c *config.Config) string {
	switch {
	case c.Latch.File != "":
		return c.Latch.File
	case c.Ledger.Path != "":
		return filepath.Join(filepath.Dir(c.Ledger.Path), "latch.json")
	}
	return config.LatchPath(env.Getenv)
}

// ledgerOf says where receipts go; nil: there is no place.
func ledgerOf(env *Env, c *config.Ledger) *node.LedgerOptions {
	o := &node.LedgerOptions{Path: c.Path, Required: c.Path != "", Options: ledger.Options{
		KeepFor: orNone(c.Keep), KeepRuns: orNone(c.KeepRuns), KeepBytes: orNone(int64(c.KeepBytes)),
		Partials: c.Partials, Commands: c.Commands,
	}}
	if len(c.KeepOf) > 0 {
		o.KeepOf = make(map[string]time.Duration, len(c.KeepOf))
	}
	for name, keep := range c.KeepOf {
		o.KeepOf[name] = orNone(keep)
	}
	if o.Path == "" {
		o.Path = config.LedgerPath(env.Getenv)
	}
	if o.Path == "" {
		env.Warnf("serve: this user has no home, so receipts are kept in memory only; say ledger.path, or set BELAY_STATE_DIR")
		return nil
	}
	return o
}

// orNone is a bound in the ledger's words, where 0 is the default and what is
// negative is none.
func orNone[T ~int | ~int64](bound T) T {
	if bound == 0 {
		return -1
	}
	return bound
}
