package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// Turn is one prompt while an agent works on it. All methods are safe for
// concurrent use.
type Turn struct {
	agent   *Agent
	req     *Request
	session string
	prompt  json.RawMessage
	ended   chan struct{} // closed when it is over for the client

	// mu guards over, inserted and message, and is held while something of the turn
	// is sent, so that nothing follows its end. Order: mu, then Agent.mu.
	mu       sync.Mutex
	over     bool
	inserted bool   // v2: session/prompt was answered, and the work goes on
	message  string // v2: the id under which it was inserted
}

// prompt serves session/prompt.
func (a *Agent) prompt(ctx context.Context, r *Request) (any, error) {
	if r.session == "" {
		return nil, InvalidParams("sessionId must be a string")
	}
	var asked struct {
		Prompt json.RawMessage `json:"prompt"`
	}
	if err := r.Decode(&asked); err != nil {
		return nil, err
	}
	t := &Turn{agent: a, req: r, session: r.session, prompt: asked.Prompt, ended: make(chan struct{})}
	r.mu.Lock()
	r.turn = t
	r.mu.Unlock()
	var reason StopReason
	err := r.guard(func() (err error) {
		reason, err = a.o.Prompt(ctx, t)
		return err
	})
	if a.conn.Version() < Version2 {
		if err == nil && reason == "" {
			reason = StopEndTurn
		}
		return map[string]StopReason{"stopReason": reason}, err
	}
	return t.conclude(reason, err)
}

// conclude is the end of a v2 turn's work. Before the prompt was inserted it is the
// end of the request, afterwards an idle state (ACP-62, ACP-63, ACP-67).
func (t *Turn) conclude(reason StopReason, err error) (any, error) {
	cancelled := t.req.run.Cancellation()
	if err == nil && cancelled == nil {
		if err := t.Insert(""); err != nil {
			return nil, err // the connection is gone
		}
	}
	if !t.isInserted() {
		if err == nil {
			err = error(cancelled)
		}
		return nil, err // settle makes an error answer of it
	}
	t.req.awaitChildren()
	t.req.cleanUp()
	switch {
	case err == nil && reason == "":
		t.end(StopEndTurn, nil)
	case err == nil:
		t.end(reason, nil)
	case cancelled != nil, stopped(err) && !isAnswer(err):
		t.end(StopCancelled, nil) // never error (ACP-67)
	default:
		t.end(StopError, answerOf(err))
	}
	return nil, err
}

func (t *Turn) isInserted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inserted
}

// Session is the id of the session.
func (t *Turn) Session() string { return t.session }

// Request is the request that began the turn.
func (t *Turn) Request() *Request { return t.req }

// Prompt is the JSON text of the content blocks.
func (t *Turn) Prompt() json.RawMessage { return t.prompt }

// Text is the text of the prompt's text blocks.
func (t *Turn) Text() string {
	var blocks []textBlock
	if json.Unmarshal(t.prompt, &blocks) != nil {
		return ""
	}
	var all strings.Builder
	for _, b := range blocks {
		if b.Type == "text" {
			all.WriteString(b.Text)
		}
	}
	return all.String()
}

// Insert answers session/prompt, in v2: the prompt is part of the conversation now,
// and the work begins. From here on it ends with an idle state and never with an
// error (ACP-62). An empty id stands for a fresh one. In v1, and the second time,
// it does nothing. A turn that returns without it is inserted at its end.
func (t *Turn) Insert(message string) error {
	if t.agent.conn.Version() < Version2 {
		return nil
	}
	if message == "" {
		message = "m_" + strings.TrimPrefix(belay.NewRunID().String(), "run_")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return fmt.Errorf("%s: %w", MethodPrompt, ErrOver)
	}
	if t.inserted {
		return nil
	}
	t.req.mu.Lock()
	first := !t.req.answered
	t.req.answered = true
	t.req.inserted = t.req.inserted || first
	t.req.mu.Unlock()
	if !first {
		return fmt.Errorf("%s: %w", MethodPrompt, ErrOver)
	}
	t.req.conn.settled(t.req) // from here on a cancel of the request means nothing
	t.inserted, t.message = true, message
	raw := append(jsonrpc.AppendString([]byte(`{"messageId":`), message), '}')
	if _, err := t.req.conn.send(func(dst []byte) []byte { return jsonrpc.AppendResponse(dst, t.req.id, raw) }); err != nil {
		return err
	}
	a := t.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessionLocked(t.session)
	if s.working++; s.working > 1 {
		return nil
	}
	return a.stateLocked(t.session, s, "running", "", nil)
}

// settle sends the answer of the request, and with it ends the turn.
func (t *Turn) settle(build func([]byte) []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.over = true
	defer close(t.ended) // whoever waits for it sends after this
	_, err := t.req.conn.send(build)
	if err != nil {
		t.req.conn.o.Log.Warn("the answer to a prompt could not be sent", "session", t.session, "error", err)
	}
	return true
}

// end sends the idle state of a v2 turn, once.
func (t *Turn) end(reason StopReason, failed *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	defer close(t.ended)
	a := t.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessionLocked(t.session)
	if s.working--; s.working > 0 {
		return // other foreground work goes on
	}
	if err := a.stateLocked(t.session, s, "idle", reason, failed); err != nil && !errors.Is(err, ErrClosed) {
		t.req.conn.o.Log.Warn("the end of a turn could not be sent", "session", t.session, "error", err)
	}
}

// Update sends an update of the turn. update is the object with its member
// sessionUpdate. After a Stop it still does (ACP-57), after the turn's end it is
// refused with [ErrOver].
func (t *Turn) Update(update any) error {
	raw, err := updateParams(t.session, update)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return fmt.Errorf("session/update: %w: the turn has been answered", ErrOver)
	}
	_, err = t.req.conn.send(func(dst []byte) []byte { return jsonrpc.AppendNotification(dst, NoticeSessionUpdate, raw) })
	return err
}

// Say sends a piece of the agent's message.
func (t *Turn) Say(text string) error {
	type chunk struct {
		Kind    string    `json:"sessionUpdate"`
		Message string    `json:"messageId,omitempty"` // v2: required
		Content textBlock `json:"content"`
	}
	c := chunk{Kind: "agent_message_chunk", Content: textBlock{"text", text}}
	if t.agent.conn.Version() >= Version2 {
		c.Message = "a_" + strings.TrimPrefix(t.req.run.ID().String(), "run_")
	}
	return t.Update(c)
}

// ToolCall tells the client of a tool call, or of a change in one that it knows.
func (t *Turn) ToolCall(call ToolCall) error {
	type cancel struct {
		Cancel *struct{} `json:"cancel"`
	}
	type update struct {
		Kind string `json:"sessionUpdate"`
		ToolCall
		Capabilities *cancel `json:"capabilities,omitempty"`
	}
	u := update{Kind: "tool_call_update", ToolCall: call}
	if t.agent.conn.Version() < Version2 {
		if call.Title != "" { // a change has none
			u.Kind = "tool_call"
		}
		return t.Update(struct {
			Kind string `json:"sessionUpdate"`
			ToolCall
		}{u.Kind, call})
	}
	if call.CanCancel {
		u.Capabilities = &cancel{Cancel: &struct{}{}}
	}
	return t.Update(u)
}

// RequestPermission is [Agent.RequestPermission] for the turn's session.
func (t *Turn) RequestPermission(ctx context.Context, p Permission) (PermissionAnswer, error) {
	p.Session = t.session
	return t.agent.RequestPermission(ctx, p)
}

// CreateTerminal is [Agent.CreateTerminal] for the turn's session.
func (t *Turn) CreateTerminal(ctx context.Context, r TerminalRequest) (*Terminal, error) {
	r.Session = t.session
	return t.agent.CreateTerminal(ctx, r)
}
