package belay

import (
	"context"
	"testing"
)

// TestPause: work that waits for input is shown as waiting, goes on with Start,
// and unlike work that was never started it is told of a Stop, which proves
// nothing by itself.
func TestPause(t *testing.T) {
	tree := NewTree(Options{})
	t.Cleanup(func() { _ = tree.Close(context.Background()) })
	told := make(chan struct{})
	run, err := tree.Register(Spec{Kind: KindTask, Name: "t", Stopper: tellFunc(func() { close(told) })})
	if err != nil {
		t.Fatal(err)
	}
	if !run.Pause() || run.Info().Work != Waiting || run.Pause() {
		t.Errorf("it is %s", run.Info().Work)
	}
	if !run.Start() || run.Info().Work != Running {
		t.Errorf("it is %s", run.Info().Work)
	}
	run.Pause()
	run.Cancel(Cancellation{Cause: CauseUser})
	<-told
	if v := run.Receipt().Verdict; v == Confirmed {
		t.Errorf("the verdict is %s", v)
	}
	if run.Pause() || run.Start() {
		t.Error("a stopped run was paused or started")
	}
	run.Observe(Evidence{Kind: SeenTaskCancelled})
	if _, err := run.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
}

type tellFunc func()

func (f tellFunc) Tell(context.Context, *Cancellation) (*Evidence, error) {
	f()
	return nil, nil
}
