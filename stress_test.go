package belay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stress is a tree that many goroutines use at once, each in its own way.
type stress struct {
	tree    *Tree
	mu      sync.Mutex
	runs    []*Run
	settled sync.Map // *Run -> *atomic.Int32
}

// Anything with a mutex gets a race stress: 32 goroutines do whatever they can
// think of; afterwards each caller was settled exactly once and nothing is left.
func TestStressLeavesNothingBehind(t *testing.T) {
	const users, steps = 32, 250
	s := &stress{tree: NewTree(Options{KeepRuns: 50})}
	watching, end := context.WithCancel(t.Context())
	var watchers, wg sync.WaitGroup
	for range 3 {
		seq := s.tree.Watch(watching, Filter{})
		watchers.Go(func() {
			for range seq {
			}
		})
	}
	for range users {
		wg.Go(func() {
			for range steps {
				s.step(t)
			}
		})
	}
	wg.Wait()
	if err := s.tree.Close(t.Context()); err != nil {
		t.Error(err)
	}
	end()
	watchers.Wait()
	checkEmpty(t, s.tree)
	s.tree.mu.Lock()
	if n := len(s.tree.watchers); n != 0 {
		t.Errorf("%d watchers are left", n)
	}
	s.tree.mu.Unlock()
	for _, r := range s.runs {
		n, _ := s.settled.Load(r)
		if got := n.(*atomic.Int32).Load(); got != 1 {
			t.Errorf("a caller was settled %d times", got)
		}
		s.tree.mu.Lock()
		if r.parent != nil && r.spentLocked() {
			t.Error("a run with which a Stop has nothing to do is linked")
		}
		s.tree.mu.Unlock()
	}
}

// pick is one of the newer runs; nil if there is none.
func (s *stress) pick() *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs) == 0 {
		return nil
	}
	newer := s.runs[max(0, len(s.runs)-40):]
	return newer[rand.IntN(len(newer))]
}

func (s *stress) step(t *testing.T) {
	r := s.pick()
	if r == nil || rand.IntN(3) == 0 {
		s.register(t, r)
		return
	}
	switch rand.IntN(12) {
	case 0, 1:
		s.won(r, r.Finish(Completed))
	case 2:
		s.won(r, r.Settle(Completed))
	case 3:
		r.Cancel(Cancellation{Cause: CauseDisconnect})
	case 4, 5:
		req := CancelRequest{Filter: Filter{IDs: []RunID{r.ID()}}, Cancellation: byUser(), Escalate: true, Now: rand.IntN(3) == 0, DryRun: rand.IntN(5) == 0}
		if _, err := s.tree.Cancel(t.Context(), req); err != nil {
			t.Error(err)
		}
	case 6:
		r.Observe(returned)
	case 7:
		r.Observe(Evidence{Kind: SeenStillActive})
		r.Partial("half")
	case 8:
		if detach, err := s.tree.Attach(r.ID(), func(CancelRequest) { r.Info() }); err == nil {
			time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, detach)
		}
	case 9:
		if _, err := s.tree.List(t.Context(), Filter{Under: r.ID(), Ended: true}); err != nil {
			t.Error(err)
		}
		_, _ = s.tree.Get(t.Context(), r.ID())
	case 10:
		short, end := context.WithTimeout(t.Context(), time.Millisecond)
		_, _ = r.Wait(short)
		end()
	case 11:
		s.do(t, r)
	}
}

// won counts who settled the caller of a run.
func (s *stress) won(r *Run, won bool) {
	if won {
		n, _ := s.settled.LoadOrStore(r, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
	}
}

func (s *stress) register(t *testing.T, parent *Run) {
	tool := &script{on: map[Means]method{}, gate: func(_ context.Context, p Pressure) error {
		if p.Again || rand.IntN(2) == 0 {
			return nil
		}
		return quiet
	}}
	steps := []Means{StepTold, StepInterrupt, StepTerminate, StepKill}
	tool.on[steps[rand.IntN(len(steps))]] = []method{saw(gone), blocks, nil}[rand.IntN(3)]
	stoppers := []Stopper{nil, teller{tool}, killer{teller{tool}}, worker{killer{teller{tool}}}, gated{killer{teller{tool}}}}
	spec := Spec{
		Kind: KindCall, Name: "run", Queued: rand.IntN(8) == 0, Stopper: stoppers[rand.IntN(len(stoppers))],
		Ladder:   Ladder{Grace: time.Millisecond, KillAfter: 2 * time.Millisecond, ConfirmAfter: 5 * time.Millisecond},
		OnCancel: func(r *Run, _ *Cancellation) { s.won(r, true) },
	}
	if rand.IntN(4) > 0 {
		spec.Parent = parent
	}
	if rand.IntN(6) == 0 {
		spec.Deadline = time.Now().Add(time.Duration(rand.IntN(5000)) * time.Microsecond)
	}
	r, err := s.tree.Register(spec)
	if err != nil {
		if !errors.Is(err, ErrCancelled) && !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
		return
	}
	if rand.IntN(2) == 0 {
		r.Context()
	}
	if rand.IntN(2) == 0 {
		r.Start()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, r)
}

func (s *stress) do(t *testing.T, parent *Run) {
	ctx, end := context.WithTimeout(parent.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
	defer end()
	err := s.tree.Do(ctx, Spec{Kind: KindScript, Name: "script", Parent: parent}, func(ctx context.Context) error {
		if rand.IntN(2) == 0 {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	})
	if err != nil && !errors.Is(err, ErrCancelled) && !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
}
