package belay

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// DESIGN 11, 4: exit code 0 on confirmed, or acknowledged with nothing of the
// call seen alive.
func TestReceiptOK(t *testing.T) {
	alive := []Process{{PID: 1}}
	for _, c := range []struct {
		receipt Receipt
		want    bool
	}{
		{Receipt{Verdict: Confirmed}, true},
		{Receipt{Verdict: Acknowledged}, true},
		{Receipt{Verdict: Acknowledged, Survivors: alive}, false},
		{Receipt{Verdict: Acknowledged, StillActive: true}, false},
		{Receipt{Verdict: Signalled}, false},
		{Receipt{Verdict: Unreachable}, false},
		{Receipt{}, false},
	} {
		if got := c.receipt.OK(); got != c.want {
			t.Errorf("%+v: OK is %t", c.receipt, got)
		}
	}
}

func TestTookIsZeroUntilTheVerdictIsFinal(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Stopper: teller{&script{}}})
		r.Cancel(byUser())
		time.Sleep(time.Second)
		if d := r.Receipt().Took(); d != 0 {
			t.Errorf("took %s", d)
		}
	})
}

// anyEvidence draws what a backend or an observer can come with.
func anyEvidence(t *rapid.T) Evidence {
	e := Evidence{
		Kind: rapid.SampledFrom([]EvidenceKind{
			SeenNotStarted, SeenProcessGone, SeenHandlerReturned, SeenInterrupted, SeenHookGone, SeenResult,
			SeenErrorReply, SeenTaskCancelled, SeenStillActive, SeenSurvivors, "something else",
		}).Draw(t, "kind"),
		Scope: rapid.SampledFrom([]Scope{"", ScopeHandler, ScopeLocalTree, ScopeRemote, ScopeHook}).Draw(t, "scope"),
		Open:  rapid.Bool().Draw(t, "open"),
	}
	if rapid.Bool().Draw(t, "survivors") {
		e.Survivors = []Process{{PID: rapid.IntRange(1, 3).Draw(t, "pid")}}
	}
	if rapid.Bool().Draw(t, "more") {
		e.Spared, e.Remote = []Process{{PID: rapid.IntRange(4, 6).Draw(t, "spared")}}, []string{"10.0.0.1:443"}
	}
	return e
}

// Whatever is seen, in whatever order, before and after the ladder's end: the
// verdict never falls, it is confirmed only on Belay's own evidence within its
// scope, and a final receipt stays final.
func TestVerdictNeverFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, verdictNeverFalls) })
}

func verdictNeverFalls(t *rapid.T) {
	tree := NewTree(Options{})
	r, err := tree.Register(Spec{Kind: KindCall, Name: "call", Stopper: killer{teller{&script{}}}})
	if err != nil {
		t.Fatal(err)
	}
	r.Cancel(byUser())
	proof, before := false, r.Receipt()
	for range rapid.IntRange(1, 30).Draw(t, "pieces") {
		time.Sleep(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
		e := anyEvidence(t)
		r.Observe(e)
		switch e.Kind {
		case SeenNotStarted:
			proof = true
		case SeenProcessGone, SeenHandlerReturned, SeenInterrupted, SeenHookGone:
			proof = proof || e.Scope != ScopeRemote && len(e.Survivors) == 0
		}
		after := r.Receipt()
		if rank(after.Verdict) < rank(before.Verdict) {
			t.Fatalf("%s fell to %s", before.Verdict, after.Verdict)
		}
		if (after.Verdict == Confirmed) != proof {
			t.Fatalf("verdict %s, with proof: %t", after.Verdict, proof)
		}
		if before.Final && !after.Final || before.Work == Stopped && after.Work != Stopped {
			t.Fatalf("%s, final %t became %s, final %t", before.Work, before.Final, after.Work, after.Final)
		}
		if len(after.Steps) < len(before.Steps) || len(after.Steps) > maxSteps {
			t.Fatalf("%d steps became %d", len(before.Steps), len(after.Steps))
		}
		before = after
	}
	if err := tree.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
