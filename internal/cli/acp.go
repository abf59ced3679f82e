package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/acp/agent"
	"github.com/belayhq/belay/acp/bridge"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/serve"
)

type acpCmd struct {
	Name          string        `placeholder:"NAME" help:"What people see; default: the command's name."`
	Enforce       string        `default:"strict" enum:"strict,lenient,never" help:"How far a Stop goes when the agent does not stop by itself: ${enum}."`
	Linger        time.Duration `default:"500ms" help:"From the agent's word that it has stopped to the look at what runs on."`
	Grace         time.Duration `default:"2s" help:"From the Stop to SIGTERM for what runs on, at the latest."`
	KillAfter     time.Duration `default:"2s" help:"From SIGTERM to SIGKILL; at least 10s for tools known to clean up."`
	Settle        time.Duration `default:"5s" help:"From the Stop to the editor's answer, at the latest."`
	AgentDeadline time.Duration `default:"30s" help:"From the Stop to the end of an agent that never answers it."`
	ExitGrace     time.Duration `default:"2s" help:"From the end of the agent's input to SIGTERM for all that it has started."`
	Deadline      time.Duration `placeholder:"DURATION" help:"Stop each turn after this time; 0: never."`
	Background    string        `default:"spare" enum:"spare,stop" help:"What becomes of work that the agent lists as background: ${enum}."`
	MCP           string        `name:"mcp" default:"front" enum:"front,pass" help:"Whether the MCP servers that the editor names are put behind Belay: ${enum}."`
	Scripts       []string      `placeholder:"DIR" sep:"none" help:"Give the agent the scripted tools of this folder, as one more MCP server; again for more."`
	AllowHost     []string      `placeholder:"HOST" sep:"none" help:"Where these scripts may connect to; none: nowhere."`
	Keep          []string      `placeholder:"PATTERN" sep:"none" help:"Never end a process with this name or command line by the Stop of a turn; * stands for anything."`
	Dialect       []string      `placeholder:"[PEER=]FORM" sep:"none" help:"How single requests are cancelled at an editor or agent of this name: stable, seed or none; without a name, at every one."`
	Observe       bool          `help:"Tell and record, never use force."`
	Cgroup        string        `default:"auto" enum:"auto,off" help:"Whether a cgroup is used where there can be one: ${enum}."`
	Command       []string      `arg:"" optional:"" passthrough:"all" name:"command" help:"The agent's command line, after --."`
}

// Help implements kong.HelpProvider.
func (*acpCmd) Help() string {
	return `What an editor starts instead of an agent that speaks ACP (Agent Client Protocol) on stdio: put it before the agent's command in
the editor's settings. Messages pass as they are. When Stop is pressed, in the editor or with belay cancel, the agent is told
once; the tools, MCP calls and processes of the turn are told and then ended; the editor has its answer after --settle at the
latest; and the session takes the next prompt. The first Stop ends what belongs to tool calls that are open. Others that the
turn has started are named, and a second Stop ends them. belay ps --tree shows session, turn, tool call and process. With
--scripts the agent gets scripted tools besides; what they ask goes to the agent, or to the editor as a permission. The agent's standard error passes through; Belay's own words go there too (BELAY_LOG=debug|info|warn|error|off).

  strict   end what runs on, and after --agent-deadline the agent itself
  lenient  end what runs on, but not the agent itself
  never    tell, and report

Exit codes: 0 the editor has gone and nothing is left, 2 the agent could not be started, 5 the agent had to be killed,
6 processes were left alive, 130 the agent was stopped with belay cancel; when the agent ends by itself, its own exit code, or 128
and the number of the signal.

Examples:

    belay acp -- npx -y @agentclientprotocol/claude-agent-acp
    belay acp --settle 3s --keep 'vite*' --name codex -- codex-acp
    belay acp --scripts ./tools --allow-host api.example -- gemini --experimental-acp

Zed, in settings.json:

    "agent_servers": {"Claude": {"type": "custom", "command": "belay",
      "args": ["acp", "--", "npx", "-y", "@agentclientprotocol/claude-agent-acp"], "env": {}}}

JetBrains, in ~/.jetbrains/acp.json:

    {"agent_servers": {"Claude": {"command": "belay",
      "args": ["acp", "--", "npx", "-y", "@agentclientprotocol/claude-agent-acp"]}}}`
}

// Run serves until the editor, the agent or Belay itself is to end.
func (c *acpCmd) Run(env *Env) error {
	command := commandLine(c.Command)
	if err := c.check(command); err != nil {
		return err
	}
	set, err := c.settings()
	if err != nil {
		return err
	}
	scripts, err := c.scripts()
	if err != nil {
		return err
	}
	procs := 0
	if waitable(env) {
		procs = 1
	}
	tune(procs)
	name := c.Name
	if name == "" {
		name = agentName(command)
	}
	// A peer that is gone is an error of writing, not the end of this process: what
	// the agent has started is to be ended first.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)

	x := &agency{env: env, name: name, command: command, scripts: scripts}
	x.host = openHostAsking(context.Background(), env, "acp "+name, x.servers.where, nil)
	defer x.host.close()
	if err := x.start(c); err != nil {
		return err
	}
	return x.serve(c, set, signals)
}

// agentName is what people see of a command line: the package of the agent, also
// where the interpreter before it comes from a package of its own.
func agentName(command []string) string {
	switch base := path.Base(filepath.ToSlash(command[0])); base {
	case "node", "bun", "deno", "python", "python3":
		command = append([]string{base}, command[1:]...)
	}
	return serverName(command)
}

// check refuses what was meant as a flag: everything from the first word that is
// none of ours on is the command.
func (c *acpCmd) check(command []string) error {
	switch {
	case len(command) == 0 || command[0] == "":
		return usagef("acp: the agent's command is missing; it comes after -- (see \"belay acp --help\")")
	case strings.HasPrefix(c.Command[0], "-") && c.Command[0] != "--":
		return usagef("acp: unknown flag %s; the agent's command comes after -- (see \"belay acp --help\")", c.Command[0])
	}
	for _, d := range []struct {
		flag string
		at   time.Duration
	}{
		{"linger", c.Linger},
		{"grace", c.Grace},
		{"kill-after", c.KillAfter},
		{"settle", c.Settle},
		{"agent-deadline", c.AgentDeadline},
		{"exit-grace", c.ExitGrace},
	} {
		if d.at <= 0 {
			return usagef("acp: --%s must be above 0 (got %v)", d.flag, d.at)
		}
	}
	switch {
	case c.Deadline < 0:
		return usagef("acp: --deadline must not be below 0 (got %v)", c.Deadline)
	case c.AgentDeadline < c.Settle:
		return usagef("acp: --agent-deadline (%v) must not be before --settle (%v)", c.AgentDeadline, c.Settle)
	case len(c.Scripts) > 0 && c.MCP == "pass":
		return usagef("acp: --scripts puts a server behind Belay, and --mcp pass puts none there")
	case len(c.AllowHost) > 0 && len(c.Scripts) == 0:
		return usagef("acp: --allow-host is for scripts, and there are none (see --scripts)")
	case slices.Contains(c.Keep, ""):
		return usagef("acp: --keep needs a pattern, such as 'vite*'")
	}
	return nil
}

// settings are the flags as the bridge takes them.
func (c *acpCmd) settings() (bridge.Settings, error) {
	set := bridge.Settings{
		Enforce: bridge.Enforce(c.Enforce), Background: bridge.Background(c.Background),
		Linger: c.Linger, Grace: c.Grace, KillAfter: c.KillAfter, Settle: c.Settle,
		AgentDeadline: c.AgentDeadline, ExitGrace: c.ExitGrace, TurnDeadline: c.Deadline,
		Dialect: make(map[string]acp.Form, len(c.Dialect)),
	}
	if c.Observe {
		set.Enforce = bridge.Never
	}
	for _, text := range c.Dialect {
		peer, word, named := strings.Cut(text, "=")
		if !named {
			peer, word = "", text
		}
		form, ok := forms[word]
		if !ok || named && peer == "" {
			return set, usagef("acp: --dialect %q must be stable, seed or none, or NAME= and one of these", text)
		}
		set.Dialect[peer] = form
	}
	return set, nil
}

// forms are the words for the ways to cancel one request.
var forms = map[string]acp.Form{"stable": acp.FormStable, "seed": acp.FormSeed, "none": acp.FormNone}

// agency is one agent under Belay.
type agency struct {
	env     *Env
	host    *host
	name    string
	command []string
	run     *belay.Run // of the agent; its sessions hang below
	agent   *agent.Agent
	forced  atomic.Bool // the bridge has used force on the agent itself
	servers servers
	scripts *serve.Definition // that it gets; nil: none
}

// agentRun begins the name of an agent's run.
const agentRun = "agent "

// start registers the agent and starts it.
func (x *agency) start(c *acpCmd) error {
	var err error
	x.run, err = x.host.tree.Register(belay.Spec{
		Kind: belay.KindSession, Name: agentRun + x.name, Owner: x.host.owner, ParentID: x.host.parent.Run(),
	})
	if err != nil {
		return err
	}
	cfg := agent.Config{
		Command: x.command, Env: x.host.environment(x.run.ID()), Label: x.run.ID().String(), Facts: x.host.facts, Keep: c.Keep,
		Tree: x.host.tree, Owner: x.host.owner, KillAfter: c.KillAfter, Log: x.host.log,
	}
	if f, ok := x.env.Stderr.(*os.File); ok {
		cfg.Stderr = f
	}
	cfg.Never = c.Observe || c.Enforce == string(bridge.Never)
	if c.Cgroup == "off" {
		cfg.Cgroup = proc.CgroupOff
	}
	if x.agent, err = agent.Start(context.Background(), cfg); err != nil {
		x.run.Finish(belay.Failed)
		return startError("acp", x.command, err)
	}
	x.host.log.Debug("the agent was started", "pid", x.agent.PID())
	return nil
}

// errStopped ends the bridge when the agent's run was stopped.
var errStopped = errors.New("the agent was stopped")

// serve relays until one of the peers is gone, or Belay is to end.
func (x *agency) serve(c *acpCmd, set bridge.Settings, signals <-chan os.Signal) error {
	front, closeFront := c.front(x)
	b, err := bridge.New(bridge.Options{
		Tree: x.host.tree, Settings: set, Control: x.env.mesh(), Agent: whole{x.agent, &x.forced}, Offspring: offspring{x.agent}, Front: front,
		Name: x.name, Owner: x.host.owner, Parent: x.run, Log: x.host.log,
	})
	if err != nil {
		closeFront()
		_, _ = x.agent.Close(context.Background())
		x.run.Finish(belay.Failed)
		if errors.Is(err, bridge.ErrSetting) {
			return usagef("acp: %v", err)
		}
		return err
	}
	x.servers.askBy(b.Permit)
	ctx, end := context.WithCancelCause(context.Background())
	over, heard := make(chan struct{}), make(chan struct{})
	go func() { defer close(heard); x.hear(signals, over, end) }()
	idle := newQuiet(fallIdle)
	result, err := b.Serve(ctx,
		bridge.Pipes{In: idle.reader(x.env.Stdin), Out: x.env.Stdout},
		bridge.Pipes{In: idle.reader(x.agent.Stdout()), Out: x.agent.Stdin()})
	idle.stop()
	closeFront()
	seen, closeErr := x.agent.Close(context.Background())
	close(over)
	<-heard
	end(nil)
	return x.conclude(result, seen, errors.Join(err, closeErr))
}

// hear waits for what ends Belay from outside: a signal, the second of which kills
// at once, or a Stop of the agent's run.
func (x *agency) hear(signals <-chan os.Signal, over <-chan struct{}, end context.CancelCauseFunc) {
	stopped := x.run.Context().Done()
	for n := 0; ; {
		select {
		case <-over:
			return
		case <-stopped:
			stopped = nil
			end(errStopped)
		case sig := <-signals:
			if n++; n == 1 {
				end(&belay.Cancellation{Cause: belay.CauseShutdown, Via: "signal", Reason: fmt.Sprintf("belay got %s", sig)})
				continue
			}
			// It is the person's last word, so it is not for the bridge to wait.
			if _, err := x.agent.Kill(context.Background()); err != nil {
				x.host.log.Error("the agent could not be killed", "error", err)
			}
		}
	}
}

// conclude ends the agent's run and says how it went.
func (x *agency) conclude(result bridge.Result, seen *belay.Evidence, err error) error {
	exit := x.exit(result.Reason)
	living := result.Living
	if seen != nil {
		living = seen.Survivors // the newer word
		x.run.Observe(*seen)
		if len(seen.Spared) > 0 {
			x.env.Warnf("acp: left alive on purpose: %s", nameAll(seen.Spared))
		}
	}
	stopped := x.run.Cancellation() != nil
	switch {
	case stopped: // what was seen is its end
	case exit == ExitDone:
		x.run.Finish(belay.Completed)
	default:
		x.run.Finish(belay.Failed)
	}
	for _, err := range []error{x.agent.Err(), err} {
		if err != nil {
			x.env.Warnf("acp: %v", err)
		}
	}
	switch {
	case len(living) > 0:
		x.env.Warnf("acp: still alive: %s; to end them: kill -9 %s", nameAll(living), pids(living))
		return exitWith(ExitSurvivors)
	case stopped:
		return exitWith(ExitStopped)
	case err != nil:
		return exitWith(ExitFailed)
	}
	return exitWith(exit)
}

// exit is the exit code for the end of a bridge that has left nobody behind. It says
// why, where the editor would otherwise have to guess.
func (x *agency) exit(why bridge.Reason) int {
	switch why {
	case bridge.AgentKilled:
		x.env.Warnf("acp: %s did not stop and was killed; the editor starts it again with the next thread (see \"belay receipts\")", x.name)
		return ExitAgentKilled
	case bridge.AgentGone:
		exit := x.agent.Exit()
		switch {
		case x.forced.Load():
			x.env.Warnf("acp: %s closed its output, went on, and was ended", x.name)
			return ExitAgentKilled
		case exit.Unknown:
			x.env.Warnf("acp: %s is over, but its exit code is not known", x.name)
			return ExitFailed
		case exit.Signal != 0:
			x.env.Warnf("acp: %s was ended by a signal (%v)", x.name, exit.Signal)
			return 128 + int(exit.Signal)
		case exit.Code != 0:
			x.env.Warnf("acp: %s ended with exit code %d; try its command by itself: %s", x.name, exit.Code, fit(strings.Join(x.command, " "), 200))
		}
		return exit.Code
	case bridge.EditorGone, bridge.Shutdown:
	}
	return ExitDone
}

// pids are the process ids of a list, as kill takes them.
func pids(list []belay.Process) string {
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = fmt.Sprint(p.PID)
	}
	return strings.Join(parts, " ")
}

// quiet notices when nothing has passed for a while: the runtime gives memory back by
// itself only after minutes, and wakes for it.
type quiet struct {
	timer *time.Timer
}

// quietAfter is how long nothing must have passed.
const quietAfter = 5 * time.Second

func newQuiet(do func()) *quiet { return &quiet{time.AfterFunc(quietAfter, do)} }

func (q *quiet) stop() { q.timer.Stop() }

// reader is from, with each read noticed.
func (q *quiet) reader(from io.Reader) io.Reader { return &noisy{from, q.timer} }

type noisy struct {
	io.Reader
	timer *time.Timer
}

// Read implements io.Reader.
func (n *noisy) Read(p []byte) (int, error) {
	size, err := n.Reader.Read(p)
	n.timer.Reset(quietAfter)
	return size, err
}

// Close ends a read that is under way, where that can be done.
func (n *noisy) Close() error {
	if c, ok := n.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
