//go:build unix

package acceptance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// settings are a configuration, of which each test changes what it is about.
type settings struct {
	top     map[string]any // keys of belay.yaml
	orch    map[string]any // of orchestrate
	servers map[string]any
	env     []string
	dir     string // where the process before this one left its files; empty: a new one
	wit     string
}

// people have the token "<name>-token-…"; the value is their roles.
var people = map[string][]string{
	"op": {"admin"}, "ann": {"user"}, "bob": {"user"}, "cat": {"user"}, "dan": {"user"},
	"reader": {"observer"}, "operator": {"operator"}, "nobody": {}, "caller": {"calls"}, "agent": {"runtime"},
}

// token is a person's token. It says nothing that a real one would say.
func token(name string) string {
	if name == "" || len(people[name]) == 0 && name != "nobody" {
		return name // the text of some other credential
	}
	return name + "-token-of-the-acceptance-tests"
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// tool is a server of fake tools in the configuration.
func (s *settings) tool(policy map[string]any, flags ...string) map[string]any {
	def := map[string]any{"command": faketool.Command(append([]string{"server", "-witness", s.wit, "-no-subscribe"}, flags...)...)}
	maps.Copy(def, policy)
	return def
}

// server is one belay serve.
type server struct {
	url, dir string
	wit      *witness
	cmd      *exec.Cmd
	log      *faketool.Text
	ended    chan error // capacity 1
}

// start runs belay serve until the test ends.
func start(t testing.TB, change ...func(*settings)) *server {
	t.Helper()
	s, err := launch(t.TempDir(), change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

// launch starts the program and waits until it serves.
func launch(dir string, change ...func(*settings)) (*server, error) {
	c := settings{dir: dir, wit: filepath.Join(dir, "witness"), servers: map[string]any{}}
	var tokens []map[string]any
	for name, roles := range people {
		tokens = append(tokens, map[string]any{"name": name, "hash": hash(token(name)), "roles": roles})
	}
	call := map[string]any{"isolation": "call"}
	c.orch = map[string]any{"rate": 1e6, "burst": 1000000}
	c.top = map[string]any{
		"listen": "127.0.0.1:0", "log": "debug",
		"auth":     map[string]any{"tokens": tokens, "roles": map[string]any{"calls": []string{"tools.call"}}},
		"ledger":   map[string]any{"path": filepath.Join(dir, "state", "ledger.db")},
		"latch":    map[string]any{"file": filepath.Join(dir, "state", "latch.json")},
		"defaults": map[string]any{"grace": "200ms", "kill_after": "300ms"},
	}
	c.servers["tools"] = c.tool(call, "-name", "tools")
	for _, f := range change {
		f(&c)
	}
	c.top["orchestrate"], c.top["servers"] = c.orch, c.servers
	text, err := json.MarshalIndent(c.top, "", " ")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "belay.yaml") // JSON is YAML
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	return launchWith(dir, c.wit, c.env)
}

// launchWith starts it with the configuration that lies there.
func launchWith(dir, wit string, env []string) (*server, error) {
	s := &server{dir: dir, wit: newWitness(wit), log: &faketool.Text{}, ended: make(chan error, 1)}
	s.cmd = exec.Command(program, "serve", "--config", filepath.Join(dir, "belay.yaml"), "--json")
	s.cmd.Dir = dir
	s.cmd.Env = append(os.Environ(), // nothing of the machine's user, nor of another test
		"HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_STATE_HOME="+dir, "BELAY_RUNTIME_DIR="+filepath.Join(dir, "run"),
		"BELAY_TOKEN_FILE="+filepath.Join(dir, "local-token"), "BELAY_LOG=debug", "GOTRACEBACK=all", "GORACE=exitcode=66 atexit_sleep_ms=0")
	s.cmd.Env = append(s.cmd.Env, env...)
	out := &faketool.Text{}
	s.cmd.Stdout, s.cmd.Stderr = out, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.ended <- s.cmd.Wait() }()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var said struct {
			URL string `json:"url"`
		}
		if json.NewDecoder(strings.NewReader(out.String())).Decode(&said) == nil && said.URL != "" {
			s.url = said.URL
			return s, nil
		}
		select {
		case err := <-s.ended:
			return nil, fmt.Errorf("belay serve ended: %v\n%s", err, s.log)
		default:
		}
		if time.Now().After(end) {
			_ = s.cmd.Process.Kill()
			<-s.ended
			return nil, fmt.Errorf("belay serve says nothing: %q\n%s", out, s.log)
		}
	}
}

// end stops the program as an operator does, and reports what it said about
// data races and panics.
func (s *server) end() error {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
	}
	var err error
	select {
	case err = <-s.ended:
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		err = fmt.Errorf("belay serve did not end: %w", <-s.ended)
	}
	s.ended <- nil // for a second end
	return errors.Join(err, s.complaints())
}

// kill ends the program as the kernel does when memory is short.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
	s.ended <- nil
}

func (s *server) complaints() error {
	text := s.log.String()
	for _, bad := range []string{"WARNING: DATA RACE", "panic:", "level=ERROR"} {
		if i := strings.Index(text, bad); i >= 0 {
			return fmt.Errorf("belay serve said:\n%.6000s", text[i:])
		}
	}
	return nil
}

// again starts the program anew with the same files.
func (s *server) again(t testing.TB) *server {
	t.Helper()
	next, err := launchWith(s.dir, s.wit.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := next.end(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(next.log.String())
		}
	})
	return next
}

// shared are the servers that tests use together, by name.
var (
	sharing sync.Mutex
	shared  = map[string]*server{}
)

// house is a server that several tests use at once, so that they must name what
// is theirs: by ids, and keys of the witness, that no other test has.
func house(t testing.TB, name string, change ...func(*settings)) *server {
	t.Helper()
	sharing.Lock()
	defer sharing.Unlock()
	if s := shared[name]; s != nil {
		return s
	}
	s, err := launch(filepath.Dir(program)+"/"+name, append([]func(*settings){makeDir}, change...)...)
	if err != nil {
		t.Fatal(err)
	}
	shared[name] = s
	return s
}

// deaf is a server whose tool hears nothing and may not be forced; what is said
// of a Stop there is said after its grace period of four seconds.
func deaf(t testing.TB) *server {
	return house(t, "deaf", func(c *settings) {
		c.servers["deaf"] = c.tool(map[string]any{"enforce": "never", "grace": "4s"}, "-name", "deaf", "-deaf", "-single")
	})
}

func makeDir(c *settings) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		panic(err)
	}
}

// plain is the server with the default doors: only admin.system_config opens
// the Orchestrate family.
func plain(t testing.TB) *server { return house(t, "plain") }

// open is the server where owners may use the Orchestrate family for their own
// runs (ORC-35).
func open(t testing.TB) *server { return house(t, "open", forOwners) }

func forOwners(c *settings) {
	c.orch["permissions"] = []string{"admin.system_config", "runs.cancel.own", "runs.read.own"}
}

// audit is the log lines of cancels that have this in them.
func (s *server) audit(part string) (lines []string) {
	for line := range bytes.Lines([]byte(s.log.String())) {
		if strings.Contains(string(line), "msg=cancel ") && strings.Contains(string(line), part) {
			lines = append(lines, string(line))
		}
	}
	return lines
}
