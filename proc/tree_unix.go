//go:build linux || darwin

package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killLimit bounds a Kill whose context has no deadline: a process in an
	// uninterruptible sleep can outlast any patience.
	killLimit = 10 * time.Second
	// closeKill bounds the killing part of Close.
	closeKill = 5 * time.Second
	// startLimit bounds the guardian's answer to an order.
	startLimit = 30 * time.Second
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

// treeSeq makes default markers unique in this process.
var treeSeq atomic.Int64

// subreaperOnce: P inherits the orphans of guardians that die.
var subreaperOnce sync.Once

// forkGate is held for reading while a guardian is forked: until its exec it
// looks like P itself, and must not be taken for an orphan.
var forkGate sync.RWMutex

// Start runs the command under a new guardian. It returns when the command was
// really executed: a missing or unfit program is an error of Start (ErrNotFound,
// ErrNotExecutable, else ErrStart), not an exit code. Takes some 10 ms. When
// ctx ends during the start the command is killed and the cause returned;
// afterwards ctx means nothing to the tree.
func Start(ctx context.Context, cfg Config) (*Tree, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, context.Cause(ctx))
	}
	subreaperOnce.Do(func() { _ = becomeSubreaper() })
	marker := cfg.Marker
	if marker == "" {
		self := selfID()
		marker = fmt.Sprintf("BELAY_TREE=%d-%d-%d", self.PID, self.Born/bornUnit, treeSeq.Add(1))
	}
	ord, err := prepare(&cfg, marker)
	if err != nil {
		return nil, err
	}
	t := &Tree{marker: marker, done: make(chan struct{}), gone: make(chan struct{}), empty: make(chan struct{})}
	if t.io, err = openStdio(&cfg); err != nil {
		return nil, err
	}
	if cfg.Cgroup == CgroupAuto {
		if cg, err := newCgroup(); err == nil {
			t.cg, ord.Cg = cg, cg.dir
		}
	}
	if err := t.launch(ctx, &cfg, ord); err != nil {
		t.io.close()
		t.cg.remove()
		return nil, err
	}
	go t.run()
	if ctx.Err() != nil {
		// The caller is gone; nobody will ever close this tree.
		t.io.close()
		limit, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), killLimit, ErrStart)
		defer cancel()
		_, _ = t.Kill(limit, Selection{})
		_, _ = t.Close(limit)
		return nil, fmt.Errorf("%w: %q: %w", ErrStart, cfg.Path, context.Cause(ctx))
	}
	return t, nil
}

// launch starts the guardian, sends the order and waits for the answer.
func (t *Tree) launch(ctx context.Context, cfg *Config, ord *order) error {
	mine, theirs, err := socketPair()
	if err != nil {
		return fmt.Errorf("%w: control socket: %w", ErrStart, err)
	}
	t.control = mine
	exe, err := guardianExe()
	if err == nil {
		t.cmd = &exec.Cmd{
			Path: exe, Args: guardianArgs(cfg.Label), Env: guardianEnv(),
			ExtraFiles: []*os.File{theirs, t.io.child[0], t.io.child[1], t.io.child[2]},
			// A group of its own: what is sent to Belay's group must not take
			// the guardian with it.
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		}
		forkGate.RLock()
		err = t.cmd.Start()
		forkGate.RUnlock()
	}
	theirs.Close()
	t.io.closeChild()
	if err != nil {
		mine.Close()
		return fmt.Errorf("%w: guardian: %w", ErrStart, err)
	}
	t.guardian = ID{PID: t.cmd.Process.Pid}
	if p, ok := readProc(t.guardian.PID); ok {
		t.guardian.Born = p.Start
	}
	n, err := t.exchange(ctx, ord)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %q: guardian did not answer: %w", ErrStart, cfg.Path, errors.Join(err, context.Cause(ctx)))
	case n.Failed != nil:
		err = startError(cfg, *n.Failed)
	case n.Started == nil:
		err = fmt.Errorf("%w: %q: guardian answered out of turn", ErrStart, cfg.Path)
	default:
		t.adopt(cfg, *n.Started)
		return nil
	}
	// Without P's end the guardian stops whatever it has started and leaves;
	// one that hangs is killed and leaves P its orphan.
	mine.Close()
	t.dismiss()
	if n.Failed == nil {
		t.adopt(cfg, started{})
		t.takeOver()
	}
	return err
}

// dismiss waits for a guardian whose start failed, and makes it end.
func (t *Tree) dismiss() {
	timer := time.AfterFunc(2*endGrace, func() { _ = t.cmd.Process.Kill() })
	defer timer.Stop()
	_ = t.cmd.Wait()
}

// exchange sends the order and reads the first notice.
func (t *Tree) exchange(ctx context.Context, ord *order) (n notice, err error) {
	_ = t.control.SetDeadline(time.Now().Add(startLimit))
	stop := context.AfterFunc(ctx, func() { _ = t.control.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		_ = t.control.SetDeadline(time.Time{})
	}()
	b := line(ord)
	if len(b) > orderMax {
		return n, syscall.E2BIG
	}
	if _, err := t.control.Write(b); err != nil {
		return n, err
	}
	t.in = bufio.NewReaderSize(t.control, 1024)
	return n, readLine(t.in, &n, 4096)
}

// adopt takes over the leader that the guardian has started.
func (t *Tree) adopt(cfg *Config, s started) {
	t.leader = ID{s.PID, s.Born}
	if !s.Cgroup && t.cg != nil {
		t.cg.remove()
		t.cg = nil
	}
	t.eng = newEngine(t.leader, t.guardian.PID, t.cg, cfg.Spare)
	t.eng.members = func(v *view) []Process { return v.pick(t.pids(v)) }
	t.eng.ended = t.gone
	t.eng.lost = t.lost.Load
}

// pids returns the tree's pids: what is below the guardian, or what it left.
func (t *Tree) pids(v *view) map[int]bool {
	if g, ok := v.find(t.guardian); ok && g.State != "Z" {
		return treeOf(v, t.guardian.PID, t.leader)
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
	_ = t.cmd.Wait()
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
	if err == unix.ESRCH || err == nil && !alive(t.leader) && sig == 0 {
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
	r := t.eng.terminate(ctx, sel, half, t.closeStdin)
	return r, survivorsError(ctx, r)
}

// Kill ends the selected processes by force and waits until none is left, at
// most until ctx is done (10 s without a deadline). It may run beside a
// Terminate, a Close or another Kill. What is left is named in the report and
// makes the error ErrSurvivors. After the tree has ended it reports Gone.
func (t *Tree) Kill(ctx context.Context, sel Selection) (Report, error) {
	if t.eng.over() {
		return t.overReport(), nil
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, killLimit, fmt.Errorf("gave up after %v", killLimit))
		defer cancel()
	}
	r := t.eng.kill(ctx, sel)
	return r, survivorsError(ctx, r)
}

func (t *Tree) overReport() Report { return Report{Gone: true, TakenOver: t.lost.Load()} }

func survivorsError(ctx context.Context, r Report) error {
	if r.Gone {
		return nil
	}
	names := ""
	for i, p := range r.Survivors {
		if i == 5 {
			names += ", ..."
			break
		}
		names += fmt.Sprintf(", %s (pid %d)", p.Comm, p.PID)
	}
	if names != "" {
		names = names[2:]
	}
	return fmt.Errorf("%d %w: %s: %w", len(r.Survivors), ErrSurvivors, names, context.Cause(ctx))
}

func (t *Tree) closeStdin() {
	if f := t.io.mine[0]; f != nil {
		_ = f.Close() // a second time it returns an error and does nothing
	}
}

// Close is Belay's own end of the tree: stdin closed, SIGTERM to all at once,
// SIGKILL after half a second, then the guardian is let go. It may be called
// many times and by many: the first does the work, on limits of its own
// (below 6 s), and all get its report; ctx bounds only the caller's waiting.
// Stdout and Stderr stay the caller's to close.
func (t *Tree) Close(ctx context.Context) (Report, error) {
	t.mu.Lock()
	first := t.closing == nil
	if first {
		t.closing = make(chan struct{})
	}
	closing := t.closing
	t.mu.Unlock()
	if first {
		// Not the caller's own goroutine: its ctx must not leave a tree half
		// closed. The work is bounded, and every caller waits for it.
		go t.close(context.WithoutCancel(ctx))
	}
	select {
	case <-closing:
		return t.report, t.closeErr
	case <-ctx.Done():
		return Report{}, fmt.Errorf("close goes on: %w", context.Cause(ctx))
	}
}

func (t *Tree) close(ctx context.Context) {
	defer close(t.closing)
	t.report = t.overReport()
	if !t.eng.over() {
		// A guardian that somebody has stopped could not reap.
		_ = signalID(t.guardian, unix.SIGCONT)
		t.closeStdin()
		soft, cancel := context.WithTimeoutCause(ctx, endGrace, ErrClosed)
		t.report = t.eng.terminate(soft, Selection{}, 0, nil)
		cancel()
		for try := 0; !t.settled(try); try++ {
			t.closeByForce(ctx)
		}
	}
	t.letGo()
}

// settled reports whether Close has nothing more to kill: the guardian has
// ended, or only spared processes are left, or enough was tried.
func (t *Tree) settled(try int) bool {
	if try == 3 || t.report.Gone && len(t.report.Spared) > 0 {
		return true
	}
	if !t.report.Gone {
		return false
	}
	// Two looks saw nobody. The guardian, as parent of all, has the last
	// word; until then it is not believed.
	select {
	case <-t.empty:
		return true
	case <-time.After(endGrace):
		return false
	}
}

func (t *Tree) closeByForce(ctx context.Context) {
	hard, cancel := context.WithTimeoutCause(ctx, closeKill, fmt.Errorf("gave up after %v", closeKill))
	defer cancel()
	k := t.eng.kill(hard, Selection{})
	t.closeErr = survivorsError(hard, k)
	before := t.report
	k.Signalled = before.Signalled
	for _, p := range k.Killed {
		before.Killed = appendOnce(before.Killed, p)
	}
	k.Killed = before.Killed
	if k.Means == MeansNone {
		k.Means = before.Means
	}
	t.report = k
}

// letGo ends the guardian. Where somebody is left it stays as their parent
// and reaper, told that it may leave, and ends with them or with P.
func (t *Tree) letGo() {
	if len(t.report.Spared)+len(t.report.Survivors) > 0 {
		t.mu.Lock()
		if !t.released {
			t.farewell = true
			_, _ = t.control.Write(line(farewell{End: true}))
		}
		t.mu.Unlock()
		if t.cg != nil {
			t.cg.evacuate()
			t.cg.remove()
		}
		t.release()
		return
	}
	select {
	case <-t.empty:
	default:
		// Nobody is left by every look, and the guardian hangs.
		t.mu.Lock()
		t.farewell = true
		t.mu.Unlock()
		_ = t.cmd.Process.Kill()
		<-t.empty
	}
}

// socketPair makes the control socket: ours for the poller, theirs blocking.
func socketPair() (mine, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		syscall.Close(fds[0])
		syscall.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "belay-control"), os.NewFile(uintptr(fds[1]), "belay-control"), nil
}
