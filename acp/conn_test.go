package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

func TestACP_L1_menu(t *testing.T) {
	for _, tc := range []struct {
		mode    acp.Mode
		told    int
		after   time.Duration
		verdict belay.Verdict
	}{
		{acp.TellAndWait, 1, acp.DefaultCancelWait, belay.Signalled},
		{acp.Tell, 1, 0, belay.Signalled},
		{acp.Abandon, 0, 0, belay.Unreachable},
	} {
		t.Run(fmt.Sprint(tc.mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, agent, w := clientConn(t, acp.Options{})
				greet(t, c, agent, 1, `{}`)
				ctx, cancel := context.WithCancel(t.Context())
				done := async(func() error { return c.CallMode(ctx, tc.mode, "_x", nil, nil) })
				id := idOf(t, agent.next())
				begin := time.Now()
				cancel()
				err := <-done // the agent is deaf
				var stop *acp.CancelError
				if !errors.As(err, &stop) || stop.Verdict != tc.verdict || stop.Method != "_x" {
					t.Errorf("got %v", err)
				}
				if took := time.Since(begin); took != tc.after {
					t.Errorf("settled after %v, want %v", took, tc.after)
				}
				synctest.Wait()
				if n := w.count("> ", "$/cancel"); n != tc.told {
					t.Errorf("%d cancels", n)
				}
				// The answer comes after all: it is known as late and goes nowhere (ACP-L10).
				agent.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
				agent.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
				synctest.Wait()
				if got := c.Counts(); got.LateAnswers != 1 || got.StrayAnswers != 1 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

func TestACP_L1_context_that_has_ended(t *testing.T) {
	c, agent, w := clientConn(t, acp.Options{})
	greet(t, c, agent, 1, `{}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := len(w.all())
	err := c.Call(ctx, "_x", nil, nil)
	var stop *acp.CancelError
	if !errors.As(err, &stop) || stop.Verdict != belay.Confirmed || len(w.all()) != before {
		t.Errorf("got %v, %q", err, w.all()[before:])
	}
}

// A peer that does not read: the request is taken back, and never starts.
func TestACP_L1_withdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, other := acp.NewPipe()
		c := acp.NewConn(full, acp.Options{Role: acp.RoleClient})
		endConn(t, c)
		for range 200 { // more than the pipe takes
			if err := c.Notify("_x", nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		done := async(func() error { return c.Call(ctx, "_work", nil, nil) })
		synctest.Wait()
		cancel()
		var stop *acp.CancelError
		if err := <-done; !errors.As(err, &stop) || stop.Verdict != belay.Confirmed {
			t.Errorf("got %v", err)
		}
		for range 200 {
			line, err := other.Read()
			if err != nil || !strings.Contains(string(line), `"_x"`) {
				t.Fatalf("%s, %v", line, err)
			}
		}
	})
}

func TestACP_L3_causes(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    acp.Options
		end  func(c *acp.Conn, client *raw, parent *belay.Run)
		want belay.Cause
	}{
		{name: "peer", want: belay.CausePeer, end: func(_ *acp.Conn, client *raw, _ *belay.Run) {
			client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		}},
		{name: "parent", want: belay.CauseParent, end: func(_ *acp.Conn, _ *raw, parent *belay.Run) {
			parent.Cancel(belay.Cancellation{Cause: belay.CauseUser})
		}},
		{name: "deadline", want: belay.CauseDeadline, o: acp.Options{Limit: func(string) time.Duration { return time.Minute }}, end: func(*acp.Conn, *raw, *belay.Run) {}},
		{name: "disconnect", want: belay.CauseDisconnect, end: func(_ *acp.Conn, client *raw, _ *belay.Run) { _ = client.tr.Close() }},
		{name: "shutdown", want: belay.CauseShutdown, end: func(c *acp.Conn, _ *raw, _ *belay.Run) { _ = c.Close(context.Background()) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tree := belay.NewTree(belay.Options{})
				parent, err := tree.Register(belay.Spec{Kind: belay.KindSession, Name: "all"})
				if err != nil {
					t.Fatal(err)
				}
				seen := make(chan error, 1)
				o := tc.o
				o.Tree, o.Parent = tree, parent
				o.Handler = func(ctx context.Context, _ *acp.Request) (any, error) {
					<-ctx.Done()
					seen <- context.Cause(ctx)
					return nil, ctx.Err()
				}
				c, client, _ := agentConn(t, o)
				client.hello(helloClient)
				client.send(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
				synctest.Wait()
				tc.end(c, client, parent)
				var cause *belay.Cancellation
				if err := <-seen; !errors.As(err, &cause) || cause.Cause != tc.want {
					t.Errorf("ended with %v", err)
				}
				if tc.want == belay.CauseShutdown { // it is answered even then (ACP-38)
					client.wantPart(`"id":1`, `-32800`, `"cause":"shutdown"`)
				}
				parent.Finish(belay.Completed)
				if err := tree.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestACP_L5_answers(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   acp.Handler
		want []string
	}{
		{"nothing", func(context.Context, *acp.Request) (any, error) { return nil, nil }, []string{`"result":{}`}},
		{"raw", func(context.Context, *acp.Request) (any, error) { return json.RawMessage(`[1, 2]`), nil }, []string{`"result":[1, 2]`}},
		{"own error", func(context.Context, *acp.Request) (any, error) {
			return nil, &acp.Error{Code: -32002, Message: "no such file", Data: json.RawMessage(`{"path":"x"}`)}
		}, []string{`"error":{"code":-32002,"message":"no such file","data":{"path":"x"}}`}},
		{"any error", func(context.Context, *acp.Request) (any, error) { return nil, io.ErrUnexpectedEOF }, []string{`"code":-32603`, `unexpected EOF`}},
		{"panic", func(context.Context, *acp.Request) (any, error) { panic("boom") }, []string{`"code":-32603`}},
		{"result that is no JSON", func(context.Context, *acp.Request) (any, error) { return json.RawMessage(`{`), nil }, []string{`"code":`, `not valid JSON`}},
		{"bad params", func(_ context.Context, r *acp.Request) (any, error) {
			var n struct{ A int }
			return nil, r.Decode(&n)
		}, []string{`"code":-32602`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, client, _ := agentConn(t, acp.Options{Handler: tc.do})
			client.hello(helloClient)
			client.send(`{"jsonrpc":"2.0","id":1,"method":"_x","params":{"A":"text"}}`)
			client.wantPart(append(tc.want, `"id":1`)...)
		})
	}
}

// A handler that does not listen: its caller is settled in 5 s, the connection
// works, the run says what is not known; and when it returns, that is the proof,
// and nothing more is sent.
func TestACP_L6_deaf_handler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := belay.NewTree(belay.Options{})
		release := make(chan struct{})
		runs := make(chan *belay.Run, 1)
		c, client, _ := agentConn(t, acp.Options{Tree: tree, Handler: func(_ context.Context, r *acp.Request) (any, error) {
			if r.Method() != "_deaf" {
				return r.Params(), nil
			}
			runs <- r.Run()
			<-release
			return "finished after all", nil
		}})
		client.hello(helloClient)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"_deaf"}`)
		run := <-runs
		begin := time.Now()
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		client.wantPart(`"id":1`, `"code":-32800`)
		if took := time.Since(begin); took != acp.DefaultAnswerAfter {
			t.Errorf("answered after %v", took)
		}
		client.send(`{"jsonrpc":"2.0","id":2,"method":"_x","params":{"a":1}}`)
		client.want(`{"jsonrpc":"2.0","id":2,"result":{"a":1}}`)
		time.Sleep(10 * time.Second)
		if i := run.Info(); i.Work != belay.Unconfirmed || i.Outcome != belay.Cancelled || i.Verdict != belay.Signalled {
			t.Errorf("the run is %+v", i)
		}
		close(release)
		client.silent(time.Second)
		if i := run.Info(); i.Work != belay.Stopped || i.Verdict != belay.Confirmed {
			t.Errorf("after its return the run is %+v", i)
		}
		if got := c.Counts(); got.LateResults != 1 {
			t.Errorf("%+v", got)
		}
		if err := tree.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Cancels are read whatever handlers do: one that blocks the queue of notifications,
// and thousands of requests, hold nothing up.
func TestACP_L7_reader_handles_cancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		_, client, _ := agentConn(t, acp.Options{
			Notify: func(context.Context, string, []byte) { <-release },
		})
		client.hello(helloClient)
		for i := range 500 {
			client.send(`{"jsonrpc":"2.0","method":"_note","params":{"n":%d}}`, i)
			client.send(`{"jsonrpc":"2.0","id":%d,"method":"_wait"}`, i+1)
		}
		begin := time.Now()
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":250}}`)
		client.wantPart(`"id":250`, `-32800`)
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
		close(release)
	})
}

// Result and cancel cross, 10,000 times: the cancel is on its way while the handler
// ends. One answer each, and the caller sees exactly one end.
func TestACP_15_23_crossings(t *testing.T) {
	const lanes, rounds = 8, 1250
	var started [lanes]chan struct{} // the handler of this lane's request runs
	for i := range started {
		started[i] = make(chan struct{}, 1)
	}
	client, agent := acp.NewPipe()
	a := acp.NewConn(agent, acp.Options{Role: acp.RoleAgent, Handler: func(ctx context.Context, r *acp.Request) (any, error) {
		if r.Method() == acp.MethodInitialize {
			return json.RawMessage(`{"protocolVersion":1}`), nil
		}
		var p struct{ Lane, Round int }
		if err := r.Decode(&p); err != nil {
			return nil, err
		}
		started[p.Lane] <- struct{}{}
		switch p.Round % 4 {
		case 0:
			return "normal", nil
		case 1:
			<-ctx.Done()
			return "partial", nil
		case 2:
			<-ctx.Done()
			return nil, ctx.Err()
		default:
			for range p.Round % 7 {
				runtime.Gosched()
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return "normal", nil
		}
	}})
	endConn(t, a)
	count := &counting{Transport: client, answers: map[string]int{}}
	c := acp.NewConn(count, acp.Options{Role: acp.RoleClient})
	endConn(t, c)
	if err := c.Call(t.Context(), acp.MethodInitialize, json.RawMessage(`{"protocolVersion":1}`), nil); err != nil {
		t.Fatal(err)
	}
	var results, cancelled atomic.Int64
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			for i := range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				crossed := make(chan struct{})
				go func() {
					defer close(crossed)
					<-started[lane]
					for range i % 5 {
						runtime.Gosched()
					}
					cancel()
				}()
				var got string
				err := c.Call(ctx, "_x", map[string]int{"lane": lane, "round": i}, &got)
				<-crossed
				switch {
				case err == nil && (got == "normal" || got == "partial"):
					results.Add(1)
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				default:
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d results, %d cancelled, %+v", results.Load(), cancelled.Load(), a.Counts())
	if got := c.Counts(); got.LateAnswers+got.StrayAnswers+got.BadMessages != 0 {
		t.Errorf("the caller saw answers to nothing: %+v", got)
	}
	count.mu.Lock()
	defer count.mu.Unlock()
	for id, n := range count.answers {
		if n != 1 {
			t.Errorf("%d answers to %s", n, id)
		}
	}
	if want := lanes*rounds + 1; len(count.answers) != want { // and initialize
		t.Errorf("%d requests were answered, want %d", len(count.answers), want)
	}
}

// counting counts the answers that are read, by id.
type counting struct {
	acp.Transport
	mu      sync.Mutex
	answers map[string]int
}

func (c *counting) Read() ([]byte, error) {
	line, err := c.Transport.Read()
	if err != nil {
		return line, err
	}
	var e jsonrpc.Envelope
	if jsonrpc.Parse(line, &e) == nil && e.Kind == jsonrpc.Response {
		c.mu.Lock()
		c.answers[e.ID.Raw()]++
		c.mu.Unlock()
	}
	return line, nil
}

func TestACP_L11_early_cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := belay.NewTree(belay.Options{})
		var started atomic.Int64
		c, client, _ := agentConn(t, acp.Options{Tree: tree, Handler: func(ctx context.Context, r *acp.Request) (any, error) {
			started.Add(1)
			return "ran", nil
		}})
		client.hello(helloClient)
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"late"}}`)
		client.send(`{"jsonrpc":"2.0","id":"late","method":"_early"}`)
		client.wantPart(`"id":"late"`, `-32800`)
		synctest.Wait()
		if n := started.Load(); n != 0 {
			t.Errorf("%d handlers were started", n)
		}
		runs, err := tree.List(t.Context(), belay.Filter{Ended: true})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, i := range runs {
			found = found || i.Name == "_early" && i.Verdict == belay.Confirmed && i.Outcome == belay.Cancelled
		}
		if !found {
			t.Errorf("no confirmed run: %+v", runs)
		}
		// One use.
		client.send(`{"jsonrpc":"2.0","id":"late","method":"_x"}`)
		client.want(`{"jsonrpc":"2.0","id":"late","result":"ran"}`)
		// Ten seconds.
		client.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"later"}}`)
		client.silent(11 * time.Second)
		client.send(`{"jsonrpc":"2.0","id":"later","method":"_x"}`)
		client.want(`{"jsonrpc":"2.0","id":"later","result":"ran"}`)
		if got := c.Counts(); got.EarlyCancels != 2 {
			t.Errorf("%+v", got)
		}
		if err := tree.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLost_calls_and_handlers_end(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, agent, _ := clientConn(t, acp.Options{})
		greet(t, c, agent, 1, `{}`)
		done := async(func() error { return c.Call(t.Context(), "_x", nil, nil) })
		agent.next()
		_ = agent.tr.Close()
		if err := <-done; !errors.Is(err, acp.ErrLost) || !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
		<-c.Done()
		if err := c.Call(t.Context(), "_x", nil, nil); !errors.Is(err, acp.ErrLost) {
			t.Errorf("afterwards: %v", err)
		}
		if err := c.Notify("_x", nil); !errors.Is(err, acp.ErrLost) {
			t.Errorf("afterwards: %v", err)
		}
		if err := c.Err(); !errors.Is(err, acp.ErrLost) {
			t.Errorf("Err is %v", err)
		}
	})
}

func TestClose_says_who_has_not_returned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		a, b := acp.NewPipe()
		c := acp.NewConn(a, acp.Options{Role: acp.RoleAgent, Handler: func(context.Context, *acp.Request) (any, error) {
			<-release
			return nil, nil
		}})
		by := newRaw(t, b)
		by.send(`{"jsonrpc":"2.0","id":1,"method":"_deaf"}`)
		synctest.Wait()
		begin := time.Now()
		err := c.Close(context.Background())
		if err == nil || !strings.Contains(err.Error(), "1 handlers have not returned") || !strings.Contains(err.Error(), "_deaf") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took > acp.DefaultAnswerAfter+2*time.Second {
			t.Errorf("it took %v", took)
		}
		by.wantPart(`"id":1`, `-32800`)
		close(release)
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("again: %v", err)
		}
		if err := c.Call(context.Background(), "_x", nil, nil); !errors.Is(err, acp.ErrClosed) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// What is read in a row is seen in a row: notifications one by one, and an answer
// after those before it.
func TestNotify_order(t *testing.T) {
	var got []string
	c, agent, _ := clientConn(t, acp.Options{Notify: func(_ context.Context, _ string, params []byte) {
		time.Sleep(time.Millisecond)
		got = append(got, string(params))
	}})
	greet(t, c, agent, 1, `{}`)
	done := async(func() error { return c.Call(t.Context(), "_x", nil, nil) })
	id := idOf(t, agent.next())
	for i := range 20 {
		agent.send(`{"jsonrpc":"2.0","method":"_n","params":{"n":%d}}`, i)
	}
	agent.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if len(got) != 20 || got[i] != fmt.Sprintf(`{"n":%d}`, i) {
			t.Fatalf("got %q", got)
		}
	}
}

func TestNotify_flood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c, agent, _ := clientConn(t, acp.Options{MaxNotes: 1 << 16, Notify: func(context.Context, string, []byte) { <-release }})
		greet(t, c, agent, 1, `{}`)
		text := strings.Repeat("x", 1000)
		for agent.tr.Write([]byte(`{"jsonrpc":"2.0","method":"_n","params":["`+text+`"]}`)) == nil {
		}
		<-c.Done()
		if err := c.Err(); !errors.Is(err, acp.ErrFlooded) {
			t.Errorf("got %v", err)
		}
		close(release)
	})
}

func TestMaxRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, _ := agentConn(t, acp.Options{MaxRequests: 2})
		client.hello(helloClient)
		synctest.Wait()
		for id := 1; id <= 3; id++ {
			client.send(`{"jsonrpc":"2.0","id":%d,"method":"_wait"}`, id)
		}
		client.wantPart(`"id":3`, `"error"`, "already")
		client.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		client.wantPart(`"id":1`, `-32800`)
		synctest.Wait()
		client.send(`{"jsonrpc":"2.0","id":4,"method":"_x","params":{}}`)
		client.wantPart(`"id":4`, `"result"`)
	})
}
