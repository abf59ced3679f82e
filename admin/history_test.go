package admin

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// book is a History in memory, newest first.
type book []belay.Detail

func (b book) Get(_ context.Context, id belay.RunID) (belay.Detail, error) {
	for _, d := range b {
		if d.ID == id {
			return d, nil
		}
	}
	return belay.Detail{}, belay.ErrNotFound
}

func (b book) Find(_ context.Context, q HistoryQuery) (found []belay.Detail, _ error) {
	q.Filter.Ended = true
	for _, d := range b {
		fits := (q.Filter.Under.IsZero() || d.ID == q.Filter.Under || d.Parent == q.Filter.Under) && q.Filter.Match(&d.Info) && (q.RequestID == "" || RequestText(&d.Info) == q.RequestID) &&
			(!q.Stopped || d.Receipt != nil) && (q.Before.IsZero() || d.ID.String() < q.Before.String()) &&
			(q.Stop.IsZero() || d.Cancellation != nil && d.Cancellation.Stop == q.Stop)
		if fits && len(found) < q.Limit {
			found = append(found, d)
		}
	}
	return found, nil
}

func old(owner, rawID string, o belay.Outcome, age time.Duration) belay.Detail {
	d := belay.Detail{Info: belay.Info{
		ID: belay.NewRunID(), Kind: belay.KindCall, Name: "old", Owner: owner, Address: rawID, Outcome: o, Work: belay.Stopped,
		Started: time.Now().Add(-age - time.Second), Ended: time.Now().Add(-age),
	}}
	if o == belay.Cancelled {
		d.Cancellation = &belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseUser, At: d.Ended}
		d.Receipt = &belay.Receipt{Run: d.ID, Kind: d.Kind, Name: d.Name, Cancellation: d.Cancellation, Outcome: o, Work: d.Work, Verdict: belay.Confirmed, Final: true}
	}
	return d
}

// One run is shown with its subtree when the Control has forgotten all or part of
// it; a subtree that is larger than what is shown says so.
func TestSubtreeFromHistory(t *testing.T) {
	turn := old("ann", `"turn"`, belay.Completed, time.Hour)
	first, second := old("ann", "1", belay.Cancelled, time.Hour), old("ann", "2", belay.Completed, time.Hour)
	first.Parent, second.Parent = turn.ID, turn.ID
	r := newRig(t, Options{History: book{second, first, old("ann", "3", belay.Completed, time.Hour), turn}})
	got := into[runTree](r, r.do("GET", "/v1/runs/"+turn.ID.String(), "ann", ""), 200)
	if len(got.Below) != 2 || got.Below[0].ID.String() > got.Below[1].ID.String() || got.More || got.Below[0].Parent != turn.ID {
		t.Errorf("%+v", got)
	}
	top := r.call("ann", `"top"`)
	for range maxBelow + 1 {
		r.call("ann", "", func(s *belay.Spec) { s.Parent = top }).Finish(belay.Completed)
	}
	if got := into[runTree](r, r.do("GET", "/v1/runs/"+top.ID().String(), "ann", ""), 200); len(got.Below) != maxBelow || !got.More {
		t.Errorf("%d below, more %t", len(got.Below), got.More)
	}
}

// ORC-53, ORC-54, ORC-75, acceptance 40: what is remembered over a restart.
func TestHistory(t *testing.T) {
	stopped := old("ann", `"s"`, belay.Cancelled, time.Hour)
	lost := old("ann", `"l"`, belay.Lost, time.Hour)
	fresh := old("ann", `"f"`, belay.Completed, time.Second)
	r := newRig(t, Options{History: book{fresh, lost, stopped}, Permissions: ownerDoors})
	for name, want := range map[string]string{
		"s": `"outcome":"cancelled"`, stopped.ID.String(): `"verdict":"confirmed"`, "l": `"outcome":"lost"`, "f": `"outcome":"completed"`,
	} {
		if got := r.status("ann", name); got.status != 200 || !strings.Contains(got.body, want) {
			t.Errorf("status of %s: %d %s", name, got.status, got.body)
		}
		r.want(r.status("bob", name), 404, `{"detail":"Run not found"}`)
	}
	for body, want := range map[string]string{
		`{"requestId":"f"}`:                                           `"run":"` + fresh.ID.String() + `","affected":false,"pending":false,"outcome":"completed"}`,
		`{"requestId":"l"}`:                                           `"run":null,"affected":false,"pending":false,"work":null,"verdict":null}`, // too long ago (ORC-75)
		`{"requestId":"` + lost.ID.String() + `"}`:                    `"outcome":"lost"}`,
		`{"requestId":"` + stopped.ID.String() + `"}`:                 `"status":"cancelled"`,
		`{"requestId":"` + stopped.ID.String() + `","escalate":true}`: `"verdict":"confirmed"}`,
	} {
		if got := r.cancel("ann", body); got.status != 200 || !strings.Contains(got.body, want) {
			t.Errorf("cancel %s: %d %s, want %s", body, got.status, got.body, want)
		}
	}
	list := into[runList](r, r.do("GET", "/v1/runs?state=ended", "ann", ""), 200)
	if len(list.Runs) != 3 {
		t.Errorf("%d ended runs, want 3", len(list.Runs))
	}
	receipts := into[receiptList](r, r.do("GET", "/v1/receipts?stop="+stopped.Cancellation.Stop.String(), "ann", ""), 200)
	if len(receipts.Receipts) != 1 || receipts.Receipts[0].Run != stopped.ID {
		t.Errorf("receipts %+v", receipts)
	}
}

// ORC-43 and log injection: who, what and why, on one line, without control
// characters of the caller's.
func TestAudit(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	run := r.call("ann", `"x"`, with(&stopper{}))
	r.cancel("op", `{"requestId":"x","reason":"a\nlevel=INFO msg=cancel principal=eve","wait":5}`)
	r.cancel("op", `{"requestId":7}`)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 1 {
		t.Fatalf("%d lines: %s", len(lines), out.String())
	}
	for _, want := range []string{
		"msg=cancel", "principal=op", "via=orchestrate", "address=127.0.0.1:", "id=x", "run=" + run.ID().String(),
		`reason="a level=INFO msg=cancel principal=eve"`, "result=cancelled", "affected=true", "verdict=confirmed",
	} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("no %s in %s", want, lines[0])
		}
	}
}

// Stopping again what only the history knows changes nothing and says what came of
// the first Stop, as it does of a run that the Control knows; what ended by itself is
// 409.
func TestRepeatFromHistory(t *testing.T) {
	stopped, done := old("ann", `"s"`, belay.Cancelled, time.Hour), old("ann", `"d"`, belay.Completed, time.Hour)
	r := newRig(t, Options{History: book{done, stopped}})
	for _, body := range []string{"", `{"wait":1,"reason":"again"}`, `{"escalate":true}`, `{"force":true}`} {
		got := into[cancelDone](r, r.do("POST", "/v1/runs/"+stopped.ID.String()+"/cancel", "ann", body), 200)
		if len(got.Results) != 1 || got.Results[0].Affected || !got.Final || got.Results[0].Receipt.Verdict != belay.Confirmed || got.Results[0].Run.ID != stopped.ID {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if got := r.do("POST", "/v1/runs/"+done.ID.String()+"/cancel", "ann", ""); got.status != 409 {
		t.Errorf("of an ended run: %d %s", got.status, got.body)
	}
	if got := r.do("POST", "/v1/runs/"+stopped.ID.String()+"/cancel", "bob", ""); got.status != 404 {
		t.Errorf("a stranger's: %d %s", got.status, got.body)
	}
}

// ORC-43 for /v1: a single run with its verdict, a selection as it was given.
func TestAuditOfV1(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	run := r.call("ann", `"x"`, with(&stopper{}))
	r.call("ann", `"y"`, with(&stopper{}), func(s *belay.Spec) { s.Labels = map[string]string{"ticket": "a\nmsg=cancel principal=eve"} })
	r.do("POST", "/v1/runs/"+run.ID().String()+"/cancel", "op", `{"dry_run":true}`)
	r.do("POST", "/v1/runs/"+run.ID().String()+"/cancel", "op", `{"reason":"one","wait":5}`)
	r.do("POST", "/v1/cancel", "op", `{"labels":{"ticket":"a\nmsg=cancel principal=eve"},"reason":"many","wait":5}`)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines: %s", len(lines), out.String())
	}
	for n, wants := range [][]string{
		{"dry_run=true", "run=" + run.ID().String()},
		{"principal=op", "via=rest", "reason=one", "run=" + run.ID().String(), "affected=true", "verdict=confirmed"},
		{"principal=op", "reason=many", "runs=1", "selection=", "ticket"},
	} {
		for _, want := range append(wants, "msg=cancel", "address=127.0.0.1:") {
			if !strings.Contains(lines[n], want) {
				t.Errorf("no %s in %s", want, lines[n])
			}
		}
	}
}

// late is an EarlyStops on whose Put the call arrives.
type late struct {
	*Tombstones
	arrive func()
}

func (l late) Put(owner, id string, c belay.Cancellation) bool {
	l.arrive()
	return l.Tombstones.Put(owner, id, c)
}

// ORC-79: a call that arrives between the look-up and the mark is stopped, and
// the mark does not hit the next one.
func TestArrivesMeanwhile(t *testing.T) {
	var r *rig
	var run *belay.Run
	early := NewTombstones()
	r = newRig(t, Options{Early: late{early, func() { run = r.call("ann", `"x"`) }}})
	if got := into[cancelled](r, r.cancel("op", `{"requestId":"x"}`), 200); !got.Affected || got.Pending || run.Cancellation() == nil {
		t.Errorf("%+v", got)
	}
	if _, ok := early.Take("op", "x"); ok {
		t.Error("the mark is still there")
	}
}

// closing is a Control whose cancels find their client gone.
type closing struct {
	*belay.Tree
	gone func()
}

func (c closing) Cancel(ctx context.Context, req belay.CancelRequest) ([]belay.CancelResult, error) {
	c.gone()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return c.Tree.Cancel(ctx, req)
}

// An accepted cancel does not depend on the client's connection.
func TestClientGone(t *testing.T) {
	tree := belay.NewTree(belay.Options{})
	ctx, leave := context.WithCancel(t.Context())
	r := newRig(t, Options{Control: closing{tree, leave}})
	r.tree = tree
	run := r.call("ann", `"x"`)
	by := asker{who: everybody["op"], within: reach{all: true}}
	if e := r.api.cancel(ctx, by, &cancelOrder{id: "x", wait: time.Second}); e.word != stopped || !e.affected || run.Cancellation() == nil {
		t.Errorf("%+v", e)
	}
}

// ORC-79: what is kept for each principal is bounded.
func TestBounds(t *testing.T) {
	marks := NewTombstones()
	for i := range maxPrincipals + 10 {
		name := "p" + string(rune('a'+i%26)) + time.Duration(i).String()
		marks.Put(name, "x", belay.Cancellation{})
	}
	if len(marks.marks) > maxPrincipals {
		t.Errorf("%d owners of marks", len(marks.marks))
	}
}

// ORC-37: keys are bounded for each principal and in total; nobody who sends many
// makes another forget one.
func TestKeysAreBounded(t *testing.T) {
	m := newMemory()
	keep := func(principal string, i int) {
		_, unlock := m.first(principal, time.Duration(i).String())
		unlock()
	}
	keep("quiet", 0)
	for i := range maxKeysOf + 100 {
		keep("loud", i)
	}
	if n := m.of["loud"].Len(); n != maxKeysOf || len(m.known) != maxKeysOf+1 {
		t.Errorf("%d keys of one, %d in all", n, len(m.known))
	}
	for i := range maxKeys + 100 {
		keep("crowd"+time.Duration(i/maxKeysOf).String(), i)
	}
	if len(m.known) > maxKeys {
		t.Errorf("%d keys", len(m.known))
	}
	if m.known[memoryKey{"quiet", "0s"}] == nil {
		t.Error("the key of somebody quiet was forgotten")
	}
	now := time.Now().Add(keepKeys)
	m.find(memoryKey{"quiet", "new"}, now)
	if m.known[memoryKey{"quiet", "0s"}] != nil {
		t.Error("an old key is kept")
	}
}
