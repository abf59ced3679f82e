package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a registry over a tree.
type rig struct {
	*testing.T
	tree *belay.Tree
	reg  *Registry
}

func newRig(t *testing.T, o Options) *rig {
	tree := belay.NewTree(belay.Options{})
	reg := New(tree, o)
	t.Cleanup(func() {
		over, end := context.WithCancel(context.Background())
		end()
		_ = tree.Close(over)
		reg.Close()
		reg.Close() // again
	})
	return &rig{t, tree, reg}
}

// bubble runs a test in virtual time; what it started has ended at its end.
func bubble(t *testing.T, o Options, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newRig(t, o)) })
}

func (r *rig) register(s Spec, ttl time.Duration) State {
	r.Helper()
	if s.Kind == "" {
		s.Kind = belay.KindTurn
	}
	if s.Name == "" {
		s.Name = "turn"
	}
	st, err := r.reg.Register("ann", s, ttl)
	if err != nil {
		r.Fatal(err)
	}
	return st
}

func (r *rig) stop(id belay.RunID) {
	r.Helper()
	got, err := r.tree.Cancel(r.Context(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{id}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, Reason: "enough"},
	})
	if err != nil || len(got) == 0 {
		r.Fatalf("%v, %v", got, err)
	}
}

func (r *rig) detail(id belay.RunID) belay.Detail {
	r.Helper()
	d, err := r.tree.Get(r.Context(), id)
	if err != nil {
		r.Fatal(err)
	}
	return d
}

func told(d belay.Detail) (step belay.Step) {
	for _, s := range d.Receipt.Steps {
		if s.Step == belay.StepTold {
			step = s
		}
	}
	return step
}
