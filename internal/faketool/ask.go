package faketool

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// askKinds are the questions a server can ask at its start.
var askKinds = map[string]struct{ method, params string }{
	"roots":    {"roots/list", `{}`},
	"elicit":   {"elicitation/create", `{"message":"Which folder?","requestedSchema":{"type":"object","properties":{"folder":{"type":"string"}}}}`},
	"sampling": {"sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}],"maxTokens":10}`},
}

// ask sends a request to the client, waits for the answer and returns it as a
// text. A modern server may not send requests: it answers "input_required" and
// expects the retry. A legacy question is cancelled, in this direction, when
// the call itself is told or after cancelMs.
func (s *server) ask(c *call, a arguments, p params) {
	kind, ok := askKinds[a.Method]
	if ok {
		a.Method = kind.method
	} else {
		kind.params = `{}`
	}
	if a.Method == "" {
		a.Method = "roots/list"
	}
	if len(a.Params) == 0 {
		a.Params = json.RawMessage(kind.params)
	}
	if c.modern {
		s.askModern(c, a, p)
		return
	}
	id, answer := s.question(a)
	s.wit.write(a.Key, "ask", id+" "+a.Method)
	var giveUp <-chan time.Time
	if a.CancelMS > 0 {
		timer := time.NewTimer(time.Duration(a.CancelMS) * time.Millisecond)
		defer timer.Stop()
		giveUp = timer.C
	}
	select {
	case m := <-answer:
		raw := m.Result
		if m.Error != nil {
			raw = m.Error
		}
		s.wit.write(a.Key, "answer", string(raw))
		c.settle(string(raw))
	case <-giveUp:
		s.cancelQuestion(a.Key, id, "asked too long")
		c.settle("question cancelled")
	case <-c.ctx.Done():
		s.cancelQuestion(a.Key, id, "the call was stopped")
		s.wit.write(a.Key, "stopped", "")
		c.settle("")
	}
}

// question sends the request and registers who waits for the answer.
func (s *server) question(a arguments) (string, <-chan message) {
	answer := make(chan message, 1)
	s.mu.Lock()
	s.askSeq++
	id := fmt.Sprint(s.askSeq) // counts from 1 like the client's: ids of two directions must not meet
	if len(a.AskID) > 0 {
		id = string(a.AskID)
	}
	s.asks[id] = answer
	s.mu.Unlock()
	s.out.request(id, a.Method, a.Params)
	return id, answer
}

// cancelQuestion sends notifications/cancelled for a question of ours. A
// later answer to it counts as a violation.
func (s *server) cancelQuestion(key, id, reason string) {
	s.mu.Lock()
	_, open := s.asks[id]
	delete(s.asks, id)
	s.mu.Unlock()
	if open {
		s.wit.write(key, "ask-cancelled", id)
		s.out.notify("notifications/cancelled", fmt.Appendf(nil, `{"requestId":%s,"reason":%s}`, id, quote(reason)))
	}
}

// askModern asks by an input round (MCP-65).
func (s *server) askModern(c *call, a arguments, p params) {
	const prefix = "ask:"
	if strings.HasPrefix(p.RequestState, prefix) {
		s.wit.write(a.Key, "answer", string(p.InputResponses))
		c.text(string(p.InputResponses))
		return
	}
	s.wit.write(a.Key, "ask", a.Method)
	if c.once() {
		s.out.result(c.id, fmt.Appendf(nil,
			`{"resultType":"input_required","inputRequests":{"q":{"method":%s,"params":%s}},"requestState":%s}`,
			quote(a.Method), a.Params, quote(prefix+a.Key)))
	}
}

// askAtStart asks once for each process. Calls wait for the answer, as they do
// behind servers that need to know their roots first.
func (s *server) askAtStart() {
	kind, ok := askKinds[s.opt.startAsk]
	if !ok {
		kind = askKinds["roots"]
	}
	id, answer := s.question(arguments{Method: kind.method, Params: json.RawMessage(kind.params)})
	s.wit.write(serverKey, "ask", id+" "+kind.method)
	m := <-answer
	raw := m.Result
	if m.Error != nil {
		raw = m.Error
	}
	s.wit.write(serverKey, "answer", string(raw))
	s.mu.Lock()
	s.state.Answers = append(s.state.Answers, string(raw))
	s.mu.Unlock()
	close(s.ready)
}
