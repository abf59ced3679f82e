package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// ErrNotAlone says that the agent gives no means of stopping one tool call without
// its turn (ACP-B27).
var ErrNotAlone = fmt.Errorf("not_stoppable_alone: %w: nothing that stops this tool call leaves its turn alone; stop the turn", belay.ErrUnsupported)

// toolStopper stops one tool call while its turn goes on, if there is a means. With
// its turn it is stopped by that.
type toolStopper struct {
	b *Bridge
	x *tool

	means belay.Stopper // its processes; set by Tell, nil if another means was found
}

var (
	_ belay.Gate       = (*toolStopper)(nil)
	_ belay.Terminator = (*toolStopper)(nil)
	_ belay.Killer     = (*toolStopper)(nil)
	_ belay.Planner    = (*toolStopper)(nil)
)

// withTurn reports whether the turn is stopped too, which then sees to all.
func (p *toolStopper) withTurn() bool { return p.x.t.run.Cancellation() != nil }

// Tell uses the first means that there is.
func (p *toolStopper) Tell(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	if p.withTurn() {
		return nil, nil
	}
	if p.askAgent() {
		return nil, nil
	}
	if told, err := p.cancelCalls(ctx, c); told {
		return nil, err
	}
	if means := p.processes(); means != nil && p.b.set.Enforce != Never {
		p.b.mu.Lock()
		p.means = means
		p.b.mu.Unlock()
		return means.Tell(ctx, c)
	}
	p.x.run.GiveUp(ErrNotAlone.Error())
	return nil, ErrNotAlone
}

// askAgent has the agent cancel the tool call, if it says that it can.
func (p *toolStopper) askAgent() bool {
	b, x := p.b, p.x
	b.lock()
	defer b.unlock()
	method, key, id := acp.MethodCancelToolCall, "toolCallId", x.id
	switch work := &x.s.work; {
	case !x.open || b.version != acp.Version2:
		return false
	case work.tools[x.id]:
	case work.terminals[x.terminal]:
		method, key, id = acp.MethodCancelTerminal, "terminalId", x.terminal
	default:
		return false
	}
	params := fmt.Appendf(nil, `{"sessionId":%s,%q:%s}`, quote(x.s.id), key, quote(id))
	b.ask(b.agent, method, params, func(e *jsonrpc.Envelope, frame []byte) {
		if e == nil || e.IsError() {
			detail := "the agent is gone"
			if e != nil {
				detail = fmt.Sprintf("the agent refused to cancel it: error %d", errorCode(e, frame))
			}
			x.run.Observe(belay.Evidence{Kind: belay.SeenErrorReply, Open: true, Detail: detail})
		}
	})
	return true
}

// cancelCalls stops the tool call's calls of fronted MCP servers; false if it has
// none. Most hang below it and were told with it; one that began before the agent had
// reported the tool call hangs below the turn, and is told here. It is the same Stop.
func (p *toolStopper) cancelCalls(ctx context.Context, c *belay.Cancellation) (told bool, err error) {
	var ids []belay.RunID
	for _, call := range p.calls() {
		if call.ToolCall == p.x.id {
			ids = append(ids, call.Run)
		}
	}
	if len(ids) == 0 {
		return false, nil
	}
	below := *c
	below.Cause = belay.CauseParent
	if below.Origin.IsZero() {
		below.Origin = p.x.run.ID()
	}
	_, err = p.b.o.Control.Cancel(ctx, belay.CancelRequest{Filter: belay.Filter{IDs: ids}, Cancellation: below})
	return true, err
}

func (p *toolStopper) calls() []Fronted {
	p.b.mu.Lock()
	fronted := p.x.t.s.front != nil
	p.b.mu.Unlock()
	if p.b.o.Front == nil || !fronted {
		return nil
	}
	return p.b.o.Front.Calls(p.x.t.run)
}

func (p *toolStopper) processes() belay.Stopper {
	brood := p.x.t.processes()
	if brood == nil {
		return nil
	}
	return brood.Alone(p.x.id)
}

// Plan says what a Stop would do.
func (p *toolStopper) Plan(ctx context.Context) belay.Plan {
	p.b.mu.Lock()
	cancels := p.x.s.work.tools[p.x.id]
	p.b.mu.Unlock()
	if cancels {
		return belay.Plan{Tell: "the agent, by " + acp.MethodCancelToolCall, Force: "none"}
	}
	if slices.ContainsFunc(p.calls(), func(c Fronted) bool { return c.ToolCall == p.x.id }) {
		return belay.Plan{Tell: "its call to an MCP server", Force: "as for that call"}
	}
	means := p.processes()
	if planner, ok := means.(belay.Planner); ok {
		return planner.Plan(ctx)
	}
	if means != nil {
		return belay.Plan{Tell: "its process", Force: "SIGTERM, then SIGKILL"}
	}
	return belay.Plan{Tell: "nobody: " + ErrNotAlone.Error(), Force: "none"}
}

// MayForce: with its turn, a tool call waits for what that does.
func (p *toolStopper) MayForce(ctx context.Context, pressure belay.Pressure) error {
	if p.withTurn() {
		if _, err := p.x.t.run.Wait(ctx); err != nil {
			return err
		}
		<-ctx.Done() // its evidence comes with the turn's
		return context.Cause(ctx)
	}
	p.b.mu.Lock()
	means := p.means
	p.b.mu.Unlock()
	if means == nil {
		if pressure.Again {
			return &belay.Restraint{Why: errNoMeans.Error()}
		}
		timer := time.NewTimer(time.Until(pressure.GiveUp))
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return &belay.Restraint{Why: "it was told; " + errNoMeans.Error()}
		}
	}
	if gate, ok := means.(belay.Gate); ok {
		return gate.MayForce(ctx, pressure)
	}
	return nil
}

var errNoMeans = errors.New("it has no process that is known to be its own")

// Terminate ends the tool call's own processes.
func (p *toolStopper) Terminate(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	p.b.mu.Lock()
	t, ok := p.means.(belay.Terminator)
	p.b.mu.Unlock()
	if !ok {
		return nil, errNoMeans
	}
	return t.Terminate(ctx, c)
}

// Kill does, too.
func (p *toolStopper) Kill(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	p.b.mu.Lock()
	k, ok := p.means.(belay.Killer)
	p.b.mu.Unlock()
	if !ok {
		return nil, errNoMeans
	}
	return k.Kill(ctx, c)
}

// advertise tells a v2 editor that this tool call can be cancelled alone, where that
// is Belay's doing (ACP-B27).
func (b *Bridge) advertise(x *tool, line []byte, update, caps jsonrpc.Span) []jsonrpc.Edit {
	if x.run == nil || x.ours && !caps.Ok() {
		return nil
	}
	brood := x.t.brood
	if brood == nil || b.set.Enforce == Never {
		return nil
	}
	if !x.looking { // it takes a look at processes: the next update will say what it finds now
		x.looking = true
		b.spawnLocked(func() {
			alone := brood.Alone(x.id) != nil
			b.mu.Lock()
			defer b.mu.Unlock()
			x.looking, x.alone = false, alone
		})
	}
	if !x.alone {
		return nil
	}
	x.ours = true
	switch {
	case !caps.Ok():
		return []jsonrpc.Edit{jsonrpc.InsertMember(line, update, "capabilities", []byte(`{"cancel":{}}`))}
	case jsonrpc.KindAt(line, caps) == jsonrpc.ObjectValue:
		m, ok, err := jsonrpc.Member(line, caps, "cancel")
		switch {
		case err != nil:
			return nil
		case ok:
			return []jsonrpc.Edit{{At: m, New: []byte("{}")}}
		}
		return []jsonrpc.Edit{jsonrpc.InsertMember(line, caps, "cancel", []byte("{}"))}
	}
	return []jsonrpc.Edit{{At: caps, New: []byte(`{"cancel":{}}`)}}
}

// cancelToolCall serves tool_call/cancel where the editor knows it from Belay. It is
// false if the request is the agent's to answer.
func (b *Bridge) cancelToolCall(r *request, params []byte) bool {
	id, ok := acp.SessionOf(params)
	s := b.sessions[id]
	if !ok || s == nil {
		return false
	}
	at, ok, err := jsonrpc.Member(params, jsonrpc.Span{End: len(params)}, "toolCallId")
	if !ok || err != nil {
		return false
	}
	name := text(params, at)
	for _, t := range s.turns {
		x := t.tools[string(name)]
		if x == nil || s.work.tools[x.id] || !x.ours {
			continue
		}
		if !x.open || x.run == nil {
			r.fail(acp.CodeInvalidParams, "the tool call is over", nil)
			return true
		}
		run := x.run
		b.later(func() {
			run.Cancel(belay.Cancellation{Cause: belay.CauseUser, By: b.o.Owner, Via: "acp", Reason: "the editor cancelled the tool call"})
		})
		r.answer([]byte("{}"))
		return true
	}
	return false
}
