package cli

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/serve"
)

// toolServeCmd is belay wrap for scripts.
type toolServeCmd struct {
	Name      string        `placeholder:"NAME" help:"What people see; default: the folder's name."`
	Grace     time.Duration `default:"2s" help:"Time between the Stop and the first force."`
	KillAfter time.Duration `default:"3s" help:"Time between asking by force (SIGTERM) and the kill."`
	Deadline  time.Duration `placeholder:"DURATION" help:"Stop each call after this time; 0: never."`
	Isolation string        `default:"call" enum:"shared,call" help:"One worker for the session, or one for each call: ${enum}."`
	AtOnce    int           `default:"8" help:"Calls of one tool at once; 0: any number."`
	Spares    int           `default:"1" help:"Idle workers kept ready, with --isolation call."`
	Cgroup    string        `default:"auto" enum:"auto,off" help:"Whether a cgroup is used where there can be one: ${enum}."`
	Label     []string      `short:"l" placeholder:"KEY=VALUE" sep:"none" help:"Give every run this label."`

	AllowHost       []string      `placeholder:"HOST" sep:"none" help:"A host that scripts may connect to; *.HOST: all below it; *: every host."`
	AutoApprove     bool          `help:"Tools that permit it go on without asking."`
	ApprovalTimeout time.Duration `default:"10m" help:"How long a person may take to answer."`
	Memory          config.Size   `placeholder:"SIZE" help:"What a worker may use (default 256MiB, with --isolation shared 1GiB)."`
	CPU             time.Duration `name:"cpu" default:"0s" help:"Running time of one call's interpreter; 0: no bound."`
	EditorRoot      string        `type:"path" placeholder:"DIR" help:"The folder that tools for the editor work on."`
	EditorWrite     bool          `help:"They may change it."`

	Dirs []string `arg:"" name:"dir" type:"path" help:"A project, or a folder of projects."`
}

// Help implements kong.HelpProvider.
func (*toolServeCmd) Help() string {
	return `Scripted tools as an MCP server on stdio: name it in any client's mcp.json. Each call is a run that can be seen and
stopped, in a worker process of its own; a file that changes is read again. Questions of tools that want approval go to the
client, where it can ask, and to "belay approvals". "belay serve" does the same over HTTP, for many.

Examples:

    belay tool serve ./tools
    belay tool serve ./tools/read_feeds --allow-host feeds.example

    {"command": "belay", "args": ["tool", "serve", "/home/me/tools"]}`
}

// Run serves until the caller ends.
func (c *toolServeCmd) Run(env *Env) error {
	def, err := c.definition()
	if err != nil {
		return err
	}
	procs := 0
	if waitable(env) {
		procs = 1
	}
	tune(procs)
	ctx := context.Background()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)

	h := openHost(ctx, env, "tool serve "+def.Name)
	defer h.close()
	cfg, err := serve.Gateway(serve.Options{
		Tree: h.tree, Parent: h.parent.Run(), Owner: h.owner, Log: h.log, Facts: h.facts, Cgroup: c.cgroup(),
		Ticket: h.ticket(), Idle: fallIdle, Placer: h.placer(def.Name),
	}, def)
	if err != nil {
		return exitErrorf(ExitUsage, "tool serve: %v", err)
	}
	session, err := gateway.Open(ctx, cfg, env.Stdout)
	if err != nil {
		return startError("tool serve", cfg.Command, err)
	}
	lines := make(chan struct{})
	go func() { defer close(lines); feed(session, env) }()
	return serveSession(ctx, "tool serve", session, lines, signals)
}

// definition is the server that the flags describe.
func (c *toolServeCmd) definition() (serve.Definition, error) {
	var def serve.Definition
	switch {
	case c.Grace <= 0 || c.KillAfter <= 0 || c.Deadline < 0 || c.ApprovalTimeout <= 0 || c.CPU < 0:
		return def, usagef("tool serve: --grace, --kill-after and --approval-timeout must be above 0, --deadline and --cpu not below it")
	case c.AtOnce < 0 || c.Spares < 0:
		return def, usagef("tool serve: --at-once and --spares must not be below 0")
	}
	for _, dir := range c.Dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return def, usagef("tool serve: %s is no folder", dir)
		}
	}
	labels, err := parseLabels(c.Label)
	if err != nil {
		return def, err
	}
	name := c.Name
	if name == "" {
		name = filepath.Base(c.Dirs[0])
	}
	def.Server, err = config.CompleteScripts(config.Server{
		Name: name,
		Policy: config.Policy{
			ToolPolicy: config.ToolPolicy{Grace: config.Some(c.Grace), KillAfter: config.Some(c.KillAfter), Deadline: config.Some(c.Deadline)},
			Isolation:  config.Some(c.Isolation), AtOnce: config.Some(c.AtOnce), Spares: config.Some(c.Spares), Labels: labels,
		},
		Scripts: &config.Scripts{
			Dirs: c.Dirs, AllowHosts: c.AllowHost, AutoApprove: c.AutoApprove, ApprovalTimeout: c.ApprovalTimeout,
			Memory: c.Memory, CPU: c.CPU, EditorRoot: c.EditorRoot, EditorWrite: c.EditorWrite,
		},
	})
	if err != nil {
		return def, usagef("tool serve: %v", err)
	}
	return def, nil
}

func (c *toolServeCmd) cgroup() proc.CgroupMode {
	if c.Cgroup == "off" {
		return proc.CgroupOff
	}
	return proc.CgroupAuto
}
