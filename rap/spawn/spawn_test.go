//go:build unix

package spawn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/rap"
)

func TestMain(m *testing.M) {
	proc.Main() // a guardian never returns
	if how := os.Getenv("SPAWN_TEST"); how != "" {
		child(how)
		return
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// child is a tool server whose tool starts a grandchild that leaves the session, and
// that hears neither SIGINT nor SIGTERM.
func child(how string) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	dir := os.Getenv("SPAWN_DIR")
	note := func(name, text string) { _ = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
	switch how {
	case "mute":
		select {}
	case "chatty":
		fmt.Println("hello")
		select {}
	case "gone":
		return
	}
	p := &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){
		"fork": func(c *rappeer.Invoked) {
			cmd := exec.Command("sh", "-c", `trap "" INT TERM; while :; do echo beat >> "$0"; sleep 0.02; done`, filepath.Join(dir, "heart"))
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				_, _ = c.Text("Error: " + err.Error())
				return
			}
			note("grandchild", strconv.Itoa(cmd.Process.Pid))
		},
		"pid":  func(c *rappeer.Invoked) { _, _ = c.Text(strconv.Itoa(os.Getpid())) },
		"exit": func(*rappeer.Invoked) { os.Exit(3) },
		"env":  func(c *rappeer.Invoked) { _, _ = c.Text(os.Getenv("RAP_EMBEDDED")) },
	}}
	base, err := p.Start()
	if err != nil {
		panic(err)
	}
	u, _ := url.Parse(base)
	fmt.Printf("{\"port\": %s}\nand more\n", u.Port())
	select {}
}

// spawned is a server that is this test again.
func spawned(t *testing.T, how string, change func(*Options)) (*Server, string) {
	t.Helper()
	dir := t.TempDir()
	o := Options{Name: "p", Command: []string{os.Args[0]}, Env: append(proc.Environment(), "SPAWN_TEST="+how, "SPAWN_DIR="+dir)}
	if change != nil {
		change(&o)
	}
	s := New(o)
	t.Cleanup(func() { shut(t, s) })
	return s, dir
}

func shut(t *testing.T, s *Server) {
	t.Helper()
	ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
	defer end()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(end)
	return ctx
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 15 s", what)
		}
	}
}

// runtime is a runtime with that one server, and a thread with its tools.
func runtime(t *testing.T, s *Server, kill bool) (*rap.Thread, *belay.Tree) {
	t.Helper()
	web := newWeb(t)
	tree := belay.NewTree(belay.Options{})
	rt, err := rap.NewRuntime(rap.RuntimeOptions{
		Tree: tree, Callback: web.url + "/cb", Servers: []rap.Server{{Name: "p", Process: s, KillProcess: kill}},
	})
	if err != nil {
		t.Fatal(err)
	}
	web.to.Store(rt)
	t.Cleanup(func() {
		ctx, end := context.WithTimeout(context.Background(), 5*time.Second)
		defer end()
		_ = rt.Close(ctx, belay.Cancellation{})
		now, over := context.WithTimeout(ctx, time.Millisecond)
		defer over()
		_ = tree.Close(now)
	})
	th, err := rt.Open(rap.ThreadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := th.Load(soon(t)); err != nil {
		t.Fatal(err)
	}
	return th, tree
}

func grandchild(t *testing.T, dir string) (pid int) {
	t.Helper()
	until(t, "the grandchild", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "grandchild"))
		if err == nil {
			pid, _ = strconv.Atoi(string(text))
		}
		return pid > 0
	})
	return pid
}

// TestRAP95_Shutdown: a spawned server that ignores SIGINT and SIGTERM is killed at the
// end, with a grandchild that left its session (R4; acceptance 13).
func TestRAP95_Shutdown(t *testing.T) {
	s, dir := spawned(t, "serve", nil)
	th, _ := runtime(t, s, false)
	if r, err := th.Do(soon(t), rap.CallOptions{Tool: "env"}); err != nil || r.Text != "1" {
		t.Fatalf("RAP_EMBEDDED is %v, %v", r, err)
	}
	r, err := th.Do(soon(t), rap.CallOptions{Tool: "pid"})
	if err != nil {
		t.Fatal(err)
	}
	leader, _ := strconv.Atoi(r.Text)
	if _, err := th.Invoke(rap.CallOptions{Tool: "fork"}); err != nil {
		t.Fatal(err)
	}
	below := grandchild(t, dir)
	if !alive(leader) || !alive(below) {
		t.Fatal("somebody is dead already")
	}
	shut(t, s)
	if alive(leader) || alive(below) {
		t.Errorf("alive after the end: leader %v, grandchild %v", alive(leader), alive(below))
	}
}

// TestRAP95_KillServer: with kill_server the Stop of one call ends the process tree by
// force, which is the proof; the next call has a fresh one (RAP-94, 95). Without it the
// process is kept, and nothing is confirmed.
func TestRAP95_KillServer(t *testing.T) {
	s, dir := spawned(t, "serve", nil)
	th, _ := runtime(t, s, true)
	c, err := th.Invoke(rap.CallOptions{Tool: "fork"})
	if err != nil {
		t.Fatal(err)
	}
	below := grandchild(t, dir)
	c.Run().Cancel(belay.Cancellation{Cause: belay.CauseUser})
	<-c.Done()
	receipt, err := c.Run().Wait(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if receipt.Verdict != belay.Confirmed || receipt.Scope != belay.ScopeLocalTree {
		t.Errorf("verdict %s, scope %s", receipt.Verdict, receipt.Scope)
	}
	var taken []string
	for _, step := range receipt.Steps {
		switch step.Step {
		case belay.StepInterrupt, belay.StepTerminate, belay.StepKill:
			taken = append(taken, string(step.Step))
		}
	}
	if got := strings.Join(taken, " "); got != "interrupt terminate kill" {
		t.Errorf("steps %q", got)
	}
	if alive(below) {
		t.Error("the grandchild is alive")
	}
	if r, err := th.Do(soon(t), rap.CallOptions{Tool: "pid"}); err != nil || r.Text == "" {
		t.Errorf("the next call: %v, %v", r, err)
	}
}

// TestRAP95_Crash: a server that ends takes its pending calls along, and the next call
// starts it anew.
func TestRAP95_Crash(t *testing.T) {
	s, _ := spawned(t, "serve", nil)
	th, _ := runtime(t, s, false)
	if _, err := th.Do(soon(t), rap.CallOptions{Tool: "exit"}); !errors.Is(err, rap.ErrNotAccepted) {
		t.Errorf("%v", err)
	}
	if r, err := th.Do(soon(t), rap.CallOptions{Tool: "pid"}); err != nil || r.Text == "" {
		t.Errorf("the next call: %v, %v", r, err)
	}
}

// TestStart: a command that does not say its port is no server, and is ended.
func TestStart(t *testing.T) {
	for _, how := range []string{"mute", "chatty", "gone"} {
		s, _ := spawned(t, how, func(o *Options) { o.StartWait = 700 * time.Millisecond })
		in, err := s.Start(soon(t))
		if in != nil || !errors.Is(err, ErrStart) {
			t.Errorf("%s: %v, %v", how, in, err)
		}
		if s.Current() != nil {
			t.Errorf("%s is running", how)
		}
	}
	s := New(Options{Name: "none", Command: []string{"/no/such/program"}})
	if _, err := s.Start(soon(t)); !errors.Is(err, ErrStart) {
		t.Error(err)
	}
	shut(t, s)
	if _, err := s.Start(soon(t)); !errors.Is(err, belay.ErrClosed) {
		t.Error(err)
	}
}

// FuzzPort: no first line gives a port that is none.
func FuzzPort(f *testing.F) {
	for _, seed := range []string{`{"port": 8080}`, `{"port":0}`, `{"port":"80"}`, `8080`, `{`, `{"port":65536}`, `{"port":-1,"port":5}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		n, err := readPort(line)
		if (err == nil) != (n >= 1 && n <= 65535) {
			t.Errorf("%q is port %d, %v", line, n, err)
		}
	})
}
