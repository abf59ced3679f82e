package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/serve"
)

type serveCmd struct {
	policyFlags `embed:""`

	Config    string   `placeholder:"FILE" help:"Belay's own file, belay.yaml (docs/configuration.md)."`
	McpConfig []string `name:"mcp-config" placeholder:"FILE" sep:"none" help:"An editor's file of MCP servers, read as it is; more than one may be given."`
	Listen    string   `placeholder:"ADDRESS" help:"Where to listen (default 127.0.0.1:7474, or what the file says)."`
	JSON      bool     `name:"json" help:"Print what is served as one JSON object."`
	Reference bool     `name:"demo-reference" help:"Without a configuration: serve the official reference server too, if npx is there."`
}

// Help implements kong.HelpProvider.
func (*serveCmd) Help() string {
	return `MCP servers over HTTP, each at /mcp/NAME and all as one at /mcp, in every revision of the protocol; each request becomes a
run that can be seen and stopped. Servers come from belay.yaml, from the files in which editors keep theirs, or from both;
without either, tools for a demonstration are served. The flags from --grace on are defaults for all servers: what a file says
goes before them.

SIGHUP or a changed file reloads: servers whose definition is the same keep everything, calls in flight of others end first.
A file with a mistake changes nothing. SIGTERM and Ctrl-C end everything, with every process.

Examples:

    belay serve
    belay serve --config belay.yaml
    belay serve --mcp-config ~/.cursor/mcp.json --deadline 10m
    curl -s http://127.0.0.1:7474/healthz`
}

// Run serves until it is told to end.
func (c *serveCmd) Run(env *Env) error {
	flags, err := c.policy()
	if err != nil {
		return err
	}
	plan := servePlan{cmd: c, flags: flags, getenv: env.Getenv}
	conf, err := plan.load()
	if err != nil {
		sayProblems(env, err)
		return exitWith(ExitUsage)
	}
	ctx := context.Background()
	l, err := serve.Listen(ctx, serve.ListenOptions{Address: plan.address(conf)})
	if err != nil {
		return exitErrorf(ExitUsage, "serve: %v", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	tune(half())
	h := openHost(ctx, withLog(env, conf.Log), "serve "+l.Addr().String())
	defer h.close()
	s := server{plan: plan, env: env, host: h, conf: conf, addr: l.Addr(), hub: serve.New(c.options(h))}
	return s.run(ctx, l, signals)
}

// policy is what the flags say of all servers.
func (c *serveCmd) policy() (config.Policy, error) {
	var p config.Policy
	if err := c.check("serve"); err != nil {
		return p, err
	}
	labels, err := parseLabels(c.Label)
	if err != nil {
		return p, err
	}
	p.Grace, p.KillAfter = config.Some(c.Grace), config.Some(c.KillAfter)
	p.Deadline, p.Drain = config.Some(c.Deadline), config.Some(c.Drain)
	p.Enforce, p.Isolation, p.Restart = config.Some(c.Enforce), config.Some(c.Isolation), config.Some(c.Restart)
	p.Observe, p.Labels = config.Some(c.Observe), labels
	return p, nil
}

func (c *serveCmd) options(h *host) serve.Options {
	return serve.Options{
		Tree: h.tree, Parent: h.parent.Run(), Owner: h.owner, Log: h.log, Facts: h.facts,
		Ticket: h.ticket(), Idle: seldom(giveBack), Version: Version(), Cgroup: c.cgroup(),
	}
}

// seldom makes a function that many sessions call at the same moment work once.
func seldom(f func()) func() {
	var last atomic.Int64
	return func() {
		now, before := time.Now().UnixNano(), last.Load()
		if now-before > int64(time.Second) && last.CompareAndSwap(before, now) {
			f()
		}
	}
}

// withLog lets the configuration say how much is logged, if nobody else does.
func withLog(env *Env, level string) *Env {
	changed := *env
	changed.Getenv = func(name string) string {
		value := env.Getenv(name)
		if name == "BELAY_LOG" && value == "" {
			return level
		}
		return value
	}
	return &changed
}

// sayProblems prints everything wrong in a configuration, each with its line.
func sayProblems(env *Env, err error) {
	var all config.Problems
	if !errors.As(err, &all) {
		env.Warnf("serve: %v", err)
		return
	}
	fmt.Fprintf(env.Stderr, "%v\n", all)
	env.Warnf("serve: %v: %s", config.ErrInvalid, count(len(all), "mistake"))
}

// server is one belay serve at work.
type server struct {
	plan servePlan
	env  *Env
	host *host
	conf *config.Config
	hub  *serve.Hub
	addr net.Addr
}

// run serves from the listener until a signal says that it is enough.
func (s *server) run(ctx context.Context, l net.Listener, signals <-chan os.Signal) error {
	defs := s.plan.definitions(s.conf)
	if _, err := s.hub.Apply(defs); err != nil {
		_ = l.Close()
		return exitErrorf(ExitUsage, "serve: %v", err)
	}
	for _, note := range s.conf.Notes {
		s.host.log.Warn(note)
	}
	web := s.hub.Server()
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(l) }()
	if err := s.announce(defs); err != nil {
		s.host.log.Debug("what is served could not be printed", "error", err) // nobody reads it
	}
	end, result := s.wait(signals, failed)

	ctx, cancel := context.WithTimeoutCause(ctx, endLimit, &end)
	defer cancel()
	stopped := make(chan struct{})
	go func() { // no exchange is accepted from here on
		defer close(stopped)
		if err := web.Shutdown(ctx); err != nil {
			_ = web.Close()
		}
	}()
	if err := s.hub.Close(ctx, end); err != nil {
		s.host.log.Warn("ended with sessions that are not over", "error", err)
	}
	<-stopped
	if result == nil {
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
			s.host.log.Warn("the listener has ended", "error", err)
		}
	}
	return result
}

// endLimit bounds the end of everything that is served.
const endLimit = 5 * time.Second

// wait reloads as often as it is asked for, and returns when it is time to end.
func (s *server) wait(signals <-chan os.Signal, failed <-chan error) (belay.Cancellation, error) {
	watch := watchFiles(s.conf.Files, s.host.log)
	defer func() { watch.close() }()
	interactive := styleOf(s.env.Stdout, s.env.Getenv).terminal
	for {
		select {
		case err := <-failed:
			end := belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: "the listener failed"}
			return end, exitErrorf(ExitFailed, "serve: %v", err)
		case sig := <-signals:
			if sig != syscall.SIGHUP || interactive && !terminalThere() {
				return belay.Cancellation{Cause: belay.CauseShutdown, Via: "signal", Reason: fmt.Sprintf("belay got %s", sig)}, nil
			}
			s.reload("SIGHUP", watch)
		case <-watch.changed:
			s.reload("a changed file", watch)
		}
	}
}

// reload applies what the files say now, or nothing.
func (s *server) reload(why string, watch *fileWatch) {
	if len(s.conf.Files) == 0 {
		s.host.log.Warn("there is no configuration to be reloaded", "asked by", why)
		return
	}
	conf, err := s.plan.load()
	if err != nil {
		sayProblems(s.env, err)
		s.host.log.Error("not reloaded: what was served goes on being served", "asked by", why)
		return
	}
	changes, err := s.hub.Apply(s.plan.definitions(conf))
	if err != nil {
		s.host.log.Error("not reloaded", "asked by", why, "error", err)
		return
	}
	for _, note := range conf.Notes {
		s.host.log.Warn(note)
	}
	if before, now := s.plan.address(s.conf), s.plan.address(conf); before != now {
		s.host.log.Warn("listen has changed, which takes a restart of belay serve", "is", s.addr, "configured", now)
	}
	s.conf = conf
	watch.files(conf.Files)
	s.host.log.Info("reloaded", "asked by", why, "servers", len(conf.Servers), "changes", changes.String())
}

// terminalThere reports whether the terminal that Belay was started on is still
// there: SIGHUP also says that it was closed, and then nobody can see Belay any
// more.
func terminalThere() bool {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}
