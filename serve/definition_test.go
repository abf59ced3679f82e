package serve

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpclient"
	"github.com/belayhq/belay/mcp/httpserver"
)

func define(t *testing.T, text string) []Definition {
	t.Helper()
	file := filepath.Join(t.TempDir(), "belay.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Options{File: file, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	var defs []Definition
	for _, s := range c.Servers {
		defs = append(defs, Definition{Server: s})
	}
	return defs
}

// TestSettingsReachTheGateway: every setting of the file is one of the session.
func TestSettingsReachTheGateway(t *testing.T) {
	t.Setenv("BELAY_TEST_ENV", "old")
	defs := define(t, `
servers:
  a:
    command: [run, it]
    args: [now]
    env: {BELAY_TEST_ENV: new}
    cwd: /srv
    isolation: call
    max_processes: 3
    restart: safe
    enforce: strict
    grace: 1s
    kill_after: 4s
    deadline: 1m
    drain: 9s
    observe: true
    overlap: refuse
    disconnect: {cancel-after: 7s}
    labels: {team: red}
    spare: [{comm: "my-daemon", why: mine}]
    stop: {kill: {command: [kill-it, "{run}"]}, alive: {http: {url: "http://127.0.0.1:1/{run}", headers: {B: "2", A: "1"}}, yes: [204], timeout: 1s}}
    tools:
      slow: {cleanup: slow, grace: 2s}
  b: {url: "http://127.0.0.1:1/mcp", headers: {X-Key: k}, transport: sse}
  c: {command: npx -y @modelcontextprotocol/server-filesystem /data}
  d: {command: npx -y @modelcontextprotocol/server-filesystem /data, restart: drain}
`)
	o := &Options{Facts: &peers.Facts{}}
	a, b := defs[0].gateway(o), defs[1].gateway(o)
	tool := a.Tools["slow"]
	for what, ok := range map[string]bool{
		"command":       slices.Equal(a.Command, []string{"run", "it", "now"}),
		"env":           slices.Contains(a.Env, "BELAY_TEST_ENV=new") && !slices.Contains(a.Env, "BELAY_TEST_ENV=old"),
		"cwd":           a.Dir == "/srv",
		"isolation":     a.Isolation == gateway.IsolationCall && a.MaxProcesses == 3,
		"restart":       a.RestartSafe,
		"enforce":       a.Enforce == gateway.EnforceStrict && a.Observe && a.Overlap == gateway.OverlapRefuse,
		"times":         a.Ladder.Grace == time.Second && a.Ladder.KillAfter == 4*time.Second && a.Deadline == time.Minute && a.Drain == 9*time.Second,
		"labels":        a.Labels["team"] == "red",
		"spare":         a.Facts.SpareRules()[0].Comm == "my-daemon" && len(a.Facts.SpareRules()) > 10,
		"hooks":         a.Stop.Kill.Command[0] == "kill-it" && a.Stop.Alive.HTTP.Header[0].Name == "A" && a.Stop.Alive.Yes[0] == 204 && a.Stop.Tell == nil,
		"hooks' folder": a.Stop.Kill.Dir == "/srv" && a.Stop.Alive.Timeout == time.Second,
		"tool":          tool.Ladder.Grace == 2*time.Second && tool.Ladder.KillAfter == 10*time.Second && tool.Enforce == gateway.EnforceStrict && tool.Stop.Kill != nil,
		"url":           b.URL != "" && b.Header.Get("X-Key") == "k" && b.Transport == httpclient.SSE,
		"no hooks":      b.Stop == nil && b.Facts == o.Facts && b.Env == nil,
		"known":         defs[2].gateway(o).RestartSafe,
		"drain":         !defs[3].gateway(o).RestartSafe,
		"disconnect":    defs[0].handler(&Options{Log: discard}, nil, "/x").Disconnect == httpserver.CancelAfter && defs[0].handler(&Options{Log: discard}, nil, "/x").CancelAfter == 7*time.Second,
		"detach":        defs[1].handler(&Options{Log: discard}, nil, "/x").Disconnect == httpserver.Detach,
		"equal":         defs[2].equal(&defs[2]),
		"not equal":     !defs[2].equal(&defs[3]),
		"path":          defs[0].handler(&Options{Log: discard}, nil, "/x").Path == "/x",
	} {
		if !ok {
			t.Errorf("%s: %+v", what, a)
		}
	}
}

// TestBadHooks: hooks that cannot be run are found before anything is served.
func TestBadHooks(t *testing.T) {
	s := config.New("a", config.Policy{})
	s.Command = []string{"x"}
	s.Tools = map[string]config.ToolPolicy{"t": {Stop: config.Stop{Kill: &config.Hook{Command: []string{"{run}"}}}}}
	if err := check([]Definition{{Server: s}}); !errors.Is(err, ErrDefinition) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("%v", err)
	}
}

// TestSessionsShareTasks: the sessions of one server know each other's tasks, so
// that one principal's task is not another's (MCP-86, MCP-G38).
func TestSessionsShareTasks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	registries := map[*gateway.TaskRegistry]int{}
	r := newRig(t, func(o *Options) {
		o.open = func(ctx context.Context, cfg gateway.Config, out mcp.Outlet) (opened, error) {
			mu.Lock()
			registries[cfg.Tasks]++
			mu.Unlock()
			return gateway.OpenTo(ctx, cfg, out)
		}
	})
	r.apply(r.fake("one"), r.fake("two"))
	r.begin("one")
	r.begin("one")
	r.must(r.modern("one", "echo", `{}`))
	r.begin("two")
	mu.Lock()
	defer mu.Unlock()
	if len(registries) != 2 || registries[nil] != 0 {
		t.Errorf("four sessions of two servers have %d registries, %d have none", len(registries), registries[nil])
	}
}

// TestProcessesAreBounded: a server whose sessions have a process each takes
// fewer of them than one that is reached by HTTP.
func TestProcessesAreBounded(t *testing.T) {
	defs := define(t, `
servers:
  a: {command: run}
  b: {url: "http://127.0.0.1:1/mcp"}
`)
	o := &Options{Log: slog.New(slog.DiscardHandler)}
	if n := defs[0].handler(o, nil, "/x").MaxSessions; n != maxProcessSessions {
		t.Errorf("a server on stdio may have %d sessions", n)
	}
	if n := defs[1].handler(o, nil, "/x").MaxSessions; n != 0 {
		t.Errorf("a remote server may have %d sessions, want the transport's default", n)
	}
}
