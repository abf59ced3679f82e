package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// TestAT60_ADoorLooks: whoever may decide at a door sees what the script shows, as often
// as they like, whether the caller takes questions or not; the question stays open, and
// the caller is not asked again because of it.
func TestAT60_ADoorLooks(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		for _, capabilities := range []string{`{}`, capable} {
			t.Run(fmt.Sprint("modern ", modern, " ", capabilities), func(t *testing.T) {
				s := on(t, modern, capabilities, nil)
				call, name := s.call("1")
				s.ask("ask-1", name, buttons+`,"preview":"Show \u001b[2J"`)
				a := s.open(1)[0]
				if a.Question.Preview != "Show [2J" {
					t.Errorf("the door offers %q", a.Question.Preview)
				}
				next := 3 // of the ids of the requests; a handshake has had one
				if modern {
					next = 2
				}
				for i, tt := range []struct{ answer, want, err string }{
					{`"result":{"text":"two files\nof\t7\u001b[2J"}`, "two files\nof\t7[2J", ""},
					{`"result":{"text":""}`, "", ""},
					{`"result":{}`, "", "no preview"},
					{`"result":{"text":7}`, "", "no preview"},
					{`"error":{"code":-32603,"message":"no"}`, "", "no preview"},
					{`"result":{"text":"` + strings.Repeat("x", 8<<20) + `"}`, "", "no preview"},
					{`"result":{"text":"` + strings.Repeat("x", 40<<10) + `"}`, "[… cut: the preview goes on, and is too long to be shown]", ""},
				} {
					seen := make(chan string, 1)
					failed := make(chan error, 1)
					go func() {
						text, err := s.tree.Preview(t.Context(), a.ID)
						seen <- text
						failed <- err
					}()
					look := got(t, s.worker, fmt.Sprintf(`"b-%d","method":"io.github.belayhq/preview"`, i+next))
					say(t, s.worker, `{"jsonrpc":"2.0","id":%s,%s}`, look.ID, tt.answer)
					text, err := <-seen, <-failed
					if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) || !strings.HasSuffix(text, tt.want) || len(text) > 32<<10 {
						t.Errorf("%.60s: %.60q, %v", tt.answer, text, err)
					}
				}
				asked := 0
				for _, m := range s.Messages() {
					if m.Method == "elicitation/create" || strings.Contains(m.Raw, "input_required") {
						asked++
					}
				}
				if asked > 1 {
					t.Errorf("the caller was asked %d times", asked)
				}
				s.decide(belay.ChoiceDeclined)
				if got := s.answered("ask-1"); got != "secondary" {
					t.Errorf("the script got %s", got)
				}
				if _, err := s.tree.Preview(t.Context(), a.ID); !errors.Is(err, belay.ErrDecided) {
					t.Errorf("looked when it was decided: %v", err)
				}
				s.returns(call, "")
			})
		}
	}
}

// TestAT60_AWorkerThatNeverShows holds nobody up: a decision and a Stop come through while
// somebody waits for it, and end the wait.
func TestAT60_AWorkerThatNeverShows(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		t.Run(fmt.Sprint("stop ", stop), func(t *testing.T) {
			s := on(t, false, `{}`, nil)
			call, name := s.call("1")
			run := s.runOf("1")
			s.ask("ask-1", name, buttons+`,"preview":"Show"`)
			a := s.open(1)[0]
			failed := make(chan error, 1)
			go func() {
				_, err := s.tree.Preview(context.Background(), a.ID)
				failed <- err
			}()
			look := got(t, s.worker, "belayhq/preview")
			if stop {
				s.stopRun(run)
			} else {
				s.decide(belay.ChoiceApproved)
			}
			want := map[bool]error{false: belay.ErrDecided, true: belay.ErrNotFound}[stop]
			if err := <-failed; !errors.Is(err, want) {
				t.Errorf("the one who looks is told %v", err)
			}
			if got := s.answered("ask-1"); got != map[bool]string{false: "primary", true: "error"}[stop] {
				t.Errorf("the script got %s", got)
			}
			say(t, s.worker, `{"jsonrpc":"2.0","id":%s,"result":{"text":"too late"}}`, look.ID)
			if stop {
				say(t, s.worker, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"stopped"}}`, call.ID)
				return
			}
			s.returns(call, "")
			s.expect("1")
		})
	}
}
