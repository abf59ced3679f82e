package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

func agentV2(prompt func(context.Context, *acp.Turn) (acp.StopReason, error)) acp.AgentOptions {
	o := testAgent(prompt)
	o.Versions = []int{2}
	return o
}

func editorV2() acp.ClientOptions { return acp.ClientOptions{Version: 2} }

const helloV2 = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"hand","version":"1"}}}`

func TestACP_62_63_67_v2_turn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, agent, _ := newWire(t, false, true)
		inserted := make(chan bool, 1)
		a := acp.NewAgent(agent, agentV2(func(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
			if <-inserted {
				_ = turn.Insert("m_1")
			}
			<-ctx.Done()
			_ = turn.ToolCall(acp.ToolCall{ID: "tc_3", Status: "cancelled"})
			return "", errors.New("signal: killed")
		}))
		endConn(t, a.Conn())
		by := newRaw(t, client)
		by.hello(helloV2)
		ask := func(id int) {
			by.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s_8","prompt":[{"type":"text","text":"x"}]}}`, id)
		}
		// Inserted, stopped by session/cancel.
		inserted <- true
		ask(9)
		by.want(`{"jsonrpc":"2.0","id":9,"result":{"messageId":"m_1"}}`)
		by.wantPart(`"state":"running"`)
		by.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9}}`) // after the insertion it means nothing
		by.silent(time.Minute)
		by.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_8"}}`)
		by.wantPart(`"toolCallId":"tc_3"`, `"status":"cancelled"`)
		by.want(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_8","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}}`)
		by.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_8"}}`)
		by.silent(time.Minute) // nothing more is due (ACP-67)
		// Not inserted, stopped either way: -32800, and no idle state.
		for i, stop := range []string{
			`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_8"}}`,
			`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":21}}`,
		} {
			ask(20 + i)
			synctest.Wait()
			by.send("%s", stop)
			synctest.Wait()
			inserted <- false
			by.wantPart(`tc_3`)
			by.wantPart(`-32800`)
			by.silent(time.Minute)
		}
	})
}

func TestACP_62_67_72_v2_ends(t *testing.T) {
	for _, tc := range []struct {
		reason acp.StopReason
		err    error
		want   []string
	}{
		{"", nil, []string{`"stopReason":"end_turn"`}},
		{acp.StopMaxTokens, nil, []string{`"stopReason":"max_tokens"`}},
		{"", errors.New("no model"), []string{`"stopReason":"error"`, `"error":{"code":-32603,"message":"no model"}`}},
		{"", context.Canceled, []string{`"stopReason":"cancelled"`}},
	} {
		client, agent, _ := newWire(t, false, true)
		a := acp.NewAgent(agent, agentV2(func(_ context.Context, turn *acp.Turn) (acp.StopReason, error) {
			_ = turn.Insert("")
			_ = turn.Say("hello")
			return tc.reason, tc.err
		}))
		endConn(t, a.Conn())
		by := newRaw(t, client)
		by.hello(helloV2)
		by.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"x"}]}}`)
		by.wantPart(`"id":1`, `"messageId":"m_`)
		by.wantPart(`"running"`)
		by.wantPart(`agent_message_chunk`)
		by.wantPart(append(tc.want, `"state":"idle"`)...)
	}
}

// A deaf turn of v2 ends for the client all the same.
func TestACP_67_L6_v2_deaf_turn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, agent, _ := newWire(t, false, true)
		a := acp.NewAgent(agent, agentV2(func(_ context.Context, turn *acp.Turn) (acp.StopReason, error) {
			_ = turn.Insert("m")
			time.Sleep(7 * time.Second)
			if err := turn.Say("late"); !errors.Is(err, acp.ErrOver) {
				t.Errorf("late: %v", err)
			}
			return acp.StopEndTurn, nil
		}))
		endConn(t, a.Conn())
		by := newRaw(t, client)
		by.hello(helloV2)
		by.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"x"}]}}`)
		by.wantPart(`"id":1`)
		by.wantPart(`"running"`)
		by.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
		begin := time.Now()
		by.wantPart(`"idle"`, `"cancelled"`)
		if took := time.Since(begin); took != acp.DefaultAnswerAfter {
			t.Errorf("after %v", took)
		}
		by.silent(time.Minute)
	})
}

// Background work is no foreground work: it is listed, it survives the Stop, and
// two turns end with one idle state.
func TestACP_64_v2_background(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoth(t, agentV2(func(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
			_ = turn.Insert("")
			<-ctx.Done()
			return "", ctx.Err()
		}), editorV2())
		session := b.newSession(t)
		if err := b.agent.Background(session, json.RawMessage(`[{"type":"terminal","terminalId":"t_9"}]`)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		prompt := func() error {
			got, err := b.client.Prompt(ctx, session, acp.Text("x"))
			if err == nil && got.Reason != acp.StopCancelled {
				err = errors.New(string(got.Reason))
			}
			return err
		}
		one, two := async(prompt), async(prompt)
		synctest.Wait()
		cancel()
		if err := errors.Join(<-one, <-two); err != nil {
			t.Error(err)
		}
		if n := b.wire.count("session/cancel"); n != 1 {
			t.Errorf("%d session/cancel", n)
		}
		if n := b.wire.count("< ", `"idle"`, `"stopReason":"cancelled"`, `"background":[{"type":"terminal","terminalId":"t_9"}]`); n != 1 {
			t.Errorf("%d ends: %s", n, strings.Join(b.wire.all(), "\n"))
		}
	})
}

// Early answers only where the dialog can be of nothing else (ACP-66).
func TestACP_65_66_v2_permission(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			asked := make(chan struct{})
			shown := make(chan context.Context, 1)
			co := editorV2()
			co.RequestPermission = func(ctx context.Context, _ *acp.Request) (acp.PermissionAnswer, error) {
				shown <- ctx
				<-ctx.Done()
				return acp.PermissionAnswer{}, ctx.Err()
			}
			b := newBoth(t, agentV2(func(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
				_ = turn.Insert("")
				close(asked)
				a, err := turn.RequestPermission(ctx, acp.Permission{ToolCall: acp.ToolCall{ID: "x", Title: "rm"}, Options: []acp.PermissionOption{{ID: "ok", Name: "Allow", Kind: "allow_once"}}})
				if a.Option != "" || err == nil {
					t.Errorf("got %+v, %v", a, err)
				}
				return "", err
			}), co)
			session := b.newSession(t)
			if alone {
				if err := b.agent.Background(session, json.RawMessage(`[]`)); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() error { _, err := b.client.Prompt(ctx, session, acp.Text("x")); return err })
			<-asked
			dialog := <-shown
			synctest.Wait()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			var cause *belay.Cancellation
			// The agent withdraws it. If it is answered early, either can be first.
			if err := context.Cause(dialog); !errors.As(err, &cause) || cause.Cause != belay.CausePeer && !alone {
				t.Errorf("alone %v: the dialog ended with %v", alone, err)
			}
			if n := b.wire.count("< ", "$/cancel_request"); n > 1 {
				t.Errorf("%d withdrawals", n)
			}
		})
	}
}

// The same with an agent that withdraws nothing.
func TestACP_66_v2_early_answer(t *testing.T) {
	for background, early := range map[string]bool{`,"background":[]`: true, ``: false, `,"background":null`: false, `,"background":[{"type":"_x"}]`: false, `,"background":7`: false} {
		synctest.Test(t, func(t *testing.T) {
			clientEnd, agentEnd, _ := newWire(t, true, false)
			co := editorV2()
			co.Info = acp.Info{Name: "editor"}
			co.RequestPermission = func(ctx context.Context, _ *acp.Request) (acp.PermissionAnswer, error) {
				<-ctx.Done()
				return acp.PermissionAnswer{}, ctx.Err()
			}
			c := acp.NewClient(clientEnd, co)
			endConn(t, c.Conn())
			agent := newRaw(t, agentEnd)
			go func() { _, _ = c.Initialize(t.Context()) }()
			agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}`, idOf(t, agent.next()))
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() error { _, err := c.Prompt(ctx, "s", acp.Text("x")); return err })
			agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"messageId":"m"}}`, idOf(t, agent.next()))
			agent.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"%s}}}`, background)
			agent.send(`{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s","title":"?","options":[{"optionId":"ok","name":"Allow","kind":"allow_once"}]}}`)
			synctest.Wait()
			cancel()
			agent.wantPart("session/cancel")
			if early {
				agent.want(`{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"cancelled"}}}`)
			} else {
				agent.silent(time.Second)
			}
			agent.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"}}}`)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// Idle states that say nothing about this prompt: before its insertion, and
// repeated ones (ACP-68).
func TestACP_68_v2_other_idles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientEnd, agentEnd, _ := newWire(t, true, false)
		co := editorV2()
		co.Info = acp.Info{Name: "editor"}
		c := acp.NewClient(clientEnd, co)
		endConn(t, c.Conn())
		agent := newRaw(t, agentEnd)
		go func() { _, _ = c.Initialize(t.Context()) }()
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}`, idOf(t, agent.next()))
		synctest.Wait()
		state := func(state, reason string) {
			agent.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"%s","stopReason":"%s"}}}`, state, reason)
		}
		var got acp.PromptResult
		done := async(func() (err error) { got, err = c.Prompt(t.Context(), "s", acp.Text("x")); return err })
		id := idOf(t, agent.next())
		state("idle", "cancelled") // an old one
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"messageId":"m"}}`, id)
		state("running", "")
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("ended with %+v, %v", got, err)
		default:
		}
		state("idle", "end_turn")
		if err := <-done; err != nil || got.Reason != acp.StopEndTurn || got.Message != "m" {
			t.Errorf("got %+v, %v", got, err)
		}
		state("idle", "cancelled")
	})
}

func TestACP_69_70_v2_one_item(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientEnd, agentEnd, w := newWire(t, true, false)
		co := editorV2()
		co.Info = acp.Info{Name: "editor"}
		c := acp.NewClient(clientEnd, co)
		endConn(t, c.Conn())
		agent := newRaw(t, agentEnd)
		go func() { _, _ = c.Initialize(t.Context()) }()
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":2,"info":{"name":"a","version":"1"}}}`, idOf(t, agent.next()))
		synctest.Wait()
		update := func(text string) {
			agent.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":%s}}`, text)
			synctest.Wait()
		}
		tool := func() error { return c.CancelToolCall(t.Context(), "s", "tc") }
		term := func() error { return c.CancelTerminal(t.Context(), "s", "t") }
		refused := func(when string, try func() error) {
			t.Helper()
			if err := try(); !errors.Is(err, acp.ErrUnsupported) {
				t.Errorf("%s: %v", when, err)
			}
		}
		accepted := func(when string, try func() error) {
			t.Helper()
			done := async(try)
			agent.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, idOf(t, agent.wantPart("/cancel")))
			if err := <-done; err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		refused("unknown", tool)
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"tc","status":"in_progress"}`)
		refused("not advertised", tool)
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"tc","capabilities":{"cancel":{}}}`)
		accepted("advertised", tool)
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"tc","title":"x"}`)
		accepted("left out means unchanged", tool)
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"tc","capabilities":null}`)
		refused("taken away", tool)
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"tc","capabilities":{"cancel":{}}}`)
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"tc","status":"cancelled"}`)
		refused("over", tool)
		update(`{"sessionUpdate":"terminal_update","terminalId":"t","capabilities":{"cancel":{}}}`)
		accepted("terminal", term)
		update(`{"sessionUpdate":"terminal_update","terminalId":"t","exitStatus":{"exitCode":0}}`)
		refused("terminal over", term)
		if n := w.count("tool_call/cancel"); n != 2 {
			t.Errorf("%d were sent", n)
		}
	})
}

func TestACP_71_v2_close_unknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ao := agentV2(nil)
		ao.CloseSession = func(context.Context, string) error {
			return &acp.Error{Code: acp.CodeNotFound, Message: "no such session"}
		}
		b := newBoth(t, ao, editorV2())
		if err := b.client.CloseSession(t.Context(), "nobody"); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

// Stop before and after insertion, seen from the client: -32800 is no result, an
// idle cancelled is one.
func TestACP_62_63_L9_v2_client(t *testing.T) {
	for _, insert := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBoth(t, agentV2(func(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
				if insert {
					_ = turn.Insert("")
				}
				<-ctx.Done()
				return "", ctx.Err()
			}), editorV2())
			ctx, cancel := context.WithCancel(t.Context())
			var got acp.PromptResult
			done := async(func() (err error) { got, err = b.client.Prompt(ctx, "s_1", acp.Text("x")); return err })
			synctest.Wait()
			cancel()
			err := <-done
			var stop *acp.CancelError
			switch {
			case insert && (err != nil || got.Reason != acp.StopCancelled):
				t.Errorf("got %+v, %v", got, err)
			case !insert && (!errors.As(err, &stop) || stop.Verdict != belay.Acknowledged):
				t.Errorf("got %v", err)
			}
		})
	}
}

// A turn that panics, or ends its goroutine, has an end for the client too.
func TestACP_L5_v2_panic(t *testing.T) {
	for _, how := range []func(){func() { panic("torn") }, func() { panic(nil) }} {
		client, agent, _ := newWire(t, false, true)
		a := acp.NewAgent(agent, agentV2(func(_ context.Context, turn *acp.Turn) (acp.StopReason, error) {
			_ = turn.Insert("m")
			how()
			return "", nil
		}))
		endConn(t, a.Conn())
		by := newRaw(t, client)
		by.hello(helloV2)
		by.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"x"}]}}`)
		by.wantPart(`"id":1`)
		by.wantPart(`"running"`)
		by.wantPart(`"idle"`, `"stopReason":"error"`, `-32603`)
	}
}

func TestACP_L5_handler_ends_its_goroutine(t *testing.T) {
	_, client, _ := agentConn(t, acp.Options{Handler: func(context.Context, *acp.Request) (any, error) {
		runtime.Goexit()
		return nil, nil
	}})
	client.hello(helloClient)
	client.send(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
	client.wantPart(`"id":1`, `-32603`)
}
