package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

func ids(list []belay.Info) (ids []belay.RunID) {
	for _, i := range list {
		ids = append(ids, i.ID)
	}
	return ids
}

// The runs of three processes are one list, oldest first, and each can be
// looked up by anybody (DESIGN 4).
func TestListJoinsProcesses(t *testing.T) {
	dir := privateDir(t)
	a, _ := spawn(t, dir, "a1,a2")
	b, _ := spawn(t, dir, "b1")
	_, tree := serve(t, Options{Dir: dir})
	c := startRun(tree, "c1", belay.RunID{}, "")
	m := NewMesh(MeshOptions{Dirs: []string{dir}})

	list, err := m.List(t.Context(), belay.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	want := append(slices.Concat(a.Runs, b.Runs), c.ID())
	if got := ids(list); !slices.Equal(got, want) {
		t.Errorf("List = %v, want %v", got, want)
	}
	if list, _ := m.List(t.Context(), belay.Filter{Limit: 2}); len(list) != 2 || list[0].ID != want[0] {
		t.Errorf("with Limit 2: %v", ids(list))
	}
	if list, err := m.Only(os.Getpid()).List(t.Context(), belay.Filter{}); err != nil || !slices.Equal(ids(list), want[3:]) {
		t.Errorf("only this process: %v, %v", ids(list), err)
	}
	if list, err := m.Only().List(t.Context(), belay.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("only nobody: %v, %v", ids(list), err)
	}
	d, err := m.Get(t.Context(), b.Runs[0])
	if err != nil || d.Name != "b1" || d.Pid == os.Getpid() || d.Pid == 0 {
		t.Errorf("Get = %+v, %v", d, err)
	}
	if _, err := m.Get(t.Context(), belay.NewRunID()); !errors.Is(err, belay.ErrNotFound) {
		t.Errorf("Get of an unknown run: %v, want ErrNotFound", err)
	}
	procs, err := m.Processes(t.Context())
	fronting := func(p Process) bool { return p.Fronts == "test" && !p.Started.IsZero() }
	if err != nil || len(procs) != 3 || !slices.ContainsFunc(procs, fronting) {
		t.Errorf("Processes = %+v, %v", procs, err)
	}
}

// family is a tree of runs that spans three processes, and a run beside it.
type family struct {
	dir        string
	top, other child // other hangs nowhere
	mid, leaf  child
	inside     []belay.RunID
}

func newFamily(t *testing.T) family {
	t.Helper()
	f := family{dir: privateDir(t)}
	f.top, _ = spawn(t, f.dir, "top")
	f.mid, _ = spawn(t, f.dir, "mid", EnvParent+"="+f.top.Ticket)
	f.leaf, _ = spawn(t, f.dir, "leaf", EnvParent+"="+f.mid.Ticket)
	f.other, _ = spawn(t, f.dir, "other")
	f.inside = []belay.RunID{f.top.Runs[0], f.mid.Runs[0], f.leaf.Runs[0]}
	return f
}

func (f *family) witness(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// One Stop reaches the subtree in other processes, once, as one act; what does
// not hang below goes on.
func TestCancelSpansProcesses(t *testing.T) {
	f := newFamily(t)
	m := NewMesh(MeshOptions{Dirs: []string{f.dir}})
	under, err := m.List(t.Context(), belay.Filter{Under: f.mid.Runs[0]})
	if err != nil || !slices.Equal(ids(under), f.inside[1:]) {
		t.Errorf("under mid: %v, %v; want mid and leaf", ids(under), err)
	}

	plan := byUser(f.top.Runs[0])
	plan.DryRun = true
	planned, err := m.Cancel(t.Context(), plan)
	if err != nil || len(planned) != 3 || planned[2].Plan == nil {
		t.Errorf("dry run = %+v, %v; want a plan for each of three", planned, err)
	}
	if f.witness(t, "top") != "" {
		t.Error("a dry run stopped something")
	}

	results, err := m.Cancel(t.Context(), byUser(f.top.Runs[0]))
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 3 {
		t.Fatalf("%d results, want 3: %+v", len(results), results)
	}
	for i, r := range results {
		if r.Run.ID != f.inside[i] {
			t.Errorf("result %d is for %s, want %s", i, r.Run.ID, f.inside[i])
		}
		if r.Receipt == nil || !r.Receipt.OK() || !r.Receipt.Final || !r.Affected {
			t.Errorf("%s: not confirmed: %+v", r.Run.Name, r)
			continue
		}
		want := belay.CauseParent
		if i == 0 {
			want = belay.CauseUser
		}
		c := r.Receipt.Cancellation
		if c.Cause != want || c.Stop != results[0].Receipt.Cancellation.Stop || c.By != "tester" {
			t.Errorf("%s: cancellation %+v, want cause %s and one Stop", r.Run.Name, c, want)
		}
		if n := countSteps(r.Receipt, belay.StepEscalated); n != 0 {
			t.Errorf("%s: one press counted as %d second ones", r.Run.Name, n)
		}
		if f.witness(t, r.Run.Name) == "" {
			t.Errorf("%s: no witness", r.Run.Name)
		}
	}
	if f.witness(t, "other") != "" {
		t.Error("a run of another tree was stopped")
	}
	if list, err := m.List(t.Context(), belay.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("left: %v, %v; want the other one alone", ids(list), err)
	}
}

func countSteps(r *belay.Receipt, step belay.Means) (n int) {
	for _, s := range r.Steps {
		if s.Step == step {
			n++
		}
	}
	return n
}

// The ticket alone carries a Stop down, where nobody asks the whole machine:
// a process's own tree stops a run, and the runs below it in other processes
// stop too.
func TestStopTravelsByTicket(t *testing.T) {
	dir := privateDir(t)
	s, tree := serve(t, Options{Dir: dir})
	r := startRun(tree, "top", belay.RunID{}, dir)
	mid, _ := spawn(t, dir, "mid,deaf", EnvParent+"="+s.Ticket(r.ID()))
	spawn(t, dir, "leaf", EnvParent+"="+mid.Ticket)
	stop := belay.NewStopID()
	r.Cancel(belay.Cancellation{Stop: stop, Cause: belay.CauseDeadline, Via: "deadline"})
	for _, name := range []string{"mid", "leaf"} {
		until(t, name+" stops", func() bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		})
	}
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	d, err := m.Get(t.Context(), mid.Runs[0])
	if err != nil || d.Cancellation == nil {
		t.Fatalf("Get = %+v, %v", d, err)
	}
	if c := d.Cancellation; c.Stop != stop || c.Cause != belay.CauseParent || c.Origin != r.ID() {
		t.Errorf("cancellation below = %+v, want the same Stop, cause parent, origin %s", c, r.ID())
	}
}

// A process that dies while a Stop waits for it is reported with its runs, and
// the rest of the Stop is not disturbed.
func TestProcessDiesDuringCancel(t *testing.T) {
	dir := privateDir(t)
	dying, cmd := spawn(t, dir, "deaf")
	fine, _ := spawn(t, dir, "fine")
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	req := byUser(dying.Runs[0], fine.Runs[0])
	results, err := m.Stop(t.Context(), req, func(r belay.CancelResult) {
		if r.Run.ID == dying.Runs[0] && !r.Receipt.Final {
			_ = cmd.Process.Kill()
		}
	})
	var se *SocketError
	if !errors.As(err, &se) || se.Pid != cmd.Process.Pid || se.Foreign || !errors.Is(err, belay.ErrUnreachable) {
		t.Errorf("error = %v, want that process %d went away", err, cmd.Process.Pid)
	}
	if len(results) != 2 {
		t.Fatalf("%d results, want 2", len(results))
	}
	if r := results[0].Receipt; r == nil || r.OK() || !r.Final || results[0].Run.Outcome != belay.Cancelled {
		t.Errorf("of the dead: %+v", results[0])
	}
	if r := results[1].Receipt; r == nil || !r.OK() {
		t.Errorf("of the other: %+v", results[1])
	}
}

// Ctrl-C while waiting ends the waiting, not the Stop; and the time to wait is
// kept.
func TestWaitEnds(t *testing.T) {
	dir := privateDir(t)
	deaf, _ := spawn(t, dir, "deaf")
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	ctx, end := context.WithCancelCause(t.Context())
	mine := errors.New("no more")
	results, err := m.Stop(ctx, byUser(deaf.Runs[0]), func(belay.CancelResult) { end(mine) })
	if !errors.Is(err, mine) || len(results) != 1 || results[0].Receipt.Final {
		t.Errorf("interrupted: %+v, %v", results, err)
	}
	req := byUser(deaf.Runs[0])
	req.Escalate = false
	req.Wait = 30 * time.Millisecond
	results, err = m.Cancel(t.Context(), req)
	if err != nil || len(results) != 1 || results[0].Receipt.Final {
		t.Errorf("limited: %+v, %v", results, err)
	}
	d, err := m.Get(t.Context(), deaf.Runs[0])
	if err != nil || d.Cancellation == nil || d.Work != belay.Stopping {
		t.Errorf("the Stop did not go on: %+v, %v", d, err)
	}
}

// Watching sees the runs of processes that are there and of later ones, and
// tells when one of them goes away.
func TestWatchSpansProcesses(t *testing.T) {
	dir := privateDir(t)
	_, tree := serve(t, Options{Dir: dir})
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	ticking := make(chan struct{})
	defer func() { end(); <-ticking }()
	go func() { // something always happens
		defer close(ticking)
		for ctx.Err() == nil {
			r, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "tick"})
			if err == nil {
				r.Finish(belay.Completed)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	var late child
	var proc *exec.Cmd
	var asked, killed bool
	var seq uint64
	for e, err := range m.Watch(ctx, belay.Filter{Ended: true}) {
		switch {
		case err != nil:
			if !killed || !errors.Is(err, belay.ErrUnreachable) {
				t.Fatal(err)
			}
			return // the death was told
		case e.Seq <= seq:
			t.Fatalf("Seq %d after %d", e.Seq, seq)
		case proc == nil:
			late, proc = spawn(t, dir, "late")
		case !asked && time.Since(late.Runs[0].Time()) > 2*scanEvery:
			req := byUser(late.Runs...)
			req.Wait = 0
			_, _ = m.Cancel(ctx, req)
			asked = true
		case e.Run.ID == late.runs0() && e.Type == belay.EventEnded && !killed:
			killed = true
			_ = proc.Process.Kill()
		}
		seq = e.Seq
	}
	t.Errorf("asked %v, killed %v, and no word of the death", asked, killed)
}

func (c *child) runs0() belay.RunID {
	if len(c.Runs) == 0 {
		return belay.RunID{}
	}
	return c.Runs[0]
}

// With Under, a watcher sees what lies below a run of another process, and
// nothing else.
func TestWatchUnder(t *testing.T) {
	dir := privateDir(t)
	s, tree := serve(t, Options{Dir: dir})
	top := startRun(tree, "top", belay.RunID{}, "")
	below, _ := spawn(t, dir, "below", EnvParent+"="+s.Ticket(top.ID()))
	beside, _ := spawn(t, dir, "beside")
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	done := time.AfterFunc(300*time.Millisecond, func() {
		_, _ = m.Cancel(ctx, byUser(beside.Runs...))
		_, _ = m.Cancel(ctx, byUser(below.Runs...))
	})
	defer done.Stop()
	for e, err := range m.Watch(ctx, belay.Filter{Ended: true, Under: top.ID()}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Run.ID == beside.Runs[0] {
			t.Fatal("saw a run that is not below")
		}
		if e.Run.ID == below.Runs[0] && e.Type == belay.EventEnded {
			return
		}
	}
	t.Error("the end of the run below was not seen")
}
