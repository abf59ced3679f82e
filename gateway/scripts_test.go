package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	weather "github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

// TestAT34_BusyLoop: a script that never yields is interrupted at the end of the
// grace, within 60 ms, and what its onCancel hands back is on the receipt.
func TestAT34_BusyLoop(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, nil, "busy", "quick")
	n := 0
	weather.Within(t, shortLadder.Grace+60*time.Millisecond, func() (time.Time, time.Time) {
		n++
		id, k := string(rune('0'+n)), "k"+string(rune('0'+n))
		r.ok(r.Call(id, "busy", key(k), ""))
		r.seen(k, "tick")
		at := time.Now()
		r.ok(r.Cancel(id, "enough"))
		receipt := r.receipt(id)
		if receipt.Verdict != belay.Confirmed {
			t.Errorf("verdict %s\n%s", receipt.Verdict, timeline(receipt))
		}
		if receipt.Partial != "what the loop had" {
			t.Errorf("the receipt has %q\n%s", receipt.Partial, timeline(receipt))
		}
		if r.works(k, 50*time.Millisecond) {
			t.Error("it works on after its receipt")
		}
		r.silent(id)
		return at, r.w.LastTick(k)
	})
	if m := r.ask("quick", key("q")); m.Text() != "quick q" {
		t.Errorf("the next call: %s", m.Raw)
	}
}

// TestAT36_Builtin: what no interrupt reaches is killed with its worker, within the
// ladder's times + 50 ms; nothing else is harmed, and the next call works.
func TestAT36_Builtin(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, nil, "regex", "steps", "quick")
	r.ok(r.Call("9", "steps", key("other"), ""))
	r.seen("other", "tick")
	n := 0
	weather.Within(t, shortLadder.Grace+shortLadder.KillAfter+50*time.Millisecond, func() (time.Time, time.Time) {
		n++
		id, k := string(rune('0'+n)), "k"+string(rune('0'+n))
		r.ok(r.Call(id, "regex", key(k), ""))
		r.seen(k, "tick")
		pid := r.w.Pids(k)[0]
		at := time.Now()
		r.ok(r.Cancel(id, "enough"))
		receipt := r.receipt(id)
		dead := time.Now()
		if faketool.Alive(pid) {
			t.Errorf("%d is alive after its receipt", pid)
		}
		r.wantVerdict(receipt, belay.Confirmed, belay.ScopeLocalTree)
		if !strings.Contains(timeline(receipt), "process_gone") || !strings.Contains(evidence(receipt), "1 killed") {
			t.Errorf("nothing says that it was killed\n%s\n%s", timeline(receipt), evidence(receipt))
		}
		return at, dead
	})
	if !r.works("other", 5*time.Second) {
		t.Error("another call was harmed")
	}
	if m := r.ask("quick", key("q")); m.Text() != "quick q" {
		t.Errorf("the next call: %s", m.Raw)
	}
	r.ok(r.Cancel("9", ""))
	r.receipt("9")
}

func evidence(receipt *belay.Receipt) string {
	var b strings.Builder
	for _, s := range receipt.Steps {
		if s.Evidence != nil {
			b.WriteString(string(s.Evidence.Kind) + ": " + s.Evidence.Detail + "\n")
		}
	}
	return b.String()
}

// TestSpares: a session holds one worker ready, and one more for each that is at
// work, up to its bound; a clean call's is used again, a stopped one's never; all of
// them end with the session (AT-36).
func TestSpares(t *testing.T) {
	t.Parallel()
	r := scriptRig(t, 0, func(c *Config) { c.Spares = 2 }, "pid", "steps")
	r.spares(1)
	for i := range 3 {
		r.ask("pid", key("p"+string(rune('0'+i))))
	}
	first := r.w.Pids("p0")[0]
	r.spares(2) // the one that worked, and the one that was started beside it
	r.start2("1", "a")
	r.start2("2", "b")
	r.spares(2)
	a, b := r.w.Pids("a")[0], r.w.Pids("b")[0]
	if a == b {
		t.Error("two calls share a process")
	}
	if a != first && b != first {
		t.Logf("neither of %d, %d is the first, %d", a, b, first)
	}
	r.ok(r.Cancel("1", ""))
	r.wantConfirmed("1")
	r.until("the stopped call's worker is gone", 10*time.Second, func() bool { return !faketool.Alive(a) })
	for range 6 {
		r.ask("pid", key("after"))
	}
	for _, pid := range r.w.Pids("after") {
		if pid == a {
			t.Error("the worker of a stopped call was used again")
		}
	}
	r.ok(r.Cancel("2", ""))
	r.wantConfirmed("2")
	pids := r.w.Pids("server")
	r.close()
	if left := faketool.WaitDead(pids, time.Second); len(left) > 0 {
		t.Errorf("the session is over, and %v are alive", left)
	}
}

func (r *rig) start2(id, k string) {
	r.t.Helper()
	r.ok(r.Call(id, "steps", key(k), ""))
	r.seen(k, "tick")
}

func (r *rig) wantConfirmed(id string) *belay.Receipt {
	r.t.Helper()
	receipt := r.receipt(id)
	if receipt.Verdict != belay.Confirmed && receipt.Verdict != belay.Acknowledged {
		r.t.Errorf("verdict %s\n%s", receipt.Verdict, timeline(receipt))
	}
	return receipt
}
