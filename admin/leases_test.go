package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/lease"
)

// A run of another runtime: registered, found by its labels and its protocol id,
// kept alive, stopped by an operator, told by heartbeat, reported.
func TestLease(t *testing.T) {
	r := newLeaseRig(t, Options{})
	parent := r.call("rt", `"p"`)
	got := r.do("POST", "/v1/runs", "rt", `{"kind":"turn","name":"chat","server":"agents","request_id":"turn/7","labels":{"trace_id":"abc"},"parent":"`+
		parent.ID().String()+`","deadline":"2999-01-01T00:00:00Z","lease":30}`)
	reg := into[registered](r, got, 201)
	id := reg.Run.ID.String()
	if got.header.Get("Location") != "/v1/runs/"+id || reg.Run.Owner != "rt" || reg.Run.Parent != parent.ID() || reg.Lease.Seconds != 30 || reg.Run.Deadline.IsZero() {
		t.Errorf("%v %+v", got.header, reg)
	}
	for _, query := range []string{"label=trace_id%3Dabc", "request_id=turn%2F7", "under=" + parent.ID().String() + "&kind=turn", "server=agents"} {
		if list := into[runList](r, r.do("GET", "/v1/runs?"+query, "op", ""), 200); len(list.Runs) != 1 || list.Runs[0].ID != reg.Run.ID {
			t.Errorf("%s: %+v", query, list.Runs)
		}
	}
	if s := r.status("op", "turn%2F7"); s.status != 200 {
		t.Errorf("status: %d %s", s.status, s.body)
	}
	b := into[beat](r, r.do("POST", "/v1/runs/"+id+"/heartbeat", "rt", `{"lease":40}`), 200)
	if b.Order != nil || b.Lease.Seconds != 40 || time.Until(b.Lease.Until) < 39*time.Second {
		t.Errorf("beat %+v", b)
	}
	r.do("POST", "/v1/runs/"+id+"/cancel", "op", `{"reason":"enough"}`)
	b = into[beat](r, r.do("POST", "/v1/runs/"+id+"/heartbeat", "rt", ``), 200)
	if b.Order == nil || b.Order.Reason != "enough" || b.Order.Cause != belay.CauseOperator || b.Order.Run != reg.Run.ID {
		t.Fatalf("order %+v", b.Order)
	}
	rep := into[reported](r, r.do("POST", "/v1/runs/"+id+"/report", "rt", `{"outcome":"cancelled","evidence":{"kind":"handler_returned","detail":"stopped the model"},"partial":"so far"}`), 200)
	if rep.Late || rep.Receipt == nil || rep.Receipt.Verdict != belay.Acknowledged || rep.Receipt.Scope != belay.ScopeRemote || rep.Receipt.Partial != "so far" || rep.Run.Work != belay.Stopped {
		t.Errorf("report %+v %+v", rep, rep.Receipt)
	}
	r.alive(parent)
}

// Whoever has no lease on a run cannot tell it from one that is not there; the
// parent must be one's own or one that one may stop.
func TestLeaseForeign(t *testing.T) {
	r := newLeaseRig(t, Options{})
	id := into[registered](r, r.do("POST", "/v1/runs", "rt", `{"kind":"turn","name":"t"}`), 201).Run.ID.String()
	call := r.call("rt", `"no lease"`).ID().String()
	for path, body := range map[string]string{"/heartbeat": "{}", "/report": `{"outcome":"completed"}`} {
		a := r.do("POST", "/v1/runs/"+id+path, "rt2", body)
		b := r.do("POST", "/v1/runs/"+belay.NewRunID().String()+path, "rt2", body)
		c := r.do("POST", "/v1/runs/"+call+path, "rt", body)
		e := r.do("POST", "/v1/runs/x"+path, "rt", body)
		if a.status != 404 || a.body != b.body || a.body != c.body || a.body != e.body {
			t.Errorf("%s: %d\n%s%s%s%s", path, a.status, a.body, b.body, c.body, e.body)
		}
		if f := r.do("POST", "/v1/runs/"+id+path, "ann", body); f.status != 403 {
			t.Errorf("%s without runs.register: %d", path, f.status)
		}
	}
	foreign := r.call("ann", `"a"`).ID().String()
	a := r.do("POST", "/v1/runs", "rt", `{"kind":"turn","name":"t","parent":"`+foreign+`"}`)
	b := r.do("POST", "/v1/runs", "rt", `{"kind":"turn","name":"t","parent":"`+belay.NewRunID().String()+`"}`)
	if a.status != 404 || a.body != b.body {
		t.Errorf("%d\n%s%s", a.status, a.body, b.body)
	}
	own := people{"rt": {"rt", []string{PermRegister}}} // may stop nothing, and owns its runs all the same
	bare := newLeaseRig(t, Options{Authorizer: own})
	mine := bare.call("rt", `"m"`).ID().String()
	into[registered](bare, bare.do("POST", "/v1/runs", "rt", `{"kind":"turn","name":"t","parent":"`+mine+`"}`), 201)
}

// What cannot be registered is refused, and leaves no run.
func TestLeaseRefused(t *testing.T) {
	r := newLeaseRig(t, Options{})
	gone, stopped := r.call("rt", `"g"`), r.call("rt", `"s"`)
	gone.Finish(belay.Completed)
	stopped.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	before := r.tree.InFlight()
	for body, status := range map[string]int{
		`{"name":"t"}`:                                                               422,
		`{"kind":"turn"}`:                                                            422,
		`{"kind":"turn","name":""}`:                                                  422,
		`{"kind":"other","name":"t"}`:                                                422,
		`{"kind":"turn","name":"t","lease":4}`:                                       422,
		`{"kind":"turn","name":"t","lease":3601}`:                                    422,
		`{"kind":"turn","name":"t","more":1}`:                                        422,
		`{"kind":"turn","name":"t","deadline":"yesterday"}`:                          422,
		`{"kind":"turn","name":"t","deadline":"2001-01-01T00:00:00Z"}`:               400,
		`{"kind":"turn","name":"t","labels":{"":"x"}}`:                               400,
		`{"kind":"turn","name":"t","request_id":"a\u0000b"}`:                         400,
		`{"kind":"turn","name":"t","request_id":"` + strings.Repeat("é", 150) + `"}`: 400,
		`{"kind":"turn","name":"t","webhook":"http://example.com/"}`:                 400,
		`{"kind":"turn","name":"t","webhook":"https://169.254.169.254/"}`:            400,
		`{"kind":"turn","name":"t","webhook":"https://u:p@example.com/"}`:            400,
		`{"kind":"turn","name":"t","parent":"x"}`:                                    404,
		`{"kind":"turn","name":"t","parent":"` + gone.ID().String() + `"}`:           409,
		`{"kind":"turn","name":"t","parent":"` + stopped.ID().String() + `"}`:        409,
		`{"kind":"turn","kind":"call","name":"t"}`:                                   400,
	} {
		if got := r.do("POST", "/v1/runs", "rt", body); got.status != status {
			t.Errorf("%.80s: %d, want %d: %s", body, got.status, status, got.body)
		}
	}
	if n := r.tree.InFlight(); n != before {
		t.Errorf("%d runs, were %d", n, before)
	}
}

// An Idempotency-Key makes a registration that is sent twice one run, for its
// principal and its body.
func TestLeaseIdempotent(t *testing.T) {
	r := newLeaseRig(t, Options{})
	send := func(token, key, body string) answer {
		return r.do("POST", "/v1/runs", token, body, "Idempotency-Key", key)
	}
	body := `{"kind":"turn","name":"t"}`
	var ids sync.Map
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			got := send("rt", "k", body)
			var reg registered
			_ = json.Unmarshal([]byte(got.body), &reg)
			ids.Store(reg.Run.ID, got.status)
		})
	}
	all.Wait()
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	if n != 1 || r.tree.InFlight() != 1 {
		t.Fatalf("%d runs of one key, %d in flight", n, r.tree.InFlight())
	}
	if got := send("rt", "k", body); got.status != 200 {
		t.Errorf("the repeat: %d", got.status)
	}
	if got := send("rt", "k", `{"kind":"turn","name":"u"}`); got.status != 422 {
		t.Errorf("another body: %d", got.status)
	}
	if got := send("rt2", "k", body); got.status != 201 {
		t.Errorf("another principal: %d", got.status)
	}
	if got := send("rt", strings.Repeat("k", 129), body); got.status != 422 {
		t.Errorf("a long key: %d", got.status)
	}
	// A registration that failed is no registration.
	if got := send("rt", "f", `{"kind":"turn","name":"t","parent":"`+belay.NewRunID().String()+`"}`); got.status != 404 {
		t.Errorf("%d", got.status)
	}
	if got := send("rt", "f", body); got.status != 201 {
		t.Errorf("after a failure: %d", got.status)
	}
}

// While the latch is engaged nothing is registered: 503, with who and why.
func TestLeaseLatched(t *testing.T) {
	latch := &Switch{}
	r := newLeaseRig(t, Options{Latch: latch})
	if _, err := latch.Engage(t.Context(), "op", "incident 7"); err != nil {
		t.Fatal(err)
	}
	got := r.do("POST", "/v1/runs", "rt", `{"kind":"turn","name":"t"}`)
	if got.status != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "urn:belay:error:latched") ||
		!strings.Contains(got.body, "op") || !strings.Contains(got.body, "incident 7") || r.tree.InFlight() != 0 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// turning is a Latch that is engaged between two looks at it.
type turning struct {
	Switch

	mu    sync.Mutex
	looks int
}

func (l *turning) State(ctx context.Context) (LatchState, error) {
	l.mu.Lock()
	l.looks++
	second := l.looks == 2
	l.mu.Unlock()
	if second {
		_, _ = l.Engage(ctx, "op", "now")
	}
	return l.Switch.State(ctx)
}

// A registration that crosses the latch on its way in is no run.
func TestLeaseCrossesLatch(t *testing.T) {
	r := newLeaseRig(t, Options{Latch: &turning{}})
	if got := r.do("POST", "/v1/runs", "rt", `{"kind":"turn","name":"t"}`); got.status != 503 || r.tree.InFlight() != 0 {
		t.Errorf("%d, %d in flight: %s", got.status, r.tree.InFlight(), got.body)
	}
}

// The owner's event stream delivers an order; somebody else's does not.
func TestLeaseByStream(t *testing.T) {
	r := newLeaseRig(t, Options{})
	mine := into[registered](r, r.do("POST", "/v1/runs", "rt", `{"kind":"turn","name":"t"}`), 201).Run.ID
	other := into[registered](r, r.do("POST", "/v1/runs", "rt2", `{"kind":"turn","name":"t"}`), 201).Run.ID
	all := r.events("op", "", "")
	s := r.events("rt", "?under="+mine.String(), "")
	r.do("POST", "/v1/cancel", "op", `{"ids":["`+mine.String()+`","`+other.String()+`"]}`)
	defer all.close()
	defer s.close()
	stopped := func(id belay.RunID) *belay.Run {
		run, err := r.tree.Run(id)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	for _, e := range s.until(belay.EventCancelled, stopped(mine)) {
		if e.event.Run.ID != mine {
			t.Errorf("%s of %s", e.kind, e.event.Run.ID)
		}
	}
	all.until(belay.EventCancelled, stopped(other))
	verdict := func(id belay.RunID) belay.Verdict {
		d, err := r.tree.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return d.Verdict
	}
	for end := time.Now().Add(5 * time.Second); verdict(mine) != belay.Signalled; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the owner's stream did not count: %s", verdict(mine))
		}
	}
	if v := verdict(other); v != belay.Unreachable {
		t.Errorf("an observer's stream counted: %s", v)
	}
}

// A webhook gets the order, and with it the runtime stops a real piece of work:
// the witness ends, and the MCP call below it was stopped with cause parent.
func TestLeaseByWebhook(t *testing.T) {
	r := newLeaseRig(t, Options{})
	var id belay.RunID
	working, stop := context.WithCancel(t.Context())
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var o lease.Order
		if err := json.NewDecoder(req.Body).Decode(&o); err == nil && o.Run == id {
			stop()
		}
	}))
	defer hook.Close()
	id = into[registered](r, r.do("POST", "/v1/runs", "rt", fmt.Sprintf(`{"kind":"turn","name":"t","webhook":%q}`, hook.URL)), 201).Run.ID
	above, err := r.tree.Run(id)
	if err != nil {
		t.Fatal(err)
	}
	below := r.call("rt", `"below"`, with(&stopper{}), func(s *belay.Spec) { s.Parent = above })
	go func() { // the runtime
		<-working.Done()
		r.do("POST", "/v1/runs/"+id.String()+"/report", "rt", `{"outcome":"cancelled","evidence":{"kind":"handler_returned"}}`)
	}()
	got := into[cancelDone](r, r.do("POST", "/v1/runs/"+id.String()+"/cancel", "op", `{"wait":10}`), 200)
	if !got.Final || resultOf(got.Results, id).Receipt.Verdict != belay.Acknowledged {
		t.Errorf("%+v", resultOf(got.Results, id).Receipt)
	}
	if c := below.Cancellation(); c == nil || c.Cause != belay.CauseParent {
		t.Errorf("below: %+v", c)
	}
}
