package belay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// fakeTool is a stopper that records when it was told and forced.
type fakeTool struct {
	told, termed, killed time.Time
	onKill               func() *Evidence
	gate                 func(context.Context, Pressure) error
}

func (f *fakeTool) Tell(context.Context, *Cancellation) (*Evidence, error) {
	f.told = time.Now()
	return nil, nil
}

func (f *fakeTool) Terminate(context.Context, *Cancellation) (*Evidence, error) {
	f.termed = time.Now()
	return nil, nil
}

func (f *fakeTool) Kill(context.Context, *Cancellation) (*Evidence, error) {
	f.killed = time.Now()
	if f.onKill != nil {
		return f.onKill(), nil
	}
	return nil, nil
}

func gone() *Evidence { return &Evidence{Kind: SeenProcessGone, Scope: ScopeLocalTree} }

// The ladder's default times: told at 0, SIGTERM at 2 s, SIGKILL at 5 s.
func TestLadderTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := NewTree(Options{})
		tool := &fakeTool{onKill: gone}
		r, err := tree.Register(Spec{Kind: KindCall, Name: "deaf", Stopper: tool})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if !r.Cancel(Cancellation{Cause: CauseUser}) {
			t.Fatal("the cancel had no effect")
		}
		if got := r.Info().Outcome; got != Cancelled {
			t.Fatalf("outcome %s right after the Stop, want cancelled", got)
		}
		receipt, err := r.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name string
			at   time.Time
			want time.Duration
		}{{"told", tool.told, 0}, {"terminate", tool.termed, 2 * time.Second}, {"kill", tool.killed, 5 * time.Second}} {
			if got := c.at.Sub(start); got != c.want {
				t.Errorf("%s at %s, want %s", c.name, got, c.want)
			}
		}
		if receipt.Verdict != Confirmed || receipt.Work != Stopped || !receipt.Final {
			t.Errorf("receipt %+v, want confirmed, stopped, final", receipt)
		}
		if err := tree.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
