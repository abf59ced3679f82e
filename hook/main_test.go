package hook

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
)

func TestMain(m *testing.M) {
	proc.Main()
	if len(os.Args) > 2 && os.Args[1] == actor {
		act(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// actor is the argument that makes the test binary somebody else.
const actor = "hook-test-actor"

// act plays a program of the tests.
func act(role string, args []string) {
	switch role {
	case "work": // the work itself, behind the daemon: ticks into a file
		for {
			tick(args[0])
			time.Sleep(10 * time.Millisecond)
		}
	case "ctl": // the daemon's client: METHOD URL
		r, _ := http.NewRequest(args[0], args[1], nil)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusNotFound {
			os.Exit(1)
		}
	case "exit": // with this code, and words
		code, _ := strconv.Atoi(args[0])
		fmt.Println("secret-output")
		os.Exit(code)
	case "hang": // with a child, both deaf; FILE gets the pids
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command(os.Args[0], actor, "deaf")
		leaveSession(child)
		child.Stdout = os.Stdout
		_ = child.Start()
		_ = os.WriteFile(args[0], fmt.Appendf(nil, "%d %d", os.Getpid(), child.Process.Pid), 0o600)
		time.Sleep(time.Minute)
	case "leave": // ends at once and leaves a child that holds the output
		child := exec.Command(os.Args[0], actor, "deaf")
		leaveSession(child)
		child.Stdout = os.Stdout
		_ = child.Start()
		_ = os.WriteFile(args[0], fmt.Appendf(nil, "%d", child.Process.Pid), 0o600)
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		time.Sleep(time.Minute)
	case "say": // FILE gets the arguments and the environment
		text := strings.Join(args[1:], "\n") + "\n"
		for _, e := range os.Environ() {
			if strings.HasPrefix(e, "BELAY_") && !strings.HasPrefix(e, "BELAY_TREE") {
				text += e + "\n"
			}
		}
		_ = os.WriteFile(args[0], []byte(text), 0o600)
	case "echo":
		fmt.Println("no such box:", strings.Join(args, " "))
		os.Exit(3)
	case "shout":
		_, _ = io.WriteString(os.Stdout, strings.Repeat("x", 10<<20))
	}
}

func tick(file string) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		os.Exit(1)
	}
	_, _ = f.WriteString(".")
	_ = f.Close()
}

// program is a hook that plays a role.
func program(role string, args ...string) *Action {
	return &Action{Command: append([]string{os.Args[0], actor, role}, args...)}
}

// daemon holds workers that no process tree of Belay contains, as a container
// daemon does: PUT starts one, GET looks, POST /stop and /kill end it.
type daemon struct {
	*httptest.Server
	dir string

	mu      sync.Mutex
	workers map[string]*exec.Cmd
	deaf    bool // stop is not heard
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{dir: t.TempDir(), workers: map[string]*exec.Cmd{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containers/{name}", func(w http.ResponseWriter, r *http.Request) {
		if d.get(r.PathValue("name")) == nil {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	mux.HandleFunc("POST /containers/{name}/{how}", func(w http.ResponseWriter, r *http.Request) {
		if d.get(r.PathValue("name")) == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if r.PathValue("how") == "kill" || !d.deaf {
			d.end(r.PathValue("name"))
		}
		w.WriteHeader(http.StatusNoContent)
	})
	d.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		d.Close()
		for name := range d.workers {
			d.end(name)
		}
	})
	return d
}

func (d *daemon) start(t *testing.T, name string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], actor, "work", d.file(name))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.workers[name] = cmd
	d.mu.Unlock()
	eventually(t, "the worker ticks", func() bool { return d.ticks(name) > 0 })
}

func (d *daemon) get(name string) *exec.Cmd {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.workers[name]
}

func (d *daemon) end(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cmd := d.workers[name]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(d.workers, name)
	}
}

func (d *daemon) file(name string) string { return filepath.Join(d.dir, name) }

func (d *daemon) ticks(name string) int64 {
	if st, err := os.Stat(d.file(name)); err == nil {
		return st.Size()
	}
	return 0
}

// still reports whether the worker ticks no more.
func (d *daemon) still(name string) bool {
	before := d.ticks(name)
	time.Sleep(50 * time.Millisecond)
	return d.ticks(name) == before
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// pids reads what a hook wrote about its processes.
func pids(t *testing.T, file string) (list []int) {
	t.Helper()
	eventually(t, "the hook runs", func() bool {
		data, _ := os.ReadFile(file)
		list = nil
		for f := range strings.FieldsSeq(string(data)) {
			n, _ := strconv.Atoi(f)
			list = append(list, n)
		}
		return len(list) > 0
	})
	return list
}

// stopper is how a gateway uses a Stop.
type stopper struct{ *Stop }

func (s stopper) Tell(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	return nil, s.Stop.Tell(ctx, c)
}

var (
	quick = belay.Ladder{Grace: 100 * time.Millisecond, KillAfter: 100 * time.Millisecond, ConfirmAfter: time.Second}
	usual = belay.Ladder{Grace: 500 * time.Millisecond, KillAfter: 1200 * time.Millisecond, ConfirmAfter: time.Second}
)

// stopRun presses Stop on a run that has these hooks and waits for the receipt.
func stopRun(t *testing.T, h *Hooks, c Call, l belay.Ladder) *belay.Receipt {
	t.Helper()
	if err := h.Validate(); err != nil {
		t.Fatal(err)
	}
	tree := belay.NewTree(belay.Options{})
	spec := belay.Spec{Kind: belay.KindCall, Name: "build", Stopper: stopper{h.For(c)}, Ladder: l}
	run, err := tree.Register(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tree.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	run.Cancel(belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseOperator, Reason: "too expensive"})
	receipt, err := run.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}
