package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/mcp/httpclient"
	"github.com/belayhq/belay/mcp/httpserver"
	"github.com/belayhq/belay/proc"
)

// Definition is one server, complete: see [config.Load] and [config.New].
type Definition struct {
	config.Server

	// Serve is a server inside this process, instead of Command and URL; see
	// [gateway.Config]. Two definitions of one name that both have it are taken
	// for the same server.
	Serve func(ctx context.Context, in io.Reader, out io.Writer) error
}

// ErrDefinition is matched by the errors of definitions that cannot be served.
var ErrDefinition = errors.New("the servers are not changed")

// equal reports whether two definitions are served alike. Where they came from
// makes no difference.
func (d *Definition) equal(o *Definition) bool {
	a, b := *d, *o
	a.Source, b.Source = "", ""
	if (a.Serve != nil) != (b.Serve != nil) {
		return false
	}
	a.Serve, b.Serve = nil, nil
	return reflect.DeepEqual(a, b)
}

// check refuses what cannot be served.
func check(defs []Definition) error {
	names := make(map[string]bool, len(defs))
	for i := range defs {
		d := &defs[i]
		ways := 0
		for _, is := range []bool{len(d.Command) > 0, d.URL != "", d.Serve != nil, d.RAP != nil, d.Scripts != nil} {
			if is {
				ways++
			}
		}
		switch {
		case d.Name == "" || strings.ContainsAny(d.Name, "/?#% "):
			return fmt.Errorf("%w: %q cannot be a server's name", ErrDefinition, d.Name)
		case names[d.Name]:
			return fmt.Errorf("%w: there are two servers %q", ErrDefinition, d.Name)
		case ways != 1:
			return fmt.Errorf("%w: server %q needs one of command, url, rap, scripts and a function, and has %d", ErrDefinition, d.Name, ways)
		}
		if err := d.checkHooks(); err != nil {
			return fmt.Errorf("%w: server %q: %w", ErrDefinition, d.Name, err)
		}
		names[d.Name] = true
	}
	return nil
}

// gateway is the configuration of a session with the server.
func (d *Definition) gateway(o *Options) gateway.Config {
	c := gateway.Config{
		Name: d.Name, Command: d.Command, Dir: d.Dir, Stderr: o.Stderr,
		URL: d.URL, Serve: d.Serve,
		Policy:       policyOf(d.ToolPolicy, d.Dir),
		Isolation:    gateway.Isolation(d.Isolation.Value),
		Drain:        d.Drain.Value,
		MaxProcesses: d.MaxProcesses.Value,
		AtOnce:       d.AtOnce.Value,
		RestartSafe:  d.restartSafe(o.Facts),
		Facts:        d.factsFor(o), Cgroup: o.Cgroup,
		Tree: o.Tree, Parent: o.Parent, Owner: o.Owner, Labels: d.Labels,
		Log: o.Log, Idle: o.Idle, Ticket: o.Ticket,
		Gate: o.Gate, Placer: o.Placer, Asker: o.Asker, Counter: o.Counter, PassCancels: o.PassCancels, NameRuns: o.NameRuns, Trace: o.Trace,
	}
	if len(d.Command) == 0 {
		c.Isolation = gateway.IsolationShared // there is no process to be isolated
	}
	if len(d.Env) > 0 {
		c.Env = environ(d.Env)
	}
	if len(d.Headers) > 0 {
		c.Header = make(http.Header, len(d.Headers))
		for name, value := range d.Headers {
			c.Header.Set(name, value)
		}
	}
	switch d.Transport.Value {
	case "streamable":
		c.Transport = httpclient.Streamable
	case "sse":
		c.Transport = httpclient.SSE
	}
	if len(d.Tools) > 0 {
		c.Tools = make(map[string]gateway.Policy, len(d.Tools))
		for name, p := range d.Tools {
			c.Tools[name] = policyOf(p, d.Dir)
		}
	}
	if d.Scripts != nil {
		d.scripted(&c, o)
	}
	if c.Isolation == gateway.IsolationCall && c.RestartSafe {
		c.Spares = d.Spares.Value
	}
	return c
}

// slowKill is the least time between SIGTERM and SIGKILL for what is slow to
// clean up (DESIGN 11, 7).
const slowKill = 10 * time.Second

func policyOf(p config.ToolPolicy, dir string) gateway.Policy {
	g := gateway.Policy{
		Enforce:  gateway.Enforce(p.Enforce.Value),
		Ladder:   belay.Ladder{Grace: p.Grace.Value, KillAfter: p.KillAfter.Value},
		Deadline: p.Deadline.Value,
		Observe:  p.Observe.Value,
		Overlap:  gateway.Overlap(p.Overlap.Value),
		Stop:     hooksOf(p.Stop, dir),
	}
	if p.Cleanup.Value == "slow" {
		g.Ladder.KillAfter = max(g.Ladder.KillAfter, slowKill)
	}
	return g
}

// restartSafe says whether a restart loses nothing, from the setting or from
// what is known about the command.
func (d *Definition) restartSafe(facts *peers.Facts) bool {
	switch d.Restart.Value {
	case "safe":
		return true
	case "drain":
		return false
	}
	known, ok := facts.Server(d.Command)
	return ok && known.Restart == peers.RestartSafe
}

// environ is what a tool gets of Belay's own environment, with changes. Each name
// occurs once.
func environ(changes map[string]string) []string {
	env := slices.DeleteFunc(proc.Environment(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, changed := changes[name]
		return changed
	})
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		env = append(env, name+"="+changes[name])
	}
	return env
}

// handler is the configuration of the transport in front of the server.
func (d *Definition) handler(o *Options, b httpserver.Backend, path string) httpserver.Config {
	c := httpserver.Config{
		Backend: b, Path: path, Identify: o.Identify,
		AllowedHosts: o.AllowedHosts, AllowedOrigins: o.AllowedOrigins,
		Log: o.Log.With("server", d.Name),
	}
	if len(d.Command) > 0 || d.Scripts != nil {
		c.MaxSessions = maxProcessSessions
	}
	switch p := d.Disconnect.Value; p.Mode {
	case config.Cancel:
		c.Disconnect = httpserver.Cancel
	case config.CancelAfter:
		c.Disconnect, c.CancelAfter = httpserver.CancelAfter, p.After
	default:
		c.Disconnect = httpserver.Detach
	}
	return c
}

// maxProcessSessions bounds the sessions of a server on stdio, each of which has a
// process: clients that never end theirs would else leave one for an hour each.
const maxProcessSessions = 512

// Path is where a server is reached.
func Path(name string) string { return "/mcp/" + name }
