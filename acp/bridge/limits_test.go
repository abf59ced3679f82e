package bridge

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/fakeagent"
)

// ACP-B4: neither peer's pipe delays a Stop, and its clock runs from reading.
func TestACP_B4_AStopTakesEffectWhateverWaits(t *testing.T) {
	t.Run("the agent does not read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Options{})
			defer r.end()
			r.turn()
			r.agent.pause()
			big := strings.Repeat("x", 1<<20)
			for i := range 40 { // more than the queue holds: the rest is refused, and nothing hangs
				r.editor.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"big%d","method":"_mine/big","params":{"x":"%s"}}`, i, big))
			}
			if got := strings.Join(r.editor.heard(), "\n"); !strings.Contains(got, "write queue is full") || !strings.Contains(got, "-32603") {
				t.Errorf("the requests that do not fit: %.300s", got)
			}
			r.editor.say(sessionStop)
			synctest.Wait()
			if c := r.run(belay.KindTurn).Cancellation; c == nil || time.Since(c.At) != 0 {
				t.Fatalf("the Stop waits: %+v", c)
			}
			time.Sleep(5 * time.Second)
			r.editor.hears(`{"jsonrpc":"2.0","id":9,"result":{"stopReason":"cancelled","_meta":{"belay":{"run":"RUN","verdict":"signalled","cause":"user","reason":"the editor sent session/cancel"}}}}`)
			r.agent.resume()
			got := r.agent.heard()
			if last := got[len(got)-1]; last != sessionStop {
				t.Errorf("the Stop has lost its place: the last line is %.100s", last)
			}
		})
	})
	t.Run("the editor does not read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Options{})
			defer r.end()
			r.turn()
			r.editor.pause()
			chunk := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}}}}`
			said := make(chan int, 1)
			go func() {
				n := 0
				for ; n < 20; n++ {
					r.agent.say(chunk)
				}
				r.agent.say(saysCancel)
				said <- n
			}()
			time.Sleep(time.Second)
			select {
			case <-said:
				t.Error("20 MiB are kept for an editor that does not read")
			default:
			}
			r.editor.say(sessionStop)
			r.agent.hears(sessionStop)
			time.Sleep(time.Second)
			if d := r.run(belay.KindTurn); d.Receipt == nil || d.Receipt.Verdict != belay.Acknowledged {
				t.Errorf("the agent's word was not read: %+v", d.Receipt)
			}
			r.editor.resume()
			if n := <-said; n != 20 {
				t.Errorf("%d chunks were read", n)
			}
			got := r.editor.heard()
			if len(got) != 21 || got[20] != endCancel {
				t.Errorf("%d lines, the last is %.100s", len(got), got[len(got)-1])
			}
		})
	})
}

// ACP-B5: a line that is too long fails its call, and half a line nothing.
func TestACP_B5_LinesThatAreTooLongFailTheirCallOnly(t *testing.T) {
	bubble(t, Options{MaxLine: 1000}, func(r *rig) {
		r.turn()
		long := strings.Repeat("x", 2000)
		r.editor.say(`{"jsonrpc":"2.0","id":7,"method":"session/list","params":{"x":"` + long + `"}}`)
		if got := r.editor.heard(); len(got) != 1 || !strings.HasPrefix(got[0], `{"jsonrpc":"2.0","id":7,"error":{"code":-32600,`) {
			r.Errorf("%q", got)
		}
		r.agent.hears()
		r.editor.say(`{"jsonrpc":"2.0","id":8,"method":"session/list"}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-4","method":"session/list"}`)
		r.agent.say(`{"jsonrpc":"2.0","id":"b-4","result":{"x":"` + long + `"}}`)
		if got := r.editor.heard(); len(got) != 1 || !strings.HasPrefix(got[0], `{"jsonrpc":"2.0","id":8,"error":{"code":-32603,`) {
			r.Errorf("%q", got)
		}
		r.agent.say(`{"jsonrpc":"2.0","id":6,"method":"_mine/ask","params":{"x":"` + long + `"}}`)
		if got := r.agent.heard(); len(got) != 1 || !strings.HasPrefix(got[0], `{"jsonrpc":"2.0","id":6,"error":{"code":-32600,`) {
			r.Errorf("%q", got)
		}
		// The prompt's own answer is too long: it fails, and the next one works.
		r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"stopReason":"end_turn","x":"` + long + `"}}`)
		if got := r.editor.heard(); len(got) != 1 || !strings.HasPrefix(got[0], `{"jsonrpc":"2.0","id":9,"error":{"code":-32603,`) {
			r.Errorf("%q", got)
		}
		if d := r.run(belay.KindTurn); d.Outcome != belay.Failed || !d.Over() {
			r.Errorf("%+v", d)
		}
		_, _ = r.editor.in.Write([]byte(`{"jsonrpc":"2.0","id":11,"method":"session/li`))
		_ = r.editor.in.Close()
		<-r.served
	})
}

// ACP-B9: a session that only appears in updates is a sub-agent's, and is stopped with
// the turn that runs.
func TestACP_B9_ChildSessionsHangBelowTheTurn(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		r.turn()
		child := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sub_1","update":{"sessionUpdate":"tool_call","toolCallId":"tc_9","title":"grep","status":"in_progress"}}}`
		r.agent.say(child)
		r.editor.hears(child)
		ask := `{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{"sessionId":"sub_1","toolCall":{"toolCallId":"tc_9"},"options":[]}}`
		r.agent.say(ask)
		r.editor.hears(strings.Replace(ask, "5", `"b-1"`, 1))
		turn, sub := r.run(belay.KindTurn), r.run(belay.KindSession)
		if sub.Parent != turn.ID || sub.Address != "sub_1" {
			r.Errorf("%+v", sub)
		}
		list, _ := r.tree.List(r.Context(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}})
		if len(list) != 2 || list[0].Parent != sub.ID || list[1].Parent != list[0].ID {
			r.Errorf("%+v", list)
		}
		r.editor.say(sessionStop)
		r.agent.hears(sessionStop, `{"jsonrpc":"2.0","id":5,"result":{"outcome":{"outcome":"cancelled"}}}`)
		r.agent.say(saysCancel)
		r.editor.hears(endCancel)
		time.Sleep(time.Second)
		for _, i := range list {
			if d, _ := r.tree.Get(r.Context(), i.ID); !d.Over() || d.Cancellation == nil {
				r.Errorf("%+v", d)
			}
		}
		if sub := r.run(belay.KindSession); !sub.Over() {
			r.Errorf("%+v", sub)
		}
	})
}

// Acceptance 10: the Stop of one session's turn is nothing to another's.
func TestACP_B14_OtherSessionsGoOn(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		r.turn()
		r.editor.say(`{"jsonrpc":"2.0","id":10,"method":"session/prompt","params":{"sessionId":"s_8"}}`)
		r.agent.heard()
		ask := `{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{"sessionId":"s_8","toolCall":{"toolCallId":"tc_9"},"options":[]}}`
		r.agent.say(ask)
		r.editor.heard()
		r.editor.say(sessionStop)
		r.agent.hears(sessionStop)
		time.Sleep(20 * time.Second)
		r.agent.hears()
		if d := r.run(belay.KindTurn); d.Address != "s_8" || d.Work != belay.Running {
			r.Errorf("%+v", d)
		}
		r.editor.say(`{"jsonrpc":"2.0","id":"b-1","result":{"outcome":{"outcome":"selected","optionId":"ok"}}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":5,"result":{"outcome":{"outcome":"selected","optionId":"ok"}}}`)
	})
}

// ACP-B25: what shows that the turn goes on is on the receipt.
func TestACP_B25_SignsOfLifeAreNoted(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		r.turn()
		r.agent.say(toolUpdate)
		r.editor.say(sessionStop)
		time.Sleep(10 * time.Millisecond)
		for range 100 {
			r.agent.say(strings.NewReplacer("tool_call\"", "tool_call_update\"").Replace(toolUpdate))
		}
		r.agent.say(strings.Replace(toolUpdate, "tc_1", "tc_2", 1))
		synctest.Wait()
		d := r.run(belay.KindTurn)
		if !d.Receipt.StillActive || len(d.Receipt.Steps) > 20 {
			r.Errorf("%+v", d.Receipt)
		}
	})
}

// Acceptance 13, with an agent that would start its tool on an allow at any time, and
// acceptance 7, in each phase: the witness says that the tool never starts.
func TestACP_B17_ALateAllowStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "witness")
		served := make(chan error, 1)
		r := newRig(t, Options{}, func(in io.Reader, out io.Writer) {
			served <- fakeagent.Serve(in, out, fakeagent.Options{Witness: path, Turn: fakeagent.Turn{Mode: fakeagent.Waits, Permission: true, ToolCall: "tc_1"}})
		})
		defer r.end()
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`,
			`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}`,
			`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s_1"}}`,
		} {
			r.editor.say(line)
			time.Sleep(10 * time.Millisecond)
		}
		r.editor.say(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_1"}}`)
		r.editor.say(`{"jsonrpc":"2.0","id":"b-1","result":{"outcome":{"outcome":"selected","optionId":"ok"}}}`)
		time.Sleep(time.Second)
		got := strings.Join(r.editor.heard(), "\n")
		if !strings.Contains(got, `{"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}`) {
			t.Errorf("the agent that waits for its permission has not ended:\n%s", got)
		}
		_ = r.editor.in.Close()
		<-r.served
		if err := <-served; err != nil {
			t.Error(err)
		}
		wit, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(wit), "allowed") || !strings.Contains(string(wit), `answer session/request_permission {"outcome":{"outcome":"cancelled"}}`) {
			t.Errorf("witness: %v\n%s", err, wit)
		}
	})
}

// ACP-B26: survivors are shown to the user, with what stops them.
func TestACP_B26_SurvivorsAreShown(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.greet("2")
		r.session()
		r.prompt()
		r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"messageId":"m"}}`)
		r.agent.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"state_update","state":"running"}}}`)
		r.editor.heard()
		tree.lives(0, 1)
		r.editor.say(sessionStop)
		r.agent.hears(sessionStop)
		r.agent.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}}`)
		r.editor.heard()
		time.Sleep(time.Second)
		r.editor.hears(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"notice","severity":"warning","title":"Processes of the stopped turn are alive","description":"npm run dev (pid 200). To stop them: belay cancel RUN"}}}`)
	})
}

// ACP-B20: what a v2 agent lists as background work is spared.
func TestACP_B20_BackgroundProcessesAreSpared(t *testing.T) {
	for _, set := range []Settings{{}, {Background: End}} {
		forced(t, set, func(r *rig, tree *fakeTree) {
			r.greet("2")
			r.session()
			r.prompt()
			r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"messageId":"m"}}`)
			r.agent.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"state_update","state":"running","background":[{"type":"terminal","terminalId":"t_9"}]}}}`)
			tree.lives(1, 0)
			r.editor.say(sessionStop)
			r.agent.heard()
			r.agent.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled","background":[{"type":"terminal","terminalId":"t_9"}]}}}`)
			time.Sleep(time.Minute)
			did := tree.did()
			if set.Background == End {
				if !strings.Contains(did, "term all=true") {
					t.Errorf("stop: %s", did)
				}
				return
			}
			if strings.Contains(did, "term") {
				t.Errorf("spare: %s", did)
			}
			if d := r.verdict(belay.KindTurn, belay.Acknowledged); len(d.Receipt.Survivors) != 1 || !strings.Contains(d.Held, "spared") {
				t.Errorf("%+v", d.Receipt)
			}
		})
	}
}

// A prompt that has waited for its snapshot finds the agent's queue full: it fails, as
// does what waited behind it.
func TestACP_B4_WhatCannotLeaveAfterAllFails(t *testing.T) {
	forced(t, Settings{}, func(r *rig, tree *fakeTree) {
		r.greet("1")
		r.session()
		r.agent.pause()
		r.editor.say(`{"jsonrpc":"2.0","method":"_x/one"}`)
		synctest.Wait()
		r.editor.say(`{"jsonrpc":"2.0","method":"_x/two"}`) // is being written: the agent reads no more
		synctest.Wait()
		for range 3 {
			if _, err := r.bridge.agent.w.SendFrame(make([]byte, 10<<20)); err != nil {
				t.Fatal(err)
			}
		}
		big := strings.Repeat("x", 3<<20)
		tree.slow = 10 * time.Millisecond
		r.editor.say(`{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"s_7","x":"` + big + `"}}`)
		r.editor.say(`{"jsonrpc":"2.0","id":10,"method":"_mine/big","params":{"x":"` + big + `"}}`)
		r.editor.hears()
		time.Sleep(time.Second)
		got := r.editor.heard()
		if len(got) != 2 || !strings.Contains(got[0], `"id":9,"error"`) || !strings.Contains(got[1], `"id":10,"error"`) {
			t.Errorf("%q", got)
		}
		if d := r.run(belay.KindTurn); d.Outcome != belay.Failed || !d.Over() {
			t.Errorf("%+v", d)
		}
		r.agent.resume()
		r.agent.heard()
	})
}
