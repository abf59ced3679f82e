package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

// both is the library at both ends.
type both struct {
	agent  *acp.Agent
	client *acp.Client
	wire   *wire
}

func newBoth(t *testing.T, ao acp.AgentOptions, co acp.ClientOptions) both {
	t.Helper()
	client, agent, w := newWire(t, true, true)
	if co.Info.Name == "" {
		co.Info = acp.Info{Name: "test-editor", Version: "1"}
	}
	a := acp.NewAgent(agent, ao)
	endConn(t, a.Conn())
	c := acp.NewClient(client, co)
	endConn(t, c.Conn())
	if _, err := c.Initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	return both{a, c, w}
}

// newSession makes a session.
func (b both) newSession(t *testing.T) string {
	t.Helper()
	s, err := b.client.NewSession(t.Context(), acp.SessionRequest{Cwd: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	return s.Session
}

// A v1 turn with all that can be open, stopped by the end of Prompt's ctx: the
// order of the sheet's example, and the true stop reason for the caller.
func TestACP_40_50_51_53_54_55_57_61_L8_L9_v1_turn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		asked := make(chan struct{})
		ao := testAgent(func(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
			if turn.Text() != "run the suite" {
				t.Errorf("the prompt is %q", turn.Text())
			}
			_ = turn.Say("on it")
			_ = turn.ToolCall(acp.ToolCall{ID: "tc_1", Title: "make test", Kind: "execute", Status: "in_progress"})
			term, err := turn.CreateTerminal(ctx, acp.TerminalRequest{Command: "make", Args: []string{"test"}})
			if err != nil {
				return "", err
			}
			permission := async(func() error {
				a, err := turn.RequestPermission(ctx, acp.Permission{ToolCall: acp.ToolCall{ID: "tc_2"}, Options: []acp.PermissionOption{{ID: "ok", Name: "Allow", Kind: "allow_once"}}})
				if a.Option != "" {
					t.Error("it was allowed")
				}
				return err
			})
			_, err = term.Wait(ctx)
			cause = context.Cause(ctx)
			if err := <-permission; !errors.Is(err, context.Canceled) {
				t.Errorf("the permission ended with %v", err)
			}
			_ = turn.ToolCall(acp.ToolCall{ID: "tc_1", Status: "failed"}) // ACP-57: still allowed
			return "", fmt.Errorf("make: %w", err)
		})
		var dialog, waited atomic.Int64
		b := newBoth(t, ao, acp.ClientOptions{
			Capabilities: json.RawMessage(`{"terminal":true}`),
			RequestPermission: func(ctx context.Context, _ *acp.Request) (acp.PermissionAnswer, error) {
				close(asked)
				<-ctx.Done()
				dialog.Add(1)
				return acp.PermissionAnswer{Option: "ok"}, nil // a late allow: it goes nowhere
			},
			Options: acp.Options{Handler: func(ctx context.Context, r *acp.Request) (any, error) {
				switch r.Method() {
				case acp.MethodCreateTerminal:
					return map[string]string{"terminalId": "t_1"}, nil
				case acp.MethodWaitForExit:
					<-ctx.Done()
					waited.Add(1)
					return nil, ctx.Err()
				}
				return nil, nil
			}},
		})
		session := b.newSession(t)
		ctx, cancel := context.WithCancel(t.Context())
		var got acp.PromptResult
		done := async(func() (err error) {
			got, err = b.client.Prompt(ctx, session, acp.Text("run the suite"))
			return err
		})
		<-asked
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || got.Reason != acp.StopCancelled {
			t.Errorf("got %+v, %v", got, err)
		}
		var c *belay.Cancellation
		if !errors.As(cause, &c) || c.Cause != belay.CausePeer || c.By != "test-editor" {
			t.Errorf("the turn ended with %v", cause)
		}
		if dialog.Load() != 1 || waited.Load() != 1 {
			t.Errorf("dialog %d, wait %d", dialog.Load(), waited.Load())
		}
		w := b.wire
		if n := w.count("> ", "session/cancel"); n != 1 {
			t.Errorf("%d session/cancel", n)
		}
		if n := w.count("> ", "$/cancel"); n != 0 { // ACP-L9: nothing else
			t.Errorf("%d cancels beside it", n)
		}
		for _, order := range [][][]string{
			{{"> ", "session/cancel"}, {"< ", "terminal/kill"}, {"< ", "terminal/release"}, {"< ", `"stopReason":"cancelled"`}},
			{{"> ", "session/cancel"}, {"> ", `"outcome":"cancelled"`}, {"< ", `"stopReason":"cancelled"`}},
		} {
			last := -1
			for _, step := range order {
				at := w.index(step...)
				if at <= last {
					t.Errorf("%q is at %d, what goes before it at %d:\n%s", step, at, last, strings.Join(w.all(), "\n"))
				}
				last = at
			}
		}
		if w.count("> ", `"selected"`) != 0 {
			t.Error("the late allow was sent")
		}
		if i, end := w.index("< ", `"status":"failed"`), w.index("< ", "stopReason"); i < 0 || i > end {
			t.Errorf("the last update is at %d, the end at %d", i, end)
		}
	})
}

// Whatever a stopped turn fails with, the client reads cancelled (ACP-56), by
// whichever way it was stopped (A4).
func TestACP_55_56_A4_A9_errors_of_the_abort(t *testing.T) {
	failures := map[string]error{"context": context.Canceled, "killed": errors.New("signal: killed"), "own": &acp.Error{Code: -32603, Message: "stream closed"}, "panic": nil}
	for name, failure := range failures {
		for _, stop := range []string{
			`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_1"}}`,
			`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9}}`,
			`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":9}}`,
		} {
			synctest.Test(t, func(t *testing.T) {
				client, agent, _ := newWire(t, false, true)
				a := acp.NewAgent(agent, testAgent(func(ctx context.Context, _ *acp.Turn) (acp.StopReason, error) {
					<-ctx.Done()
					if failure == nil {
						panic("torn down")
					}
					return "", failure
				}))
				endConn(t, a.Conn())
				by := newRaw(t, client)
				by.hello(helloClient)
				by.send(`{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"s_1","prompt":[]}}`)
				synctest.Wait()
				by.send("%s", stop)
				got := by.wantPart(`{"jsonrpc":"2.0","id":9,"result":{"stopReason":"cancelled"`)
				if !strings.Contains(got, `"_meta":{"belay":{"run":"run_`) {
					t.Errorf("%s: %s", name, got)
				}
			})
		}
	}
}

func TestACP_55_other_reasons_and_errors_without_a_stop(t *testing.T) {
	for _, tc := range []struct {
		reason acp.StopReason
		err    error
		want   string
	}{
		{acp.StopEndTurn, nil, `"result":{"stopReason":"end_turn"}`},
		{acp.StopRefusal, nil, `"result":{"stopReason":"refusal"}`},
		{"", nil, `"result":{"stopReason":"end_turn"}`},
		{"", errors.New("no model"), `"error":{"code":-32603,"message":"no model"}`},
		{"", context.DeadlineExceeded, `"stopReason":"cancelled"`}, // internal cancellation (ACP-21)
	} {
		synctest.Test(t, func(t *testing.T) {
			client, agent, _ := newWire(t, false, true)
			a := acp.NewAgent(agent, testAgent(func(context.Context, *acp.Turn) (acp.StopReason, error) { return tc.reason, tc.err }))
			endConn(t, a.Conn())
			by := newRaw(t, client)
			by.hello(helloClient)
			by.send(`{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"s_1","prompt":[]}}`)
			by.wantPart(`"id":9`, tc.want)
		})
	}
}

// A deaf turn is ended for the client, and its later updates are refused.
func TestACP_57_L6_L8_deaf_turn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan error, 1)
		client, agent, _ := newWire(t, false, true)
		a := acp.NewAgent(agent, testAgent(func(_ context.Context, turn *acp.Turn) (acp.StopReason, error) {
			time.Sleep(6 * time.Second)
			late <- turn.Say("still here")
			return acp.StopEndTurn, nil
		}))
		endConn(t, a.Conn())
		by := newRaw(t, client)
		by.hello(helloClient)
		by.send(`{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"s_1","prompt":[]}}`)
		synctest.Wait()
		by.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_1"}}`)
		by.wantPart(`"id":9`, `"stopReason":"cancelled"`)
		if err := <-late; !errors.Is(err, acp.ErrOver) {
			t.Errorf("the late update: %v", err)
		}
		by.silent(time.Minute)
	})
}

// session/cancel stops all turns of its session and of no other, is not remembered,
// and a second prompt never touches the first (A7, A12).
func TestACP_51_A7_A12_L8_which_turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, agent, _ := newWire(t, false, true)
		a := acp.NewAgent(agent, testAgent(func(ctx context.Context, _ *acp.Turn) (acp.StopReason, error) {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(time.Hour):
				return acp.StopEndTurn, nil
			}
		}))
		endConn(t, a.Conn())
		by := newRaw(t, client)
		by.hello(helloClient)
		by.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_1"}}`) // no turn: no trace
		for id, session := range map[int]string{1: "s_1", 2: "s_1", 3: "s_2"} {
			by.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"%s","prompt":[]}}`, id, session)
		}
		by.silent(time.Minute)
		by.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_1"}}`)
		one, two := by.wantPart(`"stopReason":"cancelled"`), by.wantPart(`"stopReason":"cancelled"`)
		if !(strings.Contains(one+two, `"id":1`) && strings.Contains(one+two, `"id":2`)) {
			t.Errorf("got %s, %s", one, two)
		}
		by.send(`{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s_1","prompt":[]}}`)
		by.silent(time.Minute) // the next one is not affected, nor is session 2
		// One of two, by its id: the other goes on.
		by.send(`{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"s_1","prompt":[]}}`)
		synctest.Wait()
		by.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":5}}`)
		by.wantPart(`"id":5`, `"stopReason":"cancelled"`)
		by.silent(time.Minute)
	})
}

// A permission that is open when its turn is stopped, one that is still on its way,
// and one that the agent withdraws; and the same for elicitations (A3, A5).
func TestACP_53_65_66_A3_A5_L9_dialogs(t *testing.T) {
	for _, dialog := range []struct{ method, dismissed string }{
		{"session/request_permission", `{"outcome":{"outcome":"cancelled"}}`},
		{"elicitation/create", `{"action":"cancel"}`},
	} {
		t.Run(dialog.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clientEnd, agentEnd, _ := newWire(t, true, false)
				shown := make(chan context.Context, 10)
				wait := func(ctx context.Context) { shown <- ctx; <-ctx.Done(); time.Sleep(time.Second) }
				c := acp.NewClient(clientEnd, acp.ClientOptions{
					Info:         acp.Info{Name: "editor"},
					Capabilities: json.RawMessage(`{"elicitation":{"form":{}}}`),
					RequestPermission: func(ctx context.Context, _ *acp.Request) (acp.PermissionAnswer, error) {
						wait(ctx)
						return acp.PermissionAnswer{Option: "ok"}, nil
					},
					Elicit: func(ctx context.Context, _ *acp.Request) (acp.ElicitationAnswer, error) {
						wait(ctx)
						return acp.ElicitationAnswer{Action: "accept"}, nil
					},
				})
				endConn(t, c.Conn())
				agent := newRaw(t, agentEnd)
				go func() { _, _ = c.Initialize(t.Context()) }()
				agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{}}}`, idOf(t, agent.next()))
				synctest.Wait()
				ask := func(id int) {
					agent.send(`{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"sessionId":"s_1","toolCall":{"toolCallId":"x"},"options":[],"message":"?"}}`, id, dialog.method)
				}
				// The agent withdraws one.
				ask(1)
				ctx := <-shown
				agent.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
				agent.want(`{"jsonrpc":"2.0","id":1,"result":` + dialog.dismissed + `}`)
				var cause *belay.Cancellation
				if err := context.Cause(ctx); !errors.As(err, &cause) || cause.Cause != belay.CausePeer {
					t.Errorf("ended with %v", err)
				}
				// The turn is stopped while one is open, and one more is on its way.
				stop, cancel := context.WithCancel(t.Context())
				done := async(func() error {
					_, err := c.Prompt(stop, "s_1", acp.Text("go"))
					return err
				})
				prompt := idOf(t, agent.wantPart("session/prompt"))
				ask(2)
				ctx = <-shown
				cancel()
				got := agent.next() + agent.next()
				if !strings.Contains(got, "session/cancel") || !strings.Contains(got, `{"jsonrpc":"2.0","id":2,"result":`+dialog.dismissed+`}`) {
					t.Errorf("got %s", got)
				}
				if err := context.Cause(ctx); !errors.As(err, &cause) || cause.Cause != belay.CauseUser {
					t.Errorf("ended with %v", err)
				}
				ask(3)
				agent.want(`{"jsonrpc":"2.0","id":3,"result":` + dialog.dismissed + `}`)
				agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"cancelled"}}`, prompt)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if len(shown) != 0 {
					t.Error("the one on its way was shown")
				}
				// Another session's is not touched by a stop of this one.
				agent.silent(time.Minute)
			})
		})
	}
}

// Two prompts whose contexts end together, and a person who presses twice: one
// session/cancel.
func TestACP_46_50_L9_one_session_cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ao := testAgent(func(ctx context.Context, _ *acp.Turn) (acp.StopReason, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return "", ctx.Err()
		})
		b := newBoth(t, ao, acp.ClientOptions{})
		session := b.newSession(t)
		ctx, cancel := context.WithCancel(t.Context())
		prompt := func() error {
			got, err := b.client.Prompt(ctx, session, acp.Text("x"))
			if err == nil && got.Reason != acp.StopCancelled {
				err = fmt.Errorf("reason %s", got.Reason)
			}
			return err
		}
		one, two := async(prompt), async(prompt)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err := b.client.Cancel(session); err != nil {
			t.Error(err)
		}
		if err := errors.Join(<-one, <-two); err != nil {
			t.Error(err)
		}
		if n := b.wire.count("session/cancel"); n != 1 {
			t.Errorf("%d session/cancel", n)
		}
		// The next turn has a Stop of its own.
		ctx, cancel = context.WithCancel(t.Context())
		one = async(prompt)
		synctest.Wait()
		cancel()
		if err := <-one; err != nil {
			t.Error(err)
		}
		if n := b.wire.count("session/cancel"); n != 2 {
			t.Errorf("%d session/cancel", n)
		}
	})
}

// The true stop reason, also one that is not cancelled (ACP-23, A10), and the end of
// waiting for an agent that never answers.
func TestACP_23_58_L9_true_reason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var updates atomic.Int64
		clientEnd, agentEnd, _ := newWire(t, true, false)
		c := acp.NewClient(clientEnd, acp.ClientOptions{Info: acp.Info{Name: "editor"}, Update: func(context.Context, string, json.RawMessage) { updates.Add(1) }})
		endConn(t, c.Conn())
		agent := newRaw(t, agentEnd)
		go func() { _, _ = c.Initialize(t.Context()) }()
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{}}}`, idOf(t, agent.next()))
		synctest.Wait()
		for _, answers := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			var got acp.PromptResult
			done := async(func() (err error) { got, err = c.Prompt(ctx, "s_1", acp.Text("x")); return err })
			id := idOf(t, agent.next())
			cancel()
			agent.wantPart("session/cancel")
			if !answers {
				var stop *acp.CancelError
				if err := <-done; !errors.As(err, &stop) || stop.Verdict != belay.Signalled {
					t.Errorf("got %v", err)
				}
				continue
			}
			agent.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_1","update":{"sessionUpdate":"tool_call_update","toolCallId":"x","status":"completed"}}}`)
			agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"max_tokens"}}`, id)
			if err := <-done; err != nil || got.Reason != acp.StopMaxTokens {
				t.Errorf("got %+v, %v", got, err)
			}
			if updates.Load() != 1 { // ACP-58, and before Prompt returned
				t.Errorf("%d updates", updates.Load())
			}
		}
	})
}

func TestACP_59_close(t *testing.T) {
	for version := acp.Version1; version <= acp.Version2; version++ {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var order []string
				ao := testAgent(func(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
					if err := turn.Insert("m_1"); err != nil {
						return "", err
					}
					<-ctx.Done()
					time.Sleep(time.Second)
					order = append(order, "turn")
					return "", ctx.Err()
				})
				ao.Versions = []int{1, 2}
				ao.Capabilities = json.RawMessage(`{"sessionCapabilities":{"close":{}}}`)
				ao.CloseSession = func(_ context.Context, session string) error {
					order = append(order, "close "+session)
					return nil
				}
				b := newBoth(t, ao, acp.ClientOptions{Version: version})
				session := b.newSession(t)
				var got acp.PromptResult
				done := async(func() (err error) { got, err = b.client.Prompt(t.Context(), session, acp.Text("x")); return err })
				synctest.Wait()
				if err := b.client.CloseSession(t.Context(), session); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil || got.Reason != acp.StopCancelled {
					t.Errorf("the turn got %+v, %v", got, err)
				}
				if fmt.Sprint(order) != "[turn close s_1]" {
					t.Errorf("order %v", order)
				}
				if err := b.agent.Update(session, map[string]string{"sessionUpdate": "session_info_update", "title": "late"}); !errors.Is(err, acp.ErrOver) {
					t.Errorf("an update after the close: %v", err)
				}
				if end, closed := b.wire.index("< ", `"cancelled"`), len(b.wire.all())-1; end < 0 || end >= closed {
					t.Errorf("the end is at %d, the close is answered at %d:\n%s", end, closed, strings.Join(b.wire.all(), "\n"))
				}
			})
		})
	}
	t.Run("not offered", func(t *testing.T) {
		b := newBoth(t, testAgent(nil), acp.ClientOptions{})
		before := len(b.wire.all())
		if err := b.client.CloseSession(t.Context(), "s_1"); !errors.Is(err, acp.ErrUnsupported) || len(b.wire.all()) != before {
			t.Errorf("got %v", err)
		}
	})
}

func TestACP_60_terminals(t *testing.T) {
	ask := func(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
		_, err := turn.CreateTerminal(ctx, acp.TerminalRequest{Command: "sleep"})
		return acp.StopEndTurn, err
	}
	t.Run("no capability, not asked", func(t *testing.T) {
		b := newBoth(t, testAgent(ask), acp.ClientOptions{})
		_, err := b.client.Prompt(t.Context(), b.newSession(t), acp.Text("x"))
		if err == nil || b.wire.count(`"method":"terminal/`) != 0 {
			t.Errorf("got %v, %q", err, b.wire.all())
		}
	})
	t.Run("each is released", func(t *testing.T) {
		released := 0
		b := newBoth(t, testAgent(ask), acp.ClientOptions{
			Capabilities: json.RawMessage(`{"terminal":true}`),
			Options: acp.Options{Handler: func(_ context.Context, r *acp.Request) (any, error) {
				if r.Method() == acp.MethodReleaseTerminal {
					released++
				}
				return map[string]string{"terminalId": "t_1"}, nil
			}},
		})
		if _, err := b.client.Prompt(t.Context(), b.newSession(t), acp.Text("x")); err != nil {
			t.Fatal(err)
		}
		if released != 1 {
			t.Errorf("released %d times", released)
		}
	})
}

func TestACP_72_versions(t *testing.T) {
	for _, tc := range []struct {
		asked  int
		speaks []int
		want   string
	}{
		{1, []int{1}, `"protocolVersion":1`},
		{1, []int{1, 2}, `"protocolVersion":1`},
		{2, []int{1, 2}, `"protocolVersion":2`},
		{2, []int{1}, `"protocolVersion":1`},
		{7, []int{1, 2}, `"protocolVersion":2`},
		{1, []int{2}, `"code":-32022`},
		{0, []int{1}, `"code":-32602`},
	} {
		client, agent, _ := newWire(t, false, true)
		o := testAgent(nil)
		o.Versions = tc.speaks
		a := acp.NewAgent(agent, o)
		endConn(t, a.Conn())
		by := newRaw(t, client)
		if got := by.hello(fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%d}}`, tc.asked)); !strings.Contains(got, tc.want) {
			t.Errorf("asked %d of %v: %s", tc.asked, tc.speaks, got)
		}
	}
}

func TestACP_75_new_session(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version int
		caps    string
		s       acp.SessionRequest
		err     error
		want    string
	}{
		{"no servers", 1, `{}`, acp.SessionRequest{Cwd: "/w"}, nil, `{"cwd":"/w","mcpServers":[]}`},
		{"relative", 1, `{}`, acp.SessionRequest{Cwd: "w"}, acp.ErrBadRequest, ``},
		{
			"stdio", 1, `{}`,
			acp.SessionRequest{Cwd: "/w", MCPServers: []acp.MCPServer{{Name: "a", Command: "/x", Env: []acp.Pair{{"K", "V"}}}}},
			nil,
			`{"cwd":"/w","mcpServers":[{"name":"a","command":"/x","args":[],"env":[{"name":"K","value":"V"}]}]}`,
		},
		{
			"stdio, v2", 2, `{}`,
			acp.SessionRequest{Cwd: "/w", MCPServers: []acp.MCPServer{{Name: "a", Command: "/x"}}},
			nil,
			`{"cwd":"/w","mcpServers":[{"type":"stdio","name":"a","command":"/x","args":[],"env":[]}]}`,
		},
		{"http, not offered", 1, `{}`, acp.SessionRequest{Cwd: "/w", MCPServers: []acp.MCPServer{{Name: "a", URL: "http://x"}}}, acp.ErrUnsupported, ``},
		{
			"http", 1, `{"mcpCapabilities":{"http":true}}`,
			acp.SessionRequest{Cwd: "/w", MCPServers: []acp.MCPServer{{Name: "a", URL: "http://x"}}},
			nil,
			`{"cwd":"/w","mcpServers":[{"type":"http","name":"a","url":"http://x","headers":[]}]}`,
		},
		{"sse, v2", 2, `{}`, acp.SessionRequest{Cwd: "/w", MCPServers: []acp.MCPServer{{Name: "a", URL: "http://x", Type: "sse"}}}, acp.ErrUnsupported, ``},
		{"a server without a name", 1, `{}`, acp.SessionRequest{Cwd: "/w", MCPServers: []acp.MCPServer{{Command: "/x"}}}, acp.ErrBadRequest, ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got json.RawMessage
			ao := testAgent(nil)
			ao.Versions, ao.Capabilities = []int{1, 2}, json.RawMessage(tc.caps)
			ao.NewSession = func(ctx context.Context, s *acp.SessionRequest) (*acp.SessionResult, error) {
				again, err := json.Marshal(s)
				got = again
				return &acp.SessionResult{Session: "s"}, err
			}
			b := newBoth(t, ao, acp.ClientOptions{Version: tc.version})
			_, err := b.client.NewSession(t.Context(), tc.s)
			if !errors.Is(err, tc.err) || string(got) != tc.want {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

// A client that answers a dialog with -32800 means that there was no answer (A3).
func TestACP_53_A3_dialog_answered_by_an_error(t *testing.T) {
	client, agent, _ := newWire(t, false, true)
	a := acp.NewAgent(agent, testAgent(func(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
		got, err := turn.RequestPermission(ctx, acp.Permission{ToolCall: acp.ToolCall{ID: "x"}, Options: []acp.PermissionOption{{ID: "ok", Name: "Allow", Kind: "allow_once"}}})
		if got.Option != "" || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
		return acp.StopRefusal, err
	}))
	endConn(t, a.Conn())
	by := newRaw(t, client)
	by.hello(helloClient)
	for id, answer := range map[int]string{
		1: `"error":{"code":-32800,"message":"Request cancelled"}`,
		2: `"result":{"outcome":{"outcome":"selected","optionId":"never offered"}}`,
		3: `"result":{"outcome":{"outcome":"_new","optionId":"ok"}}`,
	} {
		by.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s_1","prompt":[]}}`, id)
		by.send(`{"jsonrpc":"2.0","id":%s,%s}`, idOf(t, by.wantPart("request_permission")), answer)
		by.wantPart(`"refusal"`)
	}
}

// A prompt that waits in the queue behind a session/cancel is not taken for one that
// was stopped by it: it gets its own.
func TestACP_46_L9_prompt_behind_the_cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientEnd, agentEnd, w := newWire(t, true, false)
		c := acp.NewClient(clientEnd, acp.ClientOptions{Info: acp.Info{Name: "editor"}})
		endConn(t, c.Conn())
		agent := newRaw(t, agentEnd)
		go func() { _, _ = c.Initialize(t.Context()) }()
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{}}}`, idOf(t, agent.next()))
		synctest.Wait()
		prompt := func(ctx context.Context) <-chan error {
			return async(func() error { _, err := c.Prompt(ctx, "s", acp.Text("x")); return err })
		}
		one, stopOne := context.WithCancel(t.Context())
		two, stopTwo := context.WithCancel(t.Context())
		first := prompt(one)
		firstID := idOf(t, agent.next())
		stopOne()
		agent.wantPart("session/cancel")
		second := prompt(two)
		secondID := idOf(t, agent.wantPart("session/prompt"))
		stopTwo()
		agent.wantPart("session/cancel")
		for _, id := range []string{firstID, secondID} {
			agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"cancelled"}}`, id)
		}
		if err := errors.Join(<-first, <-second); err != nil {
			t.Error(err)
		}
		if n := w.count("session/cancel"); n != 2 {
			t.Errorf("%d session/cancel", n)
		}
	})
}

// The other methods that wait at the client: with the capability, without it, and
// cancelled.
func TestACP_60_A5_client_methods(t *testing.T) {
	type outcome struct {
		text string
		err  error
	}
	do := map[string]func(ctx context.Context, b both, session string) outcome{
		"elicitation/create": func(ctx context.Context, b both, session string) outcome {
			got, err := b.agent.Elicit(ctx, map[string]any{"sessionId": session, "message": "?", "mode": "form", "requestedSchema": map[string]any{"type": "object", "properties": map[string]any{}}})
			return outcome{got.Action, err}
		},
		"fs/read_text_file": func(ctx context.Context, b both, session string) outcome {
			got, err := b.agent.ReadTextFile(ctx, session, "/w/x")
			return outcome{got, err}
		},
		"fs/write_text_file": func(ctx context.Context, b both, session string) outcome {
			return outcome{"", b.agent.WriteTextFile(ctx, session, "/w/x", "text")}
		},
		"terminal/output": func(ctx context.Context, b both, session string) outcome {
			term, err := b.agent.CreateTerminal(ctx, acp.TerminalRequest{Session: session, Command: "x"})
			if err != nil {
				return outcome{"", err}
			}
			got, err := term.Output(ctx)
			return outcome{string(got), errors.Join(err, term.Release(ctx), term.Release(ctx))}
		},
	}
	answers := map[string]string{
		"elicitation/create": `{"action":"accept","content":{}}`, "fs/read_text_file": `{"content":"text"}`, "fs/write_text_file": `{}`,
		"terminal/create": `{"terminalId":"t"}`, "terminal/output": `{"output":"","truncated":false}`, "terminal/release": `{}`,
	}
	want := map[string]string{"elicitation/create": "accept", "fs/read_text_file": "text", "terminal/output": `{"output":"","truncated":false}`}
	for method, try := range do {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := false
				co := acp.ClientOptions{Options: acp.Options{Handler: func(ctx context.Context, r *acp.Request) (any, error) {
					if hang {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return json.RawMessage(answers[r.Method()]), nil
				}}}
				none := newBoth(t, testAgent(nil), co)
				if got := try(t.Context(), none, "s"); !errors.Is(got.err, acp.ErrUnsupported) {
					t.Errorf("without the capability: %+v", got)
				}
				co.Capabilities = json.RawMessage(`{"terminal":true,"elicitation":{"form":{}},"fs":{"readTextFile":true,"writeTextFile":true}}`)
				b := newBoth(t, testAgent(nil), co)
				if got := try(t.Context(), b, "s"); got.err != nil || got.text != want[method] {
					t.Errorf("got %+v", got)
				}
				hang = true
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if got := try(ctx, b, "s"); !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, context.DeadlineExceeded) {
					t.Errorf("cancelled: %+v", got)
				}
			})
		})
	}
}

func TestSessions_load_and_resume(t *testing.T) {
	ao := testAgent(nil)
	back := func(_ context.Context, s *acp.SessionRequest) (*acp.SessionResult, error) {
		if s.Session != "old" || s.Cwd != "/w" {
			t.Errorf("asked for %+v", s)
		}
		return nil, nil
	}
	ao.LoadSession, ao.ResumeSession = back, back
	ao.CloseSession = func(context.Context, string) error { return nil }
	ao.Capabilities = json.RawMessage(`{"loadSession":true,"sessionCapabilities":{"close":{},"resume":{}}}`)
	b := newBoth(t, ao, acp.ClientOptions{})
	if err := b.client.CloseSession(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	title := map[string]string{"sessionUpdate": "session_info_update", "title": "x"}
	if err := b.agent.Update("old", title); !errors.Is(err, acp.ErrOver) {
		t.Errorf("after the close: %v", err)
	}
	for _, open := range []func(context.Context, acp.SessionRequest) (acp.SessionResult, error){b.client.LoadSession, b.client.ResumeSession} {
		if _, err := open(t.Context(), acp.SessionRequest{Session: "old", Cwd: "/w"}); err != nil {
			t.Error(err)
		}
	}
	if err := b.agent.Update("old", title); err != nil { // it is open again
		t.Error(err)
	}
	plain := newBoth(t, testAgent(nil), acp.ClientOptions{})
	var peer *acp.Error
	if _, err := plain.client.LoadSession(t.Context(), acp.SessionRequest{Session: "old", Cwd: "/w"}); !errors.As(err, &peer) || peer.Code != acp.CodeMethodNotFound {
		t.Errorf("got %v", err)
	}
}

// A program that forgets what it must give learns it when it is written, not from a
// user.
func TestMistakes_in_the_calling_code(t *testing.T) {
	for name, do := range map[string]func(acp.Transport){
		"no role":     func(tr acp.Transport) { acp.NewConn(tr, acp.Options{}) },
		"no agent":    func(tr acp.Transport) { acp.NewAgent(tr, acp.AgentOptions{}) },
		"no identity": func(tr acp.Transport) { acp.NewClient(tr, acp.ClientOptions{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", name)
				}
			}()
			tr, _ := acp.NewPipe()
			do(tr)
		}()
	}
}

// What an author gives that cannot be sent is refused with a clear error, and
// nothing passes.
func TestMistakes_in_values(t *testing.T) {
	var turnErr error
	b := newBoth(t, testAgent(func(_ context.Context, turn *acp.Turn) (acp.StopReason, error) {
		turnErr = turn.Update(nil)
		return acp.StopEndTurn, nil
	}), acp.ClientOptions{})
	if _, err := b.client.Prompt(t.Context(), "s", acp.Text("x")); err != nil || !errors.Is(turnErr, acp.ErrBadRequest) {
		t.Errorf("got %v, %v", err, turnErr)
	}
	before := len(b.wire.all())
	for name, try := range map[string]func() error{
		"no content":    func() error { _, err := b.client.Prompt(t.Context(), "s", nil); return err },
		"text":          func() error { _, err := b.client.Prompt(t.Context(), "s", "hello"); return err },
		"broken JSON":   func() error { return b.client.Conn().Call(t.Context(), "_x", json.RawMessage(`{`), nil) },
		"no JSON value": func() error { return b.client.Conn().Notify("_x", func() {}) },
		"update":        func() error { return b.agent.Update("s", []int{1}) },
		"background":    func() error { return b.agent.Background("s", json.RawMessage(`[`)) },
		"no options": func() error {
			_, err := b.agent.RequestPermission(t.Context(), acp.Permission{Session: "s"})
			return err
		},
	} {
		if err := try(); !errors.Is(err, acp.ErrBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := b.wire.all(); len(got) != before {
		t.Errorf("sent %q", got[before:])
	}
}

// Both mechanisms beside each other: one request is stopped by its id while the turn
// goes on, and session/cancel stops the turn and no other request.
func TestACP_2_30_both_mechanisms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ao := testAgent(func(ctx context.Context, _ *acp.Turn) (acp.StopReason, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		ao.Handler = echo
		b := newBoth(t, ao, acp.ClientOptions{})
		turn, stopTurn := context.WithCancel(t.Context())
		one, stopOne := context.WithCancel(t.Context())
		two, stopTwo := context.WithCancel(t.Context())
		defer stopTwo()
		var got acp.PromptResult
		prompt := async(func() (err error) { got, err = b.client.Prompt(turn, "s", acp.Text("x")); return err })
		first := async(func() error { return b.client.Conn().Call(one, "_wait/1", nil, nil) })
		second := async(func() error { return b.client.Conn().Call(two, "_wait/2", nil, nil) })
		synctest.Wait()
		stopOne()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the request: %v", err)
		}
		time.Sleep(time.Minute)
		stopTurn()
		if err := <-prompt; err != nil || got.Reason != acp.StopCancelled {
			t.Errorf("the turn: %+v, %v", got, err)
		}
		time.Sleep(time.Minute)
		select {
		case err := <-second:
			t.Errorf("the other request has ended: %v", err)
		default:
		}
		stopTwo()
		<-second
		if n, m := b.wire.count("session/cancel"), b.wire.count("$/cancel_request"); n != 1 || m != 2 {
			t.Errorf("%d session/cancel, %d cancels of requests", n, m)
		}
	})
}

// session/cancel while session/load of that session runs: the live turn is hit all
// the same (A7).
func TestACP_A7_cancel_while_load_runs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		ao := testAgent(func(ctx context.Context, _ *acp.Turn) (acp.StopReason, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		ao.LoadSession = func(context.Context, *acp.SessionRequest) (*acp.SessionResult, error) {
			<-release
			return nil, nil
		}
		b := newBoth(t, ao, acp.ClientOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		var got acp.PromptResult
		prompt := async(func() (err error) { got, err = b.client.Prompt(ctx, "s", acp.Text("x")); return err })
		load := async(func() error {
			_, err := b.client.LoadSession(t.Context(), acp.SessionRequest{Session: "s", Cwd: "/w"})
			return err
		})
		synctest.Wait()
		cancel()
		if err := <-prompt; err != nil || got.Reason != acp.StopCancelled {
			t.Errorf("got %+v, %v", got, err)
		}
		close(release)
		if err := <-load; err != nil {
			t.Error(err)
		}
	})
}

// A late yes that comes in the very moment in which the dialog is withdrawn: the
// handler sees its ctx end and answers at once, before anybody has answered for it.
func TestACP_53_A3_late_allow_at_once(t *testing.T) {
	c, agent, _ := clientConn(t, acp.Options{Handler: func(ctx context.Context, _ *acp.Request) (any, error) {
		<-ctx.Done()
		return acp.PermissionAnswer{Option: "ok"}, nil
	}})
	greet(t, c, agent, 1, `{}`)
	for i := range 2000 {
		agent.send(`{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"x"},"options":[]}}`, i)
		agent.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%d}}`, i)
		agent.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"outcome":{"outcome":"cancelled"}}}`, i))
	}
}
