//go:build linux

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

// rig is an agent under test with a tree of runs, and a folder with tools that are
// not the agent's own.
type rig struct {
	*Agent
	t    *testing.T
	runs *belay.Tree
	in   *json.Encoder
	out  *bufio.Scanner
	tool string // the fake tool, a program of its own
	w    *faketool.Witness
}

// start starts an agent; change may alter its configuration.
func start(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, runs: belay.NewTree(belay.Options{}), w: faketool.NewWitness(filepath.Join(dir, "witness"))}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.tool = copyOf(t, self, filepath.Join(dir, "tools", "tool"))
	cfg := Config{Command: []string{self, "agent"}, Tree: r.runs, Owner: "tester", KillAfter: time.Second, Dir: dir}
	for _, f := range change {
		f(&cfg)
	}
	if r.Agent, err = Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.in, r.out = json.NewEncoder(r.Stdin()), bufio.NewScanner(r.Stdout())
	t.Cleanup(func() {
		if _, err := r.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		_ = r.Stdout().Close()
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Millisecond, errClosed)
		defer cancel()
		_ = r.runs.Close(ctx) // the turns of these tests have no bridge that ends them
	})
	return r
}

// copyOf makes a program that is another file.
func copyOf(t *testing.T, from, to string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Link(from, to) == nil {
		return to
	}
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// starts makes the agent start a command and returns its pid.
func (r *rig) starts(argv ...string) (pid int) {
	r.t.Helper()
	if err := r.in.Encode(order{Argv: argv}); err != nil {
		r.t.Fatal(err)
	}
	if !r.out.Scan() {
		r.t.Fatalf("the agent says nothing: %v", r.out.Err())
	}
	if _, err := fmt.Sscanf(r.out.Text(), "pid %d", &pid); err != nil {
		r.t.Fatalf("the agent says %q", r.out.Text())
	}
	return pid
}

// ticks makes the agent start a tool that ticks under key, and waits for its first
// sign of life. fork is one of faketool's ways to leave a helper behind, "" for none.
func (r *rig) ticks(key, fork string, more ...string) (pid int) {
	r.t.Helper()
	argv := append([]string{r.tool, faketool.Marker, "tick", "-life=90s", "-witness=" + r.w.Path, "-key=" + key, "-fork=" + fork}, more...)
	pid = r.starts(argv...)
	r.alive(key)
	if fork != "" {
		r.alive(key + "/" + fork)
	}
	return pid
}

// alive fails unless the key ticks now.
func (r *rig) alive(key string) {
	r.t.Helper()
	seen := r.w.LastTick(key)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if last := r.w.LastTick(key); !last.IsZero() && last.After(seen) {
			return
		}
	}
	r.t.Fatalf("%s does not tick", key)
}

// dead fails unless no process of the key lives.
func (r *rig) dead(key string) {
	r.t.Helper()
	pids := append(r.w.Pids(key), r.w.Pids(key+"/*")...)
	if len(pids) == 0 {
		r.t.Fatalf("%s never lived", key)
	}
	if left := faketool.WaitDead(pids, 5*time.Second); len(left) > 0 {
		r.t.Fatalf("%s: still alive: %v", key, left)
	}
}

// run registers a run.
func (r *rig) run(kind belay.Kind, name string, parent *belay.Run) *belay.Run {
	r.t.Helper()
	run, err := r.runs.Register(belay.Spec{Kind: kind, Name: name, Parent: parent})
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

// turn begins a turn with one open tool call.
func (r *rig) turn(session *belay.Run, name string) (b *Brood, turn, call *belay.Run) {
	r.t.Helper()
	turn = r.run(belay.KindTurn, name, session)
	b = r.Turn(turn)
	call = r.run(belay.KindCall, name+" tool", turn)
	b.Opened("tc-"+name, call)
	return b, turn, call
}

// stop is a person's Stop of a run, pressed once more if again is set.
func (r *rig) stop(run *belay.Run) {
	r.t.Helper()
	_, err := r.runs.Cancel(r.t.Context(), belay.CancelRequest{
		Filter: belay.Filter{IDs: []belay.RunID{run.ID()}}, Escalate: true,
		Cancellation: belay.Cancellation{Cause: belay.CauseUser, By: "tester", Via: "test"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// below waits for n runs of processes below a run.
func (r *rig) below(above *belay.Run, n int) []belay.Info {
	r.t.Helper()
	var list []belay.Info
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		list = list[:0]
		all, err := r.runs.List(r.t.Context(), belay.Filter{Ended: true})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, i := range all {
			if i.Kind == belay.KindProcess && i.Parent == above.ID() {
				list = append(list, i)
			}
		}
		if len(list) >= n {
			break
		}
	}
	if len(list) != n {
		r.t.Fatalf("%d runs of processes below %s, want %d: %+v", len(list), above.Name(), n, list)
	}
	return list
}

// verdict waits for the final receipt of a run.
func (r *rig) verdict(id belay.RunID) *belay.Receipt {
	r.t.Helper()
	var last *belay.Receipt
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		d, err := r.runs.Get(r.t.Context(), id)
		if err != nil {
			r.t.Fatal(err)
		}
		if last = d.Receipt; last != nil && last.Verdict == belay.Confirmed {
			return last
		}
	}
	r.t.Fatalf("%s is not confirmed: %+v", id, last)
	return nil
}

// within is a context for one step of a Stop.
func (r *rig) within(d time.Duration) context.Context {
	r.t.Helper()
	ctx, cancel := context.WithTimeoutCause(r.t.Context(), d, fmt.Errorf("%v are over", d))
	r.t.Cleanup(cancel)
	return ctx
}

func names(list []belay.Process) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%d %s (%s)\n", p.PID, p.Command, p.Why)
	}
	return b.String()
}

// has reports whether a process is in a list.
func has(list []belay.Process, pid int) bool {
	for _, p := range list {
		if p.PID == pid {
			return true
		}
	}
	return false
}
