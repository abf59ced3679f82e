package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// write puts a file into a fresh folder and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func env(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func load(t *testing.T, o Options) *Config {
	t.Helper()
	c, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPrecedence: tool > server > defaults > flags > built-in.
func TestPrecedence(t *testing.T) {
	file := write(t, "belay.yaml", `
listen: 127.0.0.1:9000
log: debug
defaults:
  grace: 3s
  drain: 7s
  labels: {team: red, job: base}
  spare: [{comm: tmux}]
servers:
  a:
    command: run a
    grace: 4s
    observe: false
    labels: {job: own}
    spare: [{comm: "chrom*", args: [--kiosk], why: mine}]
    disconnect: {cancel-after: 30s}
    stop:
      tell: {command: [tell-it]}
      alive: {http: {url: "http://127.0.0.1:1/alive"}, yes: 204, timeout: 1s}
    tools:
      slow: {grace: 5s, cleanup: slow, deadline: 1m, stop: {tell: {command: "tell slow"}}}
  b: {url: "http://127.0.0.1:1/mcp", disconnect: cancel}
`)
	var flags Policy
	flags.Grace, flags.Drain, flags.KillAfter, flags.Observe = Some(time.Minute), Some(time.Minute), Some(6*time.Second), Some(true)
	c := load(t, Options{File: file, Flags: flags})
	a, b := c.Servers[0], c.Servers[1]
	for _, check := range []struct {
		what      string
		got, want any
	}{
		{"listen", c.Listen, "127.0.0.1:9000"},
		{"log", c.Log, "debug"},
		{"tool's own", a.Tools["slow"].Grace.Value, 5 * time.Second},
		{"tool from flags", a.Tools["slow"].KillAfter.Value, 6 * time.Second},
		{"tool from built-in", a.Tools["slow"].Overlap.Value, "warn"},
		{"tool's hook", a.Tools["slow"].Stop.Tell.Command, commandLine{"tell", "slow"}},
		{"tool's hook of the server", a.Tools["slow"].Stop.Alive.Yes, []int{204}},
		{"hook's method", a.Stop.Alive.HTTP.Method.Value, ""},
		{"hook's time", a.Stop.Alive.Timeout.Value, time.Second},
		{"hook's default time", a.Stop.Tell.Timeout.Value, 10 * time.Second},
		{"server's own", a.Grace.Value, 4 * time.Second},
		{"server says false", a.Observe.Value, false},
		{"flag says true", b.Observe.Value, true},
		{"defaults over flags", b.Grace.Value, 3 * time.Second},
		{"defaults", a.Drain.Value, 7 * time.Second},
		{"flags", a.KillAfter.Value, 6 * time.Second},
		{"built-in", a.MaxProcesses.Value, 16},
		{"deadline", a.Deadline.Value, time.Duration(0)},
		{"disconnect", a.Disconnect.Value, Disconnect{CancelAfter, 30 * time.Second}},
		{"disconnect of b", b.Disconnect.Value, Disconnect{Mode: Cancel}},
		{"labels", a.Labels, map[string]string{"team": "red", "job": "own"}},
		{"spare", len(a.Spare), 2},
		{"spare, the nearer first", a.Spare[0].Comm, "chrom*"},
		{"transport", b.Transport.Value, "auto"},
	} {
		if diff := cmp.Diff(check.want, check.got); diff != "" {
			t.Errorf("%s: %s", check.what, diff)
		}
	}
}

// TestCommand: the forms of a command, variables, folders.
func TestCommand(t *testing.T) {
	file := write(t, "belay.yaml", `
x-env: &env {MODE: fast}
servers:
  text: {command: "npx -y 'a b' ${ONE}", args: [c d, "$${HOME}"]}
  list: {command: [npx, "x y"], env: {<<: *env, PORT: 8080, RATE: 1.10, ON: true, KEY: "k-${ONE}", NONE: "${TWO:-none}"}}
  home: {command: x, cwd: ~/w}
  here: {command: x, cwd: sub}
  hook: {command: x, stop: {kill: {command: "kill ${BELAY_RUN}"}}}
`)
	c := load(t, Options{File: file, Getenv: env(map[string]string{"ONE": "1 2", "HOME": "/home/u"})})
	if got, want := []string(c.Servers[0].Command), []string{"npx", "-y", "a b", "1 2", "c d", "${HOME}"}; !slices.Equal(got, want) {
		t.Errorf("text: %q", got)
	}
	if got, want := []string(c.Servers[1].Command), []string{"npx", "x y"}; !slices.Equal(got, want) {
		t.Errorf("list: %q", got)
	}
	want := map[string]string{"MODE": "fast", "PORT": "8080", "RATE": "1.10", "ON": "true", "KEY": "k-1 2", "NONE": "none"}
	if diff := cmp.Diff(want, c.Servers[1].Env); diff != "" {
		t.Error(diff)
	}
	if c.Servers[2].Dir != "/home/u/w" || c.Servers[3].Dir != filepath.Join(filepath.Dir(file), "sub") {
		t.Errorf("folders: %q, %q", c.Servers[2].Dir, c.Servers[3].Dir)
	}
	if got := c.Servers[4].Stop.Kill.Command[1]; got != "${BELAY_RUN}" {
		t.Errorf("a hook's own variable became %q", got)
	}
}

// TestOrder: servers come in the order of the file, and the same file twice
// makes equal servers.
func TestOrder(t *testing.T) {
	file := write(t, "belay.yaml", "servers:\n  z: {command: x}\n  a: {command: x}\n  m: {command: x, tools: {t: {grace: 1s}}}\n")
	one, two := load(t, Options{File: file}), load(t, Options{File: file})
	var names []string
	for _, s := range one.Servers {
		names = append(names, s.Name)
	}
	if strings.Join(names, "") != "zam" {
		t.Errorf("order %v", names)
	}
	if diff := cmp.Diff(one.Servers, two.Servers); diff != "" {
		t.Error(diff)
	}
}

// TestNoFile: without files there are no servers and no error; a file that is
// named has to be there and has to be of a sane size.
func TestNoFile(t *testing.T) {
	if c := load(t, Options{}); len(c.Servers) != 0 {
		t.Errorf("%+v", c)
	}
	if c := load(t, Options{File: write(t, "empty.yaml", "# nothing yet\n")}); len(c.Servers) != 0 {
		t.Errorf("%+v", c)
	}
	if _, err := Load(Options{File: filepath.Join(t.TempDir(), "none.yaml")}); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("missing: %v", err)
	}
	if _, err := Load(Options{File: write(t, "big.yaml", strings.Repeat("# a line\n", 200_000))}); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("big: %v", err)
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

// TestAliasBomb: aliases of aliases end in a problem, quickly.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("x-0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 8 {
		b.WriteString("x-" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" + strings.Repeat("*a"+string(rune('0'+i))+", ", 10) + "]\n")
	}
	b.WriteString("servers: {a: {command: x, spare: *a8}}\n")
	start := time.Now()
	_, err := Load(Options{File: write(t, "belay.yaml", b.String())})
	if err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// TestNew: a server that no file names has the flags and the built-in defaults.
func TestNew(t *testing.T) {
	var flags Policy
	flags.Enforce = Some("strict")
	s := New("demo", flags)
	if s.Enforce.Value != "strict" || s.Grace.Value != 2*time.Second || !s.Idle.Set {
		t.Errorf("%+v", s)
	}
}

func FuzzYAML(f *testing.F) {
	f.Add("servers:\n  a: {command: x, env: {A: ${B}}}\n")
	f.Add("x: &a [*a]\nservers: *a\n<<: {a: b}\n")
	f.Add("auth: {tokens: [{name: a, hash: b, expires: 2027-01-01}], issuers: [{key: .., roles: {a: b}}], roles: {a: [runs.read]}}\nlisten: :1\n")
	f.Add("tls: {cert: a}\nhosts: [a]\nledger: {keep_bytes: 1GiB}\norchestrate: {rate: 1e3}\n")
	f.Add("? [a]\n: b\n--- !!x\n- |\n  x\n")
	f.Fuzz(func(t *testing.T, text string) {
		d := &decoder{file: "f", lines: strings.Split(text, "\n")}
		d.vars.getenv = env(nil)
		var out file
		if root := readYAML(d, []byte(text)); root != nil {
			root.dropPrivate()
			d.value(valueOf(&out), spot{value: root}, field{key: "f"})
			d.checkSettings(&out, spot{value: root}, "")
		}
		_ = d.problems.Error()
	})
}

func FuzzJSONC(f *testing.F) {
	f.Add("{\"mcpServers\": {\"a\": {\"command\": \"x\", /* y */ \"args\": [1,],},},} // z")
	f.Add("\xef\xbb\xbf{\"servers\": {\"a b\": {\"url\": \"http://x\"}}}")
	f.Fuzz(func(t *testing.T, text string) {
		d := &decoder{file: "f", lines: strings.Split(text, "\n")}
		d.vars.getenv, d.vars.editor = env(nil), true
		l := loader{config: &Config{}, base: Defaults()}
		if len(plainJSON([]byte(text))) != len(text) {
			t.Fatal("the length changed")
		}
		if root := readJSONC(d, []byte(text)); root != nil {
			l.editorServers(d, root)
		}
		_ = d.problems.Error()
	})
}

func valueOf(f *file) reflect.Value { return reflect.ValueOf(f).Elem() }
