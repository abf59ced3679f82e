package serve

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
)

// TestWitnessCrossing: Stops that meet the result on its way, by whoever: each
// POST ends, with one answer at most, the tool is over, and the session goes on
// (MCP-15, MCP-16, MCP-17, MCP-G28).
func TestWitnessCrossing(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		each(t, modern, func(t *testing.T, r *rig, _ behind) {
			session := r.enter(modern)
			for i := range 12 {
				ctx, leave := context.WithCancel(t.Context())
				key := fmt.Sprint("k", i)
				args := fmt.Sprintf(`{"key":%q,"n":2}`, key)
				got := async(func() (answer, error) {
					if modern {
						return r.modernIn(ctx, "tools", "tick", args)
					}
					return r.postIn(ctx, Path("tools"), session, call(i, "tick", args))
				})
				r.event(key, "tick")
				for at := time.Now(); time.Since(at) < time.Duration(15+i)*time.Millisecond; {
					time.Sleep(time.Millisecond) // the second tick, and the answer, are 20 ms away
				}
				switch {
				case i%2 == 0:
					r.stop("tick")
				case modern:
					leave()
				default:
					r.must(r.post(Path("tools"), session, cancelOf(fmt.Sprint(i))))
				}
				a := r.wait(got, 2*time.Second)
				if n := strings.Count(a.body, `"id":`); n > 1 || i%2 == 0 && n != 1 {
					t.Errorf("call %d got %+v", i, a)
				}
				r.within(2*time.Second, key+" is over", func() bool {
					return r.wit.Count(key, "stopped")+r.wit.Count(key, "done") > 0
				})
				leave()
			}
			r.works(modern, session)
		})
	}
}

// TestWitnessLate: a server that answers a cancelled call all the same, at once
// or late, with whatever: nothing of it reaches the caller, whose next call
// works; an operator's Stop is answered once (MCP-14, MCP-G24, MCP-G27).
func TestWitnessLate(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"result", "iserror", "error0", "-32800"} {
		for _, late := range []string{"0s", "500ms"} {
			t.Run(reply+" "+late, func(t *testing.T) {
				t.Parallel()
				inner, outer := newRig(t, nil), newRig(t, nil)
				outer.wit = inner.wit
				d := inner.fake("tools", "-reply", reply, "-late", late)
				d.Enforce = config.Some("never")
				inner.apply(d)
				outer.apply(outer.behind(inner))
				for _, r := range []*rig{inner, outer} { // in front of stdio, and of HTTP
					session := r.begin("tools")
					key := fmt.Sprintf("%p", r)
					got, leave := r.tick(false, session, key, false)
					at := time.Now()
					r.must(r.post(Path("tools"), session, cancelOf("7")))
					if a := r.wait(got, time.Second); a.status != 200 || strings.Contains(a.body, `"id":7`) {
						t.Errorf("the caller got %+v", a)
					}
					r.stoppedSoon(key, at)
					leave()
					got, leave = r.tick(false, session, key+"op", false)
					r.stop("tick")
					r.one(r.wait(got, time.Second), belay.CauseOperator)
					leave()
					r.works(false, session)
				}
			})
		}
	}
}

// behind defines a server that is another hub's, over HTTP.
func (r *rig) behind(inner *rig) Definition {
	s := config.New("tools", config.Policy{})
	s.URL = inner.web.URL + Path("tools")
	s.Grace, s.KillAfter = config.Some(200*time.Millisecond), config.Some(300*time.Millisecond)
	return Definition{Server: s}
}

// TestWitnessQueued: a call that waits in Belay for a process is taken out by
// its Stop; it never runs, which is proof (MCP-G16).
func TestWitnessQueued(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		for _, operator := range []bool{false, true} {
			t.Run(fmt.Sprintf("modern %v, operator %v", modern, operator), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, nil)
				d := r.fake("tools", "-no-subscribe")
				d.Isolation, d.MaxProcesses = config.Some("call"), config.Some(1)
				r.apply(d)
				session := r.enter(modern)
				busy, leaveBusy := r.tick(modern, session, "busy", false)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				const args = `{"key":"queued","n":3}`
				got := async(func() (answer, error) {
					if modern {
						return r.modernIn(ctx, "tools", "fork", args)
					}
					return r.postIn(ctx, Path("tools"), session, call(8, "fork", args))
				})
				run := r.find("fork")
				if run.Info().Work == belay.Running {
					t.Fatal("it does not wait")
				}
				switch {
				case operator:
					r.stop("fork")
					r.one(r.wait(got, 450*time.Millisecond), belay.CauseOperator)
				case modern:
					leave()
				default:
					r.must(r.post(Path("tools"), session, cancelOf("8")))
					if a := r.wait(got, time.Second); a.status != 200 || strings.Contains(a.body, `"id"`) {
						t.Errorf("the caller got %+v", a)
					}
				}
				if v := r.receipt(run).Verdict; v != belay.Confirmed {
					t.Errorf("the verdict is %s", v)
				}
				if modern {
					leaveBusy()
				} else {
					r.must(r.post(Path("tools"), session, cancelOf("7")))
				}
				r.wait(busy, 2*time.Second)
				r.works(modern, session)
				if e := r.wit.Of("queued", ""); len(e) > 0 {
					t.Errorf("it ran: %v", e)
				}
				leaveBusy()
			})
		}
	}
}

// TestWitnessBetweenRounds: a call that is stopped while its caller is asked for
// input is over: the retry gets -32800 and never reaches the server, in front of
// stdio and of HTTP (MCP-65, MCP-G18).
func TestWitnessBetweenRounds(t *testing.T) {
	t.Parallel()
	inner, outer := newRig(t, nil), newRig(t, nil)
	outer.wit = inner.wit
	inner.apply(inner.fake("tools", "-era", "modern"))
	outer.apply(outer.behind(inner))
	for name, r := range map[string]*rig{"stdio": inner, "http": outer} {
		t.Run(name, func(t *testing.T) {
			const body = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"ask","arguments":{"key":%q,"method":"elicit"}%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
			ask := func(id int, more string) answer {
				return r.must(r.post(Path("tools"), "", fmt.Sprintf(body, id, name, more), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: ask"))
			}
			a := ask(1, "")
			_, state, ok := strings.Cut(a.body, `"requestState":"`)
			if state, _, _ = strings.Cut(state, `"`); !ok || state == "" {
				t.Fatalf("no question: %+v", a)
			}
			run := r.stop("ask")
			if v := r.receipt(run).Verdict; v != belay.Confirmed {
				t.Errorf("nothing runs between rounds, the verdict is %s", v)
			}
			before := len(r.wit.Of(name, ""))
			for i := range 2 {
				a = ask(2+i, fmt.Sprintf(`,"requestState":%q,"inputResponses":{"q":{"action":"accept"}}`, state))
				if !strings.Contains(a.body, "-32800") {
					t.Errorf("the retry got %+v", a)
				}
			}
			if after := len(r.wit.Of(name, "")); after != before {
				t.Errorf("the retry reached the tool: %v", r.wit.Of(name, ""))
			}
			r.works(true, "")
		})
	}
}

// TestWitnessBatch: a batch of 2025-03-26 is split; the cancel inside counts for
// the request before it, which is stopped and not answered (MCP-40, MCP-G38).
func TestWitnessBatch(t *testing.T) {
	t.Parallel()
	each(t, false, func(t *testing.T, r *rig, _ behind) {
		a := r.must(r.post(Path("tools"), "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"rig","version":"1"}}}`))
		session := a.session
		const version = "Mcp-Protocol-Version: 2025-03-26"
		r.must(r.post(Path("tools"), session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, version))
		got := async(func() (answer, error) {
			return r.post(Path("tools"), session, "["+call(1, "tick", `{"key":"a","n":8}`)+","+call(2, "tick", `{"key":"b","n":500}`)+","+
				cancelOf("2")+","+call(3, "echo", `{"text":"fine"}`)+","+call(4, "tick", `{"key":"c","n":500}`)+"]", version)
		})
		r.event("c", "tick")
		at := time.Now()
		if a := r.must(r.post(Path("tools"), session, cancelOf("4"), version)); a.status != 202 {
			t.Errorf("the cancel: %+v", a)
		}
		r.stoppedSoon("c", at)
		a = r.wait(got, 5*time.Second)
		for id, want := range map[string]int{"1": 1, "2": 0, "3": 1, "4": 0} {
			if n := strings.Count(a.body, `"id":`+id+`,`) + strings.Count(a.body, `"id":`+id+`}`); n != want {
				t.Errorf("%d answers to %s: %s", n, id, a.body)
			}
		}
		r.event("a", "done")
		if r.wit.Count("b", "done") > 0 || r.wit.StillTicking("b", 100*time.Millisecond) {
			t.Errorf("the cancelled member goes on: %v", r.wit.Of("b", ""))
		}
		r.works(false, session)
	})
}

// TestWitnessGoClient: the official Go client, which posts the notification and
// closes the stream, in either era: the tool stops, and its session outlives
// many cancels (MCP-G10, MCP-G11).
func TestWitnessGoClient(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		each(t, modern, func(t *testing.T, r *rig, _ behind) {
			version := "2025-11-25"
			if modern {
				version = "2026-07-28"
			}
			client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: r.web.URL + Path("tools"), HTTPClient: r.client},
				&mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			for i := range 3 {
				key := fmt.Sprint("k", i)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "tick", Arguments: map[string]any{"key": key, "n": 500}})
					ended <- err
				}()
				r.event(key, "tick")
				at := time.Now()
				cancel()
				if err := <-ended; err == nil {
					t.Error("the cancelled call has a result")
				}
				r.stoppedSoon(key, at)
				result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "fine"}})
				if err != nil || len(result.Content) != 1 {
					t.Fatalf("the session does not work any more: %+v, %v", result, err)
				}
			}
		})
	}
}
