package raptools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/rap"
)

// call begins a tools/call, or goes on with one. It is known before anything is
// done, so that a cancel right behind it finds it.
func (s *session) call(m *mcp.Message) {
	s.mu.Lock()
	if s.calls[m.ID.Key()] != nil {
		s.mu.Unlock()
		s.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidRequest, "the id is in flight already", nil))
		return
	}
	r, answer := &request{era: m.Era(), questions: make(chan *question, maxQuestions)}, func() {}
	if m.State.Ok() {
		if r, answer = s.resumeLocked(m); r == nil {
			s.mu.Unlock()
			s.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidParams, "this requestState is of no call that waits", nil))
			return
		}
	}
	r.leg, r.last = m, m
	s.calls[m.ID.Key()] = r
	s.mu.Unlock()
	s.wg.Go(func() {
		if r.call != nil { // a retry
			answer()
			s.await(r)
		} else {
			s.run(m, r)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, m.ID.Key())
	})
}

// params are those of a tools/call.
type params struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      struct {
		Run          string `json:"io.github.belayhq/run"`
		ToolUse      string `json:"claudecode/toolUseId"`
		Capabilities struct {
			Elicitation *struct {
				Form *struct{} `json:"form"`
				URL  *struct{} `json:"url"`
			} `json:"elicitation"`
		} `json:"io.modelcontextprotocol/clientCapabilities"`
	} `json:"_meta"`
}

// run makes the call and answers it.
func (s *session) run(m *mcp.Message, r *request) {
	var p params
	if err := json.Unmarshal(m.Params.Of(m.Frame), &p); err != nil || p.Name == "" {
		s.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidParams, "tools/call needs a name and arguments that are an object", nil))
		return
	}
	if _, err := s.tools(); err != nil {
		s.send(mcp.AppendToolError(nil, m.ID, errOf(err), m.Era()))
		return
	}
	if p.Name == cancelSubscription {
		s.send(s.endSubscription(m, p.Arguments))
		return
	}
	e := p.Meta.Capabilities.Elicitation
	r.elicits = m.Era() == mcp.Modern && e != nil && (e.Form != nil || e.URL == nil)
	r.tool, r.above = p.Name, s.above(p.Meta.Run)
	o := rap.CallOptions{Tool: p.Name, Arguments: p.Arguments, Parent: r.above, Events: s.eventsOf(r), Late: func(late *rap.ToolResult) { s.late(r, late) }}
	if id := p.Meta.ToolUse; id != "" && len(id) <= rap.MaxID {
		o.CallID = &id
	}
	if r.above != nil {
		o.Owner = r.above.Info().Owner
		o.Seen = func(e belay.Evidence) { s.witness(r, e) }
	}
	call, err := s.thread.Invoke(o)
	if err != nil {
		s.send(s.refusal(m, err))
		return
	}
	s.mu.Lock()
	r.call = call
	gone := r.gone
	s.mu.Unlock()
	if gone {
		s.cancel(call)
	}
	s.await(r)
}

// await answers the leg that is open, with the result or with a question.
func (s *session) await(r *request) {
	for {
		select {
		case <-r.call.Done():
			s.finish(r)
			return
		case q := <-r.questions:
			if q.ctx.Err() == nil {
				s.park(r, q)
				return
			}
		}
	}
}

// finish answers a request whose call is over.
func (s *session) finish(r *request) {
	s.mu.Lock()
	m := r.leg
	s.mu.Unlock()
	result, err := r.call.Result()
	var why *belay.Cancellation
	switch {
	case result != nil:
		s.send(s.result(m, result))
	case !errors.As(err, &why):
		s.send(mcp.AppendToolError(nil, m.ID, errOf(err), m.Era()))
	case r.above == nil || r.above.Cancellation() == nil:
		// The call below was stopped, and not the request: its caller still waits.
		s.send(mcp.AppendStopped(nil, m.ID, r.call.Run().ID(), why, false))
	}
}

// late takes a result that came after the Stop: the gateway, which waits for an answer
// to the leg that was open then, makes evidence of it.
func (s *session) late(r *request, late *rap.ToolResult) {
	s.mu.Lock()
	m := r.leg
	s.mu.Unlock()
	if m != nil {
		s.send(s.result(m, late))
	}
}

// witness notes on the receipt of the MCP call what was seen of the servers. A
// result after the Stop goes through the gateway, which sees it itself, unless it
// waits for the caller's next leg.
func (s *session) witness(r *request, e belay.Evidence) {
	switch e.Kind {
	case belay.SeenResult, belay.SeenErrorReply:
		s.mu.Lock()
		open := r.leg != nil
		s.mu.Unlock()
		if open {
			return
		}
	}
	r.above.Observe(e)
}

// above is the run of the MCP call; nil if nobody has said it.
func (s *session) above(id string) *belay.Run {
	name, err := belay.ParseRunID(id)
	if err != nil {
		return nil
	}
	run, err := s.t.Tree.Run(name)
	if err != nil {
		return nil
	}
	return run
}

// refusal answers a call that was not made.
func (s *session) refusal(m *mcp.Message, err error) []byte {
	if errors.Is(err, rap.ErrNoTool) {
		return jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidParams, err.Error(), nil)
	}
	return mcp.AppendToolError(nil, m.ID, errOf(err), m.Era()) // for the model to read
}

// cancelled takes the cancel of a request. The Stop of its run has come before, and
// this changes nothing then; where Belay acts on no cancel itself it is the
// protocol's own, which passes.
func (s *session) cancelled(m *mcp.Message) {
	cancel, err := m.ReadCancel()
	if err != nil {
		return
	}
	s.mu.Lock()
	r := s.calls[cancel.Request.Key()]
	var call *rap.Pending
	if r != nil {
		r.gone, call = true, r.call
	}
	s.mu.Unlock()
	if call != nil {
		s.cancel(call)
	}
}

func (s *session) cancel(call *rap.Pending) {
	call.Run().Cancel(belay.Cancellation{Cause: belay.CauseUser, Via: "mcp"})
}

// result is a RAP result as MCP has it.
func (s *session) result(m *mcp.Message, r *rap.ToolResult) []byte {
	content := make([]map[string]any, 0, len(r.Items()))
	failed := false
	for i, item := range r.Items() {
		switch item.Type {
		case rap.ItemImage:
			content = append(content, map[string]any{"type": "image", "data": item.Data, "mimeType": item.MediaType})
		default:
			failed = failed || i == 0 && rap.Failed(r)
			content = append(content, map[string]any{"type": "text", "text": item.Text})
		}
	}
	out := map[string]any{"content": content}
	if failed {
		out["isError"] = true
	}
	more := map[string]any{}
	if len(r.DisplayAs) > 0 {
		more["display_as"] = r.DisplayAs
	}
	if r.Subscription {
		more["subscription"] = r.ID
		out["content"] = append(content, map[string]any{"type": "text", "text": fmt.Sprintf(
			"(This is a live subscription. Events arrive by themselves; %s with tool_call_id %q ends it.)", cancelSubscription, r.ID)})
	}
	if len(more) > 0 {
		out["_meta"] = map[string]any{metaRAP: more}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return jsonrpc.AppendError(nil, m.ID, mcp.CodeInternal, "the result cannot be written", nil)
	}
	return jsonrpc.AppendResponse(nil, m.ID, complete(raw, m.Era()))
}

// endSubscription is the tool of that name: it is answered at once.
func (s *session) endSubscription(m *mcp.Message, arguments json.RawMessage) []byte {
	var a struct {
		ID string `json:"tool_call_id"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil || a.ID == "" {
		return mcp.AppendToolError(nil, m.ID, "Error: tool_call_id is missing; it is the id that the subscription's result names", m.Era())
	}
	if err := s.thread.CancelSubscription(a.ID, belay.Cancellation{Cause: belay.CauseUser, Via: "mcp"}); err != nil {
		return mcp.AppendToolError(nil, m.ID, errOf(err), m.Era())
	}
	raw := []byte(`{"content":[{"type":"text","text":"The subscription is cancelled; its events are discarded from now on."}]}`)
	return jsonrpc.AppendResponse(nil, m.ID, complete(raw, m.Era()))
}

// events are what the tool server says beside results.
func (s *session) events() *rap.Events {
	return &rap.Events{
		Subscription: func(sub *rap.Subscription, e *rap.SubscriptionEvent) {
			s.say("info", map[string]any{
				"type": "subscription_event", "tool_call_id": sub.ID, "tool": sub.Tool,
				"text": e.Text, "associative": e.Associative, "final": e.Final,
			})
		},
		View: func(_ string, v *rap.ViewUpdate) {
			s.say("debug", map[string]any{"type": "view_update", "view_type": v.ViewType, "content": v.Content})
		},
	}
}

// eventsOf are what one call asks of people.
func (s *session) eventsOf(r *request) *rap.Events {
	return &rap.Events{
		OAuth: s.authorise,
		Choice: func(ctx context.Context, c *rap.Pending, m *rap.UserChoice) (int, error) {
			return s.choose(ctx, r, c, m)
		},
	}
}

// say sends a log message.
func (s *session) say(level string, data any) {
	raw, err := json.Marshal(map[string]any{"level": level, "logger": s.t.Server, "data": data})
	if err == nil {
		s.send(jsonrpc.AppendNotification(nil, mcp.NoticeLog, raw))
	}
}

// authorise shows where the user can authorise a call (RAP-80).
func (s *session) authorise(ctx context.Context, c *rap.Pending, m *rap.OAuth) {
	s.mu.Lock()
	urls := s.caller.urls
	s.mu.Unlock()
	text := fmt.Sprintf("The tool server %s needs your authorisation for %s.", s.t.Server, c.Run().Name())
	if urls {
		_, err := s.ask(ctx, map[string]any{"mode": "url", "message": text, "url": m.AuthURL, "elicitationId": c.ID()})
		if err == nil || ctx.Err() != nil {
			return
		}
	}
	s.say("notice", map[string]any{"type": "oauth", "message": text + " Open this address, then wait: the call goes on by itself.", "auth_url": m.AuthURL})
}
