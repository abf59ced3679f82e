package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// A question about a call of a session's MCP server, for a person whom the agent
// cannot ask. The editor knows one form for that, which is the agent's otherwise: a
// permission. In version 1 it is about a tool call, so the question is shown as one
// of its own, for the agent's calls are the agent's to describe.

// Errors of questions of Belay's own.
var (
	errNoSession = errors.New("the session has no editor that could be asked")
	errNotNow    = errors.New("the turn was stopped, or the editor takes no more requests")
	errNoAnswer  = errors.New("the editor gave no answer")
)

// The options of a question.
const (
	optionYes  = "primary"
	optionNo   = "secondary"
	optionNone = "dismiss"

	nameNone = "No answer"
)

// putAway is how long a question that was put away waits for the Stop of its turn:
// an editor whose user presses Stop answers what is open, and then says why (ACP-53).
const putAway = time.Second

// permission is one question at the editor.
type permission struct {
	r    *request
	s    *session
	t    *turn  // nil: it belongs to none
	tool string // the tool call as which it is shown; "": none
	look bool   // there is one to be had
	got  chan belay.Choice
}

// Permit puts a question about a call of one of a session's servers to the person at
// the editor, and returns what they chose: it implements the asking of
// [gateway.Asker] for the servers that were put behind Belay for a session. session
// is the run that the Front knows it by. An error says that the person was not
// asked, or that ctx ended first, with which the question is withdrawn; it is then
// the cause.
func (b *Bridge) Permit(ctx context.Context, session belay.RunID, call *belay.Run, a belay.Approval) (belay.Decision, error) {
	if ctx.Err() != nil {
		return belay.Decision{}, context.Cause(ctx)
	}
	p := &permission{got: make(chan belay.Choice, 1)}
	if err := b.putPermission(p, session, b.above(call), &a, ""); err != nil {
		return belay.Decision{}, err
	}
	choice, err := p.wait(ctx, b.ended)
	if err == nil && choice == choiceLook {
		var seen string
		if seen, err = b.seen(ctx, &a); err == nil {
			err = b.putPermission(p, session, b.above(call), &a, seen)
		}
		if err == nil {
			choice, err = p.wait(ctx, b.ended)
		}
	}
	b.lock()
	defer b.unlock()
	if err != nil && p.r.settle() && (p.t == nil || p.t.stop == nil || !p.t.stop.byEditor) {
		p.r.tell()
	}
	elsewhere := (ctx.Err() != nil || errors.Is(err, belay.ErrDecided)) && call.Cancellation() == nil
	b.showPermission(p, choice, elsewhere)
	if err != nil {
		return belay.Decision{}, err
	}
	return belay.Decision{Choice: choice, By: b.o.Owner, Via: "acp"}, nil
}

// above are the runs above a call, the nearest first.
func (b *Bridge) above(call *belay.Run) (ids []belay.RunID) {
	for id := call.Info().Parent; !id.IsZero() && len(ids) < maxAbove; {
		ids = append(ids, id)
		run, err := b.o.Tree.Run(id)
		if err != nil {
			break
		}
		id = run.Info().Parent
	}
	return ids
}

const maxAbove = 32

// putPermission sends the question; once more, with what was seen, if that is not
// empty.
func (b *Bridge) putPermission(p *permission, session belay.RunID, above []belay.RunID, a *belay.Approval, seen string) error {
	b.lock()
	defer b.unlock()
	for _, s := range b.sessions {
		if s.front != nil && s.front.ID() == session {
			p.s = s
		}
	}
	if p.s == nil || p.s.id == "" || !b.known() {
		return errNoSession
	}
	i := slices.IndexFunc(p.s.turns, func(t *turn) bool { return slices.Contains(above, t.run.ID()) })
	if i >= 0 {
		p.t = p.s.turns[i]
	}
	if b.reason != "" || b.editor.full() || p.t != nil && (p.t.settled || p.t.run.Cancellation() != nil) {
		return errNotNow
	}
	text, news := a.Question.Text, "tool_call"
	if seen != "" {
		text, news = text+"\n\n"+seen, "tool_call_update"
	}
	ask := acp.Permission{Session: p.s.id, Title: a.Question.Title, Options: optionsOf(&a.Question)}
	if p.look = a.Question.Preview != "" && seen == ""; p.look {
		ask.Options = withLook(ask.Options, a.Question.Preview)
	}
	ask.ToolCall = acp.ToolCall{ID: "belay-" + a.ID.String(), Title: a.Question.Title, Kind: "other", Status: "pending", Content: textContent(text)}
	if b.version == acp.Version2 { // it needs no tool call to be about
		ask.Title += "\n\n" + text
		ask.ToolCall = acp.ToolCall{}
	} else {
		p.tool = ask.ToolCall.ID
	}
	params, err := ask.Params(b.version)
	if err != nil {
		return err
	}
	if p.tool != "" {
		b.tellTool(p.s, news, &ask.ToolCall)
	}
	p.r = &request{method: acp.MethodRequestPermission, s: p.s, t: p.t, reply: p.answered}
	b.editor.expect(p.r)
	if err := b.editor.say(func(dst []byte) []byte { return jsonrpc.AppendRequest(dst, p.r.hid, p.r.method, params) }); err != nil {
		b.editor.forget(p.r)
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	return nil
}

// optionsOf are the answers of a question. There is always one that is no yes.
func optionsOf(q *belay.Question) (list []acp.PermissionOption) {
	if q.Primary != "" {
		list = append(list, acp.PermissionOption{ID: optionYes, Name: q.Primary, Kind: "allow_once"})
	}
	if q.Secondary != "" {
		return append(list, acp.PermissionOption{ID: optionNo, Name: q.Secondary, Kind: "reject_once"})
	}
	return append(list, acp.PermissionOption{ID: optionNone, Name: nameNone, Kind: "reject_once"})
}

// answered takes the editor's answer, with the lock held. What is none of the options
// is no answer at all.
func (p *permission) answered(e *jsonrpc.Envelope, line []byte) {
	var answer struct {
		Outcome struct {
			Outcome string `json:"outcome"`
			Option  string `json:"optionId"`
		} `json:"outcome"`
	}
	choice := belay.Choice("")
	if e != nil && !e.IsError() && json.Unmarshal(e.Result.Of(line), &answer) == nil {
		switch o := answer.Outcome; {
		case o.Outcome == acp.OutcomeCancelled:
			choice = belay.ChoiceWithdrawn
		case o.Outcome != "selected":
		case o.Option == optionYes:
			choice = belay.ChoiceApproved
		case o.Option == optionNo:
			choice = belay.ChoiceDeclined
		case o.Option == optionNone:
			choice = belay.ChoiceDismissed
		case o.Option == optionLook && p.look:
			choice = choiceLook
		}
	}
	p.r.settled = true
	select {
	case p.got <- choice:
	default: // nobody waits
	}
}

// wait waits for the answer.
func (p *permission) wait(ctx context.Context, ended <-chan struct{}) (belay.Choice, error) {
	var choice belay.Choice
	select {
	case choice = <-p.got:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case <-ended:
		return "", errNotNow
	}
	switch choice {
	case "":
		return "", errNoAnswer
	case belay.ChoiceWithdrawn:
	default:
		return choice, nil
	}
	timer := time.NewTimer(putAway)
	defer timer.Stop()
	select {
	case <-timer.C:
		return belay.ChoiceDismissed, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case <-ended:
		return "", errNotNow
	}
}

// showPermission ends the tool call as which a question was shown, unless its turn
// has ended.
func (b *Bridge) showPermission(p *permission, choice belay.Choice, elsewhere bool) {
	if p.tool == "" || b.reason != "" || p.t != nil && p.t.settled {
		return
	}
	call := acp.ToolCall{ID: p.tool, Status: "failed"}
	switch {
	case choice == belay.ChoiceApproved:
		call.Status = "completed"
	case elsewhere:
		call.Status, call.Content = "completed", textContent("It was answered elsewhere, or needs no answer any more.")
	}
	b.tellTool(p.s, "tool_call_update", &call)
}

// tellTool tells the editor about a tool call of Belay's own.
func (b *Bridge) tellTool(s *session, kind string, call *acp.ToolCall) {
	type update struct {
		Kind string `json:"sessionUpdate"`
		*acp.ToolCall
	}
	params, err := json.Marshal(struct {
		Session string `json:"sessionId"`
		Update  update `json:"update"`
	}{s.id, update{kind, call}})
	if err != nil {
		b.log.Error("a tool call of Belay's own cannot be shown", "error", err)
		return
	}
	_ = b.editor.say(func(dst []byte) []byte { return jsonrpc.AppendNotification(dst, acp.NoticeSessionUpdate, params) })
}

// textContent is the content of a tool call that is one text.
func textContent(text string) json.RawMessage {
	return json.RawMessage(`[{"type":"content","content":{"type":"text","text":` + quote(text) + `}}]`)
}
