package lease

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
)

// A run without a Stop: registered, kept alive, reported once.
func TestRegisterBeatReport(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		st := r.register(Spec{Labels: map[string]string{"trace_id": "t"}, Address: `"7"`}, 10*time.Second)
		id := st.Run.ID
		for range 10 {
			time.Sleep(8 * time.Second)
			if _, err := r.reg.Heartbeat("ann", id, 0); err != nil {
				t.Fatal(err)
			}
		}
		if d := r.detail(id); d.Outcome != belay.Pending || d.Owner != "ann" || d.Labels["trace_id"] != "t" {
			t.Errorf("%+v", d)
		}
		got, err := r.reg.Report("ann", id, Report{Outcome: belay.Completed})
		if err != nil || got.Late || got.Receipt != nil || got.Run.Outcome != belay.Completed || got.Run.Work != belay.Stopped {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := r.reg.Report("ann", id, Report{Outcome: belay.Failed}); !errors.Is(err, belay.ErrEnded) {
			t.Errorf("second report: %v", err)
		}
		if _, err := r.reg.Heartbeat("ann", id, 0); !errors.Is(err, belay.ErrEnded) {
			t.Errorf("heartbeat after the report: %v", err)
		}
	})
}

// Nobody but the owner has a lease; the others cannot tell it from an unknown run.
func TestForeign(t *testing.T) {
	r := newRig(t, Options{})
	id := r.register(Spec{}, 0).Run.ID
	for _, run := range []belay.RunID{id, belay.NewRunID()} {
		_, err := r.reg.Heartbeat("bob", run, 0)
		_, err2 := r.reg.Report("bob", run, Report{Outcome: belay.Failed})
		_, err3 := r.reg.Get("bob", run)
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, belay.ErrNotFound) || err.Error() != belay.ErrNotFound.Error() {
				t.Errorf("%v", err)
			}
		}
	}
	if d := r.detail(id); d.Outcome != belay.Pending {
		t.Errorf("%+v", d)
	}
}

// A lease that runs out: the run is lost, it is stopped with cause disconnect and
// what lies below it with cause parent; a late report raises the receipt only.
func TestLost(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		st := r.register(Spec{}, 10*time.Second)
		above, _ := r.tree.Run(st.Run.ID)
		child, err := r.tree.Register(belay.Spec{Kind: belay.KindCall, Name: "call", Parent: above})
		if err != nil {
			t.Fatal(err)
		}
		_ = child.Context()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if d := r.detail(st.Run.ID); d.Outcome != belay.Pending {
			t.Errorf("too early: %+v", d)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		d := r.detail(st.Run.ID)
		if d.Outcome != belay.Lost || d.Cancellation == nil || d.Cancellation.Cause != belay.CauseDisconnect {
			t.Fatalf("%+v", d.Info)
		}
		if c := child.Cancellation(); c == nil || c.Cause != belay.CauseParent || c.Origin != st.Run.ID {
			t.Errorf("child %+v", c)
		}
		if _, err := r.reg.Heartbeat("ann", st.Run.ID, 0); !errors.Is(err, belay.ErrEnded) {
			t.Errorf("heartbeat: %v", err)
		}
		time.Sleep(30 * time.Second)
		if d := r.detail(st.Run.ID); !d.Receipt.Final || d.Receipt.Verdict != belay.Unreachable || !strings.Contains(told(d).Error, "nobody has fetched") {
			t.Errorf("receipt %+v", d.Receipt)
		}
		got, err := r.reg.Report("ann", st.Run.ID, Report{Outcome: belay.Completed})
		if err != nil || !got.Late || got.Run.Outcome != belay.Lost || got.Receipt.Verdict != belay.Acknowledged || got.Run.Work != belay.Stopped {
			t.Errorf("late report: %+v %+v, %v", got, got.Receipt, err)
		}
	})
}

// A Stop that is fetched and answered is acknowledged, with the scope remote,
// whatever the runtime says that it saw; one that is not answered is signalled.
func TestStop(t *testing.T) {
	for _, kind := range []belay.EvidenceKind{
		"", belay.SeenNotStarted, belay.SeenHandlerReturned, belay.SeenProcessGone, belay.SeenInterrupted, belay.SeenTaskCancelled,
	} {
		bubble(t, Options{}, func(r *rig) {
			id := r.register(Spec{}, 0).Run.ID
			r.stop(id)
			synctest.Wait()
			st, err := r.reg.Heartbeat("ann", id, 0)
			if err != nil || st.Order == nil || st.Order.Step != belay.StepTold || st.Order.Reason != "enough" || st.Order.Cause != belay.CauseOperator {
				t.Fatalf("%+v, %v", st.Order, err)
			}
			synctest.Wait()
			if d := r.detail(id); d.Verdict != belay.Signalled || told(d).Error != "" {
				t.Errorf("%+v", d.Receipt)
			}
			rep := Report{Outcome: belay.Cancelled, Partial: "half"}
			if kind != "" {
				rep.Evidence = &belay.Evidence{Kind: kind, Scope: belay.ScopeHandler, Detail: "so\nit is"}
			}
			got, err := r.reg.Report("ann", id, rep)
			if err != nil || got.Late || got.Run.Outcome != belay.Cancelled || got.Run.Work != belay.Stopped {
				t.Fatalf("%s: %+v, %v", kind, got, err)
			}
			if c := got.Receipt; c.Verdict != belay.Acknowledged || c.Scope != belay.ScopeRemote || !c.OK() || c.Partial != "half" || !c.Final {
				t.Errorf("%s: %+v", kind, c)
			}
		})
	}
	bubble(t, Options{}, func(r *rig) {
		id := r.register(Spec{}, 0).Run.ID
		r.stop(id)
		synctest.Wait()
		r.reg.Delivered("bob", id, belay.StepTold) // not his
		r.reg.Delivered("ann", id, belay.StepTold)
		time.Sleep(3 * time.Second)
		if st, _ := r.reg.Get("ann", id); st.Order.Step != belay.StepTerminate {
			t.Errorf("after the grace: %+v", st.Order)
		}
		time.Sleep(20 * time.Second)
		if st, _ := r.reg.Get("ann", id); st.Order.Step != belay.StepKill {
			t.Errorf("at the end: %+v", st.Order)
		}
		if d := r.detail(id); d.Verdict != belay.Signalled || !d.Receipt.Final || d.Work != belay.Unconfirmed {
			t.Errorf("%+v", d.Receipt)
		}
		if st, err := r.reg.Heartbeat("ann", id, 0); err != nil || st.Order == nil {
			t.Errorf("a runtime that comes back is not told: %+v %v", st, err)
		}
	})
}

// The event of a step may be shown before the order is made.
func TestDeliveredEarly(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		id := r.register(Spec{}, 0).Run.ID
		r.reg.Delivered("ann", id, belay.StepTold)
		r.stop(id)
		synctest.Wait()
		if d := r.detail(id); d.Verdict != belay.Signalled {
			t.Errorf("%+v", d.Receipt)
		}
	})
}

// Work that goes on is no end: more reports follow, and the lease goes on.
func TestStillActive(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		bubble(t, Options{}, func(r *rig) {
			id := r.register(Spec{}, 30*time.Second).Run.ID
			if stopped {
				r.stop(id)
			}
			for _, e := range []belay.Evidence{
				{Kind: belay.SeenStillActive}, {Kind: belay.SeenProcessGone, Survivors: []belay.Process{{PID: 7, Command: "x\x1b[2J"}}},
			} {
				got, err := r.reg.Report("ann", id, Report{Outcome: belay.Cancelled, Evidence: &e})
				if err != nil || got.Run.Over() {
					t.Fatalf("%v %+v", err, got.Run)
				}
				if stopped && (got.Receipt.OK() || strings.ContainsRune(got.Receipt.Steps[len(got.Receipt.Steps)-1].Detail, 0x1b)) {
					t.Errorf("%+v", got.Receipt)
				}
			}
			if _, err := r.reg.Heartbeat("ann", id, 0); err != nil {
				t.Fatal(err)
			}
			got, err := r.reg.Report("ann", id, Report{Outcome: belay.Cancelled, Evidence: &belay.Evidence{Kind: belay.SeenProcessGone}})
			if err != nil || !got.Run.Over() || stopped && got.Receipt.Verdict != belay.Acknowledged {
				t.Errorf("%v %+v", err, got)
			}
		})
	}
}

// Bounds, for each owner and in total; places come back; nothing is left of what
// was refused.
func TestBounds(t *testing.T) {
	bubble(t, Options{PerOwner: 2, Total: 3}, func(r *rig) {
		first := r.register(Spec{}, 0).Run.ID
		r.register(Spec{}, MinTTL)
		if _, err := r.reg.Register("ann", Spec{Kind: belay.KindTurn, Name: "x"}, 0); !errors.Is(err, belay.ErrTooMany) {
			t.Errorf("ann's third: %v", err)
		}
		if _, err := r.reg.Register("bob", Spec{Kind: belay.KindTurn, Name: "x"}, 0); err != nil {
			t.Errorf("bob's first: %v", err)
		}
		if _, err := r.reg.Register("bob", Spec{Kind: belay.KindTurn, Name: "x"}, 0); !errors.Is(err, belay.ErrTooMany) {
			t.Errorf("the fourth: %v", err)
		}
		if n := r.tree.InFlight(); n != 3 {
			t.Errorf("%d runs", n)
		}
		if _, err := r.reg.Report("ann", first, Report{Outcome: belay.Completed}); err != nil {
			t.Fatal(err)
		}
		r.register(Spec{}, 0)
		time.Sleep(MinTTL + time.Second) // the second runs out
		r.register(Spec{}, 0)
		time.Sleep(keepEnded + 2*idle)
		r.reg.mu.Lock()
		defer r.reg.mu.Unlock()
		if len(r.reg.leases) != 0 || len(r.reg.alive) != 0 || r.reg.total != 0 {
			// All have run out, and are forgotten.
			t.Errorf("%d leases, %d owners, total %d are kept", len(r.reg.leases), len(r.reg.alive), r.reg.total)
		}
	})
}

// What cannot be a run is refused, and takes no place.
func TestBadRegistrations(t *testing.T) {
	r := newRig(t, Options{Total: 1})
	gone, _ := r.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "gone"})
	gone.Finish(belay.Completed)
	stopped, _ := r.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "stopped"})
	stopped.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	for _, tt := range []struct {
		owner string
		spec  Spec
		ttl   time.Duration
		want  error
	}{
		{"", Spec{Kind: belay.KindTurn, Name: "x"}, 0, belay.ErrBadRequest},
		{"ann", Spec{Kind: "other", Name: "x"}, 0, belay.ErrBadRequest},
		{"ann", Spec{Kind: belay.KindTurn}, 0, belay.ErrBadRequest},
		{"ann", Spec{Kind: belay.KindTurn, Name: "x"}, time.Second, belay.ErrBadRequest},
		{"ann", Spec{Kind: belay.KindTurn, Name: "x"}, 2 * time.Hour, belay.ErrBadRequest},
		{"ann", Spec{Kind: belay.KindTurn, Name: "x"}, -time.Hour, belay.ErrBadRequest},
		{"ann", Spec{Kind: belay.KindTurn, Name: "x", Webhook: "ftp://x/"}, 0, belay.ErrBadRequest},
		{"ann", Spec{Kind: belay.KindTurn, Name: "x", Parent: belay.NewRunID()}, 0, belay.ErrNotFound},
		{"ann", Spec{Kind: belay.KindTurn, Name: "x", Parent: gone.ID()}, 0, belay.ErrEnded},
		{"ann", Spec{Kind: belay.KindTurn, Name: "x", Parent: stopped.ID()}, 0, belay.ErrCancelled},
		{"ann", Spec{Kind: belay.KindTurn, Name: "x", Labels: map[string]string{"": "x"}}, 0, belay.ErrBadRequest},
	} {
		if _, err := r.reg.Register(tt.owner, tt.spec, tt.ttl); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.spec, err, tt.want)
		}
	}
	id := r.register(Spec{}, 0).Run.ID
	for _, rep := range []Report{{}, {Outcome: belay.Lost}, {Outcome: belay.Pending}, {Outcome: belay.Failed, Evidence: &belay.Evidence{Kind: "hook_gone"}}} {
		if _, err := r.reg.Report("ann", id, rep); !errors.Is(err, belay.ErrBadRequest) {
			t.Errorf("report %+v: %v", rep, err)
		}
	}
	if _, err := r.reg.Heartbeat("ann", id, time.Second); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("heartbeat: %v", err)
	}
	r.reg.Close()
	if _, err := r.reg.Register("ann", Spec{Kind: belay.KindTurn, Name: "x"}, 0); !errors.Is(err, belay.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A deadline stops the run as any other's does, and is no lost lease.
func TestDeadline(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		id := r.register(Spec{Deadline: time.Now().Add(7 * time.Second)}, 0).Run.ID
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if d := r.detail(id); d.Outcome != belay.Cancelled || d.Cancellation.Cause != belay.CauseDeadline {
			t.Errorf("%+v", d.Info)
		}
		time.Sleep(time.Minute)
		if d := r.detail(id); d.Outcome != belay.Cancelled || !d.Receipt.Final || d.Receipt.Late != 0 {
			t.Errorf("after the lease: %+v", d.Receipt)
		}
	})
}

// A heartbeat that comes right behind a Stop hears of it: a runtime that sends one
// a minute would go on for a minute otherwise. It counts as told.
func TestHeartbeatBehindStop(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	for range 200 {
		id := r.register(Spec{}, 0).Run.ID
		run, err := r.tree.Run(id)
		if err != nil {
			t.Fatal(err)
		}
		run.Cancel(belay.Cancellation{Cause: belay.CauseOperator, Reason: "enough"})
		st, err := r.reg.Heartbeat("ann", id, 0)
		if err != nil || st.Order == nil || st.Order.Run != id || st.Order.Reason != "enough" || st.Order.Step != belay.StepTold ||
			st.Order.Stop.IsZero() || st.Order.Cause != belay.CauseOperator || st.Order.At.IsZero() {
			t.Fatalf("%+v, %v", st.Order, err)
		}
		if _, err := r.reg.Report("ann", id, Report{Outcome: belay.Cancelled}); err != nil {
			t.Fatal(err)
		}
		if d := r.detail(id); d.Verdict != belay.Acknowledged {
			t.Fatalf("%+v", d)
		}
	}
}
