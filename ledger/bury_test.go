package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// TestDyingReceipts: a run that was being stopped when the process died has a
// final receipt afterwards, of what was written down and no more; one whose
// receipt was final, or that nobody had stopped, has none of the ledger's making.
func TestDyingReceipts(t *testing.T) {
	path := at(t)
	l := open(t, path, Options{})
	bare, told, sealed, running := cancelled("bare", "ann", "bob", "why"), cancelled("told", "ann", "bob", "why"), cancelled("sealed", "ann", "bob", "why"), inFlight("running", "ann")
	bare.Receipt, bare.Work, bare.Verdict, bare.Ended = nil, belay.Stopping, "", time.Time{}
	for _, d := range []*belay.Detail{&told, &sealed} {
		d.Work, d.Ended = belay.Stopping, time.Time{}
	}
	told.Verdict, told.Receipt.Verdict, told.Receipt.Final, told.Receipt.Ended, told.Receipt.Scope = belay.Signalled, belay.Signalled, false, time.Time{}, ""
	told.Receipt.Steps = told.Receipt.Steps[:2]
	must(t, l.Commit(t.Context(), bare, told, sealed, running), l.Close(t.Context()))

	for range 2 { // the second start finds nothing to do
		l = open(t, path, Options{})
		for _, c := range []struct {
			run     belay.Detail
			verdict belay.Verdict
			steps   string
		}{
			{bare, belay.Unreachable, "requested unconfirmed"},
			{told, belay.Signalled, "requested told unconfirmed"},
		} {
			r, err := l.Get(t.Context(), c.run.ID)
			if err != nil || r.Receipt == nil {
				t.Fatalf("%s: %+v, %v", c.run.Name, r, err)
			}
			var steps []string
			for _, s := range r.Receipt.Steps {
				steps = append(steps, string(s.Step))
			}
			if got := strings.Join(steps, " "); got != c.steps || !r.Receipt.Final || r.Receipt.Verdict != c.verdict || r.Verdict != c.verdict ||
				r.Receipt.Work != belay.Unconfirmed || r.Work != belay.Unconfirmed || r.Receipt.Outcome != belay.Cancelled || r.Receipt.OK() ||
				r.Receipt.Cancellation == nil || r.Receipt.Cancellation.Stop != c.run.Cancellation.Stop || r.Receipt.Run != c.run.ID {
				t.Errorf("%s: %s, %+v", c.run.Name, got, r.Receipt)
			}
		}
		if r, err := l.Get(t.Context(), sealed.ID); err != nil || r.Receipt == nil || r.Receipt.Verdict != belay.Confirmed || len(r.Receipt.Steps) != 3 {
			t.Errorf("sealed: %+v, %v", r.Receipt, err)
		}
		if r, err := l.Get(t.Context(), running.ID); err != nil || r.Receipt != nil || r.Outcome != belay.Lost {
			t.Errorf("running: %+v, %v", r, err)
		}
		if n := count(t, l, "receipts"); n != 4 { // two of told
			t.Errorf("%d revisions", n)
		}
		must(t, l.Close(t.Context()))
	}
}
