//go:build linux || darwin

package proc

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

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
		t.report, _ = t.eng.terminate(soft, Selection{}, 0, nil)
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
	k, err := t.eng.kill(hard, Selection{})
	t.closeErr = survivorsError(hard, k, err)
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
