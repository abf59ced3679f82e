package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// TestAT66_WhatIsNoAnswer: a caller that declares that it asks its person, and then fails,
// says something that is no answer, or nothing at all, leaves the question open: whoever
// answers first at another door decides, and what the caller says later changes nothing.
func TestAT66_WhatIsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{
		"method not found": `"error":{"code":-32601,"message":"Method not found"}`,
		"internal error":   `"error":{"code":-32603,"message":"Internal error"}`,
		"no error at all":  `"error":null`,
		"null":             `"result":null`,
		"a text":           `"result":"yes"`,
		"a list":           `"result":["accept"]`,
		"nothing":          `"result":{}`,
		"another action":   `"result":{"action":"approve","content":{"answer":"Delete"}}`,
		"action no text":   `"result":{"action":true,"content":{"answer":"Delete"}}`,
		"answer no text":   `"result":{"action":"accept","content":{"answer":["Delete"]}}`,
		"content no form":  `"result":{"action":"accept","content":"Delete"}`,
		"both":             `"result":{"action":"accept","content":{"answer":"Delete"}},"error":{"code":-32603,"message":"no"}`,
		"silence":          ``,
	} {
		t.Run(name, func(t *testing.T) {
			s := on(t, false, capable, nil)
			call, name := s.call("1")
			s.ask("ask-1", name, buttons)
			q := s.elicited(1)
			if said != "" {
				s.send(`{"jsonrpc":"2.0","id":%s,%s}`, q.ID, said)
			}
			time.Sleep(20 * time.Millisecond) // for a mistake to show
			a := s.open(1)[0]
			s.decide(belay.ChoiceDeclined)
			if got := s.answered("ask-1"); got != "secondary" {
				t.Errorf("the script got %s", got)
			}
			s.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":"Delete"}}}`, q.ID) // too late
			s.returns(call, "")
			s.expect("1")
			b, err := s.tree.Approval(context.Background(), a.ID)
			if err != nil || b.Decision == nil || b.Decision.Via != "cli" || len(s.worker.Responses(`"ask-1"`)) != 1 {
				t.Errorf("it was decided %+v, %v", b.Decision, err)
			}
		})
	}
	for name, said := range map[string]string{
		"nothing":        ``,
		"no answers":     `,"inputResponses":{}`,
		"another key":    `,"inputResponses":{"other":{"action":"accept","content":{"answer":"Delete"}}}`,
		"null":           `,"inputResponses":{"answer":null}`,
		"an error":       `,"inputResponses":{"answer":{"error":{"code":-32603,"message":"Internal error"}}}`,
		"another action": `,"inputResponses":{"answer":{"action":"yes"}}`,
	} {
		t.Run("modern "+name, func(t *testing.T) {
			s := on(t, true, capable, nil)
			call, name := s.call("1")
			s.ask("ask-1", name, buttons)
			m := s.expect("1")
			s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"again"},"requestState":%q%s,%s}}`, state(t, m), said, meta)
			time.Sleep(20 * time.Millisecond)
			s.open(1)
			s.decide(belay.ChoiceApproved)
			if got := s.answered("ask-1"); got != "primary" {
				t.Errorf("the script got %s", got)
			}
			s.returns(call, "")
			if m := s.expect("2"); m.Text() != "the script's word" {
				t.Errorf("the caller got %s", m.Raw)
			}
		})
	}
}

// TestAT66_TwoDoorsAtOnce: of many answers that come at the same moment, from the caller
// and from doors, one counts; the script gets that one, once, and every other is told so.
func TestAT66_TwoDoorsAtOnce(t *testing.T) {
	s := on(t, false, capable, nil)
	for i := range 30 {
		id, ask := fmt.Sprint(i+1), fmt.Sprintf("ask-%d", i)
		call, name := s.call(id)
		s.ask(ask, name, buttons)
		q := s.elicited(i + 1)
		a := s.open(1)[0]
		won := make(chan belay.Decision, 2)
		for _, choice := range []belay.Choice{belay.ChoiceApproved, belay.ChoiceDeclined} {
			go func() {
				d, err := s.tree.Decide(context.Background(), a.ID, belay.Decision{Choice: choice, Via: "rest"})
				switch {
				case err == nil:
					won <- *d.Decision
				case errors.Is(err, belay.ErrDecided) && d.Decision != nil:
					won <- belay.Decision{}
				default:
					t.Error(err)
					won <- belay.Decision{}
				}
			}()
		}
		s.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"cancel"}}`, q.ID)
		got := s.answered(ask)
		d := <-won
		if second := <-won; second.Choice != "" {
			if d.Choice != "" {
				t.Errorf("two doors were told that they decided: %v and %v", d.Choice, second.Choice)
			}
			d = second
		}
		want := map[belay.Choice]string{belay.ChoiceApproved: "primary", belay.ChoiceDeclined: "secondary", "": "dismissed"}[d.Choice]
		if got != want || len(s.worker.Responses(`"`+ask+`"`)) != 1 {
			t.Errorf("the script got %s, the doors decided %q", got, d.Choice)
		}
		s.returns(call, "")
		s.expect(id)
	}
	if strings.Contains(s.logs.String(), "panic") {
		t.Error(s.logs)
	}
}
