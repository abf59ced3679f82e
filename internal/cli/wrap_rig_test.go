package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/local"
)

// machine is a user's machine, with a runtime directory of its own: what the
// commands of one test see of each other.
type machine struct {
	t   *testing.T
	dir string
	env []string // for every command
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "belay") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &machine{t: t, dir: dir, env: []string{local.EnvDir + "=" + dir, config.EnvStateDir + "=" + dir, "GORACE=atexit_sleep_ms=0"}}
}

// belay runs a command to its end.
func (m *machine) belay(args ...string) (stdout, stderr string, code int) {
	m.t.Helper()
	cmd := exec.Command("belay", args...)
	cmd.Env = append(os.Environ(), m.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	stdin, caller, err := os.Pipe() // a caller that says nothing and stays
	if err != nil {
		m.t.Fatal(err)
	}
	defer stdin.Close()
	defer caller.Close()
	cmd.Stdin = stdin
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// runs is what `belay ps --all --json` says.
func (m *machine) runs() (list []belay.Info) {
	m.t.Helper()
	out, errs, code := m.belay("ps", "--all", "--json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		m.t.Fatalf("belay ps: %v, exit code %d, %s\n%s", err, code, errs, out)
	}
	return list
}

// find waits for a run with this kind and name that is in flight.
func (m *machine) find(kind belay.Kind, name string) belay.Info {
	m.t.Helper()
	var list []belay.Info
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		list = m.runs()
		for _, i := range list {
			if i.Kind == kind && i.Name == name && !i.Over() {
				return i
			}
		}
	}
	m.t.Fatalf("no %s named %q is in flight: %+v", kind, name, list)
	return belay.Info{}
}

// wrapped is a real `belay wrap` with a raw client in front and a fake server
// with its witness behind.
type wrapped struct {
	*faketool.Client
	m      *machine
	w      *faketool.Witness
	stderr *faketool.Text
}

// wrap starts `belay wrap FLAGS -- fake server SERVER` and says hello.
func (m *machine) wrap(flags string, server ...string) *wrapped {
	m.t.Helper()
	return m.wrapBelow(flags, nil, server...)
}

// wrapBelow is wrap with more commands between belay and the server.
func (m *machine) wrapBelow(flags string, between []string, server ...string) *wrapped {
	m.t.Helper()
	w := &wrapped{m: m, w: faketool.NewWitness(filepath.Join(m.t.TempDir(), "w")), stderr: &faketool.Text{}}
	argv := append([]string{"belay", "wrap"}, strings.Fields(flags)...)
	argv = append(append(argv, "--"), between...)
	argv = append(argv, faketool.Command(append([]string{"server", "-witness=" + w.w.Path}, server...)...)...)
	var err error
	w.Client, err = faketool.StartClient(argv, faketool.ClientOptions{Env: m.env, Stderr: w.stderr})
	if err != nil {
		m.t.Fatal(err)
	}
	w.Timeout = 30 * time.Second
	m.t.Cleanup(w.end)
	_, err = w.Initialize("2025-06-18")
	w.ok(err)
	return w
}

// end lets the caller go away, and holds that nothing is left.
func (w *wrapped) end() {
	_ = w.CloseStdin()
	if !w.Ended(20 * time.Second) {
		w.m.t.Error("belay wrap did not end")
		_ = w.Signal(syscall.SIGKILL)
	}
	w.Wait()
	_ = w.Close()
	if left := faketool.WaitDead(w.w.Pids("server"), 5*time.Second); len(left) > 0 {
		w.m.t.Errorf("server processes are left: %v", left)
	}
	if v := w.w.Violations(); len(v) > 0 {
		w.m.t.Errorf("the server saw what no peer may send: %v", v)
	}
	if w.m.t.Failed() {
		w.m.t.Logf("belay wrap said:\n%s", w.stderr)
	}
}

func (w *wrapped) ok(err error) {
	w.m.t.Helper()
	if err != nil {
		w.m.t.Fatalf("%v\n%s", err, w.stderr)
	}
}

// start sends a tools/call and waits until the witness saw its first tick.
func (w *wrapped) start(id, tool, key, more string) {
	w.m.t.Helper()
	w.ok(w.Call(id, tool, `{"key":"`+key+`","n":100000,"ms":10`+more+`}`, ""))
	_, err := w.w.WaitFor(key, "tick", 20*time.Second)
	w.ok(err)
}

func (w *wrapped) echo() {
	w.m.t.Helper()
	w.ok(w.Call(`"echo"`, "echo", `{"still":"here"}`, ""))
	m, err := w.Expect(`"echo"`)
	w.ok(err)
	if m.Text() != `{"still":"here"}` {
		w.m.t.Errorf("echo: %s", m.Raw)
	}
}
