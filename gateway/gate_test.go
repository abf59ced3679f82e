package gateway

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// door is a gate that a test opens and shuts.
type door struct {
	mu    sync.Mutex
	shut  error
	after int // so many questions pass before shut counts
	early map[string]belay.Cancellation
	late  int    // so many questions come before what is early has arrived
	owner string // who was asked about last
	asked []string
}

func (d *door) Admit(owner string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owner = owner
	if d.after > 0 {
		d.after--
		return nil
	}
	return d.shut
}

func (d *door) Early(owner, id string) (belay.Cancellation, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, owner+" "+id)
	if d.late > 0 {
		d.late--
		return belay.Cancellation{}, false
	}
	c, ok := d.early[id]
	delete(d.early, id)
	return c, ok
}

func (d *door) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func gated(d *door) func(*Config) { return func(c *Config) { c.Gate = d } }

// TestGate: while the gate is shut no work starts, and whoever asks is told why;
// lists and pings pass, and nothing is left behind (DESIGN 11, 10).
func TestGate(t *testing.T) {
	t.Parallel()
	d := &door{shut: fmt.Errorf("%w: everything was stopped by ops: cost", belay.ErrForbidden)}
	r := legacy(t, linkOptions{cfg: gated(d)})
	for i, method := range []string{"tools/call", "prompts/get", "resources/read", "completion/complete"} {
		id := fmt.Sprint(10 + i)
		r.send(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"name":"tick","uri":"x:y","arguments":{"key":"w","n":3}}}`, id, method)
		if m := r.expect(id); m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, "stopped by ops: cost") {
			t.Errorf("%s was answered %s", method, m.Raw)
		}
		if n := len(r.gotWith(method)); n != 0 {
			t.Errorf("the server got a %s", method)
		}
	}
	for i, method := range []string{"tools/list", "ping"} {
		id := fmt.Sprint(20 + i)
		r.send(`{"jsonrpc":"2.0","id":%s,"method":%q}`, id, method)
		if m := r.expect(id); m.Error != nil {
			t.Errorf("%s was answered %s", method, m.Raw)
		}
	}
	if d.owner != "tester" {
		t.Errorf("the gate was asked about %q", d.owner)
	}
	if list := r.callRuns(); len(list) != 2 {
		t.Errorf("what was refused became runs: %+v", list)
	}
	d.set(func() { d.shut = nil })
	r.works()
	if r.wit.Count("w", "start") != 0 {
		t.Error("a refused call ran")
	}
}

// TestGateShutMeanwhile: a call that was let in a moment before the gate was shut,
// and registered after everything was stopped, does not run.
func TestGateShutMeanwhile(t *testing.T) {
	t.Parallel()
	d := &door{shut: belay.ErrForbidden, after: 1}
	r := legacy(t, linkOptions{cfg: gated(d)})
	r.send("%s", callLine("7", "w"))
	if m := r.expect("7"); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("it was answered %s", m.Raw)
	}
	if list := r.callRuns(); len(list) != 1 || list[0].Outcome != belay.Failed || list[0].Work != belay.Stopped {
		t.Errorf("the runs are %+v", list)
	}
	d.set(func() { d.shut = nil })
	r.works()
	if r.wit.Count("w", "start") != 0 {
		t.Error("it ran")
	}
}

// TestEarlyStopByAnotherDoor: a Stop that came before its call, by the text of its
// id, stops it before it starts; the caller gets -32800, there is a receipt, and it
// is used once (ORC-79, ORC-57).
func TestEarlyStopByAnotherDoor(t *testing.T) {
	t.Parallel()
	for _, isolation := range []Isolation{IsolationShared, IsolationCall} {
		for _, id := range []string{`7`, `"7"`, `"\u0037"`} {
			t.Run(fmt.Sprint(isolation, id), func(t *testing.T) {
				stop := belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseUser, By: "tester", Via: "orchestrate", Reason: "changed my mind"}
				d := &door{early: map[string]belay.Cancellation{"7": stop}}
				r := legacy(t, linkOptions{server: []string{"-no-subscribe"}, cfg: func(c *Config) { c.Gate, c.Isolation = d, isolation }})
				r.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/list"}`, id) // does no work, and takes it not
				r.expect(id)
				r.send("%s", callLine(id, "w"))
				m, err := r.Await("the answer to the call", func(m message) bool { return m.ID == id && m.Error != nil })
				if err != nil {
					t.Fatal(err)
				}
				var run *belay.Run
				for _, info := range r.callRuns() {
					if info.Name == "tick" {
						run, _ = r.tree.Run(info.ID)
					}
				}
				if run == nil {
					t.Fatal("there is no run")
				}
				if m.Error.Code != belay.CodeCancelled || !strings.Contains(m.Raw, run.ID().String()) || strings.Contains(m.Raw, "may still be running") {
					t.Errorf("the answer is %s", m.Raw)
				}
				receipt := r.receipt(run)
				if receipt.Verdict != belay.Confirmed || receipt.Outcome != belay.Cancelled || !saw(receipt, belay.SeenNotStarted) || receipt.Cancellation.Stop != stop.Stop || receipt.Cancellation.Reason != stop.Reason {
					t.Errorf("the receipt is %+v", receipt)
				}
				r.works()
				if r.wit.Count("w", "start") != 0 || len(r.gotWith("notifications/cancelled")) != 0 {
					t.Error("the server got something of it")
				}
				if err := r.Call(`"again"`, "tick", `{"key":"again","n":2}`, ""); err != nil {
					t.Fatal(err)
				}
				r.expect(`"again"`)
				if strings.Join(d.asked, ",") == "" || d.asked[0] != "tester 7" {
					t.Errorf("the gate was asked about %v", d.asked)
				}
			})
		}
	}
}

// TestEarlyStopWhileTheCallArrives: a Stop that found no run, and left its mark
// when the call had looked for one and was not registered yet, stops it (ORC-79:
// it was answered that it waits).
func TestEarlyStopWhileTheCallArrives(t *testing.T) {
	t.Parallel()
	for _, isolation := range []Isolation{IsolationShared, IsolationCall} {
		stop := belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseUser, By: "tester", Via: "orchestrate"}
		d := &door{early: map[string]belay.Cancellation{"7": stop}, late: 1}
		r := legacy(t, linkOptions{server: []string{"-no-subscribe"}, cfg: func(c *Config) { c.Gate, c.Isolation = d, isolation }})
		r.send("%s", callLine("7", "w"))
		if m := r.expect("7"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
			t.Errorf("%s: it was answered %s", isolation, m.Raw)
		}
		if list := r.callRuns(); len(list) != 1 || list[0].Outcome != belay.Cancelled || list[0].Cancellation.Stop != stop.Stop {
			t.Errorf("%s: the runs are %+v", isolation, list)
		}
		r.works()
		if r.wit.Count("w", "start") != 0 || len(r.gotWith("notifications/cancelled")) != 0 {
			t.Errorf("%s: the server got something of it", isolation)
		}
	}
}

// TestOwnCancelComesFirst: after its own early cancel a caller gets no answer,
// whoever else stopped the call (MCP-G24).
func TestOwnCancelComesFirst(t *testing.T) {
	t.Parallel()
	d := &door{early: map[string]belay.Cancellation{"7": {Cause: belay.CauseOperator}}}
	r := legacy(t, linkOptions{cfg: gated(d)})
	r.cancel("7", "")
	r.send("%s", callLine("7", "w"))
	if receipt := r.receipt(r.runOf("7")); receipt.Cancellation.Via != "mcp" {
		t.Errorf("the receipt is %+v", receipt)
	}
	r.works()
	if len(r.Responses("7")) != 0 || r.wit.Count("w", "start") != 0 {
		t.Error("it was answered, or ran")
	}
}

// TestEarlyStopInBatch: the answer of such a call does not hold the batch up
// (MCP-40).
func TestEarlyStopInBatch(t *testing.T) {
	t.Parallel()
	d := &door{early: map[string]belay.Cancellation{"7": {Cause: belay.CauseOperator}}}
	r := open(t, linkOptions{cfg: gated(d)})
	r.initialize("2025-03-26")
	r.send(`[%s,{"jsonrpc":"2.0","id":8,"method":"ping"}]`, callLine("7", "w"))
	if m := r.expect("7"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("got %s", m.Raw)
	}
	got(t, r.Client, `[{"jsonrpc":"2.0","id":8`)
}

// TestEarlyStopOfModernCall: callers who share a session are asked about by the
// text of their own ids, too (ORC-79).
func TestEarlyStopOfModernCall(t *testing.T) {
	t.Parallel()
	d := &door{early: map[string]belay.Cancellation{"7": {Cause: belay.CauseUser}}}
	r := open(t, linkOptions{server: []string{"-era", "modern"}, cfg: func(c *Config) { c.Gate, c.Modern = d, true }})
	r.bring(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tick","arguments":{"key":"w","n":3},%s}}`, modernMeta),
		func(a *mcp.Arrival) { a.Exchange, a.ByExchange = 3, true })
	if m := r.expect("7"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("got %s", m.Raw)
	}
	r.receipt(r.runOf("7"))
	r.worksModern()
	if r.wit.Count("w", "start") != 0 {
		t.Error("it ran")
	}
}
