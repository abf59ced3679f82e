package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/admin/client"
)

// TestListReadsEveryPage: Control.List over REST is that of the tree, oldest
// first, for any filter, over more runs than a page holds.
func TestListReadsEveryPage(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	top := r.call("top", "ann", func(s *belay.Spec) { s.Kind = belay.KindSession })
	for n := range 1100 {
		run := r.call(fmt.Sprint("run", n), []string{"ann", "bob"}[n%2], func(s *belay.Spec) {
			s.Labels = map[string]string{"n": fmt.Sprint(n % 10)}
			if n%3 == 0 {
				s.Parent = top
			}
		})
		if n%5 == 0 {
			run.Finish(belay.Completed)
		}
	}
	known, err := r.tree.List(t.Context(), belay.Filter{Ended: true})
	if err != nil {
		t.Fatal(err)
	}
	c := r.as("op")
	for _, f := range []belay.Filter{
		{},
		{Ended: true},
		{Owner: "ann", Ended: true},
		{Labels: map[string]string{"n": "3"}},
		{Kinds: []belay.Kind{belay.KindSession}},
		{Under: top.ID()},
		{Under: top.ID(), Owner: "bob", Ended: true},
		{IDs: []belay.RunID{known[5].ID, known[1].ID, belay.NewRunID()}},
		{Server: "elsewhere"},
	} {
		want, err := r.tree.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.List(t.Context(), f)
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		if !slices.Equal(ids(got), ids(want)) {
			t.Errorf("%+v: %d runs, the tree has %d", f, len(got), len(want))
		}
	}
	if got, err := c.List(t.Context(), belay.Filter{Limit: 3}); err != nil || !slices.Equal(ids(got), ids(known)[:3]) && len(got) != 3 {
		t.Errorf("limited: %v %v", ids(got), err)
	}
	mine, err := r.as("ann").List(t.Context(), belay.Filter{})
	if err != nil || slices.ContainsFunc(mine, func(i belay.Info) bool { return i.Owner != "ann" }) {
		t.Errorf("ann sees %d runs, %v", len(mine), err)
	}
}

func ids(list []belay.Info) (out []belay.RunID) {
	for _, i := range list {
		out = append(out, i.ID)
	}
	slices.SortFunc(out, func(a, b belay.RunID) int { return slices.Compare(a[:], b[:]) })
	return out
}

func TestGet(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	run := r.call("one", "bob")
	d, err := r.as("op").Get(t.Context(), run.ID())
	if err != nil || d.Name != "one" {
		t.Errorf("%+v %v", d, err)
	}
	for _, c := range []struct {
		who string
		id  belay.RunID
		is  error
	}{
		{"op", belay.NewRunID(), belay.ErrNotFound},
		{"op", belay.RunID{}, belay.ErrNotFound},
		{"ann", run.ID(), belay.ErrNotFound}, // another's run is not there
		{"nothing", run.ID(), belay.ErrForbidden},
		{"wrong", run.ID(), client.ErrUnauthorized},
	} {
		if _, err := r.as(c.who).Get(t.Context(), c.id); !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.who, err, c.is)
		}
	}
}

// TestCancelWaits: a wait without an end returns when the verdict is final, also
// when the server has answered 202 before.
func TestCancelWaits(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	s := newStopper()
	run := r.call("slow", "bob", with(s))
	time.AfterFunc(1200*time.Millisecond, s.release)
	var seen []bool
	results, err := r.as("op").Stop(t.Context(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{run.ID()}},
		Cancellation: belay.Cancellation{Reason: "enough"}, Wait: -1,
	}, func(c belay.CancelResult) { seen = append(seen, c.Receipt.Final) })
	if err != nil || len(results) != 1 || !results[0].Affected {
		t.Fatalf("%+v %v", results, err)
	}
	got := results[0].Receipt
	if !got.Final || got.Verdict != belay.Confirmed || got.Cancellation.Reason != "enough" || got.Cancellation.By != "op" {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(seen, []bool{false, true}) {
		t.Errorf("heard of %v", seen)
	}
}

// TestCancelManyWaits: of many runs at once every verdict is waited for, also of
// those that an earlier Stop had taken.
func TestCancelManyWaits(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	s := newStopper()
	defer s.release()
	var runs []*belay.Run
	for n := range 100 {
		runs = append(runs, r.call(fmt.Sprint("run", n), "bob", with(s)))
	}
	runs[0].Cancel(belay.Cancellation{Cause: belay.CauseUser})
	time.AfterFunc(700*time.Millisecond, s.release)
	results, err := r.as("op").Stop(t.Context(), belay.CancelRequest{Filter: belay.Filter{Owner: "bob"}, Wait: -1}, nil)
	if err != nil || len(results) != 100 {
		t.Fatalf("%d %v", len(results), err)
	}
	for _, c := range results {
		if !c.Receipt.Final || c.Run.Work != belay.Stopped || c.Run.Verdict != belay.Confirmed {
			t.Errorf("%+v", c)
		}
	}
}

// TestCancelSaysWhatIsNotStored: a Stop whose receipt could not be written down
// is one all the same, and it is said; a wait asks until the disk has it.
func TestCancelSaysWhatIsNotStored(t *testing.T) {
	var fail atomic.Bool
	var stored atomic.Int32
	r := newRig(t, admin.Options{Commit: func(_ context.Context, runs ...belay.Detail) error {
		if fail.Load() {
			return errors.New("the disk is full")
		}
		stored.Add(int32(len(runs)))
		return nil
	}}, nil)
	c := r.as("op")
	s := newStopper()
	time.AfterFunc(700*time.Millisecond, s.release)
	stop := func(run *belay.Run) ([]belay.CancelResult, error) {
		return c.Stop(t.Context(), belay.CancelRequest{Filter: belay.Filter{IDs: []belay.RunID{run.ID()}}, Wait: -1}, nil)
	}
	if got, err := stop(r.call("slow", "bob", with(s))); err != nil || len(got) != 1 || stored.Load() == 0 {
		t.Errorf("%+v %v, %d stored", got, err, stored.Load())
	}
	fail.Store(true)
	if got, err := stop(r.call("unlucky", "bob")); !errors.Is(err, client.ErrNotStored) || len(got) != 1 || !got[0].Receipt.Final {
		t.Errorf("%+v %v", got, err)
	}
}

// TestCancelEndsWaiting: the end of the context and of the wait end the waiting
// with what is known; the Stop has been done.
func TestCancelEndsWaiting(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	s := newStopper()
	defer s.release()
	run := r.call("slow", "bob", with(s))
	req := belay.CancelRequest{Filter: belay.Filter{IDs: []belay.RunID{run.ID()}}, Wait: 700 * time.Millisecond}
	results, err := r.as("op").Stop(t.Context(), req, nil)
	if err != nil || len(results) != 1 || results[0].Receipt.Final {
		t.Errorf("after the wait: %+v %v", results, err)
	}
	gone := errors.New("the person left")
	ctx, end := context.WithCancelCause(t.Context())
	req.Wait = -1
	results, err = r.as("op").Stop(ctx, req, func(belay.CancelResult) { end(gone) })
	if !errors.Is(err, gone) || len(results) != 1 || results[0].Affected {
		t.Errorf("after leaving: %+v %v", results, err)
	}
	if run.Cancellation() == nil {
		t.Error("it was not stopped")
	}
}

// TestCancelSelects: each way of selecting stops what it should and nothing
// else; matching nothing is no error.
func TestCancelSelects(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	c := r.as("op")
	top := r.call("top", "ann")
	below := r.call("below", "ann", func(s *belay.Spec) { s.Parent = top })
	labelled := r.call("labelled", "bob", func(s *belay.Spec) { s.Labels = map[string]string{"trace_id": "7"} })
	over := r.call("over", "bob")
	over.Finish(belay.Completed)
	last := r.call("last", "bob")
	stop := func(f belay.Filter) []belay.CancelResult {
		t.Helper()
		got, err := c.Cancel(t.Context(), belay.CancelRequest{Filter: f, Wait: -1})
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		return got
	}
	if got := stop(belay.Filter{IDs: []belay.RunID{belay.NewRunID()}}); len(got) != 0 {
		t.Errorf("an unknown run: %+v", got)
	}
	if got := stop(belay.Filter{IDs: []belay.RunID{over.ID()}}); len(got) != 1 || got[0].Affected || got[0].Receipt != nil {
		t.Errorf("a run that was over: %+v", got)
	}
	if got := stop(belay.Filter{Labels: map[string]string{"trace_id": "7"}}); len(got) != 1 || got[0].Run.ID != labelled.ID() {
		t.Errorf("by label: %+v", got)
	}
	if last.Cancellation() != nil || top.Cancellation() != nil {
		t.Error("something else was stopped")
	}
	plan, err := c.Cancel(t.Context(), belay.CancelRequest{Filter: belay.Filter{IDs: []belay.RunID{top.ID()}}, DryRun: true, Wait: -1})
	if err != nil || len(plan) != 2 || plan[0].Plan == nil || top.Cancellation() != nil {
		t.Errorf("dry: %+v %v", plan, err)
	}
	if got := stop(belay.Filter{IDs: []belay.RunID{top.ID()}}); len(got) != 2 || below.Cancellation() == nil {
		t.Errorf("a run with one below: %+v", got)
	}
	if got := stop(belay.Filter{}); len(got) != 1 || got[0].Run.ID != last.ID() {
		t.Errorf("everything: %+v", got)
	}
	if _, err := c.Cancel(t.Context(), belay.CancelRequest{Filter: belay.Filter{Limit: 1}}); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("limited: %v", err)
	}
}

// TestCancelByRequest: a protocol's id stops the one run that has it; one that
// several have stops none, and they are named (ORC-74).
func TestCancelByRequest(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	c := r.as("op")
	one := r.call("only", "bob")
	got, err := c.CancelByRequest(t.Context(), "only", "why not")
	if err != nil || got.Run != one.ID() || !got.Affected || got.Status != "cancelled" {
		t.Errorf("%+v %v", got, err)
	}
	first, second := r.call("twice", "bob"), r.call("twice", "ann")
	_, err = c.CancelByRequest(t.Context(), "twice", "")
	var e *client.Error
	if !errors.As(err, &e) || !errors.Is(err, belay.ErrAmbiguous) || len(e.Candidates) != 2 || e.Candidates[0].Run != second.ID() {
		t.Fatalf("%v %+v", err, e)
	}
	if first.Cancellation() != nil || second.Cancellation() != nil {
		t.Error("one of them was stopped")
	}
	if got, err := c.CancelByRequest(t.Context(), "nobody's", ""); err != nil || got.Status != "queued" || !got.Run.IsZero() {
		t.Errorf("%+v %v", got, err)
	}
}

func TestReceipts(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	c := r.as("op")
	var want []belay.RunID
	for n := range 450 {
		want = append(want, r.call(fmt.Sprint("run", n), "bob").ID())
	}
	results, err := c.Cancel(t.Context(), belay.CancelRequest{Wait: -1})
	if err != nil || len(results) != len(want) {
		t.Fatal(len(results), err)
	}
	untouched := r.call("untouched", "bob")
	var got []belay.RunID
	for receipt, err := range c.Receipts(t.Context(), client.ReceiptQuery{Stop: results[0].Receipt.Cancellation.Stop}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, receipt.Run)
	}
	slices.SortFunc(got, func(a, b belay.RunID) int { return slices.Compare(a[:], b[:]) })
	slices.SortFunc(want, func(a, b belay.RunID) int { return slices.Compare(a[:], b[:]) })
	if !slices.Equal(got, want) {
		t.Errorf("%d receipts, want %d", len(got), len(want))
	}
	for range c.Receipts(t.Context(), client.ReceiptQuery{Since: time.Now().Add(time.Hour)}) {
		t.Fatal("a receipt from the future")
	}
	if one, err := c.Receipt(t.Context(), want[0]); err != nil || one.Verdict != belay.Confirmed && one.Verdict != belay.Signalled && one.Verdict == "" {
		t.Errorf("%+v %v", one, err)
	}
	if _, err := c.Receipt(t.Context(), untouched.ID()); !errors.Is(err, belay.ErrNotFound) {
		t.Errorf("of a run that goes on: %v", err)
	}
}

// TestLatchSaysWhatIsNotStored: the Stop is carried out, and who asked hears that a
// restart would lift the latch.
func TestLatchSaysWhatIsNotStored(t *testing.T) {
	full := &admin.Switch{Keep: func(admin.LatchState) error { return errors.New("no space left on device") }}
	r := newRig(t, admin.Options{Latch: full}, nil)
	run := r.call("runs", "bob")
	got, err := r.as("op").EngageLatch(t.Context(), client.Engaging{Reason: "fire", Wait: -1}, nil)
	if !errors.Is(err, client.ErrLatchNotStored) || !got.Latch.Engaged || len(got.Results) != 1 || run.Cancellation() == nil {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := r.as("op").LiftLatch(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "stays engaged") {
		t.Errorf("lift: %v", err)
	}
}

func TestLatch(t *testing.T) {
	latch := &admin.Switch{}
	r := newRig(t, admin.Options{Latch: latch}, nil)
	c := r.as("op")
	run := r.call("runs", "bob")
	got, err := c.EngageLatch(t.Context(), client.Engaging{Reason: "fire", Wait: -1}, nil)
	if err != nil || !got.Latch.Engaged || got.Latch.Reason != "fire" || len(got.Results) != 1 || !got.Final || run.Cancellation() == nil {
		t.Errorf("%+v %v", got, err)
	}
	if latch.Refuses() == nil {
		t.Error("it is not engaged")
	}
	if s, err := c.Latch(t.Context()); err != nil || s.By != "op" {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := r.as("ann").LiftLatch(t.Context(), ""); !errors.Is(err, belay.ErrForbidden) {
		t.Errorf("ann lifts it: %v", err)
	}
	if s, err := c.LiftLatch(t.Context(), "out"); err != nil || s.Engaged || latch.Refuses() != nil {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := newRig(t, admin.Options{}, nil).as("op").Latch(t.Context()); !errors.Is(err, belay.ErrUnsupported) {
		t.Errorf("without one: %v", err)
	}
}
