package acp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay/acp"
)

// The table of bad input: what it gets, and what it changes.
func TestACP_41_bad_input_agent_side(t *testing.T) {
	const live = `{"jsonrpc":"2.0","id":1,"method":"_wait"}`
	for _, tc := range []struct {
		name    string
		version int // 0: 1
		send    []string
		want    [][]string // lines that come, each with these texts; request 1 lives afterwards
		count   func(acp.Counts) bool
	}{
		{
			name: "cancel of an unknown id", send: []string{`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":99}}`},
			count: func(n acp.Counts) bool { return n.EarlyCancels == 1 },
		},
		{
			name: "of a finished id", send: []string{`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}`},
			count: func(n acp.Counts) bool { return n.StrayCancels == 1 && n.EarlyCancels == 0 },
		},
		{name: "params missing", send: []string{`{"jsonrpc":"2.0","method":"$/cancelRequest"}`}, count: malformed},
		{name: "params null", send: []string{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":null}`}, count: malformed},
		{name: "params an array", send: []string{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":[1]}`}, count: malformed},
		{name: "id an object", send: []string{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":{"id":1}}}`}, count: malformed},
		{name: "id a boolean", send: []string{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":true}}`}, count: malformed},
		{name: "id missing", send: []string{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{}}`}, count: malformed},
		{name: "id and requestId differ", send: []string{`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"id":1,"requestId":2}}`}, count: malformed},
		{name: "cancel with an id of its own", send: []string{
			`{"jsonrpc":"2.0","id":"own","method":"$/cancel_request","params":{"requestId":1}}`,
			`{"jsonrpc":"2.0","id":"own2","method":"$/cancelRequest","params":{"id":1}}`,
		}, want: [][]string{{`"id":"own"`, `-32601`}, {`"id":"own2"`, `-32601`}}},
		{name: "the string of a number", send: []string{`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"1"}}`}},
		{name: "another text of a number", send: []string{`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1.0}}`}},
		{
			name: "cancel of null", send: []string{`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":null}}`},
			count: func(n acp.Counts) bool { return n.EarlyCancels == 0 && n.StrayCancels == 1 },
		},
		{name: "a request with id null, v1", send: []string{`{"jsonrpc":"2.0","id":null,"method":"_x","params":{}}`}, want: [][]string{{`"id":null`, `"result"`}}},
		{name: "a request with id null, v2", version: 2, send: []string{`{"jsonrpc":"2.0","id":null,"method":"_x","params":{}}`}, want: [][]string{{`"id":null`, `-32600`}}},
		{name: "session/cancel of an unknown session", send: []string{`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"nobody"}}`}},
		{name: "session/cancel without a session", send: []string{`{"jsonrpc":"2.0","method":"session/cancel","params":{}}`, `{"jsonrpc":"2.0","method":"session/cancel"}`}},
		{name: "session/cancel with a session that is no string", send: []string{`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":7}}`}},
		{name: "session/cancel with an id", send: []string{`{"jsonrpc":"2.0","id":5,"method":"session/cancel","params":{"sessionId":"s"}}`}, want: [][]string{{`"id":5`, `-32601`}}},
		{name: "not JSON", send: []string{`{"jsonrpc":`}, want: [][]string{{`"id":null`, `-32700`}}},
		{name: "text", send: []string{`hello`}, want: [][]string{{`"id":null`, `-32700`}}},
		{name: "an array (A11)", send: []string{`[{"jsonrpc":"2.0","id":8,"method":"_x"}]`}, want: [][]string{{`"id":null`, `-32600`}}},
		{name: "no version", send: []string{`{"id":8,"method":"_x"}`}, want: [][]string{{`"id":8`, `-32600`}}},
		{name: "an id that is an object", send: []string{`{"jsonrpc":"2.0","id":{},"method":"_x"}`}, want: [][]string{{`"id":null`, `-32600`}}},
		{name: "an unknown request (ACP-74)", send: []string{`{"jsonrpc":"2.0","id":8,"method":"_unknown"}`}, want: [][]string{{`"id":8`, `-32601`}}},
		{name: "an unknown notification (ACP-74)", send: []string{`{"jsonrpc":"2.0","method":"_unknown"}`, `{"jsonrpc":"2.0","method":"$/unknown","params":{"id":1}}`}},
		{
			name: "an answer to nothing", send: []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":"a-1","result":{}}`},
			count: func(n acp.Counts) bool { return n.StrayAnswers == 2 },
		},
		{name: "an answer without result and error", send: []string{`{"jsonrpc":"2.0","id":"c-1"}`}, want: [][]string{{`"id":"c-1"`, `-32600`}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				version := max(tc.version, 1)
				client, agent, _ := newWire(t, false, true)
				c := acp.NewConn(agent, acp.Options{Role: acp.RoleAgent, Handler: func(ctx context.Context, r *acp.Request) (any, error) {
					switch r.Method() {
					case acp.MethodInitialize:
						return json.RawMessage(fmt.Sprintf(`{"protocolVersion":%d,"info":{"name":"x","version":"1"}}`, version)), nil
					case "_unknown":
						return nil, acp.MethodNotFound(r.Method())
					}
					return echo(ctx, r)
				}})
				endConn(t, c)
				by := newRaw(t, client)
				by.hello(helloClient)
				by.send(live)
				synctest.Wait()
				for _, line := range tc.send {
					by.send("%s", line)
				}
				for _, texts := range tc.want {
					by.wantPart(texts...)
				}
				by.silent(30 * time.Second) // nothing else comes, and request 1 lives
				if n := c.Counts(); tc.count != nil && !tc.count(n) {
					t.Errorf("%+v", n)
				}
				by.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
				by.wantPart(`"id":1`, `-32800`)
			})
		})
	}
}

func malformed(n acp.Counts) bool { return n.MalformedCancels == 1 && n.Cancels == 0 }

func TestACP_45_honoured_with_foreign_members(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, _ := agentConn(t, acp.Options{})
		client.hello(helloClient)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_wait"}`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1,"reason":"why","x":[1]}}`)
		client.wantPart(`"id":1`, `-32800`)
	})
}

func TestACP_41_same_cancel_twice_both_forms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client, _ := agentConn(t, acp.Options{Handler: func(ctx context.Context, _ *acp.Request) (any, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil, ctx.Err()
		}})
		client.hello(helloClient)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		client.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		client.wantPart(`"id":1`, `-32800`)
		client.silent(time.Minute)
		if n := c.Counts(); n.LateResults != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// An id that the peer uses twice at the same time: both are answered, and a cancel
// hits the later one.
func TestACP_42_id_used_twice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, _ := agentConn(t, acp.Options{Handler: func(ctx context.Context, r *acp.Request) (any, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Second):
				return string(r.Params()), nil
			}
		}})
		client.hello(helloClient)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_x","params":["first"]}`)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_x","params":["second"]}`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		client.wantPart(`"id":1`, `-32800`)
		client.wantPart(`"id":1`, `first`)
	})
}

// At the client's side what the agent prints by mistake is dropped, and a malformed
// answer fails its own call.
func TestACP_41_bad_input_client_side(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, agent, w := clientConn(t, acp.Options{})
		greet(t, c, agent, 1, `{}`)
		done := async(func() error { return c.Call(t.Context(), "_x", nil, nil) })
		id := idOf(t, agent.next())
		for _, line := range []string{`Listening on port 3000`, `{"jsonrpc":`, `[1]`, "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"result\":{}}", `{"jsonrpc":"2.0","id":"c-77","result":{}}`} {
			agent.send("%s", line)
		}
		agent.silent(time.Second)
		agent.send(`{"jsonrpc":"2.0","id":%s}`, id)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "malformed") {
			t.Errorf("got %v", err)
		}
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id) // the second one
		done = async(func() error { return c.Call(t.Context(), "_x", nil, nil) })
		id = idOf(t, agent.next())
		agent.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := w.count("> ", `"error"`); n != 0 {
			t.Errorf("the agent was sent errors: %q", w.all())
		}
		if n := c.Counts(); n.BadMessages != 5 || n.StrayAnswers != 2 {
			t.Errorf("%+v", n)
		}
	})
}
