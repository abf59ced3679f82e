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
	"syscall"
	"time"
)

// startLimit bounds the guardian's answer to an order.
const startLimit = 30 * time.Second

// subreaperOnce: P inherits the orphans of guardians that die.
var subreaperOnce sync.Once

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
	marker, err := markerOf(&cfg)
	if err != nil {
		return nil, err
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
			cg.bound(cfg.Memory)
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
		err = forked.start(t.cmd)
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
	forked.wait(t.cmd)
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
