package bridge

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
)

// asking is a question about a call of a fronted server, as the gateway asks it.
type asking struct {
	call     *belay.Run
	decision belay.Decision
	err      error         // of Ask
	permit   error         // of Permit
	asked    chan struct{} // closed when that has returned
	over     chan struct{} // closed when both have
	id       belay.ApprovalID
}

// asks registers a call below the turn that runs and has it ask the editor.
func (r *rig) asks(q belay.Question) *asking {
	r.Helper()
	turn, err := r.tree.Run(r.run(belay.KindTurn).ID)
	if err != nil {
		r.Fatal(err)
	}
	call, err := r.tree.Register(belay.Spec{Kind: belay.KindCall, Name: "wipe", Parent: turn})
	if err != nil {
		r.Fatal(err)
	}
	call.Start()
	session := r.run(belay.KindSession).ID
	x := &asking{call: call, asked: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(x.over)
		ctx, end := context.WithCancelCause(context.Background())
		q.Show = func(a belay.Approval) {
			x.id = a.ID
			go func() {
				defer close(x.asked)
				var d belay.Decision
				if d, x.permit = r.bridge.Permit(ctx, session, call, a); x.permit == nil {
					_, _ = r.tree.Decide(ctx, a.ID, d)
				}
			}()
		}
		x.decision, x.err = call.Ask(ctx, q)
		end(errDone)
		<-x.asked
		call.Finish(belay.Completed)
	}()
	synctest.Wait()
	return x
}

// adding is a front that passes what it is given, and adds a server if it has one.
type adding struct {
	server string
	mu     sync.Mutex
	web    []bool
}

func (x *adding) Rewrite(_ context.Context, _ *belay.Run, servers []byte) ([]byte, []Passed, error) {
	if x.server != "" {
		servers = []byte("[" + x.server + "]")
	}
	return servers, nil, nil
}
func (x *adding) Place(_, _ *belay.Run)      {}
func (x *adding) Calls(*belay.Run) []Fronted { return nil }
func (x *adding) Close(*belay.Run)           {}
func (x *adding) Adds() bool                 { return x.server != "" }
func (x *adding) Takes(http bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.web = append(x.web, http)
}

// A front that has servers of its own gives them to a session without any, and knows
// what the agent takes.
func TestACP_B11_ServersThatNobodyNamed(t *testing.T) {
	for caps, want := range map[string]bool{`{"mcpCapabilities":{"http":true}}`: true, `{"mcpCapabilities":{"sse":true}}`: false, `{}`: false} {
		front := &adding{server: `{"name":"own"}`}
		bubble(t, Options{Front: front}, func(r *rig) {
			r.editor.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`)
			r.agent.heard()
			r.agent.say(`{"jsonrpc":"2.0","id":"b-1","result":{"protocolVersion":1,"agentCapabilities":` + caps + `}}`)
			r.editor.heard()
			if front.mu.Lock(); len(front.web) != 1 || front.web[0] != want {
				t.Errorf("%s: %v", caps, front.web)
			}
			front.mu.Unlock()
			r.editor.say(`{"jsonrpc":"2.0","id":1,"method":"session/resume","params":{"sessionId":"s_1","cwd":"/w"}}`)
			r.editor.say(`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}`)
			r.agent.hears(
				`{"jsonrpc":"2.0","id":"b-2","method":"session/resume","params":{"mcpServers":[{"name":"own"}],"sessionId":"s_1","cwd":"/w"}}`,
				`{"jsonrpc":"2.0","id":"b-3","method":"session/new","params":{"cwd":"/w","mcpServers":[{"name":"own"}]}}`)
		})
	}
	bubble(t, Options{Front: &adding{}}, func(r *rig) { // one that has none leaves it
		r.greet("1")
		r.editor.say(`{"jsonrpc":"2.0","id":1,"method":"session/resume","params":{"sessionId":"s_1","cwd":"/w"}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":"b-2","method":"session/resume","params":{"sessionId":"s_1","cwd":"/w"}}`)
	})
}

var errDone = errors.New("the question was decided")

var wipe = belay.Question{Title: "Wipe", Text: "Delete the build folder?", Primary: "Delete", Secondary: "Keep"}

// asked are the lines of the question in version 1.
func asked(t *testing.T, lines []string) {
	t.Helper()
	if len(lines) != 2 || !strings.Contains(lines[0], `"method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"tool_call","toolCallId":"belay-`) ||
		!strings.Contains(lines[0], `"title":"Wipe","kind":"other","status":"pending","content":[{"type":"content","content":{"type":"text","text":"Delete the build folder?"}}]}}}`) ||
		!strings.HasPrefix(lines[1], `{"jsonrpc":"2.0","id":"b-1","method":"session/request_permission","params":{"sessionId":"s_7","toolCall":{"toolCallId":"belay-`) ||
		!strings.HasSuffix(lines[1], `"options":[{"optionId":"primary","name":"Delete","kind":"allow_once"},{"optionId":"secondary","name":"Keep","kind":"reject_once"}]}}`) {
		t.Errorf("the editor heard %q", lines)
	}
}

// AT-66: a question whose agent cannot be asked is a permission at the editor, in
// both versions, and what the person picks is the decision. Nothing but the primary
// option is a yes.
func TestAT66_PermissionAtTheEditor(t *testing.T) {
	answer := func(outcome string) string {
		return `{"jsonrpc":"2.0","id":"b-1","result":{"outcome":` + outcome + `}}`
	}
	for name, tt := range map[string]struct {
		answer string
		want   belay.Choice // "": it stays open
		status string
	}{
		"primary":         {answer(`{"outcome":"selected","optionId":"primary"}`), belay.ChoiceApproved, "completed"},
		"secondary":       {answer(`{"outcome":"selected","optionId":"secondary"}`), belay.ChoiceDeclined, "failed"},
		"put away":        {answer(`{"outcome":"cancelled"}`), belay.ChoiceDismissed, "failed"},
		"another option":  {answer(`{"outcome":"selected","optionId":"allow"}`), "", "failed"},
		"an error":        {`{"jsonrpc":"2.0","id":"b-1","error":{"code":-32601,"message":"no"}}`, "", "failed"},
		"nothing":         {answer(`{}`), "", "failed"},
		"another outcome": {answer(`{"outcome":"perhaps","optionId":"primary"}`), "", "failed"},
	} {
		for _, version := range []string{"1", "2"} {
			t.Run(name+"/"+version, func(t *testing.T) {
				bubble(t, Options{Owner: "ann", Front: &adding{}}, func(r *rig) {
					r.greet(version)
					r.session()
					r.prompt()
					x := r.asks(wipe)
					lines := r.editor.heard()
					if version == "1" {
						asked(t, lines)
					} else if len(lines) != 1 || !strings.Contains(lines[0], `"params":{"sessionId":"s_7","title":"Wipe\n\nDelete the build folder?","options":[{"optionId":"primary",`) {
						t.Errorf("the editor heard %q", lines)
					}
					r.editor.say(tt.answer)
					time.Sleep(2 * putAway)
					if tt.want == "" {
						<-x.asked
						if x.permit == nil || r.run(belay.KindTurn).Work != belay.Running {
							t.Errorf("%v", x.permit)
						}
						if _, err := r.tree.Decide(t.Context(), x.id, belay.Decision{Choice: belay.ChoiceDeclined, Via: "rest"}); err != nil {
							t.Errorf("it is not open any more: %v", err)
						}
					}
					<-x.over
					if tt.want != "" && (x.err != nil || x.decision.Choice != tt.want || x.decision.Via != "acp" || x.decision.By != "ann") {
						t.Errorf("%+v, %v", x.decision, x.err)
					}
					lines = r.editor.heard()
					if version == "1" && (len(lines) != 1 || !strings.Contains(lines[0], `"sessionUpdate":"tool_call_update","toolCallId":"belay-`) || !strings.Contains(lines[0], `"status":"`+tt.status+`"`)) ||
						version == "2" && len(lines) != 0 {
						t.Errorf("afterwards the editor heard %q", lines)
					}
					r.agent.hears()
				})
			})
		}
	}
}

// A question without buttons, or with a yes alone, can still be refused.
func TestAT66_ThereIsAlwaysANo(t *testing.T) {
	for _, q := range []belay.Question{{Text: "t"}, {Text: "t", Primary: "Go"}, wipe, {Text: "t", Secondary: "Keep"}} {
		list := optionsOf(&q)
		if last := list[len(list)-1]; last.Allows() {
			t.Errorf("%+v", list)
		}
	}
}

// AT-65: the editor's own Stop answers the question as cancelled before it says
// session/cancel; that is no decision. A late answer is none either.
func TestAT65_AStopAtTheEditorIsNoDecline(t *testing.T) {
	bubble(t, Options{Front: &adding{}}, func(r *rig) {
		r.turn()
		x := r.asks(wipe)
		asked(t, r.editor.heard())
		r.editor.say(`{"jsonrpc":"2.0","id":"b-1","result":{"outcome":{"outcome":"cancelled"}}}`)
		time.Sleep(putAway / 2)
		r.editor.say(sessionStop)
		<-x.over
		if !errors.Is(x.err, belay.ErrCancelled) || x.decision.Choice != belay.ChoiceWithdrawn || x.permit == nil {
			t.Errorf("%+v, %v, %v", x.decision, x.err, x.permit)
		}
		r.agent.hears(sessionStop)
		r.agent.say(saysCancel)
		r.editor.say(`{"jsonrpc":"2.0","id":"b-1","result":{"outcome":{"outcome":"selected","optionId":"primary"}}}`)
		synctest.Wait()
		if x.call.Cancellation() == nil {
			t.Error("the call goes on")
		}
	})
}

// What is answered elsewhere, and what an operator stops, is withdrawn at the editor;
// what it says later changes nothing, and nothing is asked in a turn that is stopped.
func TestAT66_AnsweredElsewhere(t *testing.T) {
	for _, stop := range []bool{false, true} {
		bubble(t, Options{Front: &adding{}}, func(r *rig) {
			r.editor.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"cancellation":{"request":true}}}}`)
			r.agent.heard()
			r.agent.say(`{"jsonrpc":"2.0","id":"b-1","result":{"protocolVersion":1}}`)
			r.editor.heard()
			r.session()
			r.prompt()
			x := r.asks(wipe)
			asked(t, r.editor.heard())
			if stop {
				if run, err := r.tree.Run(r.run(belay.KindTurn).ID); err == nil {
					run.Cancel(belay.Cancellation{Cause: belay.CauseOperator})
				}
			} else if _, err := r.tree.Decide(t.Context(), x.id, belay.Decision{Choice: belay.ChoiceApproved, Via: "rest"}); err != nil {
				t.Fatal(err)
			}
			<-x.over
			lines := strings.Join(r.editor.heard(), "\n")
			if !strings.Contains(lines, `"method":"$/cancelRequest","params":{"id":"b-1"}}`) {
				t.Errorf("stop %v: the editor heard %s", stop, lines)
			}
			if want := belay.ChoiceApproved; !stop && (x.decision.Choice != want || x.decision.Via != "rest") || stop && !errors.Is(x.err, belay.ErrCancelled) {
				t.Errorf("stop %v: %+v, %v", stop, x.decision, x.err)
			}
			r.editor.say(`{"jsonrpc":"2.0","id":"b-1","result":{"outcome":{"outcome":"selected","optionId":"secondary"}}}`)
			r.editor.heard()
			if stop {
				late, err := r.bridge.Permit(t.Context(), r.run(belay.KindSession).ID, x.call, belay.Approval{Question: wipe})
				if err == nil {
					t.Errorf("asked after the Stop: %+v", late)
				}
				r.agent.say(saysCancel)
			}
			r.agent.heard()
		})
	}
}

// Whoever is no session of the editor's reaches nobody.
func TestAT66_AStrangersQuestion(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		r.turn()
		turn, err := r.tree.Run(r.run(belay.KindTurn).ID)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := r.bridge.Permit(t.Context(), r.run(belay.KindSession).ID, turn, belay.Approval{Question: wipe}); !errors.Is(err, errNoSession) {
			t.Errorf("%+v, %v", d, err)
		}
		r.editor.hears()
	})
}
