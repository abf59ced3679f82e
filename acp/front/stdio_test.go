package front_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/front"
	"github.com/belayhq/belay/internal/faketool"
)

// A Stop of a turn reaches the call of that turn in the wrap process, although
// the agent tells nobody, and no call of another turn or session; the servers
// live on. The tree spans the processes (acceptance 14 and 18).
func TestACP_B11_StopOfATurn(t *testing.T) {
	r := newRig(t)
	f, beside := newFake(t, "-reply", "-32800"), newFake(t)
	session, other := r.session(), r.session()
	c, d := r.fronted(session, "files", f), r.fronted(other, "files", beside)

	r.turn(other)
	r.tick(d, beside, "1", "other", "", "")
	one := r.turn(session)
	tool := r.toolCall(one, "toolu_1", "mcp__files__tick")
	r.tick(c, f, `"a"`, "first", "toolu_1", "")
	two := r.turn(session)
	r.tick(c, f, `"b"`, "second", "", "")
	r.f.Place(session, nil)
	r.tick(c, f, `"c"`, "between", "", "")

	if at := r.call(`"a"`); at.Parent != tool.ID() || at.Server != "files" || at.Labels["tool_use_id"] != "toolu_1" {
		t.Errorf("the first call is %+v", at)
	}
	if at := r.call(`"b"`); at.Parent != two.ID() {
		t.Errorf("the second call hangs below %s", at.Parent)
	}
	wrap, err := r.mesh.Get(t.Context(), r.call(`"c"`).Parent)
	if err != nil || wrap.Parent != session.ID() || wrap.Kind != belay.KindSession {
		t.Errorf("a call between turns hangs below %+v, %v", wrap.Info, err)
	}
	below, err := r.mesh.List(t.Context(), belay.Filter{Under: one.ID()})
	if err != nil || len(below) != 3 || below[2].Name != "tick" || below[2].Pid == below[0].Pid {
		t.Errorf("below the first turn: %+v, %v", below, err)
	}
	calls := r.f.Calls(one)
	if len(calls) != 1 || calls[0].Run != below[2].ID || calls[0].ToolCall != "toolu_1" || calls[0].Name != "tick" || calls[0].Server != "files" || calls[0].Receipt != nil {
		t.Errorf("Calls: %+v", calls)
	}

	cause := stop(one)
	r.saw(f, "first", "stopped")
	if m := r.expect(c, `"a"`); m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("the agent got %s", m.Raw)
	}
	receipt := r.receipt(calls[0].Run)
	if got := receipt.Cancellation; got.Stop != cause.Stop || got.Cause != belay.CauseParent || got.Origin != one.ID() || got.By != "ann" {
		t.Errorf("the receipt says %+v", got)
	}
	if calls := r.f.Calls(one); len(calls) != 1 || calls[0].Receipt == nil || calls[0].Receipt.Cancellation.Stop != cause.Stop {
		t.Errorf("Calls after the Stop: %+v", calls)
	}
	r.lives(f, "second")
	r.lives(f, "between")
	r.lives(beside, "other")
	if len(f.Of("server", "start")) != 1 {
		t.Error("the server was started again")
	}
	// The same session takes the next turn.
	r.turn(session)
	r.tick(c, f, `"d"`, "third", "", "")

	stop(session)
	r.saw(f, "third", "stopped")
	if !c.Ended(20 * time.Second) {
		t.Error("the server of a stopped session goes on")
	}
	r.lives(beside, "other")
}

// A call that begins below a turn, or a tool call, that is stopped never reaches
// its server.
func TestACP_B11_NeverStarts(t *testing.T) {
	r := newRig(t)
	f := newFake(t)
	session := r.session()
	c := r.fronted(session, "files", f)
	turn := r.turn(session)
	tool := r.toolCall(turn, "toolu_1", "tick")
	stop(tool)
	r.ok(c.Send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tick","arguments":{"key":"w"},"_meta":{"claudecode/toolUseId":"toolu_1"}}}`))
	if m := r.expect(c, "1"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("got %s", m.Raw)
	}
	stop(turn)
	r.ok(c.Call("2", "tick", `{"key":"w"}`, ""))
	if m := r.expect(c, "2"); m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("got %s", m.Raw)
	}
	for _, id := range []string{"1", "2"} {
		if receipt := r.receipt(r.call(id).ID); receipt.Verdict != belay.Confirmed {
			t.Errorf("%s: the receipt is %+v", id, receipt)
		}
	}
	if f.Count("w", "start") != 0 {
		t.Error("it ran")
	}
}

// A person stops one MCP call, here or from another process: the agent reads the
// cancelled result, and the turn goes on (acceptance 15). So does a Stop of the
// tool call alone (ACP-B27).
func TestACP_B27_StopOfOneCall(t *testing.T) {
	r := newRig(t)
	f := newFake(t, "-reply", "result")
	session := r.session()
	c := r.fronted(session, "files", f)
	turn := r.turn(session)
	tool := r.toolCall(turn, "tc_1", "tick (files MCP Server)") // without an id in _meta
	r.tick(c, f, "1", "one", "", "")
	if at := r.call("1"); at.Parent != tool.ID() {
		t.Fatalf("it hangs below %s", at.Parent)
	}
	stop(tool)
	r.saw(f, "one", "stopped")
	if m := r.expect(c, "1"); !strings.Contains(m.Raw, "Cancelled") {
		t.Errorf("the model reads %s", m.Raw)
	}
	tool.Finish(belay.Failed)
	r.toolCall(turn, "tc_2", "tick (files MCP Server)")
	r.tick(c, f, "2", "two", "", "")
	_, err := r.mesh.Cancel(t.Context(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{r.call("2").ID}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "ops", Reason: "cost"}, Wait: -1,
	})
	r.ok(err)
	r.saw(f, "two", "stopped")
	if m := r.expect(c, "2"); !strings.Contains(m.Raw, "Cancelled") || !strings.Contains(m.Raw, "cost") {
		t.Errorf("the model reads %s", m.Raw)
	}
	if turn.Cancellation() != nil {
		t.Error("the turn was stopped")
	}
	r.tick(c, f, "3", "three", "", "")
}

// A server that is deaf is ended by the gateway's ladder, in its own process; the
// receipt says so, and the next call of the session works. A second Stop by a
// person goes on to force where the rules held it back.
func TestACP_B11_Ladder(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *front.Options) {
		o.Wrap = []string{"--enforce=lenient", "--grace=100ms", "--kill-after=100ms"}
	})
	f := newFake(t, "-deaf", "-deaf-term", "-mute")
	session := r.session()
	c := r.fronted(session, "files", f)
	turn := r.turn(session)
	r.tick(c, f, "1", "deaf", "", "")
	id := r.call("1").ID
	stop(turn)
	r.saw(f, "deaf", "signal")
	r.lives(f, "deaf")
	_, err := r.tree.Cancel(t.Context(), belay.CancelRequest{ // the second press
		Filter:       belay.Filter{IDs: []belay.RunID{turn.ID()}},
		Cancellation: belay.Cancellation{Cause: belay.CauseUser, By: "ann"}, Escalate: true,
	})
	r.ok(err)
	if left := faketool.WaitDead(f.Pids("deaf"), 20*time.Second); len(left) > 0 {
		t.Fatalf("alive: %v", left)
	}
	if receipt := r.receipt(id); receipt.Verdict != belay.Confirmed {
		t.Errorf("the receipt is %+v", receipt)
	}
	r.turn(session)
	r.tick(c, f, "2", "next", "", "")
}

// One press that comes by two ways is one: the agent that was told of it cancels the
// call itself, and the Stop of the turn arrives in the wrap process after that. A
// server that obeys and is silent keeps its process.
func TestACP_B15_OnePressTwoWays(t *testing.T) {
	r := newRig(t)
	f := newFake(t)
	session := r.session()
	c := r.fronted(session, "files", f)
	turn := r.turn(session)
	r.tick(c, f, "1", "w", "", "")
	id := r.call("1").ID
	pressed := time.Now()
	r.ok(c.Cancel("1", "the user pressed Stop"))
	r.saw(f, "w", "stopped")
	_, err := r.tree.Cancel(t.Context(), belay.CancelRequest{ // as belay cancel does
		Filter:       belay.Filter{IDs: []belay.RunID{turn.ID()}},
		Cancellation: belay.Cancellation{Cause: belay.CauseUser, By: "ann", At: pressed}, Escalate: true,
	})
	r.ok(err)
	for time.Since(pressed) < 500*time.Millisecond { // force would come at once
		d, err := r.mesh.Get(t.Context(), id)
		r.ok(err)
		if slices.ContainsFunc(d.Receipt.Steps, func(s belay.Step) bool { return s.Step == belay.StepEscalated }) {
			t.Fatalf("it counts as a second press: %+v", d.Receipt)
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.turn(session)
	r.tick(c, f, "2", "next", "", "")
	if n := len(f.Of("server", "start")); n != 1 {
		t.Errorf("the server was started %d times", n)
	}
}

// The end of the agent, and with it of a wrap's stdin, is the end of what is
// behind it; a closed session is ended by Belay where the agent does not (ACP-B32).
func TestACP_B32_ServersEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gone, kept, lives := newFake(t, "-deaf", "-stay"), newFake(t), newFake(t)
	session, other := r.session(), r.session()
	list, _, _ := r.rewrite(session, array(gone.entry("gone", ""), kept.entry("kept", "")))
	c, d := r.start(&list[0]), r.start(&list[1])
	e := r.fronted(other, "lives", lives)
	turn := r.turn(session)
	r.tick(c, gone, "1", "w", "", "")
	r.tick(d, kept, "1", "w", "", "")
	r.tick(e, lives, "1", "w", "", "")
	if n := len(r.server.Children(session.ID())); n != 2 {
		t.Errorf("%d children", n)
	}
	_ = c.CloseStdin() // the agent is gone, or ends this server itself
	if left := faketool.WaitDead(slices.Concat(gone.Pids("w"), []int{c.Pid()}), 20*time.Second); len(left) > 0 {
		c.Wait()
		t.Errorf("alive: %v", left)
	}
	turn.Finish(belay.Completed)
	session.Finish(belay.Completed)
	r.f.Close(session)
	r.f.Close(session)
	if !d.Ended(20 * time.Second) {
		t.Error("a server of a closed session goes on")
	}
	if left := faketool.WaitDead(kept.Pids("w"), 20*time.Second); len(left) > 0 {
		t.Errorf("alive: %v", left)
	}
	r.lives(lives, "w")
	if !strings.Contains(r.logs.String(), "has not ended the MCP servers") {
		t.Error("the log does not say who ended them")
	}
}

// What adopt has put behind wrap is not put there twice.
func TestACP_B11_WrappedAlready(t *testing.T) {
	r := newRig(t)
	f := newFake(t, "-reply", "-32800")
	adopted := f
	adopted.argv = slices.Concat([]string{r.belay(), "wrap", "--name=mine", "--"}, f.argv)
	session := r.session()
	list, _, _ := r.rewrite(session, array(adopted.entry("files", "")))
	if got := append([]string{list[0].Command}, list[0].Args...); !slices.Equal(got, adopted.argv) {
		t.Errorf("it became %v", got)
	}
	c := r.start(&list[0])
	turn := r.turn(session)
	r.tick(c, f, "1", "w", "", "")
	if at := r.call("1"); at.Parent != turn.ID() || at.Server != "mine" {
		t.Errorf("the call is %+v", at)
	}
	stop(turn)
	r.saw(f, "w", "stopped")
}
