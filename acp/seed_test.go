package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

// The requirements of the first form, of 2025-11-13: $/cancelRequest.

func TestACP_1_2_3_seed_one_request_by_its_id(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, _ := agentConn(t, acp.Options{})
		client.hello(helloClientSeed)
		client.send(`{"jsonrpc":"2.0","id":"q-3","method":"_wait","params":{}}`)
		client.send(`{"jsonrpc":"2.0","id":4,"method":"_wait","params":{}}`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"q-3"}}`)
		client.wantPart(`"id":"q-3"`, `"code":-32800`)
		client.silent(time.Second) // the other one goes on
		client.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":4}}`)
		client.wantPart(`"id":4`, `"code":-32800`)
	})
}

func TestACP_3_7_11_seed_sender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, agent, _ := clientConn(t, acp.Options{}) // it has declared nothing about itself (ACP-7)
		greet(t, c, agent, 1, `{"cancellation":{"request":true}}`)
		for _, method := range []string{"session/list", "_any/thing", "session/delete_everything"} { // ACP-11: every request
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() error { return c.Call(ctx, method, nil, nil) })
			id := idOf(t, agent.wantPart(method))
			cancel()
			agent.want(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":` + id + `}}`)
			agent.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"Cancelled"}}`, id)
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
}

func TestACP_4_5_6_declaration(t *testing.T) {
	for _, tc := range []struct {
		name, caps string // of the client
		o          acp.Options
		declared   bool
	}{
		{"a client that used the field", `{"cancellation":{"request":true}}`, acp.Options{}, true},
		{"a client that declares false", `{"cancellation":{"request":false}}`, acp.Options{}, true},
		{"the other name", `{"supportsRequestCancellation":true}`, acp.Options{}, true},
		{"a client that does not know it", `{}`, acp.Options{}, false},
		{"by option", `{}`, acp.Options{Declare: true}, true},
		{"not heard, so not declared", `{"cancellation":{"request":true}}`, acp.Options{Deaf: true, Declare: true}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, client, _ := agentConn(t, tc.o)
			got := client.hello(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":` + tc.caps + `}}`)
			var answer struct {
				Result struct {
					Caps struct {
						Cancellation struct{ Request bool }
					} `json:"agentCapabilities"`
				}
			}
			if err := json.Unmarshal([]byte(got), &answer); err != nil {
				t.Fatal(err)
			}
			if answer.Result.Caps.Cancellation.Request != tc.declared {
				t.Errorf("got %s, want declared %v", got, tc.declared)
			}
		})
	}
	t.Run("client, by option only (ACP-49)", func(t *testing.T) {
		for _, declare := range []bool{false, true} {
			client, agent, w := newWire(t, true, true)
			a := acp.NewAgent(agent, testAgent(nil))
			endConn(t, a.Conn())
			c := acp.NewClient(client, acp.ClientOptions{Info: acp.Info{Name: "x"}, Options: acp.Options{Declare: declare}})
			endConn(t, c.Conn())
			if _, err := c.Initialize(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := 0
			if declare {
				want = 1
			}
			if got := w.count("> ", "initialize", `"clientCapabilities":{"cancellation":{"request":true}}`); got != want {
				t.Errorf("declare %v: %q", declare, w.all())
			}
			if got := w.count("< ", `"cancellation":{"request":true}`); got != want {
				t.Errorf("declare %v: the agent answers as it was asked: %q", declare, w.all())
			}
		}
	})
}

// A peer without support is sent nothing; one whose answer is not there yet is not
// either.
func TestACP_8_9_29_47_48_no_cancel_byte(t *testing.T) {
	for _, tc := range []struct{ name, caps string }{
		{"declared false", `{"cancellation":{"request":false}}`},
		{"the other name", `{"supportsRequestCancellation":false}`},
		{"not yet initialized", ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, agent, _ := clientConn(t, acp.Options{})
				if tc.caps != "" {
					greet(t, c, agent, 1, tc.caps)
					// It may cancel, and still not want to be cancelled (ACP-27).
					agent.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"none"}}`)
				}
				ctx, cancel := context.WithCancel(t.Context())
				started := time.Now()
				done := async(func() error { return c.Call(ctx, "session/list", nil, nil) })
				agent.wantPart("session/list")
				cancel()
				agent.silent(4 * time.Second)
				err := <-done
				var stop *acp.CancelError
				if !errors.As(err, &stop) || stop.Verdict != belay.Unreachable {
					t.Errorf("got %v, want unreachable", err)
				}
				if took := time.Since(started); took != acp.DefaultCancelWait {
					t.Errorf("settled after %v", took)
				}
			})
		})
	}
}

func TestACP_9_10_initialize_cannot_be_cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var seen error
		client, agent, _ := newWire(t, false, true)
		c := acp.NewConn(agent, acp.Options{Role: acp.RoleAgent, Handler: func(ctx context.Context, r *acp.Request) (any, error) {
			if r.Method() != acp.MethodInitialize {
				return echo(ctx, r)
			}
			<-release
			seen = ctx.Err()
			return json.RawMessage(`{"protocolVersion":1}`), nil
		}})
		endConn(t, c)
		by := newRaw(t, client)
		// Before it is even there, while it is served, in both forms; and another
		// request, which nothing can cancel before the exchange is done (ACP-9).
		by.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":0}}`)
		by.send(helloClientSeed)
		by.send(`{"jsonrpc":"2.0","id":1,"method":"_wait"}`)
		synctest.Wait()
		by.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":0}}`)
		by.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}`)
		by.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		by.silent(time.Second)
		close(release)
		by.wantPart(`"id":0`, `"result"`)
		if seen != nil {
			t.Errorf("the handler's ctx had ended: %v", seen)
		}
		by.silent(time.Second) // request 1 lives
		by.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":0}}`)
		by.silent(time.Second)
		by.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
		by.wantPart(`"id":1`, `-32800`)
	})
}

func TestACP_10_A6_L7_caller_gives_initialize_up(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, agent, _ := clientConn(t, acp.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := async(func() error { return c.Call(ctx, acp.MethodInitialize, map[string]int{"protocolVersion": 1}, nil) })
		agent.wantPart("initialize")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		<-c.Done() // the connection is closed
		if line, ok := <-agent.lines; ok {
			t.Errorf("sent %s", line)
		}
	})
}

func TestACP_12_29_not_heard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client, _ := agentConn(t, acp.Options{Deaf: true})
		client.hello(helloClient)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_wait"}`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		client.silent(time.Minute)
		if n := c.Counts().Cancels; n != 0 {
			t.Errorf("%d cancels were heard", n)
		}
	})
}

func TestACP_13_14_15_18_error_answer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nested error
		_, client, _ := agentConn(t, acp.Options{Handler: func(ctx context.Context, _ *acp.Request) (any, error) {
			below, cancel := context.WithTimeout(ctx, time.Hour) // a nested activity
			defer cancel()
			<-below.Done()
			nested = context.Cause(below)
			return nil, below.Err()
		}})
		client.hello(helloClientSeed)
		client.send(`{"jsonrpc":"2.0","id":5,"method":"_work"}`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":5}}`)
		line := client.next()
		var got struct {
			ID    int
			Error struct {
				Code    int
				Message string
				Data    map[string]any
			}
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		d := got.Error.Data
		if got.ID != 5 || got.Error.Code != -32800 || got.Error.Message != "Cancelled" || d["cause"] != "peer" || d["requestId"] != 5.0 || d["partial"] != false || d["run"] == "" {
			t.Errorf("got %s", line)
		}
		var cause *belay.Cancellation
		if !errors.As(nested, &cause) || cause.Cause != belay.CausePeer || cause.By != "hand" {
			t.Errorf("the nested activity ended with %v", nested)
		}
	})
}

func TestACP_15_16_partial_result(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := belay.NewTree(belay.Options{})
		_, client, _ := agentConn(t, acp.Options{Tree: tree, Handler: func(ctx context.Context, _ *acp.Request) (any, error) {
			<-ctx.Done()
			return map[string]string{"content": "first 400 lines"}, nil
		}})
		client.hello(helloClientSeed)
		client.send(`{"jsonrpc":"2.0","id":3,"method":"_read"}`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":3}}`)
		client.want(`{"jsonrpc":"2.0","id":3,"result":{"content":"first 400 lines"}}`)
		synctest.Wait()
		runs, err := tree.List(t.Context(), belay.Filter{Ended: true})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, i := range runs {
			found = found || i.Name == "_read" && i.Outcome == belay.Cancelled && i.Work == belay.Stopped && i.Verdict == belay.Confirmed
		}
		if !found {
			t.Errorf("the runs are %+v", runs)
		}
		_ = tree.Close(t.Context())
	})
}

// ACP-17: how fast it obeys is its own affair.
func TestACP_17_39_slow_to_obey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, _ := agentConn(t, acp.Options{Handler: func(ctx context.Context, _ *acp.Request) (any, error) {
			<-ctx.Done()
			time.Sleep(4 * time.Second)
			return "late, but real", nil
		}})
		client.hello(helloClientSeed)
		client.send(`{"jsonrpc":"2.0","id":3,"method":"_read"}`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":3}}`)
		client.want(`{"jsonrpc":"2.0","id":3,"result":"late, but real"}`)
	})
}

// Cancelled from inside, by whatever: the same on the wire as a peer's cancel.
func TestACP_19_20_21_22_38_L6_internal(t *testing.T) {
	for _, tc := range []struct {
		name  string
		o     acp.Options
		stop  func(r *acp.Request)
		do    acp.Handler
		cause string
	}{
		{name: "the request's own Cancel", stop: func(r *acp.Request) {
			r.Cancel(belay.Cancellation{Cause: belay.CauseOperator, Reason: "project closed"})
		}, cause: "operator"},
		{name: "its run", stop: func(r *acp.Request) { r.Run().Cancel(belay.Cancellation{Cause: belay.CauseUser}) }, cause: "user"},
		{name: "a limit", o: acp.Options{Limit: func(string) time.Duration { return time.Second }}, cause: "deadline"},
		{name: "the handler's own time-out", do: func(ctx context.Context, _ *acp.Request) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}, cause: "deadline"},
		{name: "the handler says so", do: func(context.Context, *acp.Request) (any, error) {
			return nil, belay.ErrCancelled
		}, cause: "user"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := tc.o
				o.Handler = func(ctx context.Context, r *acp.Request) (any, error) {
					if tc.do != nil {
						return tc.do(ctx, r)
					}
					if tc.stop != nil {
						tc.stop(r)
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}
				_, client, _ := agentConn(t, o)
				client.hello(helloClientSeed)
				client.send(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
				client.wantPart(`{"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"Cancelled","data":{"requestId":1,"run":"run_`, `"cause":"`+tc.cause+`","partial":false}}}`)
			})
		})
	}
}

func TestACP_23_finished_first(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client, _ := agentConn(t, acp.Options{})
		client.hello(helloClientSeed)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_x","params":{"a":1}}`)
		client.want(`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`)
		client.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
		client.silent(time.Second)
		if got := c.Counts(); got.Cancels != 0 || got.StrayCancels != 1 || got.EarlyCancels != 0 {
			t.Errorf("%+v", got)
		}
		// The id is used again: the old cancel has left nothing behind.
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_x","params":{"a":2}}`)
		client.want(`{"jsonrpc":"2.0","id":1,"result":{"a":2}}`)
	})
}

func TestACP_27_28_29_scenarios(t *testing.T) {
	for _, tc := range []struct {
		name                                 string
		clientCaps, agentCaps                string
		clientCancelsAgent, agentCancelsBack bool
	}{
		{"scenario 1", `{"cancellation":{"request":false}}`, `{"cancellation":{"request":true}}`, true, false},
		{"scenario 2", `{"cancellation":{"request":true}}`, `{"cancellation":{"request":true}}`, true, true},
		{"scenario 3", `{"cancellation":{"request":false}}`, `{"cancellation":{"request":false}}`, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, agent, w := newWire(t, true, true)
				hello := map[acp.Role]string{
					acp.RoleAgent: `{"protocolVersion":1,"agentCapabilities":` + tc.agentCaps + `}`,
				}
				serve := func(role acp.Role) acp.Handler {
					return func(ctx context.Context, r *acp.Request) (any, error) {
						if r.Method() == acp.MethodInitialize {
							return json.RawMessage(hello[role]), nil
						}
						select {
						case <-ctx.Done():
							return nil, ctx.Err()
						case <-time.After(time.Hour):
							return nil, nil
						}
					}
				}
				a := acp.NewConn(agent, acp.Options{Role: acp.RoleAgent, Handler: serve(acp.RoleAgent)})
				endConn(t, a)
				c := acp.NewConn(client, acp.Options{Role: acp.RoleClient, Handler: serve(acp.RoleClient)})
				endConn(t, c)
				if err := c.Call(t.Context(), acp.MethodInitialize, json.RawMessage(`{"protocolVersion":1,"clientCapabilities":`+tc.clientCaps+`}`), nil); err != nil {
					t.Fatal(err)
				}
				for _, way := range []struct {
					from *acp.Conn
					mark string
					hits bool
				}{{c, "> ", tc.clientCancelsAgent}, {a, "< ", tc.agentCancelsBack}} {
					ctx, cancel := context.WithCancel(t.Context())
					done := async(func() error { return way.from.Call(ctx, "_x", nil, nil) })
					synctest.Wait()
					cancel()
					err := <-done
					var stop *acp.CancelError
					if !errors.As(err, &stop) || (stop.Verdict == belay.Acknowledged) != way.hits {
						t.Errorf("%s%v", way.mark, err)
					}
					want := 0
					if way.hits {
						want = 1
					}
					if got := w.count(way.mark, "$/cancel"); got != want {
						t.Errorf("%d cancels went %s: %q", got, way.mark, w.all())
					}
				}
			})
		})
	}
}
