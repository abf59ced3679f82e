package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

// The requirements of the stabilised form, of 2026-06-29: $/cancel_request.

func TestACP_33_42_stable_ids(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, _ := agentConn(t, acp.Options{})
		client.hello(helloClient)
		for _, id := range []string{`7`, `"7"`, `1.5`, `1.0`, `1`, `1152921504606846976`, `"a"`, `-3`, `1e2`, `null`} {
			client.send(`{"jsonrpc":"2.0","id":%s,"method":"_wait"}`, id)
		}
		synctest.Wait()
		// Each hits its own: type and text count.
		for _, id := range []string{`"7"`, `7`, `1`, `1.0`, `1.5`, `1152921504606846976`, `"\u0061"`, `-3`, `1e2`, `null`} {
			client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s,"_meta":{"x":1}}}`, id)
			want := id
			if id == `"\u0061"` {
				want = `"a"` // the answer has the request's own text
			}
			client.wantPart(`"id":`+want+`,`, `-32800`)
		}
		client.silent(time.Second)
	})
}

func TestACP_32_33_34_39_stable_sender(t *testing.T) {
	for version := acp.Version1; version <= acp.Version2; version++ {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, agent, _ := clientConn(t, acp.Options{})
				greet(t, c, agent, version, `{}`) // no capability is needed
				ctx, cancel := context.WithCancelCause(t.Context())
				var got json.RawMessage
				done := async(func() error { return c.Call(ctx, "session/list", nil, &got) })
				id := idOf(t, agent.next())
				why := errors.New("the user looked away")
				cancel(why)
				agent.want(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + id + `}}`)
				// It waits for the response, and takes what comes first (ACP-37, ACP-39).
				agent.send(`{"jsonrpc":"2.0","method":"_progress","params":{}}`)
				agent.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"Request cancelled"}}`, id)
				err := <-done
				if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || !errors.Is(err, belay.ErrCancelled) {
					t.Errorf("got %v", err)
				}
				var stop *acp.CancelError
				if errors.As(err, &stop) && stop.Verdict != belay.Acknowledged {
					t.Errorf("verdict %v", stop.Verdict)
				}
			})
		})
	}
}

func TestACP_35_36_L2_result_that_comes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, agent, _ := clientConn(t, acp.Options{})
		greet(t, c, agent, 1, `{}`)
		ctx, cancel := context.WithCancel(t.Context())
		var got json.RawMessage
		done := async(func() error { return c.Call(ctx, "_read", nil, &got) })
		id := idOf(t, agent.next())
		cancel()
		agent.wantPart("$/cancel_request")
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"content":"first 400 lines"}}`, id)
		if err := <-done; err != nil || string(got) != `{"content":"first 400 lines"}` {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

// -32800 that this caller did not ask for is somebody else's Stop.
func TestACP_38_L2_cancelled_by_somebody_else(t *testing.T) {
	c, agent, _ := clientConn(t, acp.Options{})
	greet(t, c, agent, 1, `{}`)
	done := async(func() error { return c.Call(t.Context(), "_read", nil, nil) })
	id := idOf(t, agent.next())
	agent.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"whatever it says"}}`, id)
	err := <-done
	if !errors.Is(err, belay.ErrCancelled) || errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestACP_37_notifications_first(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, _ := agentConn(t, acp.Options{Handler: func(ctx context.Context, r *acp.Request) (any, error) {
			<-ctx.Done()
			_ = r.Conn().Notify("_pending", map[string]int{"n": 1})
			return nil, ctx.Err()
		}})
		client.hello(helloClient)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		client.want(`{"jsonrpc":"2.0","method":"_pending","params":{"n":1}}`)
		client.wantPart(`"id":1`, `-32800`)
	})
}

// One live id in each direction: a cancel hits the request that its sender made.
func TestACP_42_same_id_in_both_directions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client, _ := agentConn(t, acp.Options{})
		client.hello(helloClient)
		done := async(func() error { return c.Call(t.Context(), "_ask", nil, nil) })
		id := idOf(t, client.wantPart("_ask"))
		// Only the receiver has it open: nothing is hit, and nothing is kept of it.
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, id)
		client.silent(time.Second)
		client.send(`{"jsonrpc":"2.0","id":%s,"method":"_wait"}`, id)
		client.silent(time.Second)
		// Both have it open: the sender's own is hit.
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, id)
		client.wantPart(`"id":`+id, `-32800`)
		client.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Own ids are strings, never the same twice.
func TestACP_42_L10_own_ids(t *testing.T) {
	c, agent, _ := clientConn(t, acp.Options{})
	greet(t, c, agent, 1, `{}`)
	seen := map[string]bool{}
	for range 50 {
		done := async(func() error { return c.Call(t.Context(), "_x", nil, nil) })
		id := idOf(t, agent.next())
		if id[0] != '"' || seen[id] {
			t.Fatalf("id %s", id)
		}
		seen[id] = true
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// A cancel in whichever form and under whichever name is heard, declared or not, in
// both versions and both roles.
func TestACP_45_both_forms_are_heard(t *testing.T) {
	cancels := []string{
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"x"}}`,
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"requestId":"x"}}`,
		`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"x"}}`,
		`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"id":"x","requestId":"x"}}`,
	}
	for version := acp.Version1; version <= acp.Version2; version++ {
		for i, line := range cancels {
			t.Run(fmt.Sprintf("v%d agent %d", version, i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, agent, _ := newWire(t, false, true)
					o := testAgent(nil)
					o.Versions, o.Handler = []int{1, 2}, echo
					a := acp.NewAgent(agent, o)
					endConn(t, a.Conn())
					by := newRaw(t, client)
					by.hello(fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%d,"info":{"name":"h","version":"1"}}}`, version))
					by.send(`{"jsonrpc":"2.0","id":"x","method":"_wait"}`)
					synctest.Wait()
					by.send("%s", line)
					by.wantPart(`"id":"x"`, `-32800`)
				})
			})
			t.Run(fmt.Sprintf("v%d client %d", version, i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, agent, _ := clientConn(t, acp.Options{Handler: echo})
					greet(t, c, agent, version, `{}`)
					agent.send(`{"jsonrpc":"2.0","id":"x","method":"_wait"}`)
					synctest.Wait()
					agent.send("%s", line)
					agent.wantPart(`"id":"x"`, `-32800`)
				})
			})
		}
	}
}

// The form is that of the peer's own cancels, and one cancel is one line.
func TestACP_46_47_form_follows_the_peer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, agent, w := clientConn(t, acp.Options{})
		greet(t, c, agent, 1, `{}`)
		for _, form := range []struct{ theirs, ours string }{
			{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"none"}}`, `"$/cancelRequest"`},
			{`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"none"}}`, `"$/cancel_request"`},
			{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":[]}`, `"$/cancel_request"`}, // malformed: no cancel
		} {
			agent.send("%s", form.theirs)
			synctest.Wait()
			before := w.count("> ", "$/cancel")
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() error { return c.Call(ctx, "_x", nil, nil) })
			id := idOf(t, agent.next())
			cancel()
			agent.wantPart(form.ours, id)
			agent.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"Cancelled"}}`, id)
			<-done
			synctest.Wait()
			if n := w.count("> ", "$/cancel") - before; n != 1 {
				t.Errorf("%d cancels for one", n)
			}
		}
	})
}

func TestACP_47_setting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, agent, w := clientConn(t, acp.Options{CancelWait: time.Second, Dialect: map[string]acp.Form{"hand": acp.FormNone}})
		greet(t, c, agent, 1, `{"cancellation":{"request":true}}`)
		ctx, cancel := context.WithCancel(t.Context())
		done := async(func() error { return c.Call(ctx, "_x", nil, nil) })
		agent.next()
		cancel()
		<-done
		if n := w.count("> ", "$/cancel"); n != 0 {
			t.Errorf("%d cancels were sent to a peer whose setting is none", n)
		}
	})
}

// An editor in the first form and an agent in the stable one, with the library
// between them as a proxy: each cancels requests of its own, and each hop has its
// own ids and its own form.
func TestACP_43_47_two_dialects_through_a_proxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front, editorSide, _ := newWire(t, false, true)
		agentSide, back, _ := newWire(t, true, false)
		var up, down atomic.Pointer[acp.Conn]
		relay := func(to *atomic.Pointer[acp.Conn]) acp.Handler {
			return func(ctx context.Context, r *acp.Request) (any, error) {
				var got json.RawMessage
				err := to.Load().Call(ctx, r.Method(), r.Params(), &got)
				return got, err
			}
		}
		down.Store(acp.NewConn(agentSide, acp.Options{Role: acp.RoleClient, Handler: relay(&up)}))
		endConn(t, down.Load())
		up.Store(acp.NewConn(editorSide, acp.Options{Role: acp.RoleAgent, Handler: relay(&down)}))
		endConn(t, up.Load())
		editor, agent := newRaw(t, front), newRaw(t, back)

		editor.send(helloClientSeed)
		id := idOf(t, agent.wantPart("initialize"))
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{}}}`, id)
		editor.answer("0")

		editor.send(`{"jsonrpc":"2.0","id":77,"method":"session/list","params":{}}`)
		id = idOf(t, agent.wantPart("session/list"))
		if id == "77" {
			t.Error("the id of one hop was used on the other")
		}
		agent.send(`{"jsonrpc":"2.0","id":77,"method":"_ask","params":{}}`) // the same id, the other way
		back1 := idOf(t, editor.wantPart("_ask"))

		editor.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":77}}`)
		agent.want(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + id + `}}`)
		agent.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":77}}`)
		editor.want(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":` + back1 + `}}`)

		agent.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"Request cancelled"}}`, id)
		editor.wantPart(`"id":77`, `-32800`)
		editor.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"Cancelled"}}`, back1)
		agent.wantPart(`"id":77`, `-32800`)
	})
}

// MCP over ACP and calls that a proxy wraps: the outer id is what a cancel names.
func TestACP_43_44_outer_id(t *testing.T) {
	for method, inner := range map[string]string{
		"mcp/message":     `{"message":{"jsonrpc":"2.0","id":"in","method":"tools/call"}}`,
		"proxy/successor": `{"method":"session/prompt","params":{"sessionId":"s"},"id":"in"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			_, client, _ := agentConn(t, acp.Options{Handler: func(ctx context.Context, _ *acp.Request) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}})
			client.hello(helloClient)
			client.send(`{"jsonrpc":"2.0","id":"out","method":"%s","params":%s}`, method, inner)
			synctest.Wait()
			client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"in"}}`)
			client.silent(time.Second)
			client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"out"}}`)
			client.wantPart(`"id":"out"`, `-32800`)
		})
	}
}

// Three hops: the caller's ctx ends three handlers, all with cause peer, and the
// answers come back child first (ACP-14, ACP-24…26, ACP-40, ACP-L4).
func TestACP_24_25_26_40_L4_cascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type hop struct {
			client *acp.Conn
			wire   *wire
		}
		var hops []hop
		causes := make(chan error, 3)
		ids := make(chan string, 3)
		var order []string
		var next *acp.Conn
		for depth := 3; depth >= 1; depth-- { // the deepest first
			below := next
			client, agent, w := newWire(t, true, true)
			name := fmt.Sprint("hop ", depth)
			a := acp.NewConn(agent, acp.Options{Role: acp.RoleAgent, Handler: func(ctx context.Context, r *acp.Request) (any, error) {
				if r.Method() == acp.MethodInitialize {
					return json.RawMessage(`{"protocolVersion":1}`), nil
				}
				ids <- r.ID().Raw()
				var err error
				if below == nil {
					<-ctx.Done()
					err = context.Cause(ctx)
					time.Sleep(50 * time.Millisecond) // it takes a while to end
				} else {
					err = below.Call(ctx, "_work", nil, nil)
				}
				causes <- context.Cause(ctx)
				order = append(order, name)
				return nil, err
			}})
			c := acp.NewConn(client, acp.Options{Role: acp.RoleClient})
			endConn(t, a)
			endConn(t, c)
			if err := c.Call(t.Context(), acp.MethodInitialize, json.RawMessage(`{"protocolVersion":1}`), nil); err != nil {
				t.Fatal(err)
			}
			if depth > 1 { // so that the ids of the hops differ
				if err := c.Notify("_x", nil); err != nil {
					t.Fatal(err)
				}
			}
			hops = append(hops, hop{c, w})
			next = c
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := async(func() error { return next.Call(ctx, "_work", nil, nil) })
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller got %v", err)
		}
		for range 3 {
			var cause *belay.Cancellation
			if err := <-causes; !errors.As(err, &cause) || cause.Cause != belay.CausePeer {
				t.Errorf("a handler ended with %v", err)
			}
		}
		if want := []string{"hop 3", "hop 2", "hop 1"}; !slices.Equal(order, want) {
			t.Errorf("the handlers returned in the order %v, want %v", order, want)
		}
		for _, h := range hops {
			if n := h.wire.count("> ", "$/cancel_request"); n != 1 {
				t.Errorf("%d cancels: %q", n, h.wire.all())
			}
		}
	})
}

// Children that the handler does not wait for are answered before it all the same,
// and told in the same instant.
func TestACP_26_40_L4_children_first(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, _ := agentConn(t, acp.Options{Handler: func(ctx context.Context, r *acp.Request) (any, error) {
			for range 2 {
				go func() { _ = r.Conn().Call(ctx, "_child", nil, nil) }()
			}
			<-ctx.Done()
			return nil, ctx.Err() // at once
		}})
		client.hello(helloClient)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
		one, two := idOf(t, client.wantPart("_child")), idOf(t, client.wantPart("_child"))
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		client.wantPart("$/cancel_request")
		client.wantPart("$/cancel_request")
		client.silent(time.Second)
		client.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"Request cancelled"}}`, one)
		client.silent(time.Second)
		client.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, two)
		client.wantPart(`"id":1`, `-32800`)
	})
}

// Calls that a handler leaves behind when it returns are withdrawn: nothing leaks.
func TestACP_26_what_is_left_behind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, asked := make(chan error, 1), make(chan struct{})
		_, client, _ := agentConn(t, acp.Options{Handler: func(ctx context.Context, r *acp.Request) (any, error) {
			go func() { left <- r.Conn().Call(ctx, "_child", nil, nil) }()
			<-asked
			return "done", nil
		}})
		client.hello(helloClient)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
		child := idOf(t, client.wantPart("_child"))
		close(asked)
		got := []string{client.next(), client.next()} // it does not wait for them; a cancel may go ahead
		slices.Sort(got)
		if got[0] != `{"jsonrpc":"2.0","id":1,"result":"done"}` || !strings.Contains(got[1], "$/cancel_request") {
			t.Fatalf("got %q", got)
		}
		client.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"Request cancelled"}}`, child)
		var cause *belay.Cancellation
		if err := <-left; !errors.As(err, &cause) || cause.Cause != belay.CauseParent {
			t.Errorf("got %v", err)
		}
	})
}
