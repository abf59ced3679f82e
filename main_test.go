package belay

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// method is what a fake does at one step; nil: nothing is seen.
type method func(context.Context, *Cancellation) (*Evidence, error)

// script is a fake backend: it writes down when it was asked for what, and
// does as it is told.
type script struct {
	on   map[Means]method
	gate func(context.Context, Pressure) error

	mu    sync.Mutex
	calls []call
}

type call struct {
	step Means
	at   time.Time
}

func (s *script) do(ctx context.Context, step Means, c *Cancellation) (*Evidence, error) {
	s.mu.Lock()
	s.calls = append(s.calls, call{step, time.Now()})
	s.mu.Unlock()
	if f := s.on[step]; f != nil {
		return f(ctx, c)
	}
	return nil, nil
}

// steps is what was asked of the backend, in order.
func (s *script) steps() []Means {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Means
	for _, c := range s.calls {
		list = append(list, c.step)
	}
	return list
}

// after is how long after start the step was last asked for; -1: never.
func (s *script) after(start time.Time, step Means) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Backward(s.calls) {
		if c.step == step {
			return c.at.Sub(start)
		}
	}
	return -1
}

// The fakes differ in what they are able to do, which their types say.
type (
	teller struct{ *script } // told only
	killer struct{ teller }  // terminate and kill
	worker struct{ killer }  // interrupt, terminate and kill
	gated  struct{ killer }  // terminate and kill, behind a Gate
	deadly struct{ *script } // kill alone
	asker  struct{ *script } // terminate alone
	plans  struct{ killer }  // has a Planner
)

func (s teller) Tell(ctx context.Context, c *Cancellation) (*Evidence, error) {
	return s.do(ctx, StepTold, c)
}

func (s killer) Terminate(ctx context.Context, c *Cancellation) (*Evidence, error) {
	return s.do(ctx, StepTerminate, c)
}

func (s killer) Kill(ctx context.Context, c *Cancellation) (*Evidence, error) {
	return s.do(ctx, StepKill, c)
}

func (s worker) Interrupt(ctx context.Context, c *Cancellation) (*Evidence, error) {
	return s.do(ctx, StepInterrupt, c)
}

func (s gated) MayForce(ctx context.Context, p Pressure) error { return s.gate(ctx, p) }

func (s deadly) Tell(ctx context.Context, c *Cancellation) (*Evidence, error) {
	return s.do(ctx, StepTold, c)
}

func (s deadly) Kill(ctx context.Context, c *Cancellation) (*Evidence, error) {
	return s.do(ctx, StepKill, c)
}

func (s asker) Tell(ctx context.Context, c *Cancellation) (*Evidence, error) {
	return s.do(ctx, StepTold, c)
}

func (s asker) Terminate(ctx context.Context, c *Cancellation) (*Evidence, error) {
	return s.do(ctx, StepTerminate, c)
}

func (s plans) Plan(context.Context) Plan { return Plan{Tell: "the fake", Force: "at once"} }

// saw is a method that brings evidence at once.
func saw(e Evidence) method {
	return func(context.Context, *Cancellation) (*Evidence, error) { return &e, nil }
}

// blocks is a method that returns when its context ends.
func blocks(ctx context.Context, _ *Cancellation) (*Evidence, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

var (
	gone     = Evidence{Kind: SeenProcessGone, Scope: ScopeLocalTree}
	returned = Evidence{Kind: SeenHandlerReturned, Scope: ScopeHandler}
)

// byUser is a fresh Stop by the run's own caller.
func byUser() Cancellation { return Cancellation{Stop: NewStopID(), Cause: CauseUser, Via: "test"} }

// press is a person's Stop of these runs.
func press(t *testing.T, tree *Tree, runs ...*Run) []CancelResult {
	t.Helper()
	return ask(t, tree, CancelRequest{Escalate: true}, runs...)
}

func ask(t *testing.T, tree *Tree, req CancelRequest, runs ...*Run) []CancelResult {
	t.Helper()
	for _, r := range runs {
		req.Filter.IDs = append(req.Filter.IDs, r.ID())
	}
	if req.Cancellation.Cause == "" {
		req.Cancellation = byUser()
	}
	results, err := tree.Cancel(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// register makes a call that nothing prevents.
func register(t *testing.T, tree *Tree, spec Spec) *Run {
	t.Helper()
	if spec.Kind == "" {
		spec.Kind = KindCall
	}
	if spec.Name == "" {
		spec.Name = "call"
	}
	r, err := tree.Register(spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// bubble runs a test in virtual time with a tree of its own, and afterwards
// closes the tree and looks whether anything is left in it.
func bubble(t *testing.T, o Options, f func(*testing.T, *Tree)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tree := NewTree(o)
		f(t, tree)
		over, end := context.WithCancel(t.Context())
		end()
		_ = tree.Close(over) // what is left is not what the test is about
		checkEmpty(t, tree)
	})
}

// checkEmpty fails if a closed tree holds on to anything but remembered runs.
func checkEmpty(t testing.TB, tree *Tree) {
	t.Helper()
	tree.mu.Lock()
	defer tree.mu.Unlock()
	if tree.inFlight != 0 || len(tree.runs) != tree.kept.len {
		t.Errorf("after Close %d runs in flight, %d known, %d remembered", tree.inFlight, len(tree.runs), tree.kept.len)
	}
	for _, r := range tree.runs {
		if r.clock != nil || r.done != nil || r.stop != nil && r.stop.alarm != nil {
			t.Errorf("run %s has a timer or a waiter after Close", r.spec.Name)
		}
		if r.stop != nil && r.stop.ctx.Err() == nil {
			t.Errorf("the context of the stopper of %s is alive after Close", r.spec.Name)
		}
	}
}

// wait returns the final receipt.
func wait(t *testing.T, r *Run) *Receipt {
	t.Helper()
	receipt, err := r.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// timeline is the steps of a receipt.
func timeline(r *Receipt) []Means {
	var list []Means
	for _, s := range r.Steps {
		list = append(list, s.Step)
	}
	return list
}

// wantSteps compares two lists of steps.
func wantSteps(t *testing.T, what string, got []Means, want ...Means) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
