package belay

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errWork = errors.New("the work failed")

// Do returns what fn returns, and the run says the same.
func TestDoReturnsWhatTheWorkReturns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		for want, outcome := range map[error]Outcome{nil: Completed, errWork: Failed} {
			var r *Run
			err := tree.Do(t.Context(), Spec{Kind: KindScript, Name: "script", Queued: true}, func(ctx context.Context) error {
				r = RunFrom(ctx)
				if i := r.Info(); i.Work != Running || i.Outcome != Pending {
					t.Errorf("during the work: %+v", i)
				}
				return want
			})
			if err != want || r.Info().Outcome != outcome || r.Info().Work != Stopped {
				t.Errorf("error %v, run %+v", err, r.Info())
			}
		}
	})
}

// A Stop ends the context of the work; its return is the evidence, and the
// error says who stopped it.
func TestDoIsStoppedByAStopAndItsReturnIsTheEvidence(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		var r *Run
		for name, result := range map[string]func(context.Context) error{
			"the cause":    context.Cause,
			"its own":      func(context.Context) error { return errWork },
			"ctx.Err()":    func(ctx context.Context) error { return ctx.Err() },
			"no error":     func(context.Context) error { return nil },
			"told late":    func(ctx context.Context) error { time.Sleep(3 * time.Second); return ctx.Err() },
			"way too late": func(ctx context.Context) error { time.Sleep(time.Hour); return ctx.Err() },
		} {
			start := time.Now()
			err := tree.Do(t.Context(), Spec{Kind: KindScript, Name: name}, func(ctx context.Context) error {
				r = RunFrom(ctx)
				go press(t, tree, r)
				<-ctx.Done()
				return result(ctx)
			})
			receipt := wait(t, r)
			if receipt.Verdict != Confirmed || receipt.Scope != ScopeHandler || receipt.Late != 0 || receipt.Took() != time.Since(start) {
				t.Errorf("%s: receipt %+v", name, receipt)
			}
			if name == "no error" {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			var c *Cancellation
			if !errors.As(err, &c) || c != r.Cancellation() || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error %v", name, err)
			}
			if name == "its own" && !errors.Is(err, errWork) {
				t.Errorf("%s: the error of the work is lost: %v", name, err)
			}
		}
	})
}

// A handler that panics or ends its goroutine is over all the same.
func TestDoSurvivesPanicAndGoexit(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		var r *Run
		catch := func(f func()) (value any) {
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { value = recover() }()
				_ = tree.Do(t.Context(), Spec{Kind: KindScript, Name: "bad"}, func(ctx context.Context) error {
					r = RunFrom(ctx)
					f()
					return nil
				})
			})
			wg.Wait()
			return value
		}
		if got := catch(func() { panic("boom") }); got != "boom" || r.Info().Outcome != Failed || r.Info().Work != Stopped {
			t.Errorf("panic %v, run %+v", got, r.Info())
		}
		catch(runtime.Goexit)
		if r.Info().Outcome != Failed || r.Info().Work != Stopped {
			t.Errorf("after Goexit: %+v", r.Info())
		}
		catch(func() { r.Cancel(byUser()); panic("boom") })
		if receipt := r.Receipt(); receipt.Verdict != Confirmed {
			t.Errorf("a panic after the Stop: %+v", receipt)
		}
		if tree.InFlight() != 0 {
			t.Errorf("%d in flight", tree.InFlight())
		}
	})
}

// The end of the surrounding context is a cancel with its own cause.
func TestDoIsStoppedByTheEndOfItsContext(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		background := context.Background()
		deadline, end1 := context.WithTimeout(background, time.Second)
		worded, end2 := context.WithTimeoutCause(background, time.Second, errWork)
		cancelled, end3 := context.WithCancel(background)
		stranger, end4 := context.WithCancelCause(background)
		theirs := Cancellation{Cause: "whim", By: "ana", Stop: NewStopID()}
		defer func() { end1(); end2(); end3(); end4(nil) }()
		time.AfterFunc(time.Second, func() { end3(); end4(&theirs) })
		for name, c := range map[string]struct {
			ctx   context.Context
			cause Cause
		}{
			"a deadline":              {deadline, CauseDeadline},
			"a deadline with a cause": {worded, CauseDeadline},
			"a cancel":                {cancelled, CauseUser},
			"a foreign cancellation":  {stranger, CauseUser},
		} {
			_ = tree.Do(c.ctx, Spec{Kind: KindScript, Name: name}, func(ctx context.Context) error {
				<-ctx.Done()
				got := CancellationOf(ctx)
				if got == nil || got.Cause != c.cause || context.Cause(ctx) != error(got) {
					t.Errorf("%s: %+v", name, got)
				}
				if name == "a foreign cancellation" && (got.By != "ana" || got.Stop != theirs.Stop) {
					t.Errorf("%s: %+v", name, got)
				}
				return ctx.Err()
			})
		}
		called := false
		err := tree.Do(cancelled, Spec{Kind: KindScript, Name: "never"}, func(context.Context) error { called = true; return nil })
		if called || !errors.Is(err, ErrCancelled) {
			t.Errorf("under a context that has ended: called %t, error %v", called, err)
		}
	})
}

// Nested runs hang below each other, each with its own cause, and a run that
// is refused does nothing.
func TestDoNestsBelowTheRunOfItsContext(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		stop := byUser()
		err := tree.Do(t.Context(), Spec{Kind: KindTurn, Name: "outer"}, func(outer context.Context) error {
			return tree.Do(outer, Spec{Kind: KindScript, Name: "inner"}, func(inner context.Context) error {
				go RunFrom(outer).Cancel(stop)
				<-inner.Done()
				<-outer.Done()
				synctest.Wait()
				above, below := RunFrom(outer).Cancellation(), CancellationOf(inner)
				if below.Cause != CauseParent || below.Origin != RunFrom(outer).ID() || below.Stop != stop.Stop || above.Cause != CauseUser {
					t.Errorf("above %+v, below %+v", above, below)
				}
				if err := tree.Do(inner, Spec{Kind: KindScript, Name: "never"}, func(context.Context) error { t.Error("called"); return nil }); !errors.Is(err, ErrCancelled) {
					t.Errorf("under a run that is cancelled: %v", err)
				}
				if err := tree.Do(context.WithoutCancel(inner), Spec{Kind: KindScript, Name: "never"}, func(context.Context) error { t.Error("called"); return nil }); !errors.Is(err, ErrCancelled) {
					t.Errorf("under a run that is cancelled: %v", err)
				}
				return inner.Err()
			})
		})
		if !errors.Is(err, ErrCancelled) {
			t.Error(err)
		}
		second := NewTree(Options{})
		_ = tree.Do(t.Context(), Spec{Kind: KindTurn, Name: "here"}, func(ctx context.Context) error {
			return second.Do(ctx, Spec{Kind: KindTurn, Name: "there"}, func(ctx context.Context) error {
				if r := RunFrom(ctx); r.tree != second || !r.Info().Parent.IsZero() {
					t.Errorf("a run of another tree: %+v", r.Info())
				}
				return nil
			})
		})
	})
}

// What the handler itself said of its run counts, and the run ends with it.
func TestDoEndsARunThatTheHandlerSettled(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		for name, say := range map[string]func(*Run){
			"settled":  func(r *Run) { r.Settle(Declined) },
			"finished": func(r *Run) { r.Finish(Declined) },
		} {
			var r *Run
			if err := tree.Do(t.Context(), Spec{Kind: KindScript, Name: name}, func(ctx context.Context) error {
				r = RunFrom(ctx)
				say(r)
				return nil
			}); err != nil {
				t.Error(err)
			}
			if i := r.Info(); i.Outcome != Declined || i.Work != Stopped || tree.InFlight() != 0 {
				t.Errorf("%s: %+v", name, i)
			}
		}
	})
}
