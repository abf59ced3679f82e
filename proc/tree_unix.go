//go:build linux || darwin

package proc

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Tree is one command and every process that comes from it. All methods may be
// called at any time and from many goroutines. Whoever starts a tree closes it.
type Tree struct {
	io       *stdio
	guardian ID
	leader   ID
	marker   string
	cg       *cgroup
	eng      *engine
	track    *tracker
	cmd      *exec.Cmd // the guardian

	done  chan struct{} // closed when the leader has ended; exit is set before
	gone  chan struct{} // closed when nobody but the spared is left, for ever
	exit  Exit          // written once, before done is closed
	lost  atomic.Bool   // the guardian died before its tree
	empty chan struct{} // closed when run has ended: the guardian is reaped

	mu       sync.Mutex
	control  *os.File // P's end; write under mu
	in       *bufio.Reader
	farewell bool          // the guardian was told to leave
	released bool          // gone is closed
	err      error         // ErrGuardianLost once that is known
	cpu      time.Duration // the most that CPU has seen
	closing  chan struct{} // made by the first Close, closed when it is finished
	report   Report        // of Close; read after closing is closed
	closeErr error
}

// adopt takes over the leader that the guardian has started.
func (t *Tree) adopt(cfg *Config, s started) {
	t.leader = ID{s.PID, s.Born}
	if !s.Cgroup && t.cg != nil {
		t.cg.remove()
		t.cg = nil
	}
	t.track = newTracker(t.guardian, t.leader)
	t.eng = newEngine(t.leader, t.guardian.PID, t.cg, cfg.Spare)
	t.eng.members = func(v *view) []Process { return v.pick(t.pids(v)) }
	t.eng.ended = t.gone
	t.eng.lost = t.lost.Load
}

// pids returns the tree's pids: what is below the guardian, or what it left.
func (t *Tree) pids(v *view) map[int]bool {
	if g, ok := v.find(t.guardian); ok && g.State != "Z" {
		return t.track.pids(v)
	}
	return t.orphans(v)
}

// run reads the guardian's notices until it ends and reaps it. It is the only
// goroutine of a tree; it ends with the guardian, which Close brings about
// (with spared processes: when they have ended).
func (t *Tree) run() {
	defer close(t.empty)
	orderly := false
	for {
		var n notice
		if err := readLine(t.in, &n, 4096); err != nil {
			break
		}
		if n.Exit != nil {
			t.ended(*n.Exit)
		}
		orderly = orderly || n.Empty
	}
	forked.wait(t.cmd)
	t.mu.Lock()
	orderly = orderly || t.farewell
	t.mu.Unlock()
	if !orderly {
		t.takeOver()
	}
	t.ended(Exit{Code: -1, Unknown: true})
	t.release()
	t.control.Close()
	t.cg.remove()
}

// ended records how the leader ended; the first word counts. Only run and
// what it calls use it.
func (t *Tree) ended(x Exit) {
	select {
	case <-t.done:
	default:
		t.exit = x
		close(t.done)
	}
}

// release declares the tree over.
func (t *Tree) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.released {
		t.released = true
		close(t.gone)
	}
}

// PID returns the leader's process id.
func (t *Tree) PID() int { return t.leader.PID }

// StartTime returns when the leader was born, on the clock of Selection.
func (t *Tree) StartTime() Stamp { return t.leader.Born }

// GuardianPID returns the guardian's process id, 0 where there is none.
func (t *Tree) GuardianPID() int { return t.guardian.PID }

// Cgroup returns the directory of the tree's cgroup, "" without one.
func (t *Tree) Cgroup() string {
	if t.cg == nil {
		return ""
	}
	return t.cg.dir
}

// Stdin returns the writing end of the leader's input, nil when Config.Stdin
// was given. Closing it is the caller's choice; Terminate and Close do it too.
func (t *Tree) Stdin() *os.File { return t.io.mine[0] }

// Stdout returns the reading end of the leader's output, nil when
// Config.Stdout was given. The caller reads and closes it: it reaches its end
// only when every process that holds the other end is gone, which a spared one
// may not be for days. After Gone set a read deadline or close it.
func (t *Tree) Stdout() *os.File { return t.io.mine[1] }

// Stderr is to the leader's error output what Stdout is to its output.
func (t *Tree) Stderr() *os.File { return t.io.mine[2] }

// Done is closed when the leader has ended. Its children may live on, and the
// tree with them.
func (t *Tree) Done() <-chan struct{} { return t.done }

// Exit says how the leader ended; it waits for Done.
func (t *Tree) Exit() Exit {
	<-t.done
	return t.exit
}

// Gone is closed when no process of the tree is left, or when Close has left
// only spared ones.
func (t *Tree) Gone() <-chan struct{} { return t.gone }

// Err returns ErrGuardianLost after the guardian died before its tree, else
// nil.
func (t *Tree) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Signal sends a signal to the leader alone. ErrExited when it has ended.
func (t *Tree) Signal(sig syscall.Signal) error {
	err := signalID(t.leader, sig)
	if err == unix.ESRCH {
		return fmt.Errorf("signal %v to %v: %w", sig, t.leader, ErrExited)
	}
	if err != nil {
		return fmt.Errorf("signal %v to %v: %w", sig, t.leader, err)
	}
	return nil
}

// SignalGroup sends a signal to the processes of the leader's group that
// belong to the tree and are not spared, one by one: the group's number alone
// could by now be somebody else's. With Config.Foreground, where the group is
// P's own, it reaches the tree's part of it.
func (t *Tree) SignalGroup(sig syscall.Signal) error {
	members, _, err := t.eng.all()
	if err != nil {
		return fmt.Errorf("signal %v to group of %v: %w", sig, t.leader, err)
	}
	group := t.leader.PID
	for _, p := range members {
		if p.ID() == t.leader {
			group = p.PGID
		}
	}
	hit := false
	for _, p := range members {
		if p.PGID == group && p.Spare == "" && signalID(p.ID(), sig) == nil {
			hit = true
		}
	}
	if !hit {
		return fmt.Errorf("signal %v to group of %v: %w", sig, t.leader, ErrExited)
	}
	return nil
}

// List returns the live processes of the tree, the leader included, in the
// order of the process table; the spared have a reason in Spare.
func (t *Tree) List() ([]Process, error) {
	if t.eng.over() {
		return nil, nil
	}
	members, _, err := t.eng.all()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for i := range members {
		describe(&members[i])
	}
	return members, nil
}

// Plan says what Terminate or Kill would do at this moment: whom they would
// signal, and whom spare. Nothing is done.
func (t *Tree) Plan(sel Selection) (would, spared []Process) {
	if t.eng.over() {
		return nil, nil
	}
	would, spared, err := t.eng.look(sel)
	if err != nil {
		return nil, nil
	}
	for i := range would {
		describe(&would[i])
	}
	for i := range spared {
		describe(&spared[i])
	}
	return would, spared
}

// CPU returns the processor time that the tree has used, that of processes
// which have ended included. It never goes back and is made to be asked
// several times a second; where there is no cgroup it has the resolution of
// /proc, 10 ms.
func (t *Tree) CPU() time.Duration {
	now := t.cpuNow()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cpu = max(t.cpu, now)
	return t.cpu
}

// Terminate asks the selected processes to end: it closes the leader's stdin
// (if that is a pipe made here), sends SIGTERM to the leader, and to the
// others after half, since a leader may need its helpers to clean up; when
// the leader ends before or is not selected, at once. It then waits until no
// selected process is left, or ctx is done: the error is then ErrSurvivors
// with the cause, and the report lists them. Processes born meanwhile are told
// too. Nobody is killed.
func (t *Tree) Terminate(ctx context.Context, sel Selection, half time.Duration) (Report, error) {
	if t.eng.over() {
		return t.overReport(), nil
	}
	r, err := t.eng.terminate(ctx, sel, half, t.closeStdin)
	return r, survivorsError(ctx, r, err)
}

// Kill ends the selected processes by force and waits until none is left, at
// most until ctx is done (10 s without a deadline). It may run beside a
// Terminate, a Close or another Kill. What is left is named in the report and
// makes the error ErrSurvivors. After the tree has ended it reports Gone.
func (t *Tree) Kill(ctx context.Context, sel Selection) (Report, error) {
	if t.eng.over() {
		return t.overReport(), nil
	}
	ctx, cancel := withKillLimit(ctx)
	defer cancel()
	r, err := t.eng.kill(ctx, sel)
	return r, survivorsError(ctx, r, err)
}

func (t *Tree) overReport() Report { return Report{Gone: true, TakenOver: t.lost.Load()} }

func (t *Tree) closeStdin() {
	if f := t.io.mine[0]; f != nil {
		_ = f.Close() // a second time it returns an error and does nothing
	}
}
