package proc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// lookPause lies between two looks at a job while something is waited for.
const lookPause = 20 * time.Millisecond

// Tree is one command and every process that comes from it, held by a job
// object. All methods may be called at any time and from many goroutines.
// Whoever starts a tree closes it.
type Tree struct {
	io     *stdio
	job    job
	leader ID
	rules  []SpareRule
	cmd    *exec.Cmd

	done chan struct{} // closed when the leader has ended; exit is set before
	gone chan struct{} // closed when nobody but the spared is left
	exit Exit

	mu       sync.Mutex
	shut     bool // the job's handle is closed; set under mu
	released bool // gone is closed
	cpu      time.Duration
	closing  chan struct{}
	report   Report
	closeErr error
	left     chan struct{} // closed by Close: watch has nothing more to wait for
}

// Start runs the command in a new job. A missing or unfit program is an error
// of Start (ErrNotFound, ErrNotExecutable, else ErrStart), not an exit code.
func Start(ctx context.Context, cfg Config) (*Tree, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, context.Cause(ctx))
	}
	marker, err := markerOf(&cfg)
	if err != nil {
		return nil, err
	}
	env := environment(&cfg, marker)
	if err := errors.Join(checkDir(cfg.Dir), checkNUL([]string{cfg.Path, cfg.Dir}, cfg.Args, env)); err != nil {
		return nil, err
	}
	t := &Tree{rules: cfg.Spare, done: make(chan struct{}), gone: make(chan struct{}), left: make(chan struct{})}
	if t.io, err = openStdio(&cfg); err != nil {
		return nil, err
	}
	if t.job, err = newJob(); err != nil {
		t.io.close()
		return nil, fmt.Errorf("%w: job object: %w", ErrStart, err)
	}
	if err := t.launch(&cfg, env); err != nil {
		t.io.close()
		t.job.close()
		return nil, err
	}
	go t.watch()
	return t, nil
}

// launch creates the leader suspended, puts it into the job and lets it run.
func (t *Tree) launch(cfg *Config, env []string) error {
	t.cmd = exec.Command(cfg.Path, cfg.Args...)
	t.cmd.Env, t.cmd.Dir = env, cfg.Dir
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = t.io.child[0], t.io.child[1], t.io.child[2]
	flags := uint32(windows.CREATE_SUSPENDED)
	if !cfg.Foreground {
		flags |= windows.CREATE_NEW_PROCESS_GROUP
	}
	t.cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: flags}
	if err := t.cmd.Start(); err != nil {
		return startError(cfg, err)
	}
	t.io.closeChild()
	p := Process{PID: t.cmd.Process.Pid}
	times(&p)
	t.leader = p.ID()
	err := t.cmd.Process.WithHandle(func(h uintptr) {
		_ = windows.AssignProcessToJobObject(t.job.handle, windows.Handle(h))
	})
	if in, perr := t.job.pids(); err == nil && (perr != nil || !in[p.PID]) {
		err = errors.New("the process could not be put into its job object")
	}
	if err == nil {
		err = resume(p.PID)
	}
	if err != nil {
		_ = t.cmd.Process.Kill()
		_ = t.cmd.Wait()
		return fmt.Errorf("%w: %q: %w", ErrStart, cfg.Path, err)
	}
	return nil
}

func startError(cfg *Config, err error) error {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %q; install it or give its full path: %w", ErrNotFound, cfg.Path, err)
	case errors.Is(err, windows.ERROR_BAD_EXE_FORMAT), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %q: %w", ErrNotExecutable, cfg.Path, err)
	}
	return fmt.Errorf("%w: %q: %w", ErrStart, cfg.Path, err)
}

// watch waits for the leader, then for the job to be empty. It is the only
// goroutine of a tree, and ends with it or with Close.
func (t *Tree) watch() {
	_ = t.cmd.Wait()
	t.exit = exitOf(t.cmd.ProcessState)
	close(t.done)
	for pause := lookPause; ; pause = min(2*pause, time.Second) {
		if t.active() == 0 {
			t.release(false)
			return
		}
		select {
		case <-t.left:
			return
		case <-time.After(pause):
		}
	}
}

// active counts the processes in the job.
func (t *Tree) active() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut {
		return 0
	}
	a, err := t.job.accounting()
	if err != nil {
		return 1 // not known to be empty
	}
	t.cpu = max(t.cpu, time.Duration(a.TotalUser+a.TotalKernel)*100)
	return a.Active
}

// release declares the tree over and closes the job, which kills whoever is
// inside unless they are to be left.
func (t *Tree) release(leave bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released {
		return
	}
	t.released, t.shut = true, true
	if leave {
		_ = t.job.killOnClose(false)
	}
	t.job.close()
	close(t.gone)
}

// members returns the processes of the tree, the spared ones marked.
func (t *Tree) members() ([]Process, *view, error) {
	t.mu.Lock()
	if t.shut {
		t.mu.Unlock()
		return nil, newView(nil), nil
	}
	pids, err := t.job.pids()
	t.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	v, err := table(pids)
	if err != nil {
		return nil, nil, err
	}
	members := v.pick(pids)
	rules := t.rulesFor(members)
	spareAll(v, members, t.leader, func(p *Process) string {
		line := sync.OnceValue(func() string { return cmdline(p.PID, cmdlineMax) })
		for _, r := range rules {
			if r.matches(ruleName(p.Comm), line) {
				return r.why()
			}
		}
		return ""
	})
	return members, v, nil
}

// rulesFor leaves out the rules that match the leader.
func (t *Tree) rulesFor(members []Process) (rules []SpareRule) {
	for _, r := range t.rules {
		off := false
		for _, p := range members {
			off = off || p.ID() == t.leader && r.matches(ruleName(p.Comm), func() string { return cmdline(p.PID, cmdlineMax) })
		}
		if !off {
			rules = append(rules, r)
		}
	}
	return rules
}

func (t *Tree) look(sel Selection) (selected, spared []Process, err error) {
	members, v, err := t.members()
	if err != nil {
		return nil, nil, err
	}
	selected, spared = split(v, members, t.leader, sel)
	return selected, spared, nil
}

func (t *Tree) over() bool {
	select {
	case <-t.gone:
		return true
	default:
		return false
	}
}

// PID returns the leader's process id.
func (t *Tree) PID() int { return t.leader.PID }

// StartTime returns when the leader was born, on the clock of Selection.
func (t *Tree) StartTime() Stamp { return t.leader.Born }

// GuardianPID returns 0: there is no guardian process here.
func (t *Tree) GuardianPID() int { return 0 }

// Cgroup returns "": there are no cgroups here.
func (t *Tree) Cgroup() string { return "" }

// Stdin returns the writing end of the leader's input, nil when Config.Stdin
// was given. Closing it is the caller's choice; Terminate and Close do it too.
func (t *Tree) Stdin() *os.File { return t.io.mine[0] }

// Stdout returns the reading end of the leader's output, nil when
// Config.Stdout was given. The caller reads and closes it. It has no read
// deadline here: close it to end a Read that a spared process holds up.
func (t *Tree) Stdout() *os.File { return t.io.mine[1] }

// Stderr is to the leader's error output what Stdout is to its output.
func (t *Tree) Stderr() *os.File { return t.io.mine[2] }

// Done is closed when the leader has ended.
func (t *Tree) Done() <-chan struct{} { return t.done }

// Exit says how the leader ended; it waits for Done.
func (t *Tree) Exit() Exit {
	<-t.done
	return t.exit
}

// Gone is closed when no process of the tree is left, or when Close has left
// only spared ones.
func (t *Tree) Gone() <-chan struct{} { return t.gone }

// Err returns nil: a job object cannot be lost.
func (t *Tree) Err() error { return nil }

// Signal sends the leader's group CTRL_BREAK for SIGINT and SIGTERM, and ends
// the leader for SIGKILL. ErrExited when it has ended; other signals do not
// exist here (errors.ErrUnsupported).
func (t *Tree) Signal(sig syscall.Signal) error {
	select {
	case <-t.done:
		return fmt.Errorf("signal %v to %v: %w", sig, t.leader, ErrExited)
	default:
	}
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM:
		return breakGroup(t.leader)
	case syscall.SIGKILL:
		return terminateID(t.leader)
	}
	return fmt.Errorf("signal %v to %v: %w", sig, t.leader, errors.ErrUnsupported)
}

// SignalGroup is Signal here.
func (t *Tree) SignalGroup(sig syscall.Signal) error { return t.Signal(sig) }

// List returns the live processes of the tree, the leader included; the
// spared have a reason in Spare.
func (t *Tree) List() ([]Process, error) {
	members, _, err := t.members()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return described(members), nil
}

func described(list []Process) []Process {
	for i := range list {
		describe(&list[i])
	}
	return list
}

// Plan says what Terminate or Kill would do at this moment. Nothing is done.
func (t *Tree) Plan(sel Selection) (would, spared []Process) {
	would, spared, err := t.look(sel)
	if err != nil {
		return nil, nil
	}
	return described(would), described(spared)
}

// CPU returns the processor time that the tree has used, that of processes
// which have ended included. It never goes back.
func (t *Tree) CPU() time.Duration {
	t.active()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cpu
}

// HeldDaemon is not available on this system and returns nil, which is no
// proof that there is no connection.
func (t *Tree) HeldDaemon() []string { return nil }

// RemoteConns is not available on this system and returns nil, which is no
// proof that there is no connection.
func (t *Tree) RemoteConns() []string { return nil }

func (t *Tree) closeStdin() {
	if f := t.io.mine[0]; f != nil {
		_ = f.Close()
	}
}

// Terminate asks the leader, if it is selected, to end: stdin is closed and
// its console group gets CTRL_BREAK. There is nothing softer than a kill for
// the others, so half changes nothing. It waits until no selected process is
// left, or ctx is done: the error is then ErrSurvivors with the cause.
func (t *Tree) Terminate(ctx context.Context, sel Selection, _ time.Duration) (Report, error) {
	var r Report
	told := false
	return t.until(ctx, sel, &r, func(selected []Process) {
		for _, p := range selected {
			if p.ID() == t.leader && !told {
				told = true
				describe(&p)
				t.closeStdin()
				if breakGroup(t.leader) == nil {
					r.Signalled, r.Means = appendOnce(r.Signalled, p), MeansSignal
				}
			}
		}
	})
}

// Kill ends the selected processes by force and waits until none is left, at
// most until ctx is done (10 s without a deadline).
func (t *Tree) Kill(ctx context.Context, sel Selection) (Report, error) {
	ctx, cancel := withKillLimit(ctx)
	defer cancel()
	var r Report
	return t.until(ctx, sel, &r, func(selected []Process) {
		for _, p := range described(selected) {
			r.Killed = appendOnce(r.Killed, p)
		}
		r.Means = MeansJob
		if _, spared, err := t.look(sel); sel.everything() && len(spared) == 0 && err == nil {
			t.mu.Lock()
			if !t.shut {
				_ = windows.TerminateJobObject(t.job.handle, 1)
			}
			t.mu.Unlock()
			return
		}
		for _, p := range selected {
			_ = terminateID(p.ID())
		}
	})
}

// until applies step to the selected processes until there are none.
func (t *Tree) until(ctx context.Context, sel Selection, r *Report, step func([]Process)) (Report, error) {
	for !t.over() {
		selected, spared, err := t.look(sel)
		if err == nil && len(selected) == 0 {
			r.Spared = described(spared)
			break
		}
		if err == nil && ctx.Err() == nil {
			step(selected)
		}
		select {
		case <-ctx.Done():
			r.Survivors, r.Spared = described(selected), described(spared)
			return *r, survivorsError(ctx, *r, err)
		case <-t.gone:
		case <-time.After(lookPause):
		}
	}
	r.Gone = true
	return *r, nil
}

// Close is Belay's own end of the tree: stdin closed, CTRL_BREAK, all killed
// after half a second, the job closed. It may be called many times and by
// many: the first does the work, on limits of its own, and all get its report;
// ctx bounds only the caller's waiting.
func (t *Tree) Close(ctx context.Context) (Report, error) {
	t.mu.Lock()
	first := t.closing == nil
	if first {
		t.closing = make(chan struct{})
	}
	closing := t.closing
	t.mu.Unlock()
	if first {
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
	t.closeStdin()
	soft, cancel := context.WithTimeoutCause(ctx, endGrace, ErrClosed)
	r, _ := t.Terminate(soft, Selection{}, 0)
	cancel()
	if !r.Gone {
		hard, cancel := context.WithTimeoutCause(ctx, closeKill, fmt.Errorf("gave up after %v", closeKill))
		k, err := t.Kill(hard, Selection{})
		cancel()
		k.Signalled = r.Signalled
		r, t.closeErr = k, err
	}
	t.report = r
	t.release(len(r.Spared) > 0)
	close(t.left)
}
