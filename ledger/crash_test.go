package ledger

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/belayhq/belay"
)

const crashReceipts = 1000

// child is the process that is killed: it journals ten runs, then commits
// receipts from several goroutines and prints each one's id when, and only when,
// Commit has returned.
func child(path string) {
	l, err := Open(path, Options{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var out sync.Mutex
	say := func(word string, id belay.RunID) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(word, id)
	}
	for range 10 {
		d := inFlight("in flight", "ann")
		if l.Commit(context.Background(), d) == nil {
			say("open", d.ID)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range crashReceipts / 8 {
				d := cancelled("call", "ann", "bob", strings.Repeat("because ", 40))
				if l.Commit(context.Background(), d) == nil {
					say("receipt", d.ID)
				}
			}
		})
	}
	wg.Wait()
	say("end", belay.RunID{})
	select {} // until killed
}

// TestKilled: SIGKILL in the middle of 1,000 receipts. None that was acknowledged
// is missing or torn, runs in flight are lost, the file is sound. (Issue: crash
// test; DESIGN 12: acknowledged receipt.)
func TestKilled(t *testing.T) {
	for _, after := range []int{1, 137, 500, crashReceipts - 50} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			path := at(t)
			opened, acknowledged := killAfter(t, path, after)
			if len(acknowledged) < after || len(opened) != 10 {
				t.Fatalf("the child got as far as %d receipts and %d runs", len(acknowledged), len(opened))
			}
			l := open(t, path, Options{})
			must(t, l.Check(t.Context()))
			for _, id := range acknowledged {
				r, err := l.Get(t.Context(), id)
				switch {
				case err != nil:
					t.Errorf("acknowledged, but: %v", err)
				case r.Receipt == nil || !r.Receipt.Final || r.Receipt.Run != id || len(r.Receipt.Steps) != 3 || r.Outcome != belay.Cancelled:
					t.Errorf("torn: %+v", r)
				}
			}
			for _, id := range opened {
				if r, err := l.Get(t.Context(), id); err != nil || r.Outcome != belay.Lost || r.Note != noteDied {
					t.Errorf("in flight: %+v, %v", r.Info, err)
				}
			}
			t.Logf("%d receipts acknowledged", len(acknowledged))
		})
	}
}

// killAfter runs the child, kills it when it has said so many receipts, and
// returns what it had said.
func killAfter(t *testing.T, path string, after int) (opened, acknowledged []belay.RunID) {
	t.Helper()
	return killAfterSeen(t, path, after, func(belay.RunID) {})
}

// killAfterSeen is killAfter with something to do for each receipt.
func killAfterSeen(t *testing.T, path string, after int, seen func(belay.RunID)) (opened, acknowledged []belay.RunID) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "LEDGER_TEST_CHILD="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		word, text, _ := strings.Cut(lines.Text(), " ")
		id, err := belay.ParseRunID(text)
		switch {
		case word == "open" && err == nil:
			opened = append(opened, id)
		case word == "receipt" && err == nil:
			acknowledged = append(acknowledged, id)
			seen(id)
		case word == "end":
		default:
			t.Fatalf("the child said %q", lines.Text())
		}
		if len(acknowledged) == after {
			must(t, cmd.Process.Signal(syscall.SIGKILL))
		}
	}
	_ = cmd.Wait() // killed
	return opened, acknowledged
}
