package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/local"
)

var update = flag.Bool("update", false, "write what the scripts print into their files")

// runScripts runs every script of a folder in testdata against the real program,
// each with a runtime directory of its own, which setup gets.
func runScripts(t *testing.T, folder string, setup func(e *testscript.Env, runtime string) error, cmds map[string]func(*testscript.TestScript, bool, []string)) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", folder),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			// Sockets need short paths, and a directory nobody else can see.
			dir, err := os.MkdirTemp("", "belay")
			if err != nil {
				return err
			}
			e.Defer(func() { _ = os.RemoveAll(dir) })
			e.Setenv(local.EnvDir, dir)
			e.Setenv(config.EnvStateDir, dir)
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return setup(e, dir)
		},
		Cmds: cmds,
	})
}

// TestScript runs every script in testdata/script against the real program.
func TestScript(t *testing.T) {
	runScripts(t, "script", func(e *testscript.Env, dir string) error {
		e.Setenv("RUN", dir)
		return setPrograms(e)
	}, map[string]func(*testscript.TestScript, bool, []string){
		"runid":    setRunID,
		"runlike":  setRunLike,
		"stopping": stopping,
		"sleep": func(ts *testscript.TestScript, _ bool, args []string) {
			d, err := time.ParseDuration(args[0])
			ts.Check(err)
			time.Sleep(d)
		},
		"code":    runForCode,
		"json":    checkJSON,
		"socket":  makeSocket,
		"within":  waitFor,
		"readenv": readEnv,
		"prefix":  setPrefix,
		"common":  setCommon,
		"press":   pressWatched,
	})
}

// setRunID waits until a run with a name is known and puts its id into an
// environment variable: runid VAR NAME.
func setRunID(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: runid VAR NAME")
	}
	m := local.NewMesh(local.MeshOptions{Dirs: []string{ts.Getenv(local.EnvDir)}})
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		list, _ := m.List(context.Background(), belay.Filter{Ended: true})
		for _, i := range list {
			if i.Name == args[1] {
				ts.Setenv(args[0], i.ID.String())
				return
			}
		}
	}
	ts.Fatalf("no run named %s", args[1])
}

// stopping waits until a run was told to stop: stopping ID.
func stopping(ts *testscript.TestScript, _ bool, args []string) {
	id, err := belay.ParseRunID(args[0])
	ts.Check(err)
	m := local.NewMesh(local.MeshOptions{Dirs: []string{ts.Getenv(local.EnvDir)}})
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if d, err := m.Get(context.Background(), id); err == nil && d.Receipt != nil && d.Verdict != belay.Unreachable {
			return
		}
	}
	ts.Fatalf("%s is not being stopped", id)
}

// runForCode runs a program and checks its exit code: code N PROGRAM ARGS….
func runForCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		if _, scanErr := fmt.Sscanf(err.Error(), "exit status %d", &got); scanErr != nil {
			ts.Fatalf("%v", err)
		}
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// checkJSON reads a stream as JSON and compares one value in it: json stdout
// PATH VALUE, with a path such as 0.run.name; len is a length.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	for key := range strings.SplitSeq(args[1], ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[key]
		case []any:
			if key == "len" {
				v = float64(len(at))
				break
			}
			n, err := strconv.Atoi(key)
			ts.Check(err)
			if n >= len(at) {
				ts.Fatalf("%s: there are only %d", args[1], len(at))
			}
			v = at[n]
		default:
			v = nil
		}
	}
	if got := fmt.Sprint(v); (got == args[2]) == neg {
		ts.Fatalf("%s is %q, want %q (negated: %v)", args[1], got, args[2], neg)
	}
}

// makeSocket puts somebody else's socket into the runtime directory: socket
// NAME rubbish|silent|stale.
func makeSocket(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(ts.Getenv("RUN"), args[0]), Net: "unix"})
	ts.Check(err)
	if args[1] == "stale" {
		l.SetUnlinkOnClose(false)
		ts.Check(l.Close())
		return
	}
	quit, done := make(chan struct{}), make(chan struct{})
	ts.Defer(func() { close(quit); _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if args[1] == "rubbish" {
				fmt.Fprintln(c, "220 mail.example ready")
			} else {
				<-quit
			}
			_ = c.Close()
		}
	}()
}

// waitFor waits until a file holds a text: within FILE TEXT.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), args[1]) {
			return
		}
	}
	ts.Fatalf("%s never held %q", args[0], args[1])
}

// readEnv sets an environment variable to what a file holds: readenv VAR FILE.
func readEnv(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], ts.ReadFile(args[1]))
}

// setPrefix sets a variable to the shortest beginning of an id that fits no
// other run: prefix VAR ID.
func setPrefix(ts *testscript.TestScript, _ bool, args []string) {
	m := local.NewMesh(local.MeshOptions{Dirs: []string{ts.Getenv(local.EnvDir)}})
	list, err := m.List(context.Background(), belay.Filter{Ended: true})
	ts.Check(err)
	for n := len("run_") + shortestPrefix; n <= len(args[1]); n++ {
		if i, err := find(list, args[1][:n]); err == nil && i.ID.String() == args[1] {
			ts.Setenv(args[0], args[1][len("run_"):n])
			return
		}
	}
	ts.Fatalf("no beginning of %s is unique", args[1])
}

// setCommon sets a variable to the common beginning of two ids: common VAR ID ID.
func setCommon(ts *testscript.TestScript, _ bool, args []string) {
	a, b := args[1], args[2]
	n := 0
	for n < len(a) && a[n] == b[n] {
		n++
	}
	ts.Setenv(args[0], a[:n])
}

// pressWatched stops a run, and presses again, once two watchers are connected
// to the process that holds it: press ID.
func pressWatched(ts *testscript.TestScript, _ bool, args []string) {
	steady := 0
	for end := time.Now().Add(20 * time.Second); steady < 20 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		b, err := os.ReadFile("/proc/net/unix")
		ts.Check(err)
		connected := 0
		for line := range strings.Lines(string(b)) { // "… St=03 Inode Path" is an accepted connection
			f := strings.Fields(line)
			if len(f) == 8 && f[5] == "03" && strings.HasPrefix(f[7], ts.Getenv("RUN")+"/") {
				connected++
			}
		}
		if steady++; connected != 2 {
			steady = 0
		}
	}
	id, err := belay.ParseRunID(args[0])
	ts.Check(err)
	m := local.NewMesh(local.MeshOptions{Dirs: []string{ts.Getenv(local.EnvDir)}})
	for _, wait := range []time.Duration{time.Millisecond, -1} {
		_, err := m.Cancel(context.Background(), belay.CancelRequest{
			Filter:       belay.Filter{IDs: []belay.RunID{id}},
			Cancellation: belay.Cancellation{Cause: belay.CauseUser, By: "tester", Via: "test"},
			Escalate:     true, Wait: wait,
		})
		ts.Check(err)
	}
	time.Sleep(200 * time.Millisecond) // for the watchers to print what they got
}

// hold is a Belay process that holds the runs it is told to, until it is
// interrupted: hold NAME[:MODE]…. The first run is the one that a BELAY_PARENT
// in the file "ticket" hangs below. Each run that was really stopped leaves a
// witness: a line with its name in the file "witness".
func hold(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tree := belay.NewTree(belay.Options{})
	parent := local.FromEnv(ctx, os.Getenv,
		func(req belay.CancelRequest) { _, _ = tree.Cancel(ctx, req) },
		func(s string) { fmt.Fprintln(os.Stderr, "belay: "+s) })
	defer parent.Close()
	inside := os.Getenv("HOLD_INSIDE")
	s, err := local.Listen(ctx, local.Options{
		Dir: local.Dir(os.Getenv), Control: tree, Fronts: "hold", Version: Version(), Parent: parent,
		InTree: func(int) []string {
			if inside == "" {
				return nil
			}
			return []string{inside}
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "belay: "+err.Error())
		return ExitFailed
	}
	defer s.Close()
	for i, spec := range args {
		r, err := tree.Register(holdSpec(spec, parent.Run()))
		if err != nil {
			panic(err)
		}
		if strings.HasSuffix(spec, ":done") {
			r.Finish(belay.Completed)
		}
		if i == 0 {
			if err := os.WriteFile("ticket", []byte(s.Ticket(r.ID())), 0o600); err != nil {
				panic(err)
			}
		}
	}
	<-ctx.Done()
	return 0
}

func holdSpec(spec string, parent belay.RunID) belay.Spec {
	name, mode, _ := strings.Cut(spec, ":")
	s := belay.Spec{
		Kind: belay.KindCall, Name: name, Server: "faketool", Owner: userName(), ParentID: parent,
		Labels: map[string]string{"name": name, "job": "42"},
		Ladder: belay.Ladder{Grace: 50 * time.Millisecond, KillAfter: 100 * time.Millisecond, ConfirmAfter: time.Second},
	}
	switch mode {
	case "session":
		s.Kind, s.Stopper = belay.KindSession, holdTool{name}
	case "deaf":
		s.Stopper = holdDeaf{holdTool{name}}
		s.Ladder.Grace = time.Hour
	case "held":
		s.Stopper = holdHeld{holdDeaf{holdTool{name}}}
	case "vague":
		s.Stopper = holdVague{}
		s.Ladder = belay.Ladder{Grace: time.Millisecond, KillAfter: time.Millisecond}
	default:
		s.Stopper = holdTool{name}
	}
	return s
}

// holdTool obeys.
type holdTool struct{ name string }

func (h holdTool) witness() {
	f, err := os.OpenFile("witness", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(f, h.name+"\n")
	_ = f.Close()
}

func (h holdTool) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	h.witness()
	return &belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler, Detail: "it returned"}, nil
}

func (h holdTool) Plan(context.Context) belay.Plan {
	return belay.Plan{Tell: "the handler of " + h.name, Force: "none", Kill: []belay.Process{{PID: 4242, Command: "sleep 1000"}}}
}

// holdDeaf has to be killed.
type holdDeaf struct{ holdTool }

func (holdDeaf) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) { return nil, nil }

func (h holdDeaf) Kill(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	h.witness()
	return &belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree, Detail: "3 processes died"}, nil
}

// holdHeld shows no sign of life, so force waits for a person's second Stop.
type holdHeld struct{ holdDeaf }

func (holdHeld) MayForce(_ context.Context, p belay.Pressure) error {
	if p.Again {
		return nil
	}
	return &belay.Restraint{Why: "it shows no sign of life; a second Stop uses force"}
}

// holdVague is told, and nobody ever knows.
type holdVague struct{}

func (holdVague) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) { return nil, nil }
