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
	"github.com/belayhq/belay/node"
	"github.com/belayhq/belay/tracing"
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
without either, tools for a demonstration are served, and examples of scripted tools. The flags from --grace on are defaults for all servers: what a file says
goes before them.

SIGHUP or a changed file reloads: servers whose definition is the same keep everything, calls in flight of others end first.
A file with a mistake changes nothing. SIGTERM and Ctrl-C end everything, with every process.

On loopback MCP clients need no token; /v1, /orchestrate and /cancellation want yours (belay token). An address that other
machines reach (--listen 0.0.0.0:7474) needs somebody in auth: of belay.yaml, and should have tls:; unix:/path listens on a
socket that only you can open. Receipts are kept in a ledger (ledger:), and the stop-all latch outlives a restart. Changes of
auth: apply at a reload; those of listen, tls, ledger, orchestrate and cancellation take a restart, and the log says so.

Examples:

    belay serve
    belay serve --config belay.yaml
    belay serve --listen unix:/run/user/1000/belay.sock
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
	traces, err := tracing.FromEnv(env.Getenv)
	if err != nil {
		return exitErrorf(ExitUsage, "serve: %v", err)
	}
	ctx := context.Background()
	l, err := plan.listen(ctx, conf)
	if err != nil { // which may have lines of its own, to be copied
		fmt.Fprintf(env.Stderr, "belay: serve: %v\n", err)
		return exitWith(ExitUsage)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	tune(half())
	h := openHostAs(ctx, withLog(env, conf), "serve "+l.Addr().String(), func(t *belay.Tree) belay.Control {
		if !conf.Cancellation.Enabled {
			return uncancelled{t}
		}
		return t
	}, nil)
	n, err := node.Open(plan.node(env, h, conf, traces, l.Addr()))
	if err != nil {
		_ = l.Close()
		h.close()
		return exitErrorf(ExitUsage, "serve: %v", err)
	}
	s := server{plan: plan, env: env, host: h, node: n, conf: conf, addr: l.Addr()}
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

// withLog lets the configuration say how much is logged, if nobody else does,
// and in which form.
func withLog(env *Env, conf *config.Config) *Env {
	changed := *env
	changed.Getenv = func(name string) string {
		value := env.Getenv(name)
		switch {
		case name == envLog && value == "":
			return conf.Log
		case name == envLogFormat && value == "":
			return conf.LogFormat
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

// mistakes is everything wrong in a configuration, one line each.
func mistakes(err error) (list []string) {
	var all config.Problems
	if !errors.As(err, &all) {
		return []string{err.Error()}
	}
	for _, p := range all {
		list = append(list, p.String())
	}
	return list
}

// server is one belay serve at work.
type server struct {
	plan servePlan
	env  *Env
	host *host
	node *node.Server
	conf *config.Config
	addr net.Addr
}

// run serves from the listener until a signal says that it is enough.
func (s *server) run(ctx context.Context, l net.Listener, signals <-chan os.Signal) error {
	defs := s.plan.definitions(s.conf)
	if _, err := s.node.Hub().Apply(defs); err != nil {
		_ = l.Close()
		s.close()
		return exitErrorf(ExitUsage, "serve: %v", err)
	}
	for _, note := range append(s.plan.notes, s.conf.Notes...) {
		s.host.log.Warn(note)
	}
	web := s.node.HTTP()
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(l) }()
	if err := s.announce(defs); err != nil {
		s.host.log.Debug("what is served could not be printed", "error", err) // nobody reads it
	}
	end, result := s.wait(signals, failed)

	ctx, cancel := context.WithTimeoutCause(ctx, endLimit, &end)
	defer cancel()
	s.stopWork(ctx, &end)
	stopped := make(chan struct{})
	go func() { // no exchange is accepted from here on
		defer close(stopped)
		if err := web.Shutdown(ctx); err != nil {
			_ = web.Close()
		}
	}()
	told := make(chan error, 1)
	go func() { told <- s.node.CloseRAP(ctx, end) }() // its calls are stopped; they end with the servers
	if err := s.node.Hub().Close(ctx, end); err != nil {
		s.host.log.Warn("ended with sessions that are not over", "error", err)
	}
	if err := <-told; err != nil {
		s.host.log.Warn("ended before every runtime was told", "error", err)
	}
	s.close() // which ends the streams that Shutdown waits for
	<-stopped
	if result == nil {
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
			s.host.log.Warn("the listener has ended", "error", err)
		}
	}
	return result
}

// stopWork stops what is at work before the sessions above it are: callers and
// receipts then say that Belay ended, and not only that something above did. All
// that the end stops is one act.
func (s *server) stopWork(ctx context.Context, end *belay.Cancellation) {
	end.Stop, end.At = belay.NewStopID(), time.Now()
	req := belay.CancelRequest{Filter: belay.Filter{Kinds: workKinds}, Cancellation: *end}
	if _, err := s.host.tree.Cancel(ctx, req); err != nil {
		s.host.log.Error("work could not be stopped before its sessions", "error", err)
	}
}

// close ends the runs first, then what remembers how they ended.
func (s *server) close() {
	s.host.close()
	ctx, end := context.WithTimeoutCause(context.Background(), recordLimit, &belay.Cancellation{Cause: belay.CauseShutdown})
	defer end()
	if err := s.node.Close(ctx); err != nil {
		s.host.log.Error("not everything that ended could be written down", "error", err)
	}
}

// recordLimit bounds the last records of a disk that does not answer.
const recordLimit = 5 * time.Second

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
		const msg = "not reloaded: what was served goes on being served"
		if withLog(s.env, s.conf).Getenv(envLogFormat) == "json" { // whose reader takes whole objects only
			s.host.log.Error(msg, "asked by", why, "mistakes", mistakes(err))
			return
		}
		sayProblems(s.env, err)
		s.host.log.Error(msg, "asked by", why)
		return
	}
	if !conf.Auth.Configured() && s.reachable() {
		s.host.log.Error("not reloaded: other machines can reach this address, and nobody would have to say who they are any more; end belay serve to change that", "asked by", why, "address", s.addr)
		return
	}
	if !conf.Auth.Equal(&s.conf.Auth) {
		if err := s.node.SetAuth(conf.Auth.Config()); err != nil {
			s.host.log.Error("not reloaded", "asked by", why, "error", err)
			return
		}
		s.host.log.Info("who may do what has changed", "asked by", why)
	}
	changes, err := s.node.Hub().Apply(s.plan.definitions(conf))
	if err != nil {
		s.host.log.Error("not reloaded", "asked by", why, "error", err)
		return
	}
	for _, note := range conf.Notes {
		s.host.log.Warn(note)
	}
	if keys := s.conf.Restart(conf); len(keys) > 0 {
		s.host.log.Warn("some of what has changed takes a restart of belay serve", "keys", keys)
	}
	s.conf = conf
	watch.files(conf.Files)
	s.host.log.Info("reloaded", "asked by", why, "servers", len(conf.Servers), "changes", changes.String())
}

// reachable reports whether other machines can reach what was bound, whatever
// the files say by now.
func (s *server) reachable() bool {
	tcp, ok := s.addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
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
