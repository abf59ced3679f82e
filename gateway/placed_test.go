package gateway

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/belayhq/belay"
)

// places is a placer whose answers a test sets.
type places struct {
	mu      sync.Mutex
	at      belay.RunID
	asked   []string
	stopped map[belay.RunID]*belay.Cancellation
}

func (p *places) Place(_ context.Context, tool, toolUse string) belay.RunID {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, tool+" "+toolUse)
	return p.at
}

func (p *places) StopOf(run belay.RunID) *belay.Cancellation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped[run]
}

func (p *places) put(at belay.RunID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = at
}

func (p *places) stop(run belay.RunID) *belay.Cancellation {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseUser, By: "ann", Reason: "enough"}
	p.stopped = map[belay.RunID]*belay.Cancellation{run: c}
	return c
}

func placing(p *places) func(*Config) { return func(c *Config) { c.Placer = p } }

func tickUse(id, key, use string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"tick","arguments":{"key":%q,"n":3000},"_meta":{"claudecode/toolUseId":%q}}}`, id, key, use)
}

// A call that was placed below a run of another process hangs there: what comes
// as a Stop of that run stops it and nothing else, and the Stop of the session
// reaches it all the same (ACP-B11).
func TestACP_B11_PlacedElsewhere(t *testing.T) {
	t.Parallel()
	p := &places{}
	r := legacy(t, linkOptions{server: []string{"-reply", "-32800"}, cfg: placing(p)})
	one, two := belay.NewRunID(), belay.NewRunID()
	p.put(one)
	r.send("%s", tickUse("1", "w1", "toolu_1"))
	r.saw("w1", "tick")
	p.put(two)
	r.send("%s", tickUse("2", "w2", "toolu_2"))
	r.saw("w2", "tick")
	p.put(belay.RunID{})
	r.send("%s", tickUse("3", "w3", "toolu_3"))
	r.saw("w3", "tick")
	first, second, third := r.runOf("1"), r.runOf("2"), r.runOf("3")
	if i := first.Info(); i.Parent != one || i.Labels["tool_use_id"] != "toolu_1" {
		t.Errorf("the first is %+v", i)
	}
	if second.Info().Parent != two || third.Info().Parent != r.s.Run().ID() {
		t.Errorf("the others hang below %s and %s", second.Info().Parent, third.Info().Parent)
	}
	if got := strings.Join(p.asked, ","); got != "tick toolu_1,tick toolu_2,tick toolu_3" {
		t.Errorf("asked: %s", got)
	}
	_, err := r.tree.Cancel(t.Context(), belay.CancelRequest{
		Filter:       belay.Filter{Under: one},
		Cancellation: belay.Cancellation{Cause: belay.CauseParent, Origin: one, By: "ann"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if m := r.expect("1"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("got %s", m.Raw)
	}
	r.saw("w1", "stopped")
	if receipt := r.receipt(first); receipt.Cancellation.Origin != one {
		t.Errorf("the receipt is %+v", receipt)
	}
	r.works()
	if second.Cancellation() != nil || third.Cancellation() != nil || r.s.Run().Cancellation() != nil {
		t.Error("something else was stopped")
	}
	r.s.Run().Cancel(belay.Cancellation{Cause: belay.CauseOperator})
	for _, id := range []string{"2", "3"} {
		if m := r.expect(id); m.Error == nil || m.Error.Code != belay.CodeCancelled {
			t.Errorf("got %s", m.Raw)
		}
	}
	if c := second.Cancellation(); c == nil || c.Origin != r.s.Run().ID() {
		t.Errorf("the session's Stop came as %+v", c)
	}
}

// A call below a run of another process that is stopped already never starts, and
// has a receipt.
func TestACP_B11_PlacedBelowTheStopped(t *testing.T) {
	t.Parallel()
	p := &places{}
	r := legacy(t, linkOptions{cfg: placing(p)})
	turn := belay.NewRunID()
	p.put(turn)
	stop := p.stop(turn)
	r.send("%s", tickUse("1", "w", "u"))
	if m := r.expect("1"); m.Error == nil || m.Error.Code != belay.CodeCancelled || strings.Contains(m.Raw, "may still") {
		t.Errorf("got %s", m.Raw)
	}
	receipt := r.receipt(r.runOf("1"))
	if c := receipt.Cancellation; receipt.Verdict != belay.Confirmed || c.Stop != stop.Stop || c.Cause != belay.CauseParent || c.Origin != turn || c.By != "ann" {
		t.Errorf("the receipt is %+v", receipt)
	}
	p.put(belay.RunID{})
	r.works()
	if r.wit.Count("w", "start") != 0 {
		t.Error("it ran")
	}
}

// A run of the session's own tree takes calls as well; one that is over, or
// nobody knows in flight, leaves them with the session. The session hangs below
// the run that it was opened for.
func TestACP_B12_PlacedHere(t *testing.T) {
	t.Parallel()
	p := &places{}
	var editor *belay.Run
	r := legacy(t, linkOptions{server: []string{"-reply", "-32800"}, cfg: func(c *Config) {
		var err error
		if editor, err = c.Tree.Register(belay.Spec{Kind: belay.KindSession, Name: "editor"}); err != nil {
			t.Fatal(err)
		}
		c.Placer, c.Parent = p, editor.ID()
	}})
	t.Cleanup(func() {
		editor.Finish(belay.Completed)
		editor.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler}) // or the tree waits for it
	})
	turn, over := r.turn("another owner"), r.turn("tester")
	over.Finish(belay.Completed)
	for i, place := range []belay.RunID{turn.ID(), over.ID(), editor.ID()} {
		p.put(place)
		key := fmt.Sprint("w", i)
		r.send("%s", tickUse(fmt.Sprint(i), key, "u"))
		r.saw(key, "tick")
	}
	if at := r.runOf("0").Info().Parent; at != turn.ID() {
		t.Errorf("the first hangs below %s", at)
	}
	for _, id := range []string{"1", "2"} {
		if at := r.runOf(id).Info().Parent; at != r.s.Run().ID() {
			t.Errorf("%s hangs below %s", id, at)
		}
	}
	r.stopTree(turn.ID())
	r.expect("0")
	r.saw("w0", "stopped")
	p.put(turn.ID()) // which is stopped
	r.send("%s", tickUse("3", "w3", "u"))
	if m := r.expect("3"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("got %s", m.Raw)
	}
	if r.wit.Count("w3", "start") != 0 || r.runOf("1").Cancellation() != nil {
		t.Error("a Stop has reached too little or too much")
	}
	r.stopTree(editor.ID()) // links lead down to the session
	r.expect("1")
	r.expect("2")
	if r.s.Run().Cancellation() == nil {
		t.Error("the session goes on")
	}
}
