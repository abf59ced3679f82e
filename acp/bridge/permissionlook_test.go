package bridge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
)

// picks is the editor's answer to a request of this id.
func picks(id, option string) string {
	return `{"jsonrpc":"2.0","id":"` + id + `","result":{"outcome":{"outcome":"selected","optionId":"` + option + `"}}}`
}

// wiping is wipe with something to see.
func wiping(look func(context.Context) (string, error)) belay.Question {
	q := wipe
	q.Preview, q.Look = "Show", look
	return q
}

const offersLook = `{"optionId":"secondary","name":"Keep","kind":"reject_once"},{"optionId":"preview","name":"Show","kind":"reject_once"}]}}`

// TestAT60_PreviewAtTheEditor: the look is an option of the permission; who picks it is
// asked again, once, with what there is to see, and only then decides.
func TestAT60_PreviewAtTheEditor(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		err  error
		want string
	}{
		"a diff":  {"-one\n+```two", nil, "Show:\\n````\\n-one\\n+```two\\n````"},
		"nothing": {"", nil, "Show: there is nothing to see."},
		"a throw": {"", errors.New("it threw"), "Show: it could not be shown."},
	} {
		for _, version := range []string{"1", "2"} {
			t.Run(name+"/"+version, func(t *testing.T) {
				bubble(t, Options{Front: &adding{}}, func(r *rig) {
					r.greet(version)
					r.session()
					r.prompt()
					x := r.asks(wiping(func(context.Context) (string, error) { return tt.text, tt.err }))
					lines := r.editor.heard()
					if first := lines[len(lines)-1]; !strings.HasSuffix(first, offersLook) {
						t.Errorf("the editor heard %q", first)
					}
					r.editor.say(picks("b-1", "preview"))
					lines = r.editor.heard()
					again := lines[len(lines)-1]
					if !strings.HasPrefix(again, `{"jsonrpc":"2.0","id":"b-2","method":"session/request_permission"`) || strings.Contains(again, `"optionId":"preview"`) ||
						!strings.Contains(again, `Delete the build folder?\n\n`+tt.want) {
						t.Errorf("the editor heard %q", again)
					}
					if version == "1" && (len(lines) != 2 || !strings.Contains(lines[0], `"sessionUpdate":"tool_call_update","toolCallId":"belay-`+x.id.String()) || !strings.Contains(lines[0], tt.want)) ||
						version == "2" && len(lines) != 1 {
						t.Errorf("the editor heard %q", lines)
					}
					if a, err := r.tree.Approval(t.Context(), x.id); err != nil || a.Decision != nil {
						t.Errorf("the look has decided: %+v, %v", a.Decision, err)
					}
					r.editor.say(picks("b-2", "primary"))
					<-x.over
					if x.err != nil || x.decision.Choice != belay.ChoiceApproved {
						t.Errorf("%+v, %v", x.decision, x.err)
					}
					r.editor.heard()
					r.agent.hears()
				})
			})
		}
	}
}

// TestAT60_NoEndlessLook: an editor that picks the look again and again, and one that
// picks it where there is none, have given no answer; the question stays open.
func TestAT60_NoEndlessLook(t *testing.T) {
	for _, q := range []belay.Question{wipe, wiping(func(context.Context) (string, error) { return "seen", nil })} {
		bubble(t, Options{Front: &adding{}}, func(r *rig) {
			r.turn()
			x := r.asks(q)
			if q.Look != nil {
				r.editor.say(picks("b-1", "preview"))
				r.editor.heard()
				r.editor.say(picks("b-2", "preview"))
			} else {
				r.editor.say(picks("b-1", "preview"))
			}
			<-x.asked
			if x.permit == nil {
				t.Error("that was taken for an answer")
			}
			if _, err := r.tree.Decide(t.Context(), x.id, belay.Decision{Choice: belay.ChoiceDeclined, Via: "rest"}); err != nil {
				t.Errorf("it is not open any more: %v", err)
			}
			<-x.over
			r.editor.heard()
			r.agent.heard()
		})
	}
}

// TestAT60_AnsweredWhileTheEditorLooks: by another door, by a Stop, by the end of the
// turn; the editor is not asked again, and the tool call ends there.
func TestAT60_AnsweredWhileTheEditorLooks(t *testing.T) {
	for _, how := range []string{"another door", "stop", "operator"} {
		bubble(t, Options{Front: &adding{}}, func(r *rig) {
			r.turn()
			x := r.asks(wiping(func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "too late", nil
			}))
			r.editor.heard()
			r.editor.say(picks("b-1", "preview"))
			time.Sleep(time.Second)
			switch how {
			case "another door":
				if _, err := r.tree.Decide(t.Context(), x.id, belay.Decision{Choice: belay.ChoiceApproved, Via: "rest"}); err != nil {
					t.Error(err)
				}
			case "stop":
				r.editor.say(sessionStop)
			case "operator":
				x.call.Cancel(belay.Cancellation{Cause: belay.CauseOperator})
			}
			<-x.over
			synctest.Wait()
			lines := strings.Join(r.editor.heard(), "\n")
			if strings.Contains(lines, "request_permission") || !strings.Contains(lines, `"sessionUpdate":"tool_call_update"`) {
				t.Errorf("%s: the editor heard %s", how, lines)
			}
			if how == "another door" && (x.decision.Via != "rest" || !strings.Contains(lines, "answered elsewhere")) || how != "another door" && !errors.Is(x.err, belay.ErrCancelled) {
				t.Errorf("%s: %+v, %v; the editor heard %s", how, x.decision, x.err, lines)
			}
			if how == "stop" {
				r.agent.say(saysCancel)
			}
			r.agent.heard()
		})
	}
}
