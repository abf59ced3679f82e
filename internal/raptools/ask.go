package raptools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/rap"
)

// Errors of questions.
var (
	errDismissed = errors.New("the user has dismissed the question")
	errNoAnswer  = errors.New("the caller cannot be asked")
)

// choose has the user choose: by the caller, if it takes elicitations, else by
// whoever sees the approvals.
func (s *session) choose(ctx context.Context, r *request, c *rap.Pending, m *rap.UserChoice) (int, error) {
	s.mu.Lock()
	elicits := s.caller.elicits
	s.mu.Unlock()
	ask := s.ask
	switch {
	case r.elicits:
		ask = r.ask
	case !elicits || r.era == mcp.Modern:
		return s.approve(ctx, c, m)
	}
	i, err := elicit(ctx, ask, m)
	if err == nil || errors.Is(err, errDismissed) || ctx.Err() != nil {
		return i, err
	}
	s.t.Log.Info("the caller cannot be asked; the question goes to the approvals", "server", s.t.Server, "error", err)
	return s.approve(ctx, c, m)
}

// elicit asks the caller by a form with one field.
func elicit(ctx context.Context, ask func(context.Context, any) (json.RawMessage, error), m *rap.UserChoice) (int, error) {
	names := distinct(m.Choices)
	answer, err := ask(ctx, map[string]any{
		"mode":    "form",
		"message": m.Prompt,
		"requestedSchema": map[string]any{
			"type":       "object",
			"properties": map[string]any{"choice": map[string]any{"type": "string", "title": "Choice", "enum": names, "default": names[m.Default]}},
			"required":   []string{"choice"},
		},
	})
	if err != nil {
		return 0, err
	}
	var a struct {
		Action  string `json:"action"`
		Content struct {
			Choice string `json:"choice"`
		} `json:"content"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return 0, fmt.Errorf("%w: its answer cannot be read", errNoAnswer)
	}
	if a.Action == "accept" {
		for i, name := range names {
			if name == a.Content.Choice {
				return i, nil
			}
		}
	}
	return 0, errDismissed
}

// distinct makes choices that read alike different.
func distinct(choices []string) []string {
	seen := map[string]bool{}
	names := make([]string, len(choices))
	for i, text := range choices {
		if names[i] = text; seen[text] || text == "" {
			names[i] = fmt.Sprintf("%d. %s", i+1, text)
		}
		seen[names[i]] = true
	}
	return names
}

// ask sends a request to the caller and waits for the answer. When ctx ends it is
// withdrawn.
func (s *session) ask(ctx context.Context, params any) (json.RawMessage, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	answer := make(chan *mcp.Message, 1)
	s.mu.Lock()
	id := s.askIDs.Next()
	s.asks[id.Key()] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.asks, id.Key())
	}()
	s.send(jsonrpc.AppendRequest(nil, id, mcp.MethodElicitation, raw))
	select {
	case m := <-answer:
		if m.IsError() {
			return nil, fmt.Errorf("%w: %.200s", errNoAnswer, m.Error.Of(m.Frame))
		}
		return m.Result.Of(m.Frame), nil
	case <-ctx.Done():
	case <-s.life.Done():
	}
	s.send(mcp.AppendCancelled(nil, id, "nobody waits for the answer any more", mcp.Legacy))
	if ctx.Err() == nil {
		return nil, context.Cause(s.life)
	}
	return nil, context.Cause(ctx)
}

// answered takes the answer to a question.
func (s *session) answered(m *mcp.Message) {
	s.mu.Lock()
	answer := s.asks[m.ID.Key()]
	delete(s.asks, m.ID.Key())
	s.mu.Unlock()
	if answer != nil {
		answer <- m // capacity 1, and it is taken out of the table
	}
}

// approve asks whoever sees the approvals. They have two answers, so that more
// choices are offered one after the other; who puts one away gets the default.
func (s *session) approve(ctx context.Context, c *rap.Pending, m *rap.UserChoice) (int, error) {
	names := distinct(m.Choices)
	if len(names) <= 2 {
		q := belay.Question{Text: m.Prompt, Primary: names[0], Timeout: -1}
		if len(names) == 2 {
			q.Secondary = names[1]
		}
		d, err := c.Run().Ask(ctx, q)
		switch {
		case err != nil:
			return 0, err
		case d.Choice == belay.ChoiceApproved:
			return 0, nil
		case d.Choice == belay.ChoiceDeclined && len(names) == 2:
			return 1, nil
		}
		return 0, errDismissed
	}
	var list strings.Builder
	for i, name := range names {
		fmt.Fprintf(&list, "\n%d. %s", i+1, name)
	}
	for i, name := range names {
		d, err := c.Run().Ask(ctx, belay.Question{
			Text: fmt.Sprintf("%s\n%s\n\nTake %d of %d: %s?", m.Prompt, list.String(), i+1, len(names), name), Primary: name, Secondary: "Another one", Timeout: -1,
		})
		switch {
		case err != nil:
			return 0, err
		case d.Choice == belay.ChoiceApproved:
			return i, nil
		case d.Choice != belay.ChoiceDeclined:
			return 0, errDismissed
		}
	}
	return 0, errDismissed
}
