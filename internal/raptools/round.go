package raptools

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// A modern caller is asked by the answer to its request: input_required, with a
// requestState that the retry brings back (MCP-65). The call goes on meanwhile at the
// tool server, below the run of the MCP call, which waits.

// Bounds of rounds.
const (
	maxQuestions = 8                // of one call at once
	roundTime    = 10 * time.Minute // in which the retry has to come, as in the gateway
	inputKey     = "choice"         // of the one question in an answer
)

// question is one that waits for the end of a leg, and then for the retry.
type question struct {
	ctx    context.Context // ends when nobody wants the answer any more
	params any
	answer chan json.RawMessage // capacity 1
}

// round is a call between two legs.
type round struct {
	of    *request
	q     *question
	timer *time.Timer
}

// ask puts a question to a modern caller.
func (r *request) ask(ctx context.Context, params any) (json.RawMessage, error) {
	q := &question{ctx: ctx, params: params, answer: make(chan json.RawMessage, 1)}
	select {
	case r.questions <- q:
	default:
		return nil, fmt.Errorf("%w: %d questions wait already", errNoAnswer, maxQuestions)
	}
	select {
	case answer := <-q.answer:
		if answer == nil {
			return nil, errNoAnswer
		}
		return answer, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// park answers the open leg with a question.
func (s *session) park(r *request, q *question) {
	raw, err := json.Marshal(q.params)
	if err != nil {
		q.answer <- nil
		return
	}
	state := "rap-" + rand.Text()
	at := &round{of: r, q: q}
	s.mu.Lock()
	m := r.leg
	r.leg = nil
	s.rounds[state] = at
	at.timer = time.AfterFunc(roundTime, func() { s.giveUp(state) })
	s.mu.Unlock()
	result, err := json.Marshal(map[string]any{
		"resultType": "input_required", "requestState": state,
		"inputRequests": map[string]any{inputKey: map[string]any{"method": mcp.MethodElicitation, "params": json.RawMessage(raw)}},
	})
	if err != nil {
		result = []byte(`{"resultType":"input_required"}`)
	}
	s.send(jsonrpc.AppendResponse(nil, m.ID, result))
}

// dropRound forgets a question; nil if it was answered before.
func (s *session) dropRound(state string) *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.rounds[state]
	if at != nil {
		at.timer.Stop()
		delete(s.rounds, state)
	}
	return at
}

// dropRounds forgets all questions: nobody comes back any more.
func (s *session) dropRounds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.rounds {
		at.timer.Stop()
	}
	clear(s.rounds)
}

// giveUp ends a call whose caller has not come back: it has gone away, which is not
// an answer.
func (s *session) giveUp(state string) {
	if at := s.dropRound(state); at != nil {
		at.of.call.Run().Cancel(belay.Cancellation{Cause: belay.CauseDisconnect, Via: "mcp", Reason: "the question was not answered within " + roundTime.String()})
	}
}

// resumeLocked finds the call of a retry; nil: there is none. answer hands over what
// the caller said.
func (s *session) resumeLocked(m *mcp.Message) (r *request, answer func()) {
	var p struct {
		Name   string                     `json:"name"`
		State  string                     `json:"requestState"`
		Inputs map[string]json.RawMessage `json:"inputResponses"`
	}
	if json.Unmarshal(m.Params.Of(m.Frame), &p) != nil {
		return nil, nil
	}
	at := s.rounds[p.State]
	if at == nil || at.of.tool != p.Name {
		return nil, nil
	}
	at.timer.Stop()
	delete(s.rounds, p.State)
	return at.of, func() { at.q.answer <- p.Inputs[inputKey] } // nil: it could not be asked
}
