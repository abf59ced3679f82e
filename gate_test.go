package belay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// doorman is a Gate that writes down what it was asked.
type doorman struct {
	answer func(context.Context, Pressure) error

	mu    sync.Mutex
	asked []Pressure
}

func (d *doorman) may(ctx context.Context, p Pressure) error {
	d.mu.Lock()
	d.asked = append(d.asked, p)
	d.mu.Unlock()
	return d.answer(ctx, p)
}

func (d *doorman) pressures() []Pressure {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

var quiet = &Restraint{Why: "it shows no sign of life"}

// DESIGN 11, 1: force that is refused is not used; the run is kept, ps can say
// why, and a person's second Stop asks again with more behind it.
func TestGateRefusesUntilAPersonPressesAgain(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		start := time.Now()
		d := &doorman{answer: func(_ context.Context, p Pressure) error {
			if p.Again {
				return nil
			}
			return quiet
		}}
		tool := &script{gate: d.may, on: map[Means]method{StepTerminate: saw(gone)}}
		r := register(t, tree, Spec{Stopper: gated{killer{teller{tool}}}})
		press(t, tree, r)
		receipt := wait(t, r)
		if receipt.Verdict != Signalled || receipt.Work != Unconfirmed || receipt.Held != quiet.Why || receipt.OK() || receipt.Took() != 2*time.Second {
			t.Errorf("refused: %+v", receipt)
		}
		wantSteps(t, "timeline", timeline(receipt), StepRequested, StepTold, StepHeld, StepGaveUp)
		if i := r.Info(); i.Over() || i.Held != quiet.Why {
			t.Errorf("a second Stop could still use force, and it counts as over: %+v", i)
		}
		time.Sleep(time.Minute)
		wantSteps(t, "asked of the tool", tool.steps(), StepTold)

		press(t, tree, r)
		receipt = wait(t, r)
		if receipt.Verdict != Confirmed || receipt.Held != "" || receipt.Work != Stopped {
			t.Errorf("after the second Stop: %+v", receipt)
		}
		asked := d.pressures()
		if len(asked) != 2 || asked[0].Again || asked[0].Presses != 1 || asked[0].Now || !asked[0].GiveUp.Equal(start.Add(10*time.Second)) || !asked[1].Again || asked[1].Presses != 2 {
			t.Errorf("the gate was asked %+v", asked)
		}
	})
}

// DESIGN 11, 2: while the gate blocks no force is used, and the later steps
// move; what holds it back is said when evidence is overdue.
func TestGateBlocksWithoutLosingSteps(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		start := time.Now()
		idle := make(chan struct{})
		d := &doorman{answer: func(ctx context.Context, _ Pressure) error {
			select {
			case <-idle:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		tool := &script{gate: d.may}
		r := register(t, tree, Spec{Stopper: gated{killer{teller{tool}}}})
		r.Cancel(byUser())
		time.Sleep(15 * time.Second)
		if receipt := r.Receipt(); receipt.Final || receipt.Work != Stopping || receipt.Held == "" {
			t.Errorf("while it blocks: %+v", receipt)
		}
		wantSteps(t, "asked", tool.steps(), StepTold)
		close(idle)
		receipt := wait(t, r)
		if tool.after(start, StepTerminate) != 15*time.Second || tool.after(start, StepKill) != 18*time.Second || receipt.Took() != 20*time.Second || receipt.Held != "" {
			t.Errorf("terminated after %s, killed after %s, receipt %+v", tool.after(start, StepTerminate), tool.after(start, StepKill), receipt)
		}
	})
}

// A press while the gate is thinking asks it again; the first question ends.
func TestAPressWhileTheGateBlocksAsksAgain(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		start := time.Now()
		ended := make(chan error, 1)
		d := &doorman{answer: func(ctx context.Context, p Pressure) error {
			if p.Again {
				return nil
			}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return quiet
		}}
		tool := &script{gate: d.may, on: map[Means]method{StepTerminate: saw(gone)}}
		r := register(t, tree, Spec{Stopper: gated{killer{teller{tool}}}})
		r.Cancel(byUser())
		time.Sleep(3 * time.Second)
		press(t, tree, r)
		receipt := wait(t, r)
		if tool.after(start, StepTerminate) != 3*time.Second || receipt.Verdict != Confirmed {
			t.Errorf("terminated after %s, receipt %+v", tool.after(start, StepTerminate), receipt)
		}
		if err := <-ended; !errors.Is(err, ErrCancelled) {
			t.Errorf("the first question ended with %v", err)
		}
	})
}

// A press in the very moment in which the gate refuses is not lost.
func TestAPressDuringTheRefusalIsNotLost(t *testing.T) {
	for range 50 {
		bubble(t, Options{}, func(t *testing.T, tree *Tree) {
			d := &doorman{answer: func(_ context.Context, p Pressure) error {
				if p.Again {
					return nil
				}
				return quiet
			}}
			tool := &script{gate: d.may, on: map[Means]method{StepTerminate: saw(gone)}}
			r := register(t, tree, Spec{Stopper: gated{killer{teller{tool}}}})
			r.Cancel(byUser())
			time.Sleep(2 * time.Second) // the alarm goes off now too
			press(t, tree, r)
			if receipt := wait(t, r); receipt.Verdict != Confirmed {
				t.Fatalf("the press was lost: %+v", receipt)
			}
		})
	}
}

// --now reaches the gate, which may still refuse, and passes the other steps.
func TestNowAsksTheGateAndThenKills(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		d := &doorman{answer: func(_ context.Context, p Pressure) error {
			if p.Now {
				return nil
			}
			return quiet
		}}
		tool := &script{gate: d.may, on: map[Means]method{StepKill: saw(gone)}}
		r := register(t, tree, Spec{Stopper: gated{killer{teller{tool}}}})
		result := ask(t, tree, CancelRequest{Now: true, Escalate: true, Wait: -1}, r)[0]
		if result.Receipt.Verdict != Confirmed || result.Receipt.Took() != 0 {
			t.Errorf("receipt %+v", result.Receipt)
		}
		synctest.Wait()
		asked := tool.steps()
		slices.Sort(asked) // both at once: nobody waits for a tell
		wantSteps(t, "asked", asked, StepKill, StepTold)
	})
}

// Evidence while the gate thinks ends the ladder; the gate is let go.
func TestEvidenceWhileTheGateBlocks(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		d := &doorman{answer: func(ctx context.Context, _ Pressure) error { <-ctx.Done(); return nil }}
		tool := &script{gate: d.may}
		r := register(t, tree, Spec{Stopper: gated{killer{teller{tool}}}})
		r.Cancel(byUser())
		time.Sleep(3 * time.Second)
		r.Observe(Evidence{Kind: SeenResult})
		if receipt := wait(t, r); receipt.Verdict != Acknowledged || receipt.Held != "" || receipt.Work != Stopped {
			t.Errorf("receipt %+v", receipt)
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		wantSteps(t, "asked", tool.steps(), StepTold)
	})
}

// A refusal without words is a refusal all the same.
func TestAWordlessRefusalIsARefusal(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		for _, err := range []error{&Restraint{}, ErrRestrained, errors.New("broken\ngate")} {
			tool := &script{gate: func(context.Context, Pressure) error { return err }}
			r := register(t, tree, Spec{Stopper: gated{killer{teller{tool}}}})
			r.Cancel(byUser())
			if receipt := wait(t, r); receipt.Held == "" || receipt.Verdict != Signalled {
				t.Errorf("%v: %+v", err, receipt)
			}
			wantSteps(t, "asked", tool.steps(), StepTold)
		}
	})
}

// Force that no Stop can ever bring holds nothing open: the run is over when it
// is given up, and the receipt says why nothing more was done.
func TestAFutileRefusalEndsTheRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		tool := &script{gate: func(context.Context, Pressure) error {
			return &Restraint{Why: "nobody here can", Futile: true}
		}}
		r := register(t, tree, Spec{Stopper: gated{killer{teller{tool}}}})
		r.Cancel(byUser())
		receipt := wait(t, r)
		info := r.Info()
		last := receipt.Steps[len(receipt.Steps)-1]
		if receipt.Held != "" || receipt.Verdict != Signalled || !info.Over() || last.Step != StepGaveUp || last.Detail != "nobody here can" {
			t.Errorf("%+v, %+v", receipt, info)
		}
	})
}
