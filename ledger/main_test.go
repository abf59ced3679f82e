package ledger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("LEDGER_TEST_CHILD"); path != "" {
		child(path)
	}
	goleak.VerifyTestMain(m)
}

func at(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "state", "ledger.db")
}

// open opens a ledger that is closed when the test ends.
func open(t testing.TB, path string, o Options) *Ledger {
	t.Helper()
	l, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ended is a run that completed.
func ended(name, owner string) belay.Detail {
	now := time.Now()
	return belay.Detail{Info: belay.Info{
		ID: belay.NewRunID(), Kind: belay.KindCall, Name: name, Owner: owner, Server: "fake",
		Outcome: belay.Completed, Work: belay.Stopped, Started: now, Ended: now.Add(time.Millisecond),
	}}
}

// inFlight is a run that has started.
func inFlight(name, owner string) belay.Detail {
	d := ended(name, owner)
	d.Outcome, d.Work, d.Ended = belay.Pending, belay.Running, time.Time{}
	return d
}

// cancelled is a run that was stopped, with its receipt.
func cancelled(name, owner, by, reason string) belay.Detail {
	d := ended(name, owner)
	c := &belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseOperator, By: by, Reason: reason, Via: "test", At: d.Started}
	d.Outcome, d.Cancellation, d.Verdict = belay.Cancelled, c, belay.Confirmed
	d.Receipt = &belay.Receipt{
		Run: d.ID, Kind: d.Kind, Name: name, Server: d.Server, Cancellation: c, Outcome: d.Outcome, Work: d.Work, Verdict: d.Verdict,
		Scope: belay.ScopeLocalTree, Final: true, Ended: d.Ended,
		Steps: []belay.Step{
			{At: c.At, Step: belay.StepRequested, Detail: c.Error()},
			{At: c.At, Step: belay.StepTold},
			{At: d.Ended, Step: belay.StepEvidence, Evidence: &belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree, At: d.Ended}},
		},
	}
	return d
}

// numbered makes n runs that are a millisecond apart, so that their order is known.
func numbered(n int, one func(i int) belay.Detail) []belay.Detail {
	list := []belay.Detail{}
	start := time.Now().Add(-time.Hour)
	for i := range n {
		d := one(i)
		d.Started = start.Add(time.Duration(i) * time.Millisecond)
		id := earliest(d.Started)
		copy(id[6:], d.ID[6:])
		d.ID = id
		if d.Receipt != nil {
			d.Receipt.Run = id
		}
		if d.Name == "" {
			d.Name = fmt.Sprint(i)
		}
		list = append(list, d)
	}
	return list
}

// until polls a condition; a test that waits in vain fails.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if ok() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("waited in vain: %s", what)
}
