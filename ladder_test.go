package belay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The default times (DESIGN 12): told at 0, terminated at 2 s, killed at 5 s,
// given up at 10 s.
func TestLadderTimes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		tool := &script{on: map[Means]method{StepKill: saw(gone)}}
		r := register(t, tree, Spec{Name: "deaf", Stopper: killer{teller{tool}}})
		start := time.Now()
		r.Cancel(byUser())
		if got := r.Info().Outcome; got != Cancelled {
			t.Fatalf("outcome %s right after the Stop, want cancelled", got)
		}
		receipt := wait(t, r)
		for step, want := range map[Means]time.Duration{StepTold: 0, StepTerminate: 2 * time.Second, StepKill: 5 * time.Second} {
			if got := tool.after(start, step); got != want {
				t.Errorf("%s at %s, want %s", step, got, want)
			}
		}
		if receipt.Verdict != Confirmed || receipt.Scope != ScopeLocalTree || receipt.Work != Stopped || !receipt.Final || receipt.Took() != 5*time.Second {
			t.Errorf("receipt %+v, want confirmed, stopped, final after 5 s", receipt)
		}
		wantSteps(t, "timeline", timeline(receipt), StepRequested, StepTold, StepTerminate, StepKill, StepEvidence)
	})
}

// Each kind of stopper climbs what it has, and gives up at confirm_after.
func TestLadderOfEachKindOfStopper(t *testing.T) {
	const s = time.Second
	ms := time.Millisecond
	type times map[Means]time.Duration
	for name, c := range map[string]struct {
		stopper func(*script) Stopper
		ladder  Ladder
		want    times
		giveUp  time.Duration
		verdict Verdict
	}{
		"without any":          {func(*script) Stopper { return nil }, Ladder{}, times{}, 10 * s, Unreachable},
		"told only":            {func(s *script) Stopper { return teller{s} }, Ladder{}, times{StepTold: 0}, 10 * s, Signalled},
		"kill alone":           {func(s *script) Stopper { return deadly{s} }, Ladder{}, times{StepTold: 0, StepKill: 2 * s}, 10 * s, Signalled},
		"terminate alone":      {func(s *script) Stopper { return asker{s} }, Ladder{}, times{StepTold: 0, StepTerminate: 2 * s}, 10 * s, Signalled},
		"all":                  {func(s *script) Stopper { return worker{killer{teller{s}}} }, Ladder{}, times{StepTold: 0, StepInterrupt: 2 * s, StepTerminate: 3500 * ms, StepKill: 5 * s}, 10 * s, Signalled},
		"quick":                {func(s *script) Stopper { return killer{teller{s}} }, Ladder{Grace: 100 * ms, KillAfter: 200 * ms, ConfirmAfter: s}, times{StepTold: 0, StepTerminate: 100 * ms, StepKill: 300 * ms}, 2300 * ms, Signalled},
		"slow to clean up":     {func(s *script) Stopper { return killer{teller{s}} }, Ladder{KillAfter: 20 * s}, times{StepTold: 0, StepTerminate: 2 * s, StepKill: 22 * s}, 24 * s, Signalled},
		"patient, told only":   {func(s *script) Stopper { return teller{s} }, Ladder{ConfirmAfter: time.Minute}, times{StepTold: 0}, time.Minute, Signalled},
		"patient, with a kill": {func(s *script) Stopper { return deadly{s} }, Ladder{ConfirmAfter: time.Minute}, times{StepTold: 0, StepKill: 2 * s}, time.Minute, Signalled},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, tree *Tree) {
				tool := &script{}
				r := register(t, tree, Spec{Stopper: c.stopper(tool), Ladder: c.ladder})
				start := time.Now()
				r.Cancel(byUser())
				receipt := wait(t, r)
				for _, step := range []Means{StepTold, StepInterrupt, StepTerminate, StepKill} {
					want, asked := c.want[step]
					if !asked {
						want = -1
					}
					if got := tool.after(start, step); got != want {
						t.Errorf("%s at %s, want %s", step, got, want)
					}
				}
				if got := receipt.Took(); got != c.giveUp || time.Since(start) != c.giveUp {
					t.Errorf("gave up after %s, want %s", got, c.giveUp)
				}
				if receipt.Verdict != c.verdict || receipt.Work != Unconfirmed || receipt.OK() || receipt.Steps[len(receipt.Steps)-1].Step != StepGaveUp {
					t.Errorf("receipt %+v", receipt)
				}
			})
		})
	}
}

// A run without a stopper is told by the end of its context, if it has one.
func TestARunWithoutStopperIsToldByItsContext(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		r.Context()
		r.Cancel(byUser())
		if receipt := r.Receipt(); receipt.Verdict != Signalled || receipt.Steps[1].Step != StepTold {
			t.Errorf("receipt %+v", receipt)
		}
		r.Observe(returned)
		if receipt := wait(t, r); receipt.Verdict != Confirmed || receipt.Scope != ScopeHandler {
			t.Errorf("receipt %+v", receipt)
		}
	})
}

// Evidence ends the ladder at once, at whichever step it comes: nothing more
// is done to the work.
func TestEvidenceEndsTheLadderAtOnceAtEachStep(t *testing.T) {
	steps := []Means{StepTold, StepInterrupt, StepTerminate, StepKill}
	at := []time.Duration{0, 2 * time.Second, 3500 * time.Millisecond, 5 * time.Second}
	for i, step := range steps {
		t.Run(string(step)+" brings it", func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, tree *Tree) {
				tool := &script{on: map[Means]method{step: saw(gone)}}
				r := register(t, tree, Spec{Stopper: worker{killer{teller{tool}}}})
				r.Cancel(byUser())
				receipt := wait(t, r)
				if receipt.Took() != at[i] || receipt.Verdict != Confirmed || receipt.Work != Stopped {
					t.Errorf("took %s, receipt %+v", receipt.Took(), receipt)
				}
				time.Sleep(time.Minute)
				wantSteps(t, "asked", tool.steps(), steps[:i+1]...)
			})
		})
		t.Run("it comes during "+string(step), func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, tree *Tree) {
				tool := &script{on: map[Means]method{step: blocks}}
				r := register(t, tree, Spec{Stopper: worker{killer{teller{tool}}}})
				r.Cancel(byUser())
				time.Sleep(at[i] + time.Second)
				r.Observe(returned)
				receipt := wait(t, r)
				if receipt.Took() != at[i]+time.Second || receipt.Verdict != Confirmed {
					t.Errorf("took %s, receipt %+v", receipt.Took(), receipt)
				}
				synctest.Wait() // the blocked method has returned: its context has ended
				time.Sleep(time.Minute)
				wantSteps(t, "asked", tool.steps(), steps[:i+1]...)
			})
		})
	}
}

// A result ends the ladder, unless it is open: then the work may go on, and so
// does the ladder (MCP-G33).
func TestOpenEvidenceRaisesTheVerdictAndTheLadderGoesOn(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		tool := &script{on: map[Means]method{StepKill: saw(gone)}}
		r := register(t, tree, Spec{Stopper: killer{teller{tool}}})
		r.Cancel(byUser())
		synctest.Wait()
		r.Observe(Evidence{Kind: SeenErrorReply, Open: true})
		if receipt := r.Receipt(); receipt.Verdict != Acknowledged || receipt.Final || receipt.Work != Stopping {
			t.Errorf("after an open reply: %+v", receipt)
		}
		if receipt := wait(t, r); receipt.Verdict != Confirmed || receipt.Took() != 5*time.Second {
			t.Errorf("at the end: %+v", receipt)
		}
		plain := register(t, tree, Spec{Stopper: killer{teller{&script{}}}})
		plain.Cancel(byUser())
		plain.Observe(Evidence{Kind: SeenResult})
		if receipt := wait(t, plain); receipt.Verdict != Acknowledged || receipt.Work != Stopped || !receipt.OK() {
			t.Errorf("after a result: %+v", receipt)
		}
	})
}

// Survivors and signs of life keep the ladder going, and the receipt honest.
func TestSurvivorsAndSignsOfLifeDoNotEndTheLadder(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		child := Process{PID: 7, Born: time.Now(), Command: "sleep"}
		r := register(t, tree, Spec{Stopper: teller{&script{}}})
		r.Cancel(byUser())
		r.Observe(Evidence{Kind: SeenStillActive})
		r.Observe(Evidence{Kind: SeenResult, Survivors: []Process{child}, Open: true})
		r.Observe(Evidence{Kind: SeenProcessGone, Scope: ScopeLocalTree, Survivors: []Process{child}})
		receipt := wait(t, r)
		if receipt.Took() != 10*time.Second || receipt.Verdict != Acknowledged || receipt.OK() || !receipt.StillActive || len(receipt.Survivors) != 1 {
			t.Errorf("receipt %+v", receipt)
		}
		r.Observe(gone)
		if receipt := r.Receipt(); receipt.Verdict != Confirmed || receipt.StillActive || len(receipt.Survivors) != 0 || !receipt.OK() {
			t.Errorf("after all are gone: %+v", receipt)
		}
	})
}

// DESIGN 11, 4: a dead relay proves nothing about the work behind it. The
// ladder has nothing left to do, and nothing is claimed.
func TestADeadRelayIsNeverConfirmed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		relay := Evidence{Kind: SeenProcessGone, Scope: ScopeRemote, Remote: []string{"10.0.0.1:443"}}
		tool := &script{on: map[Means]method{StepTerminate: saw(relay)}}
		r := register(t, tree, Spec{Stopper: killer{teller{tool}}})
		r.Cancel(byUser())
		receipt := wait(t, r)
		if receipt.Verdict != Signalled || receipt.Scope != ScopeRemote || receipt.Work != Unconfirmed || receipt.OK() || len(receipt.Remote) != 1 || receipt.Took() != 2*time.Second {
			t.Errorf("receipt %+v", receipt)
		}
		if i := r.Info(); !i.Over() {
			t.Errorf("nothing can be done any more, and yet it is not over: %+v", i)
		}
		press(t, tree, r)
		time.Sleep(time.Minute)
		wantSteps(t, "asked", tool.steps(), StepTold, StepTerminate)
	})
}

// DESIGN 11, 6: the check of a stop hook is the evidence for work elsewhere. A
// relay that died before it proves nothing and, left open, ends nothing.
func TestAStopHooksCheckConfirmsWhatARelayCannot(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		relay := Evidence{Kind: SeenProcessGone, Scope: ScopeRemote, Open: true}
		hook := Evidence{Kind: SeenHookGone, Scope: ScopeHook, Detail: "alive hook: says gone"}
		tool := &script{on: map[Means]method{StepTerminate: saw(relay), StepKill: saw(hook)}}
		r := register(t, tree, Spec{Stopper: killer{teller{tool}}})
		r.Cancel(byUser())
		r.Observe(Evidence{Kind: SeenStillActive})
		receipt := wait(t, r)
		if receipt.Verdict != Confirmed || receipt.Scope != ScopeHook || receipt.Work != Stopped || receipt.StillActive || !receipt.OK() || receipt.Took() != 5*time.Second {
			t.Errorf("receipt %+v", receipt)
		}
	})
}

// MCP-G32: evidence after the ladder gave up upgrades the receipt.
func TestLateEvidenceUpgradesAFinalReceipt(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Stopper: teller{&script{}}})
		r.Cancel(byUser())
		before := wait(t, r)
		time.Sleep(time.Minute)
		r.Observe(Evidence{Kind: SeenErrorReply, Open: true})
		if receipt := r.Receipt(); receipt.Verdict != Acknowledged || receipt.Work != Unconfirmed {
			t.Errorf("after an open reply: %+v", receipt)
		}
		r.Observe(gone)
		after := r.Receipt()
		if after.Verdict != Confirmed || after.Work != Stopped || !after.Final || after.Took() != 70*time.Second {
			t.Errorf("after the evidence: %+v", after)
		}
		if before.Verdict != Signalled || before.Work != Unconfirmed {
			t.Errorf("the earlier copy changed: %+v", before)
		}
	})
}

// A method that is still at work when the ladder gives up may bring the late
// evidence itself.
func TestAMethodMayBringLateEvidence(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		tool := &script{on: map[Means]method{StepKill: func(ctx context.Context, _ *Cancellation) (*Evidence, error) {
			select {
			case <-time.After(20 * time.Second):
				return &gone, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}}}
		r := register(t, tree, Spec{Stopper: killer{teller{tool}}})
		r.Cancel(byUser())
		if receipt := wait(t, r); receipt.Verdict != Signalled {
			t.Errorf("receipt %+v", receipt)
		}
		time.Sleep(time.Minute)
		if receipt := r.Receipt(); receipt.Verdict != Confirmed || receipt.Took() != 25*time.Second {
			t.Errorf("receipt %+v", receipt)
		}
	})
}

// A step that fails gives its time to the next one; one that blocks does not
// hold the next one up.
func TestAFailingStepGivesItsTimeToTheNext(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		start := time.Now()
		tool := &script{on: map[Means]method{
			StepInterrupt: func(context.Context, *Cancellation) (*Evidence, error) { return nil, errors.New("no\ninterpreter") },
			StepTerminate: blocks,
			StepKill:      saw(gone),
		}}
		r := register(t, tree, Spec{Stopper: worker{killer{teller{tool}}}})
		r.Cancel(byUser())
		receipt := wait(t, r)
		if got := tool.after(start, StepTerminate); got != 2*time.Second {
			t.Errorf("terminated after %s, want at once after the failure", got)
		}
		if got := tool.after(start, StepKill); got != 3500*time.Millisecond {
			t.Errorf("killed after %s", got)
		}
		if s := receipt.Steps[3]; s.Step != StepInterrupt || s.Error != "no interpreter" {
			t.Errorf("the failure is not in the timeline: %+v", receipt.Steps)
		}
	})
}

// A backend that cannot even be told is unreachable, and forced all the same.
func TestATellThatFailsIsUnreachable(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		broken := func(context.Context, *Cancellation) (*Evidence, error) { return nil, ErrUnreachable }
		r := register(t, tree, Spec{Stopper: teller{&script{on: map[Means]method{StepTold: broken}}}})
		r.Cancel(byUser())
		if receipt := wait(t, r); receipt.Verdict != Unreachable || receipt.OK() || receipt.Steps[1].Error == "" {
			t.Errorf("receipt %+v", receipt)
		}
		forced := register(t, tree, Spec{Stopper: killer{teller{&script{on: map[Means]method{StepTold: broken, StepTerminate: saw(gone)}}}}})
		forced.Cancel(byUser())
		if receipt := wait(t, forced); receipt.Verdict != Confirmed {
			t.Errorf("receipt %+v", receipt)
		}
	})
}

// DESIGN 2: a person's second Stop takes the next step at once, each time.
func TestASecondStopTakesTheNextStepAtOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		start := time.Now()
		tool := &script{}
		r := register(t, tree, Spec{Stopper: worker{killer{teller{tool}}}})
		press(t, tree, r)
		for i, step := range []Means{StepInterrupt, StepTerminate, StepKill} {
			time.Sleep(100 * time.Millisecond)
			results := press(t, tree, r)
			synctest.Wait()
			if got, want := tool.after(start, step), time.Duration(i+1)*100*time.Millisecond; got != want || !results[0].Affected {
				t.Errorf("%s after %s, want %s; result %+v", step, got, want, results[0])
			}
		}
		press(t, tree, r) // nothing is left to be taken
		receipt := wait(t, r)
		if receipt.Took() != 10*time.Second {
			t.Errorf("gave up after %s", receipt.Took())
		}
		wantSteps(t, "asked", tool.steps(), StepTold, StepInterrupt, StepTerminate, StepKill)
	})
}

// The same Stop by two ways is one Stop, whoever carries it.
func TestTheSameStopTwiceIsNotASecondStop(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		tool := &script{}
		top := register(t, tree, Spec{Name: "top"})
		r := register(t, tree, Spec{Stopper: killer{teller{tool}}, Parent: top})
		first, second := byUser(), byUser()
		for _, c := range []Cancellation{first, first, second, second, first} {
			ask(t, tree, CancelRequest{Cancellation: c, Escalate: true}, r)
			synctest.Wait()
			ask(t, tree, CancelRequest{Cancellation: c, Escalate: true}, top)
		}
		synctest.Wait()
		wantSteps(t, "asked", tool.steps(), StepTold, StepTerminate)
		wantSteps(t, "timeline", timeline(r.Receipt()), StepRequested, StepTold, StepEscalated, StepTerminate)
	})
}

// A Stop that was made before the run was stopped is no second press, however late
// it arrives: the run's caller was told of the same one, and was faster. What was
// made afterwards is, and so is force at any time.
func TestAStopThatWasOvertakenIsNotASecondStop(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		for _, c := range []struct {
			before time.Duration
			now    bool
			want   []Means
		}{
			{before: time.Millisecond, want: []Means{StepTold}},
			{before: time.Second, want: []Means{StepTold}},
			{before: time.Second + 1, want: []Means{StepTold, StepTerminate}},
			{before: 0, want: []Means{StepTold, StepTerminate}},
			{before: -time.Millisecond, want: []Means{StepTold, StepTerminate}},
			{before: time.Millisecond, now: true, want: []Means{StepTold, StepKill}},
		} {
			tool := &script{}
			r := register(t, tree, Spec{Stopper: killer{teller{tool}}})
			r.Cancel(byUser())
			synctest.Wait()
			late := byUser()
			late.At = time.Now().Add(-c.before)
			result := ask(t, tree, CancelRequest{Cancellation: late, Escalate: true, Now: c.now}, r)
			synctest.Wait()
			wantSteps(t, "asked", tool.steps(), c.want...)
			if !result[0].Affected {
				t.Errorf("%v before: the Stop is not known to have come by", c.before)
			}
		}
	})
}

// DESIGN 12: force (--now) goes straight to the kill, at the first Stop or
// later, and by whatever the stopper has that is strongest.
func TestNowGoesStraightToTheKill(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		for _, wait := range []time.Duration{-1, 0, time.Second, 3 * time.Second} {
			start := time.Now()
			tool := &script{on: map[Means]method{StepKill: saw(gone)}}
			r := register(t, tree, Spec{Stopper: worker{killer{teller{tool}}}})
			if wait >= 0 {
				r.Cancel(byUser())
				time.Sleep(wait)
			}
			ask(t, tree, CancelRequest{Now: true, Escalate: true, Wait: -1}, r)
			if got, want := tool.after(start, StepKill), max(wait, 0); got != want || tool.after(start, StepTerminate) >= 0 {
				t.Errorf("--now after %s: killed after %s, asked %v", wait, got, tool.steps())
			}
		}
		tool := &script{on: map[Means]method{StepTerminate: saw(gone)}}
		r := register(t, tree, Spec{Stopper: asker{tool}})
		ask(t, tree, CancelRequest{Now: true, Wait: -1}, r)
		if r.Receipt().Took() != 0 {
			t.Errorf("without a kill: %+v", r.Receipt())
		}
	})
}

// Where there is no force a second Stop has nothing to hasten: it is noted,
// and the evidence has the time that it was promised.
func TestASecondStopWithoutForceIsNoted(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Stopper: teller{&script{}}})
		press(t, tree, r)
		time.Sleep(time.Second)
		if result := press(t, tree, r)[0]; !result.Affected || result.Receipt.Final {
			t.Errorf("result %+v", result)
		}
		receipt := wait(t, r)
		if receipt.Took() != 10*time.Second {
			t.Errorf("gave up after %s", receipt.Took())
		}
		if result := press(t, tree, r)[0]; !result.Receipt.Final || result.Run.Work != Unconfirmed {
			t.Errorf("a press after the end: %+v", result)
		}
	})
}

// A press after the ladder gave up climbs it again; meanwhile the run is in
// flight again, and cannot be forgotten.
func TestASecondStopAfterGivingUpClimbsAgain(t *testing.T) {
	bubble(t, Options{KeepRuns: 2}, func(t *testing.T, tree *Tree) {
		tool := &script{}
		top := register(t, tree, Spec{Name: "top", Stopper: teller{&script{on: map[Means]method{StepTold: saw(returned)}}}})
		r := register(t, tree, Spec{Name: "deaf", Stopper: killer{teller{tool}}, Parent: top})
		press(t, tree, r)
		wait(t, r)
		if tree.InFlight() != 1 {
			t.Errorf("%d runs in flight after giving up, want the one above", tree.InFlight())
		}
		stop := follow(t, tree, Filter{IDs: []RunID{r.ID()}})
		press(t, tree, top) // on the run above: reaches the one that gave up
		synctest.Wait()
		if tree.InFlight() != 1 || r.Info().Work != Stopping || r.Receipt().Final {
			t.Errorf("%d in flight, run %+v", tree.InFlight(), r.Info())
		}
		if events := stop(); len(events) == 0 || events[0].Type != EventStep || events[0].Run.Work != Stopping || events[0].Receipt.Final {
			t.Errorf("who watches sees %+v", events)
		}
		for range 5 {
			register(t, tree, Spec{}).Finish(Completed)
		}
		if _, err := tree.Run(r.ID()); err != nil {
			t.Errorf("a run that is being stopped was forgotten: %v", err)
		}
		start := time.Now()
		receipt := wait(t, r)
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("gave up again after %s", d)
		}
		wantSteps(t, "asked", tool.steps(), StepTold, StepTerminate, StepKill, StepTerminate, StepKill)
		if receipt.Verdict != Signalled || receipt.Work != Unconfirmed || tree.InFlight() != 0 {
			t.Errorf("%d in flight, receipt %+v", tree.InFlight(), receipt)
		}
	})
}

// A machine that stood still (a paused guest, a suspended laptop, one that is
// overrun) between the last step and its evidence, or before the last step, does
// not make Belay give up on work whose end was about to be seen.
func TestLadderOutlastsAStandstill(t *testing.T) {
	for name, before := range map[string]Means{"before the kill": StepTerminate, "after the kill": StepKill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the giving up is two seconds after the last step, in real time: a lock is held, which no bubble sees
			tree := NewTree(Options{})
			t.Cleanup(func() { _ = tree.Close(context.Background()) })
			tool := &script{on: map[Means]method{}}
			freeze := func() {
				tree.mu.Lock() // nobody gets any further
				time.Sleep(confirmMargin + standstill + 100*time.Millisecond)
				tree.mu.Unlock()
			}
			if before == StepTerminate {
				tool.on[StepTerminate] = func(context.Context, *Cancellation) (*Evidence, error) { freeze(); return nil, nil }
			}
			tool.on[StepKill] = func(ctx context.Context, c *Cancellation) (*Evidence, error) {
				if before == StepKill {
					freeze()
				}
				time.Sleep(100 * time.Millisecond) // a process does not vanish at once
				return saw(gone)(ctx, c)
			}
			r := register(t, tree, Spec{Stopper: killer{teller{tool}}, Ladder: Ladder{Grace: 10 * time.Millisecond, KillAfter: 10 * time.Millisecond, ConfirmAfter: time.Millisecond}})
			r.Cancel(byUser())
			receipt := wait(t, r)
			if receipt.Verdict != Confirmed || receipt.Work != Stopped {
				t.Errorf("receipt %+v", receipt)
			}
			wantSteps(t, "timeline", timeline(receipt), StepRequested, StepTold, StepTerminate, StepKill, StepEvidence)
		})
	}
}
