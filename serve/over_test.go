package serve

import (
	"context"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// TestSharedStopped: an operator's Stop of the session that modern callers share
// ends what is in it. The next call gets a fresh one at once, while the old one's
// process is still being ended.
func TestSharedStopped(t *testing.T) {
	r := newRig(t, nil)
	r.apply(r.fake("tools", "-era", "modern", "-deaf-term", "-stay"))
	r.works(true, "")
	list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindSession}})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	_, err = r.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{list[0].ID}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test", Reason: "enough"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if a := r.must(r.modern("tools", "echo", `{"text":"fine"}`)); a.status != 200 || !strings.Contains(a.body, `"result"`) {
			t.Errorf("%+v", a)
		}
	}
}
