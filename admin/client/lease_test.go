package client_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/admin/client"
	"github.com/belayhq/belay/internal/calm"
)

// register makes a run as ann, who is a runtime's own principal.
func (r *rig) register(c *client.Client, name string) *client.Lease {
	r.Helper()
	l, err := c.Register(r.Context(), client.Registration{
		Kind: belay.KindTurn, Name: name, RequestID: "turn-1", Labels: map[string]string{"trace_id": "7"}, Lease: 5 * time.Second,
	})
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// TestHold: an operator's Stop ends the context of the work with who and why,
// well before the next heartbeat; what the runtime then reports is in the
// operator's receipt.
func TestHold(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	ann, op := r.as("ann"), r.as("op")
	lease := r.register(ann, "think")
	var steps atomic.Int32
	lease.OnOrder = func(o client.Order) {
		if o.Step == belay.StepTold && o.Reason == "enough" {
			steps.Add(1)
		}
	}
	ctx, release := lease.Hold(t.Context())
	defer release()
	r.within("the run is seen", func() bool {
		d, err := op.Get(t.Context(), lease.Run())
		return err == nil && d.Name == "think" && d.Owner == "ann" && d.Labels["trace_id"] == "7"
	})
	stopped := make(chan []belay.CancelResult, 1)
	w, begun := calm.Start(t), time.Now()
	go func() {
		results, _ := op.Cancel(t.Context(), belay.CancelRequest{
			Filter:       belay.Filter{Labels: map[string]string{"trace_id": "7"}},
			Cancellation: belay.Cancellation{Reason: "enough"}, Wait: -1,
		})
		stopped <- results
	}()
	<-ctx.Done()
	w.Within(t, time.Since(begun), time.Second, "told")
	c := belay.CancellationOf(ctx)
	if c == nil || c.Reason != "enough" || c.By != "op" || c.Cause != belay.CauseOperator {
		t.Fatalf("cause %v", context.Cause(ctx))
	}
	r.within("the order is told", func() bool { return steps.Load() == 1 })
	done, err := lease.Finish(ctx, context.Cause(ctx))
	if err != nil || done.Receipt == nil {
		t.Fatalf("%+v %v", done, err)
	}
	results := <-stopped
	if len(results) != 1 || !results[0].Receipt.OK() || results[0].Run.Outcome != belay.Cancelled {
		t.Errorf("%+v", results[0].Receipt)
	}
}

// TestHoldWork: work in a function is registered before, reported after, and
// stopped in between; what it returns is returned.
func TestHoldWork(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	ann := r.as("ann")
	turn := client.Registration{Kind: belay.KindTurn, Name: "think"}
	wrong := errors.New("out of tokens")
	for _, c := range []struct {
		returns error
		want    belay.Outcome
	}{{nil, belay.Completed}, {wrong, belay.Failed}, {belay.ErrDeclined, belay.Declined}} {
		var id belay.RunID
		err := ann.Hold(t.Context(), turn, func(ctx context.Context, l *client.Lease) error {
			id = l.Run()
			if d, err := r.tree.Get(ctx, id); err != nil || d.Outcome != belay.Pending {
				t.Errorf("while it works: %+v %v", d, err)
			}
			return c.returns
		})
		if d, _ := r.tree.Get(t.Context(), id); !errors.Is(err, c.returns) || d.Outcome != c.want {
			t.Errorf("%v: %v, %s", c.returns, err, d.Outcome)
		}
	}
	err := ann.Hold(t.Context(), turn, func(ctx context.Context, l *client.Lease) error {
		if _, err := r.as("op").Cancel(t.Context(), belay.CancelRequest{
			Filter: belay.Filter{IDs: []belay.RunID{l.Run()}}, Cancellation: belay.Cancellation{Reason: "enough"},
		}); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return wrong
	})
	if c, ok := errors.AsType[*belay.Cancellation](err); !ok || c.Reason != "enough" || !errors.Is(err, wrong) {
		t.Errorf("stopped: %v", err)
	}
	var id belay.RunID
	func() {
		defer func() { _ = recover() }()
		_ = ann.Hold(t.Context(), turn, func(_ context.Context, l *client.Lease) error {
			id = l.Run()
			panic("oh")
		})
	}()
	if d, _ := r.tree.Get(t.Context(), id); d.Outcome != belay.Failed {
		t.Errorf("it panicked: %s", d.Outcome)
	}
	over, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		ctx context.Context
		who string
	}{{over, "ann"}, {t.Context(), "nothing"}} {
		if err := r.as(c.who).Hold(c.ctx, turn, func(context.Context, *client.Lease) error { t.Error("it began"); return nil }); err == nil {
			t.Error("no error")
		}
	}
}

// TestFinish: work that ends by itself is completed or failed, once.
func TestFinish(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	ann := r.as("ann")
	for _, c := range []struct {
		err  error
		want belay.Outcome
	}{{nil, belay.Completed}, {errors.New("out of tokens"), belay.Failed}} {
		lease := r.register(ann, "think")
		ctx, release := lease.Hold(t.Context())
		done, err := lease.Finish(ctx, c.err)
		if err != nil || done.Run.Outcome != c.want || done.Receipt != nil || done.Late {
			t.Errorf("%+v %v", done, err)
		}
		if _, err := lease.Finish(ctx, c.err); !errors.Is(err, belay.ErrEnded) && !errors.Is(err, belay.ErrNotFound) {
			t.Errorf("twice: %v", err)
		}
		release()
		release() // may be called again
		if ctx.Err() == nil || belay.CancellationOf(ctx) != nil {
			t.Errorf("released: %v", context.Cause(ctx))
		}
	}
}

// TestHoldMany: as many turns as a runtime may have are told at once; a server has
// no stream for each.
func TestHoldMany(t *testing.T) {
	b := &breaker{}
	r := newRig(t, admin.Options{}, b.front)
	ann := r.as("ann")
	var held []context.Context
	for range 100 {
		lease, err := ann.Register(t.Context(), client.Registration{Kind: belay.KindTurn, Name: "think", Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, release := lease.Hold(t.Context())
		defer release()
		held = append(held, ctx)
	}
	if _, err := r.as("op").Cancel(t.Context(), belay.CancelRequest{Filter: belay.Filter{Owner: "ann"}}); err != nil {
		t.Fatal(err)
	}
	limit := time.After(10 * time.Second)
	for n, ctx := range held {
		select {
		case <-ctx.Done():
		case <-limit:
			t.Fatalf("number %d was not told", n)
		}
	}
	if n := b.opened.Load(); n != 1 {
		t.Errorf("%d streams", n)
	}
}

// TestHoldByHeartbeat: without an event stream the heartbeat tells of a Stop.
func TestHoldByHeartbeat(t *testing.T) {
	r := newRig(t, admin.Options{}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/v1/events" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, q)
		})
	})
	lease := r.register(r.as("ann"), "think")
	ctx, release := lease.Hold(t.Context())
	defer release()
	if _, err := r.tree.Cancel(t.Context(), belay.CancelRequest{
		Filter: belay.Filter{IDs: []belay.RunID{lease.Run()}}, Cancellation: belay.Cancellation{Cause: belay.CauseUser, Reason: "no stream"},
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("nobody told it")
	}
	if c := belay.CancellationOf(ctx); c == nil || c.Reason != "no stream" {
		t.Errorf("cause %v", context.Cause(ctx))
	}
}

// TestHoldKeepsWorking: a run that the server does not count on any more ends no
// work; it is said.
func TestHoldKeepsWorking(t *testing.T) {
	var away atomic.Bool
	r := newRig(t, admin.Options{}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if away.Load() {
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, q)
		})
	})
	r.server.Config.ErrorLog = nil
	lease := r.register(r.as("ann"), "think")
	lost := make(chan error, 1)
	lease.OnLost = func(err error) { lost <- err }
	away.Store(true)
	ctx, release := lease.Hold(t.Context())
	defer release()
	r.within("the lease runs out", func() bool {
		d, err := r.tree.Get(t.Context(), lease.Run())
		return err == nil && d.Outcome.Terminal()
	})
	away.Store(false)
	select {
	case err := <-lost:
		if !errors.Is(err, belay.ErrEnded) && !errors.Is(err, belay.ErrNotFound) {
			t.Errorf("lost: %v", err)
		}
	case <-ctx.Done(): // it was lost by a cancellation of the server's own
		if c := belay.CancellationOf(ctx); c == nil {
			t.Errorf("ended by %v", context.Cause(ctx))
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nobody said so")
	}
}

// TestRegisterBelow: a run hangs below its parent and is stopped with it; below
// one that was stopped nothing begins.
func TestRegisterBelow(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	ann := r.as("ann")
	top := r.register(ann, "turn")
	below, err := ann.Register(t.Context(), client.Registration{Kind: belay.KindCall, Name: "tool", Parent: top.Run(), Lease: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, release := below.Hold(t.Context())
	defer release()
	if _, err := ann.Cancel(t.Context(), belay.CancelRequest{Filter: belay.Filter{IDs: []belay.RunID{top.Run()}}}); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if c := belay.CancellationOf(ctx); c == nil || c.Cause != belay.CauseParent || c.Origin != top.Run() {
		t.Errorf("%+v", c)
	}
	_, err = ann.Register(t.Context(), client.Registration{Kind: belay.KindCall, Name: "late", Parent: top.Run()})
	if !errors.Is(err, belay.ErrCancelled) && !errors.Is(err, belay.ErrEnded) {
		t.Errorf("below a stopped run: %v", err)
	}
	if _, err := r.as("nothing").Register(t.Context(), client.Registration{Kind: belay.KindCall, Name: "x"}); !errors.Is(err, belay.ErrForbidden) {
		t.Errorf("without permission: %v", err)
	}
}

// TestApprovals: a question is listed and answered once; the asker goes on.
func TestApprovals(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	op := r.as("op")
	run := r.call("deploy", "bob")
	answer := make(chan belay.Decision, 1)
	go func() {
		d, _ := run.Ask(t.Context(), belay.Question{
			Text: "Really?", Primary: "yes", Secondary: "no", Preview: "Show", Look: func(context.Context) (string, error) { return "this\nand that", nil },
		})
		answer <- d
	}()
	var open []belay.Approval
	r.within("the question is open", func() bool {
		var err error
		open, err = op.Approvals(t.Context(), belay.Filter{Owner: "bob"})
		return err == nil && len(open) == 1
	})
	if open[0].Question.Text != "Really?" || open[0].Run.ID != run.ID() {
		t.Errorf("%+v", open[0])
	}
	if seen, err := op.Preview(t.Context(), open[0].ID); err != nil || seen != "this\nand that" || open[0].Question.Preview != "Show" {
		t.Errorf("the preview: %q, %v", seen, err)
	}
	for _, tt := range []struct {
		who  string
		id   belay.ApprovalID
		want error
	}{{"ann", open[0].ID, belay.ErrForbidden}, {"op", belay.ApprovalID(belay.NewRunID()), belay.ErrNotFound}, {"op", belay.ApprovalID{}, belay.ErrNotFound}} {
		if seen, err := r.as(tt.who).Preview(t.Context(), tt.id); !errors.Is(err, tt.want) || seen != "" {
			t.Errorf("the preview for %s: %q, %v", tt.who, seen, err)
		}
	}
	got, err := op.Decide(t.Context(), open[0].ID, belay.Decision{Choice: belay.ChoiceApproved, Reason: "go"})
	if err != nil || got.Decision == nil || got.Decision.By != "op" {
		t.Errorf("%+v %v", got, err)
	}
	if d := <-answer; d.Choice != belay.ChoiceApproved || d.Reason != "go" {
		t.Errorf("%+v", d)
	}
	if _, err := op.Decide(t.Context(), open[0].ID, belay.Decision{Choice: belay.ChoiceDeclined}); !errors.Is(err, belay.ErrDecided) && !errors.Is(err, belay.ErrNotFound) {
		t.Errorf("twice: %v", err)
	}
	if _, err := op.Preview(t.Context(), open[0].ID); !errors.Is(err, belay.ErrDecided) {
		t.Errorf("the preview of what was decided: %v", err)
	}
	if _, err := r.as("ann").Approvals(t.Context(), belay.Filter{}); !errors.Is(err, belay.ErrForbidden) {
		t.Errorf("ann: %v", err)
	}
	if _, err := op.Decide(t.Context(), open[0].ID, belay.Decision{Choice: "maybe"}); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("maybe: %v", err)
	}
}

func TestWhoAmI(t *testing.T) {
	r := newRig(t, admin.Options{}, nil)
	me, err := r.as("ann").WhoAmI(t.Context())
	if err != nil || me.Name != "ann" || !me.May("runs.read.own") || me.May("runs.cancel") || len(me.Inside) != 0 {
		t.Errorf("%+v %v", me, err)
	}
}
