//go:build linux

package proc

import (
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Starts that are given up kill what their guardians left, and nothing of the
// starts beside them: a guardian that has just been executed has no command line
// for a moment, and is P's child like an orphan.
func TestAbandonedStartsSpareOthers(t *testing.T) {
	const rounds, abandoned, wanted = 10, 6, 4
	gaveUp := errors.New("gave up")
	for range rounds {
		var all sync.WaitGroup
		for range abandoned {
			ctx, cancel := context.WithCancelCause(context.Background())
			clock := time.AfterFunc(time.Duration(rand.IntN(8000))*time.Microsecond, func() { cancel(gaveUp) })
			all.Go(func() {
				defer clock.Stop()
				defer cancel(gaveUp)
				tree, err := Start(ctx, Config{Path: "sleep", Args: []string{"60"}})
				if err == nil {
					killTree(t, tree)
				} else if !errors.Is(err, gaveUp) {
					t.Errorf("given up: %v", err)
				}
			})
		}
		for range wanted {
			all.Go(func() {
				tree, err := Start(context.Background(), Config{Path: "sleep", Args: []string{"60"}})
				if err != nil {
					t.Errorf("a start beside them: %v", err)
					return
				}
				select {
				case <-tree.Done():
					t.Errorf("a leader beside them ended: %+v", tree.Exit())
				default:
				}
				killTree(t, tree)
			})
		}
		all.Wait()
	}
}

// A guardian is known before anything can be read of it: here one that has no
// command line and another name, as between its exec and its first instruction.
func TestGuardianIsKnownFromItsFork(t *testing.T) {
	lost := startTree(t, Config{Path: "sleep", Args: []string{"1000"}})
	young := exec.Command("sleep", "1000")
	young.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := forked.start(young); err != nil {
		t.Fatal(err)
	}
	defer forked.wait(young)
	defer young.Process.Kill()
	if err := syscall.Kill(lost.GuardianPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, lost.Gone(), 20*time.Second, "Gone")
	if living(lost.PID()) || !living(young.Process.Pid) {
		t.Errorf("orphan alive %v, young guardian alive %v", living(lost.PID()), living(young.Process.Pid))
	}
}

// killTree ends a tree without patience.
func killTree(t *testing.T, tree *Tree) {
	t.Helper()
	if _, err := tree.Kill(context.Background(), Selection{}); err != nil {
		t.Errorf("kill: %v", err)
	}
	closeTree(t, tree)
}
