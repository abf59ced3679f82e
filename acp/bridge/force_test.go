package bridge

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
)

const (
	toolUpdate  = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"tool_call","toolCallId":"tc_1","title":"make test","status":"in_progress"}}}`
	sessionStop = `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_7"}}`
	saysCancel  = `{"jsonrpc":"2.0","id":"b-3","result":{"stopReason":"cancelled"}}`
	endCancel   = `{"jsonrpc":"2.0","id":9,"result":{"stopReason":"cancelled"}}`
)

// forced is a bubble with an agent whose processes are fake.
func forced(t *testing.T, set Settings, f func(r *rig, tree *fakeTree)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tree := newFakeTree()
		r := newRig(t, Options{Settings: set, Offspring: tree, Agent: fakeAgent{tree}})
		defer r.end()
		f(r, tree)
	})
}

// stopWithTool has a turn with an open tool call stopped. Times count from the Stop.
func (r *rig) stopWithTool(tree *fakeTree, open, others int) {
	r.Helper()
	r.turn()
	r.agent.say(toolUpdate)
	r.editor.hears(toolUpdate)
	tree.lives(open, others)
	synctest.Wait()
	tree.mu.Lock()
	tree.start, tree.log = time.Now(), nil
	tree.mu.Unlock()
	r.editor.say(sessionStop)
	r.agent.hears(sessionStop)
}

func (r *rig) want(what, got, want string) {
	r.Helper()
	if got != want {
		r.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

func (r *rig) verdict(kind belay.Kind, want belay.Verdict) belay.Detail {
	r.Helper()
	d := r.run(kind)
	if d.Receipt == nil || d.Receipt.Verdict != want {
		r.Errorf("%s: %+v, want verdict %s", kind, d.Receipt, want)
	}
	return d
}

// Acceptance 8: the agent says cancelled and its shell runs on.
func TestACP_B19_AShellThatRunsOnIsEnded(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.stopWithTool(tree, 1, 0)
		time.Sleep(20 * time.Millisecond)
		r.agent.say(saysCancel)
		r.editor.hears(endCancel)
		time.Sleep(499 * time.Millisecond)
		r.want("before linger is over", tree.did(), "")
		if n := tree.answered.Load(); n != 1 {
			t.Errorf("the tree was told %d times that the agent has ended the turn", n)
		}
		time.Sleep(time.Millisecond)
		r.want("then", tree.did(), "520ms turn term all=false\n520ms turn end")
		r.verdict(belay.KindTurn, belay.Confirmed)
		if d := r.verdict(belay.KindCall, belay.Confirmed); d.Cancellation.Cause != belay.CauseParent {
			t.Errorf("%+v", d)
		}
		// The same session takes the next prompt.
		r.editor.say(`{"jsonrpc":"2.0","id":10,"method":"session/prompt","params":{"sessionId":"s_7"}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-4","method":"session/prompt","params":{"sessionId":"s_7"}}`)
	})
}

// The table of the Stop: SIGTERM at grace at the latest, SIGKILL after kill_after.
func TestACP_B14_ASilentAgentsShellIsEndedAtGrace(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		tree.deaf = "term"
		r.stopWithTool(tree, 1, 0)
		time.Sleep(4500 * time.Millisecond)
		r.want("the processes", tree.did(), "2s turn term all=false\n4s turn kill all=false")
		// The agent has not said anything yet: it may start the next one.
		if d := r.verdict(belay.KindTurn, belay.Signalled); d.Work != belay.Stopping {
			t.Errorf("%+v", d)
		}
		r.agent.say(saysCancel)
		time.Sleep(time.Second)
		if d := r.verdict(belay.KindTurn, belay.Confirmed); !d.Over() {
			t.Errorf("%+v", d)
		}
	})
}

// What cannot be killed is named.
func TestACP_B25_SurvivorsAreNamed(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		tree.deaf = "kill"
		r.stopWithTool(tree, 2, 0)
		r.agent.say(saysCancel)
		time.Sleep(time.Minute)
		d := r.verdict(belay.KindTurn, belay.Acknowledged)
		if len(d.Receipt.Survivors) != 2 || d.Receipt.OK() || !d.Receipt.Final || d.Work != belay.Unconfirmed {
			t.Errorf("%+v", d.Receipt)
		}
		tree.mu.Lock()
		tree.deaf = ""
		tree.mu.Unlock()
	})
}

// DESIGN 11, 8: processes of no open tool call are named at the first Stop, and the
// second takes them.
func TestACP_B15_TheSecondStopTakesTheOthers(t *testing.T) {
	for _, door := range []string{"editor", "operator"} {
		t.Run(door, func(t *testing.T) { secondStop(t, door) })
	}
}

func secondStop(t *testing.T, door string) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.stopWithTool(tree, 0, 2)
		r.agent.say(saysCancel)
		r.editor.hears(endCancel)
		time.Sleep(time.Second)
		d := r.verdict(belay.KindTurn, belay.Acknowledged)
		if len(d.Receipt.Survivors) != 2 || d.Receipt.OK() || !d.Receipt.Final || !strings.Contains(d.Held, "belay cancel "+d.ID.String()) {
			t.Fatalf("after the first Stop: %+v", d.Receipt)
		}
		r.want("nothing was done to them", tree.did(), "")
		// By the editor, for which the turn is over, or by anybody else.
		if door == "editor" {
			r.editor.say(sessionStop)
			r.agent.hears()
		} else {
			r.operator(belay.KindTurn, true)
		}
		time.Sleep(time.Second)
		if d := r.verdict(belay.KindTurn, belay.Confirmed); len(d.Receipt.Survivors) != 0 || !d.Receipt.OK() {
			t.Errorf("after the second: %+v", d.Receipt)
		}
		if !strings.Contains(tree.did(), "term all=true") || !strings.Contains(tree.did(), "turn end") {
			t.Error(tree.did())
		}
		// Now there is nothing left that a Stop could mean.
		r.editor.say(sessionStop)
		r.agent.hears(sessionStop)
	})
}

// What was open is ended, others live on: that is no proof for the turn.
func TestACP_B25_LivingOthersAreNoProof(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.stopWithTool(tree, 1, 1)
		r.agent.say(saysCancel)
		time.Sleep(3 * time.Second)
		r.want("the processes", tree.did(), "500ms turn term all=false")
		d := r.verdict(belay.KindTurn, belay.Acknowledged)
		if len(d.Receipt.Survivors) != 1 || d.Receipt.OK() || !d.Receipt.Final || d.Held == "" {
			t.Errorf("%+v", d.Receipt)
		}
		r.verdict(belay.KindCall, belay.Confirmed)
		r.operator(belay.KindTurn, true)
		time.Sleep(time.Second)
		if d := r.verdict(belay.KindTurn, belay.Confirmed); !d.Receipt.OK() {
			t.Errorf("%+v", d.Receipt)
		}
	})
}

// A press in the editor while the agent is silent: TERM, KILL, then its deadline.
func TestACP_B15_EachPressTakesTheNextStep(t *testing.T) {
	forced(t, Settings{Grace: 20 * time.Second}, func(r *rig, tree *fakeTree) {
		tree.deaf = "term"
		r.stopWithTool(tree, 1, 1)
		for range 3 {
			time.Sleep(1100 * time.Millisecond)
			r.editor.say(sessionStop)
		}
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-4","method":"session/close","params":{"sessionId":"s_7"}}`)
		time.Sleep(2 * time.Second)
		r.want("the processes", tree.did(), "1.1s turn term all=true\n2.2s turn kill all=true\n5.3s agent kill all=true\n5.3s turn end")
		<-r.served
		r.want("the end", string(r.result.Reason), string(AgentKilled))
	})
}

// ACP-B24, acceptance 11: an agent that ignores everything is closed and killed; its
// editor had its answer long before.
func TestACP_B24_ADeafAgentIsKilled(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.stopWithTool(tree, 0, 0)
		r.editor.say(`{"jsonrpc":"2.0","id":10,"method":"session/list"}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-4","method":"session/list"}`)
		time.Sleep(5 * time.Second)
		r.editor.hears(`{"jsonrpc":"2.0","id":9,"result":{"stopReason":"cancelled","_meta":{"belay":{"run":"RUN","verdict":"signalled","cause":"user","reason":"the editor sent session/cancel"}}}}`)
		time.Sleep(27 * time.Second)
		<-r.served
		r.want("the processes", tree.did(), "32s agent kill all=true\n32s turn end")
		r.editor.hears(`{"jsonrpc":"2.0","id":10,"error":{"code":-32603,"message":"the agent did not stop and was killed","data":{"reason":"agent_killed"}}}`)
		if r.result.Reason != AgentKilled || r.result.Agent.Signal != "SIGKILL" {
			t.Errorf("%+v", r.result)
		}
		r.verdict(belay.KindTurn, belay.Confirmed)
	})
}

func TestACP_B24_LenientNeverKillsTheAgent(t *testing.T) {
	forced(t, Settings{Enforce: Lenient}, func(r *rig, tree *fakeTree) {
		r.stopWithTool(tree, 1, 0)
		time.Sleep(time.Minute)
		r.want("the processes", tree.did(), "2s turn term all=false\n4s turn kill all=false")
		r.verdict(belay.KindTurn, belay.Signalled)
		if d := r.run(belay.KindTurn); !d.Receipt.Final || !strings.Contains(d.Held, "lenient") {
			t.Errorf("%+v", d.Receipt)
		}
	})
}

func TestACP_B20_NeverIsToldOnly(t *testing.T) {
	forced(t, Settings{Enforce: Never}, func(r *rig, tree *fakeTree) {
		r.stopWithTool(tree, 1, 0)
		r.agent.say(saysCancel)
		time.Sleep(time.Minute)
		r.want("the processes", tree.did(), "")
		if d := r.verdict(belay.KindTurn, belay.Acknowledged); len(d.Receipt.Survivors) != 1 || d.Receipt.OK() {
			t.Errorf("%+v", d.Receipt)
		}
	})
}

// ACP-B4: a Stop that is read while the snapshot is taken keeps the prompt back.
func TestACP_B10_AStopDuringTheSnapshotStartsNothing(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.greet("1")
		r.session()
		tree.slow = 30 * time.Millisecond
		r.editor.say(`{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"s_7"}}`)
		r.editor.say(`{"jsonrpc":"2.0","method":"_x/keeps_its_place"}`)
		r.agent.hears()
		r.editor.say(sessionStop)
		r.editor.hears(`{"jsonrpc":"2.0","id":9,"result":{"stopReason":"cancelled","_meta":{"belay":{"run":"RUN","verdict":"confirmed","cause":"user","reason":"the editor sent session/cancel"}}}}`)
		r.agent.hears(`{"jsonrpc":"2.0","method":"_x/keeps_its_place"}`)
		time.Sleep(time.Second)
		r.agent.hears()
		r.verdict(belay.KindTurn, belay.Confirmed)
		r.want("the snapshot is let go", tree.did(), "30ms turn end")
	})
}

// ACP-B32: session/close takes the processes of earlier turns, too.
func TestACP_B32_CloseEndsWhatTheSessionHasLeft(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.turn()
		r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"stopReason":"end_turn"}}`)
		tree.lives(0, 1)
		synctest.Wait()
		tree.start, tree.log = time.Now(), nil
		r.editor.say(`{"jsonrpc":"2.0","id":10,"method":"session/close","params":{"sessionId":"s_7"}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-4","method":"session/close","params":{"sessionId":"s_7"}}`)
		r.agent.say(`{"jsonrpc":"2.0","id":"b-4","result":{}}`)
		time.Sleep(10 * time.Second)
		if got := tree.did(); !strings.Contains(got, "session term all=true") || !strings.Contains(got, "session end") {
			t.Error(got)
		}
		r.verdict(belay.KindSession, belay.Confirmed)
	})
}

// ACP-B33: the agent's input is closed, then its whole tree is ended by the clock.
func TestACP_B33_TheEditorsEndEndsTheTree(t *testing.T) {
	for _, deaf := range []string{"", "term"} {
		forced(t, Settings{}, func(r *rig, tree *fakeTree) {
			tree.deaf = deaf
			r.turn()
			tree.lives(1, 1)
			synctest.Wait()
			tree.start, tree.log = time.Now(), nil
			_ = r.editor.in.Close()
			<-r.served
			want := "2s agent term all=true\n2s turn end"
			if deaf != "" {
				want = "2s turn term all=false\n2s agent term all=true\n4s agent kill all=true\n4s turn end"
			}
			got := tree.did()
			if deaf == "" { // the turn's own ladder may come first, at the same moment
				got = strings.Replace(got, "2s turn term all=false\n", "", 1)
			}
			if deaf != "" && strings.HasPrefix(got, "2s agent") {
				want = "2s agent term all=true\n2s turn term all=false\n4s agent kill all=true\n4s turn end"
			}
			got = strings.Replace(got, "\n4s turn kill all=false", "", 1)
			r.want("the processes", got, want)
			r.agent.mu.Lock()
			gone := r.agent.gone
			r.agent.mu.Unlock()
			if !gone || r.result.Reason != EditorGone || len(r.result.Living) > 0 || !r.result.Agent.Ended {
				t.Errorf("agent's input closed %t, %+v", gone, r.result)
			}
			if d := r.verdict(belay.KindTurn, belay.Confirmed); d.Cancellation.Cause != belay.CauseParent || d.Outcome != belay.Cancelled {
				t.Errorf("%+v", d)
			}
		})
	}
}

// ACP-B36: an agent that dies.
func TestACP_B36_ADeadAgentsPromptIsAnsweredAtOnce(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.turn()
		r.agent.say(toolUpdate)
		r.editor.hears(toolUpdate)
		tree.lives(1, 0)
		start := time.Now()
		fakeAgent{tree}.die(Exit{Code: 3})
		// Its output is held open by a descendant.
		<-r.served
		if d := time.Since(start); d > lastWords+10*time.Millisecond {
			t.Errorf("answered after %s", d)
		}
		r.editor.hears(`{"jsonrpc":"2.0","id":9,"error":{"code":-32603,"message":"the agent is gone","data":{"reason":"agent_gone","run":"RUN","exit":"exit status 3"}}}`)
		if got := tree.did(); !strings.Contains(got, "agent kill all=true") {
			t.Error(got)
		}
		if r.result.Reason != AgentGone || r.result.Agent.Code != 3 {
			t.Errorf("%+v", r.result)
		}
		for _, kind := range []belay.Kind{belay.KindTurn, belay.KindCall, belay.KindSession} {
			if d := r.run(kind); d.Outcome != belay.Failed || !d.Over() {
				t.Errorf("%s: %+v", kind, d)
			}
		}
	})
}

// alone is a tool call's own process.
type alone struct{ tree *fakeTree }

func (a alone) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	a.tree.note("alone told")
	return nil, nil
}

func (a alone) Terminate(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	a.tree.note("alone term")
	return &belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree}, nil
}

// ACP-B27: one tool call by its own process, while the turn goes on.
func TestACP_B27_OneToolCallByItsProcess(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		tree.alone = alone{tree}
		r.turn()
		r.agent.say(toolUpdate)
		r.editor.hears(toolUpdate)
		tree.start, tree.log = time.Now(), nil
		r.operator(belay.KindCall, false)
		time.Sleep(3 * time.Second)
		r.want("the process", tree.did(), "0s alone told\n2s alone term")
		r.verdict(belay.KindCall, belay.Confirmed)
		if d := r.run(belay.KindTurn); d.Work != belay.Running {
			t.Errorf("%+v", d)
		}
		r.agent.hears()
	})
}

// The same by its fronted MCP call, wherever that hangs (acceptance 15).
func TestACP_B27_OneToolCallByItsMCPCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newFakeTree()
		front := &fakeFront{f: tree}
		r := newRig(t, Options{Front: front})
		defer r.end()
		r.greet("1")
		r.editor.say(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[{"name":"x"}]}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-2","method":"session/new","params":{"cwd":"/w","mcpServers":["rewritten"]}}`)
		r.agent.say(`{"jsonrpc":"2.0","id":"b-2","result":{"sessionId":"s_7"}}`)
		r.editor.heard()
		r.prompt()
		r.agent.say(toolUpdate)
		turn, err := r.tree.Run(r.run(belay.KindTurn).ID)
		if err != nil {
			t.Fatal(err)
		}
		tool := r.run(belay.KindCall)
		call, err := r.tree.Register(belay.Spec{Kind: belay.KindCall, Name: "slow", Parent: turn})
		if err != nil {
			t.Fatal(err)
		}
		front.calls = []Fronted{{Run: call.ID(), Name: "slow", Server: "x", ToolCall: "tc_1"}}
		if _, err := r.tree.Cancel(t.Context(), belay.CancelRequest{Filter: belay.Filter{IDs: []belay.RunID{tool.ID}}, Cancellation: belay.Cancellation{Cause: belay.CauseOperator}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c := call.Cancellation(); c == nil || c.Cause != belay.CauseParent || c.Origin != tool.ID {
			t.Fatalf("its MCP call: %+v", c)
		}
		call.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned})
		r.agent.hears()
		r.agent.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"tool_call_update","toolCallId":"tc_1","status":"failed"}}}`)
		synctest.Wait()
		if d, _ := r.tree.Get(t.Context(), tool.ID); d.Receipt.Verdict != belay.Acknowledged || !d.Over() {
			t.Errorf("%+v", d.Receipt)
		}
		r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"stopReason":"end_turn"}}`)
		time.Sleep(time.Second)
		r.want("the servers' places", tree.did(), `0s rewrite [{"name":"x"}]`+"\n0s place prompt\n0s place nobody")
	})
}

// ACP-B25, DESIGN 11.8: the receipt names the servers that are not behind Belay, and a
// tool call's receipt has what its MCP call's proves.
func TestACP_B25_ReceiptsKnowOfMCPServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newFakeTree()
		front := &fakeFront{f: tree, calls: []Fronted{{
			Name: "slow", Server: "x", ToolCall: "tc_1",
			Receipt: &belay.Receipt{Verdict: belay.Confirmed, Scope: belay.ScopeLocalTree},
		}}}
		r := newRig(t, Options{Front: front})
		defer r.end()
		r.greet("1")
		r.editor.say(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}`)
		r.agent.heard()
		r.agent.say(`{"jsonrpc":"2.0","id":"b-2","result":{"sessionId":"s_7"}}`)
		r.editor.heard()
		r.prompt()
		r.agent.say(toolUpdate)
		r.editor.heard()
		r.editor.say(sessionStop)
		r.agent.hears(sessionStop)
		time.Sleep(10 * time.Millisecond)
		// A stopped MCP call has cut something: the end is no end of its own.
		r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"stopReason":"end_turn"}}`)
		r.editor.hears(endCancel)
		time.Sleep(time.Second)
		d := r.verdict(belay.KindTurn, belay.Acknowledged)
		text := ""
		for _, s := range d.Receipt.Steps {
			text += s.Detail + "\n"
		}
		if !strings.Contains(text, "not fronted: MCP server remote (oauth)") || !strings.Contains(text, "the agent says: end_turn") {
			t.Error(text)
		}
		r.verdict(belay.KindCall, belay.Confirmed)
	})
}

// A call below the turn that the agent has told itself is being stopped already when
// the editor's Stop comes: two ways of one Stop are no second press.
func TestACP_B15_TheFirstStopEscalatesNothing(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.turn()
		turn, err := r.tree.Run(r.run(belay.KindTurn).ID)
		if err != nil {
			t.Fatal(err)
		}
		call, err := r.tree.Register(belay.Spec{Kind: belay.KindCall, Name: "slow", Parent: turn, Stopper: alone{tree}})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		tree.start, tree.log = time.Now(), nil
		call.Cancel(belay.Cancellation{Cause: belay.CausePeer})
		time.Sleep(50 * time.Millisecond)
		r.editor.say(sessionStop)
		r.agent.hears(sessionStop)
		time.Sleep(time.Second)
		r.want("the call", tree.did(), "0s alone told")
		time.Sleep(500 * time.Millisecond)
		r.editor.say(sessionStop)
		if got := tree.did(); !strings.Contains(got, "1.55s alone term") {
			t.Errorf("the second Stop: %s", got)
		}
	})
}

// What is started after the force, by an agent that has not said a word yet, is ended
// when it has.
func TestACP_B14_WhatComesAfterTheForceIsEndedToo(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.stopWithTool(tree, 1, 0)
		time.Sleep(4500 * time.Millisecond)
		tree.lives(1, 0)
		r.agent.say(saysCancel)
		time.Sleep(499 * time.Millisecond)
		r.want("before", tree.did(), "2s turn term all=false\n4s turn kill all=false")
		time.Sleep(time.Second)
		r.want("then", tree.did(), "2s turn term all=false\n4s turn kill all=false\n5s turn kill all=false\n5s turn end")
		if d := r.verdict(belay.KindTurn, belay.Confirmed); !d.Over() {
			t.Errorf("%+v", d)
		}
	})
}

// ACP-B4, B29: a Stop of a session that is being opened does not wait for its
// servers, and what the front has made of them is let go.
func TestACP_B29_ASessionCanBeCancelledBeforeItLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newFakeTree()
		r := newRig(t, Options{Front: &fakeFront{f: tree, slow: 100 * time.Millisecond}})
		defer r.end()
		r.greet("1")
		tree.start = time.Now()
		r.editor.say(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"mcpServers":[]}}`)
		r.editor.say(`{"jsonrpc":"2.0","method":"_x/after"}`)
		r.agent.hears()
		r.editor.say(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		r.editor.hears(`{"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"Cancelled"}}`)
		r.agent.hears(`{"jsonrpc":"2.0","method":"_x/after"}`)
		time.Sleep(time.Second)
		r.agent.hears()
		r.want("the front", tree.did(), "0s rewrite []\n100ms close")
		if d := r.run(belay.KindSession); !d.Over() {
			t.Errorf("%+v", d)
		}
	})
}

// Servers that cannot be put behind Belay pass as they are: the session works.
func TestACP_B11_ServersPassWhenTheFrontFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newFakeTree()
		r := newRig(t, Options{Front: &fakeFront{f: tree, err: errNoMeans}})
		defer r.end()
		r.greet("1")
		r.editor.say(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"mcpServers":[{"name":"x","weight":1.50}]}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-2","method":"session/new","params":{"mcpServers":[{"name":"x","weight":1.50}]}}`)
	})
}

// A tool call that the agent can cancel alone, and does not: it is told, and nothing
// of its turn is harmed; a person's second press finds no means.
func TestACP_B27_AToolCallThatStaysIsUnconfirmed(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		r.greet("2")
		r.session()
		r.prompt()
		r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"messageId":"m"}}`)
		r.agent.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"tool_call_update","toolCallId":"tc_1","capabilities":{"cancel":{}}}}}`)
		r.editor.heard()
		r.operator(belay.KindCall, false)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-4","method":"tool_call/cancel","params":{"sessionId":"s_7","toolCallId":"tc_1"}}`)
		r.agent.say(`{"jsonrpc":"2.0","id":"b-4","error":{"code":-32602,"message":"no"}}`)
		time.Sleep(3 * time.Second)
		if d := r.run(belay.KindCall); d.Work != belay.Stopping {
			r.Errorf("%+v", d)
		}
		r.operator(belay.KindCall, true)
		time.Sleep(time.Second)
		if d := r.run(belay.KindCall); d.Work != belay.Unconfirmed || !d.Receipt.Final {
			r.Errorf("%+v", d.Receipt)
		}
		if d := r.run(belay.KindTurn); d.Work != belay.Running {
			r.Errorf("%+v", d)
		}
	})
}

// What the editor has asked before its end of input is answered while the agent still
// lives; the rest fails.
func TestACP_B33_LastWordsAreStillPassed(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.editor.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`)
		r.editor.say(`{"jsonrpc":"2.0","id":1,"method":"session/list"}`)
		_ = r.editor.in.Close()
		time.Sleep(100 * time.Millisecond)
		r.agent.say(`{"jsonrpc":"2.0","id":"b-1","result":{"protocolVersion":1}}`)
		r.editor.hears(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}`)
		<-r.served
		r.editor.hears(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the connection has ended","data":{"reason":"editor_gone"}}}`)
	})
}
