package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/proc"
)

type wrapCmd struct {
	policyFlags `embed:""`

	Name    string   `placeholder:"NAME" help:"What people see; default: the command's name."`
	URL     string   `name:"url" placeholder:"URL" help:"Instead of a command: a server that is reached by HTTP."`
	Header  []string `short:"H" placeholder:"'NAME: VALUE'" sep:"none" help:"With --url: send this header with every request; $NAME in it is that variable of the environment."`
	Command []string `arg:"" optional:"" passthrough:"all" name:"command" help:"The server's command line, after --."`
}

// Help implements kong.HelpProvider.
func (*wrapCmd) Help() string {
	return `An MCP server on stdio in front of CMD: put it before the command in any client's mcp.json. Messages pass as they are;
each request becomes a run that can be seen and stopped. What a stopped call leaves running is ended by force where the rules
allow it, and the session goes on with a fresh process. Logs go to standard error only (BELAY_LOG=debug|info|warn|error|off).

  auto     force on signs of life after the grace period, or on a person's second Stop
  strict   always force after the grace period
  lenient  force only on a person's second Stop
  never    tell, and report

Examples:

    belay wrap -- npx -y @modelcontextprotocol/server-everything
    belay wrap --enforce strict --deadline 5m --name files -- uvx mcp-server-git
    belay wrap --url https://tools.example/mcp --header 'Authorization: Bearer ${TOOLS_TOKEN}'

    {"command": "belay", "args": ["wrap", "--", "npx", "-y", "some-server"]}`
}

// Run serves until the caller or the server ends.
func (c *wrapCmd) Run(env *Env) error {
	command := commandLine(c.Command)
	if err := c.check(command); err != nil {
		return err
	}
	header, err := c.headers(env)
	if err != nil {
		return err
	}
	labels, err := parseLabels(c.Label)
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

	name := c.name(command)
	h := openHost(ctx, env, "wrap "+name)
	defer h.close()
	cfg := c.config(h, name, command, labels)
	cfg.Header = header
	session, err := gateway.Open(ctx, cfg, env.Stdout)
	if err != nil {
		return startError("wrap", command, err)
	}
	lines := make(chan struct{})
	go func() { defer close(lines); feed(session, env) }()
	return serveSession(ctx, "wrap", session, lines, signals)
}

// check refuses times that cannot be, and what was meant as a flag: everything
// from the first word that is none of ours on is the command.
func (c *wrapCmd) check(command []string) error {
	switch {
	case len(command) == 0 && c.URL == "":
		return usagef("wrap: the server's command is missing (see \"belay wrap --help\")")
	case len(command) > 0 && c.URL != "":
		return usagef("wrap: a command and --url exclude each other")
	case c.URL != "" && !strings.HasPrefix(c.URL, "http://") && !strings.HasPrefix(c.URL, "https://"):
		return usagef("wrap: --url %q must begin with http:// or https://", c.URL)
	case len(c.Header) > 0 && c.URL == "":
		return usagef("wrap: --header needs --url")
	case len(command) > 0 && strings.HasPrefix(c.Command[0], "-") && c.Command[0] != "--":
		return usagef("wrap: unknown flag %s (see \"belay wrap --help\")", c.Command[0])
	}
	return c.policyFlags.check("wrap")
}

// name is what people see.
func (c *wrapCmd) name(command []string) string {
	switch {
	case c.Name != "":
		return c.Name
	case c.URL != "":
		if u, err := url.Parse(c.URL); err == nil {
			return u.Host // never a part that may hold a secret
		}
		return "remote"
	}
	return serverName(command)
}

// headers reads --header. A secret belongs into the environment: what stands on
// the command line, every user of the machine can read.
func (c *wrapCmd) headers(env *Env) (http.Header, error) {
	header := make(http.Header)
	for _, line := range c.Header {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usagef("wrap: --header %q must be 'NAME: VALUE'", name)
		}
		missing := ""
		header.Add(name, os.Expand(strings.TrimSpace(value), func(variable string) string {
			text := env.Getenv(variable)
			if text == "" && missing == "" {
				missing = variable
			}
			return text
		}))
		if missing != "" { // the server would refuse every request, and not say why
			return nil, usagef("wrap: --header %s: the environment variable %q is not set", name, missing)
		}
	}
	return header, nil
}

// serveSession waits for whoever ends the session first, and ends it.
func serveSession(ctx context.Context, verb string, session *gateway.Session, lines <-chan struct{}, signals <-chan os.Signal) error {
	end := belay.Cancellation{Cause: belay.CauseDisconnect, Via: "stdio", Reason: "the caller went away"}
	var result error
	select {
	case <-lines:
	case sig := <-signals:
		end = belay.Cancellation{Cause: belay.CauseShutdown, Via: "signal", Reason: fmt.Sprintf("belay got %s", sig)}
	case <-session.Ended():
		end = belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: "the session cannot go on"}
		result = session.Err()
		switch {
		case errors.Is(result, belay.ErrCancelled): // somebody stopped the session: that is what was wanted
			result = nil
		case errors.Is(result, gateway.ErrCallerGone): // as if it had closed our input, too
			end = belay.Cancellation{Cause: belay.CauseDisconnect, Via: "stdio", Reason: "the caller went away"}
			result = nil
		}
	}
	if err := session.Close(ctx, end); err != nil {
		return err
	}
	if result != nil {
		return exitErrorf(ExitFailed, "%s: %v", verb, result)
	}
	return nil
}

// feed gives the session what the caller writes, until it writes no more.
func feed(session *gateway.Session, env *Env) {
	err := session.Feed(env.Stdin)
	if part, ok := errors.AsType[*jsonrpc.PartialError](err); ok {
		env.Warnf("wrap: the caller went away in the middle of a message (%d bytes); it was dropped", part.Size)
	}
}

func (c *wrapCmd) config(h *host, name string, command []string, labels map[string]string) gateway.Config {
	safe := c.Restart == "safe"
	if facts, ok := h.facts.Server(command); ok && c.Restart == "known" {
		safe = facts.Restart == peers.RestartSafe
	}
	return gateway.Config{
		Name: name, Command: command, URL: c.URL,
		Policy: gateway.Policy{
			Enforce: gateway.Enforce(c.Enforce), Ladder: belay.Ladder{Grace: c.Grace, KillAfter: c.KillAfter},
			Deadline: c.Deadline, Observe: c.Observe,
		},
		Isolation: gateway.Isolation(c.Isolation), Drain: c.Drain, RestartSafe: safe, Facts: h.facts, Cgroup: c.cgroup(),
		Tree: h.tree, Parent: h.parent.Run(), Owner: h.owner, Labels: labels, Log: h.log, Ticket: h.ticket(), Idle: fallIdle,
		Placer: h.placer(name),
	}
}

// startError is a command that could not be started: the command line was
// wrong, not the work (exit code 2).
func startError(verb string, command []string, err error) error {
	switch {
	case errors.Is(err, proc.ErrNotFound):
		return exitErrorf(ExitUsage, "%s: %q was not found; give its full path or add its folder to PATH", verb, command[0])
	case errors.Is(err, proc.ErrNotExecutable), errors.Is(err, proc.ErrStart), errors.Is(err, gateway.ErrConfig):
		return exitErrorf(ExitUsage, "%s: %v", verb, err)
	}
	return err
}

// commandLine is what stands behind the "--".
func commandLine(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}

// serverName is what people call the server of a command line: the innermost
// program that can be seen in it, a package rather than npx.
func serverName(command []string) string {
	if seen := peers.Commands(command); len(seen) > 0 && seen[len(seen)-1].Name != "" {
		return path.Base(seen[len(seen)-1].Name)
	}
	return path.Base(command[0])
}
