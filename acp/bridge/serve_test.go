package bridge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

func TestSettingsThatMakeNoSenseAreRefused(t *testing.T) {
	tree := belay.NewTree(belay.Options{})
	defer tree.Close(context.Background())
	for want, o := range map[string]Options{
		"no tree":        {},
		"linger":         {Tree: tree, Settings: Settings{Linger: -1}},
		"enforce":        {Tree: tree, Settings: Settings{Enforce: "hard"}},
		"background":     {Tree: tree, Settings: Settings{Background: "kill"}},
		"agent_deadline": {Tree: tree, Settings: Settings{AgentDeadline: time.Second}},
	} {
		_, err := New(o)
		if !errors.Is(err, ErrSetting) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	b, err := New(Options{Tree: tree})
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Enforce: Strict, Background: Spare, Linger: 500 * time.Millisecond, Grace: 2 * time.Second, KillAfter: 2 * time.Second,
		Settle: 5 * time.Second, AgentDeadline: 30 * time.Second, ExitGrace: 2 * time.Second,
	}
	if b.set.Dialect != nil || b.set.Enforce != want.Enforce || b.set.Linger != want.Linger || b.set.Grace != want.Grace || b.set.KillAfter != want.KillAfter ||
		b.set.Settle != want.Settle || b.set.AgentDeadline != want.AgentDeadline || b.set.ExitGrace != want.ExitGrace || b.set.Background != want.Background {
		t.Errorf("the defaults are %+v", b.set)
	}
}

func TestServeIsForOneConnection(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		synctest.Wait()
		if _, err := r.bridge.Serve(r.Context(), Pipes{}, Pipes{}); !errors.Is(err, ErrServed) {
			r.Error(err)
		}
	})
}

// What is above the sessions is stopped: the editor goes on, and what it starts then
// can be found and stopped all the same.
func TestACP_B8_SessionsOutliveAStopOfWhatIsAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := belay.NewTree(belay.Options{})
		above, err := tree.Register(belay.Spec{Kind: belay.KindSession, Name: "agent x"})
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, Options{Tree: tree, Parent: above})
		defer r.end()
		r.turn()
		if d := r.run(belay.KindTurn); d.Work != belay.Running {
			t.Fatalf("%+v", d)
		}
		above.Cancel(belay.Cancellation{Cause: belay.CauseOperator})
		r.agent.hears(sessionStop)
		r.agent.say(saysCancel)
		r.editor.hears(endCancel)
		time.Sleep(time.Second)
		r.editor.say(`{"jsonrpc":"2.0","id":10,"method":"session/prompt","params":{"sessionId":"s_7"}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-4","method":"session/prompt","params":{"sessionId":"s_7"}}`)
		list, err := r.tree.List(t.Context(), belay.Filter{Under: above.ID(), Kinds: []belay.Kind{belay.KindTurn}})
		if err != nil || len(list) != 1 || list[0].Work != belay.Running {
			t.Errorf("below what was stopped: %+v, %v", list, err)
		}
	})
}

// ACP-B27, v2: a tool call with a process of its own can be cancelled alone, and the
// editor is told so and served.
func TestACP_B27_BelayServesToolCallCancel(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		tree.alone = alone{tree}
		r.greet("2")
		r.session()
		r.prompt()
		r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"messageId":"m"}}`)
		update := func(rest string) string {
			return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{` + rest + `"sessionUpdate":"tool_call_update","toolCallId":"tc_1","status":"in_progress"}}}`
		}
		r.agent.say(update(""))
		r.editor.heard() // whose process it is, is not known yet
		r.agent.say(update(""))
		r.editor.hears(update(`"capabilities":{"cancel":{}},`))
		r.agent.say(update("")) // said once
		r.editor.hears(update(""))
		r.editor.say(`{"jsonrpc":"2.0","id":10,"method":"tool_call/cancel","params":{"sessionId":"s_7","toolCallId":"tc_1"}}`)
		r.editor.hears(`{"jsonrpc":"2.0","id":10,"result":{}}`)
		time.Sleep(3 * time.Second)
		r.verdict(belay.KindCall, belay.Confirmed)
		r.agent.hears()
		r.agent.say(strings.Replace(update(""), "in_progress", "failed", 1))
		r.editor.heard()
		r.editor.say(`{"jsonrpc":"2.0","id":11,"method":"tool_call/cancel","params":{"sessionId":"s_7","toolCallId":"tc_1"}}`)
		if got := r.editor.heard(); len(got) != 1 || !strings.Contains(got[0], `"id":11,"error":{"code":-32602`) {
			t.Errorf("of a finished one: %q", got)
		}
		if d := r.run(belay.KindTurn); d.Work != belay.Running {
			t.Errorf("%+v", d)
		}
	})
}

// --dry-run: what a Stop would do, and nothing of it.
func TestACP_B14_APlanSaysWhatAStopWouldDo(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.turn()
		r.agent.say(toolUpdate)
		r.editor.hears(toolUpdate)
		ask := `{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{"sessionId":"s_7","toolCall":{"toolCallId":"tc_1"},"options":[]}}`
		r.agent.say(ask)
		r.editor.heard()
		tree.lives(1, 1)
		results, err := r.tree.Cancel(r.Context(), belay.CancelRequest{
			Filter: belay.Filter{IDs: []belay.RunID{r.run(belay.KindSession).ID}}, Cancellation: belay.Cancellation{Cause: belay.CauseOperator}, DryRun: true,
		})
		if err != nil || len(results) != 4 {
			t.Fatalf("%d results, %v", len(results), err)
		}
		turn := results[1].Plan
		if !strings.Contains(turn.Tell, "session/cancel") || len(turn.Kill) != 1 || len(turn.Spared) != 1 || !strings.Contains(turn.Spared[0].Why, "second Stop") {
			t.Errorf("turn: %+v", turn)
		}
		for i, want := range map[int]string{0: "for each turn", 2: "not_stoppable_alone", 3: "cancelled"} {
			if got := results[i].Plan.Tell; !strings.Contains(got, want) {
				t.Errorf("%s: %q", results[i].Run.Name, got)
			}
		}
		r.agent.hears()
		r.editor.hears()
	})
}

// ACP-47: the setting for a peer's name comes before all that it says.
func TestACP_B29_TheDialectIsASetting(t *testing.T) {
	bubble(t, Options{Settings: Settings{Dialect: map[string]acp.Form{"old": acp.FormSeed, "": acp.FormNone}}}, func(r *rig) {
		r.editor.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"editor"}}}`)
		r.agent.heard()
		r.agent.say(`{"jsonrpc":"2.0","id":"b-1","result":{"protocolVersion":1,"agentInfo":{"name":"old"}}}`)
		r.editor.heard()
		r.agent.heard()
		r.editor.say(`{"jsonrpc":"2.0","id":1,"method":"session/list"}`)
		r.editor.say(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-2","method":"session/list"}`, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"b-2"}}`)
		r.agent.say(`{"jsonrpc":"2.0","id":1,"method":"_x/ask"}`)
		r.agent.say(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		r.editor.hears(`{"jsonrpc":"2.0","id":"b-1","method":"_x/ask"}`)
	})
}

// ACP-B24: with another session's turn running the agent is not killed, and the
// receipt says why.
func TestACP_B24_TheKillWaitsForOthers(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.turn()
		turn := r.run(belay.KindTurn).ID
		r.editor.say(`{"jsonrpc":"2.0","id":10,"method":"session/prompt","params":{"sessionId":"s_8"}}`)
		r.agent.heard()
		r.editor.say(sessionStop)
		r.agent.hears(sessionStop)
		time.Sleep(time.Minute)
		d, err := r.tree.Get(r.Context(), turn)
		if err != nil || !d.Receipt.Final || d.Work != belay.Unconfirmed || !strings.Contains(d.Held, "is killed when run_") {
			t.Errorf("%+v, %v", d.Receipt, err)
		}
		r.agent.say(`{"jsonrpc":"2.0","id":"b-4","result":{"stopReason":"end_turn"}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-5","method":"session/close","params":{"sessionId":"s_7"}}`)
		<-r.served
		if d, _ := r.tree.Get(r.Context(), turn); d.Receipt.Verdict != belay.Confirmed || r.result.Reason != AgentKilled {
			t.Errorf("%+v, %+v", d.Receipt, r.result)
		}
	})
}
