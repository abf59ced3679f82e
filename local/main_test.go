package local

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
)

// envChild makes the test binary a Belay process of its own; see childMain.
const envChild = "BELAY_LOCAL_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		os.Exit(childMain())
	}
	goleak.VerifyTestMain(m)
}

// child is what a child process says of itself.
type child struct {
	Runs   []belay.RunID `json:"runs"`
	Ticket string        `json:"ticket"` // below its first run
	Socket string        `json:"socket"`
}

// childMain holds one run per comma-separated name, below the run of its
// ticket if it has one, until its standard input ends. A run named "deaf"
// never ends by itself; any other ends when it is told and leaves a witness,
// a file named after it.
func childMain() int {
	ctx := context.Background()
	tree := belay.NewTree(belay.Options{})
	parent := FromEnv(ctx, os.Getenv, func(req belay.CancelRequest) {
		_, _ = tree.Cancel(ctx, req)
	}, func(s string) { _, _ = os.Stderr.WriteString(s + "\n") })
	defer parent.Close()
	s, err := Listen(ctx, Options{Dir: os.Getenv(EnvDir), Control: tree, Fronts: "test", Version: "t1", Parent: parent})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	var c child
	for name := range strings.SplitSeq(os.Getenv(envChild), ",") {
		r := startRun(tree, name, parent.Run(), os.Getenv("WITNESS"))
		c.Runs = append(c.Runs, r.ID())
	}
	c.Ticket, c.Socket = s.Ticket(c.Runs[0]), s.Path()
	_ = json.NewEncoder(os.Stdout).Encode(c)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startRun registers a run whose work is a goroutine.
func startRun(tree *belay.Tree, name string, parent belay.RunID, witness string) *belay.Run {
	r, err := tree.Register(belay.Spec{
		Kind: belay.KindCall, Name: name, Server: "srv", ParentID: parent,
		Labels:  map[string]string{"name": name},
		Stopper: told{},
		Ladder:  belay.Ladder{Grace: 50 * time.Millisecond, KillAfter: 50 * time.Millisecond, ConfirmAfter: time.Hour},
	})
	if err != nil {
		panic(err)
	}
	if name == "deaf" {
		return r
	}
	runCtx := r.Context()
	go func() {
		<-runCtx.Done()
		if witness != "" {
			_ = os.WriteFile(filepath.Join(witness, name), []byte(context.Cause(runCtx).Error()), 0o600)
		}
		r.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
	}()
	return r
}

type told struct{}

func (told) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) { return nil, nil }

// spawn starts a child process; stop ends it and waits.
func spawn(t *testing.T, dir, names string, env ...string) (c child, cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envChild+"="+names, EnvDir+"="+dir, "WITNESS="+dir,
		"GORACE=atexit_sleep_ms=0") // else each child takes a second to end
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if err := json.NewDecoder(out).Decode(&c); err != nil {
		t.Fatalf("child did not start: %v", err)
	}
	return c, cmd
}

// privateDir is a runtime directory with a short path.
func privateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serve is a server of this process over a tree of its own.
func serve(t *testing.T, o Options) (*Server, *belay.Tree) {
	t.Helper()
	tree := belay.NewTree(belay.Options{})
	if o.Control == nil {
		o.Control = tree
	}
	if o.Dir == "" {
		o.Dir = privateDir(t)
	}
	s, err := Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		ctx, end := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer end()
		_ = tree.Close(ctx) // deaf runs are given up
	})
	return s, tree
}

// until polls a condition; the deadline is generous for a loaded machine.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within 10 s: %s", what)
}

func byUser(ids ...belay.RunID) belay.CancelRequest {
	return belay.CancelRequest{
		Filter:       belay.Filter{IDs: ids},
		Cancellation: belay.Cancellation{Cause: belay.CauseUser, By: "tester", Via: "test"},
		Escalate:     true,
		Wait:         -1,
	}
}
