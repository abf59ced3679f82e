package bridge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// terminal is one that the editor has made for the agent (v1). Guarded by the
// bridge's lock.
type terminal struct {
	t    *turn // for which it was made; nil: for none
	over bool  // the agent has killed or released it, or it was seen to have exited
}

const maxTerminals = 1000 // of one session

// admitChild finds out to which turn and tool call a request of the agent belongs
// and registers it there. It is false if it is not to be passed, for its turn is
// being stopped; then it has its answer.
func (b *Bridge) admitChild(r *request, e *jsonrpc.Envelope, line []byte) bool {
	id, ok := acp.SessionOf(e.Params.Of(line))
	if !ok {
		return true // it belongs to no session, and passes
	}
	s := b.sessions[id]
	if s == nil {
		return true
	}
	r.s, r.t, r.tool = s, s.current(), subject(e, line)
	r.terminal = r.aboutTerminal(e, line)
	if r.t == nil {
		return true
	}
	if r.t.stop != nil {
		return b.passesStop(r)
	}
	if r.t.run.Cancellation() != nil {
		r.t.children = append(r.t.children, r) // its Stop is on its way here, and the agent is to be told of that first
		return false
	}
	parent := r.t.run
	if x := r.t.tools[r.tool]; x != nil && x.run != nil && x.open {
		parent = x.run
	}
	run, err := b.o.Tree.Register(belay.Spec{
		Kind: belay.KindCall, Name: r.method, Server: "editor", Owner: b.o.Owner, Parent: parent,
		Deferred: !acp.Dialog(r.method),
		Stopper:  &childStopper{b: b, r: r}, OnCancel: r.onCancel(b),
	})
	if err != nil {
		if r.t.run.Cancellation() != nil {
			r.t.children = append(r.t.children, r)
			return false
		}
		if parent.Cancellation() != nil { // its tool call is being stopped alone
			b.giveCancelled(r)
			return false
		}
		b.log.Warn("a request of the agent is not tracked", "error", err)
		return true
	}
	r.run = run
	r.t.children = append(r.t.children, r)
	return true
}

// passesStop answers a request of a turn that is being stopped, so that it does not
// reach the editor; what only ends something passes (ACP-B16).
func (b *Bridge) passesStop(r *request) bool {
	switch {
	case acp.Dialog(r.method) && !b.earlyAnswer(r):
		return true // it may be of work that goes on
	case acp.Dialog(r.method):
		r.answer(acp.Dismissed(r.method))
		r.t.noteCut()
	case strings.HasPrefix(r.method, "fs/"), r.method == acp.MethodCreateTerminal:
		r.fail(acp.CodeCancelled, acp.CancelledText, nil)
		r.t.noteCut()
	case strings.HasPrefix(r.method, "terminal/"):
		return true
	default:
		r.fail(acp.CodeCancelled, acp.CancelledText, nil)
		r.t.noteCut()
	}
	return false
}

// subject is the tool call that a request of the agent names, "" if none.
func subject(e *jsonrpc.Envelope, line []byte) string {
	for _, path := range [][]string{{"toolCall", "toolCallId"}, {"toolCallId"}, {"subject", "toolCall", "toolCallId"}, {"subject", "toolCallId"}} {
		if at, ok, err := jsonrpc.Path(line, e.Params, path...); ok && err == nil {
			return string(text(line, at))
		}
	}
	return ""
}

// aboutTerminal is the terminal that the request names. A kill or release of it is
// noted: the agent does it itself.
func (r *request) aboutTerminal(e *jsonrpc.Envelope, line []byte) string {
	switch r.method {
	case acp.MethodKillTerminal, acp.MethodReleaseTerminal, acp.MethodWaitForExit, acp.MethodTerminalOutput:
	default:
		return ""
	}
	at, ok, err := jsonrpc.Member(line, e.Params, "terminalId")
	if !ok || err != nil {
		return ""
	}
	id := string(text(line, at))
	if x := r.s.terminals[id]; x != nil && (r.method == acp.MethodKillTerminal || r.method == acp.MethodReleaseTerminal) {
		x.over = true
		if r.method == acp.MethodReleaseTerminal {
			delete(r.s.terminals, id)
		}
	}
	return id
}

// childAnswered takes the editor's answer to a request of the agent, which is then
// passed on.
func (b *Bridge) childAnswered(r *request, e *jsonrpc.Envelope, line []byte) {
	o := belay.Completed
	if e.IsError() {
		o = belay.Failed
	}
	if !e.IsError() && r.s != nil {
		b.terminalNews(r, e, line)
	}
	b.childOver(r, o)
}

// terminalNews notes what an answer says about a terminal.
func (b *Bridge) terminalNews(r *request, e *jsonrpc.Envelope, line []byte) {
	switch r.method {
	case acp.MethodCreateTerminal:
		at, ok, _ := jsonrpc.Member(line, e.Result, "terminalId")
		id := string(text(line, at))
		if ok && id != "" && len(r.s.terminals) < maxTerminals {
			r.s.terminals[id] = &terminal{t: r.t}
		}
	case acp.MethodWaitForExit:
		if x := r.s.terminals[r.terminal]; x != nil {
			x.over = true
			if x.t != nil && x.t.run.Cancellation() != nil {
				x.t.terminalGone(r.terminal)
			}
		}
	}
}

// childOver ends the run of a request of the agent.
func (b *Bridge) childOver(r *request, o belay.Outcome) {
	if r.run == nil {
		return
	}
	r.t.lets(r)
	r.run.Finish(o)
	if r.run.Cancellation() != nil && o != belay.Cancelled {
		kind := belay.SeenResult
		if o == belay.Failed {
			kind = belay.SeenErrorReply
		}
		r.run.Observe(belay.Evidence{Kind: kind, Detail: "the editor has answered"})
	}
}

// lets forgets a request that needs nothing more of the turn.
func (t *turn) lets(r *request) {
	if t != nil {
		t.children = slices.DeleteFunc(t.children, func(other *request) bool { return other == r })
	}
}

// childLate takes an answer that the agent had from Belay already: it is dropped,
// even if it allows something (ACP-B17).
func (b *Bridge) childLate(r *request, e *jsonrpc.Envelope) {
	b.log.Debug("a late answer of the editor was dropped", "method", r.method)
	if r.run == nil {
		return
	}
	r.run.Finish(belay.Completed) // counts it
	kind := belay.SeenResult
	if e.IsError() {
		kind = belay.SeenErrorReply
	}
	r.run.Observe(belay.Evidence{Kind: kind, Detail: "the editor has answered, too late"})
}

// onCancel is called when the run of the request is cancelled. Where its turn is
// stopped too, the turn sees to it, after the agent was told.
func (r *request) onCancel(b *Bridge) func(*belay.Run, *belay.Cancellation) {
	return func(_ *belay.Run, c *belay.Cancellation) {
		b.lock()
		defer b.unlock()
		if tc := r.t.run.Cancellation(); tc != nil && tc.Stop == c.Stop {
			return
		}
		if acp.Dialog(r.method) {
			b.dismiss(r, true)
			return
		}
		b.cancelRequest(r)
	}
}

// dismiss answers a question of the agent as if the user had put it away, and takes
// it off the editor's screen unless the editor knows.
func (b *Bridge) dismiss(r *request, withdraw bool) {
	if r.settled {
		return
	}
	if r.t != nil {
		r.t.noteCut()
		r.t.lets(r)
	}
	r.answer(acp.Dismissed(r.method))
	if withdraw {
		r.tell()
	}
	if r.run != nil {
		r.run.Observe(belay.Evidence{Kind: belay.SeenNotStarted, Detail: "it was answered cancelled, before the user had answered"})
	}
}

// childStopper stops a request of the agent to the editor. All is done by onCancel
// and by the turn, in the right order.
type childStopper struct {
	b *Bridge
	r *request
}

var _ belay.Planner = (*childStopper)(nil)

// Tell implements [belay.Stopper].
func (p *childStopper) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if acp.Dialog(p.r.method) || p.r.told || p.r.answered || p.r.t.run.Cancellation() != nil {
		return nil, nil
	}
	return nil, fmt.Errorf("%w: the editor takes no cancels of single requests", belay.ErrUnreachable)
}

// Plan says what a Stop would do.
func (p *childStopper) Plan(context.Context) belay.Plan {
	if acp.Dialog(p.r.method) {
		return belay.Plan{Tell: "the agent gets the answer cancelled; the editor withdraws the dialog", Force: "none"}
	}
	return belay.Plan{Tell: "the editor; the agent gets its answer, or an error in " + p.b.set.Settle.String(), Force: "none"}
}

// cutChildren ends what the agent has asked of the editor and not withdrawn, a
// second after the Stop; files that are being written are left to finish.
func (b *Bridge) cutChildren(t *turn) {
	if t.done {
		return
	}
	for _, r := range slices.Clone(t.children) {
		if r.method == acp.MethodWriteTextFile || r.settled {
			continue
		}
		r.tell()
		t.noteCut()
		b.childOver(r, belay.Cancelled)
		r.fail(acp.CodeCancelled, acp.CancelledText, nil)
	}
	if b.set.Enforce != Never {
		b.killTerminals(t)
	}
}

// killTerminals ends the editor's terminals of a turn that the agent has neither
// killed nor released (ACP-B18).
func (b *Bridge) killTerminals(t *turn) {
	for id, x := range t.s.terminals {
		if x.t != t || x.over {
			continue
		}
		x.over = true
		params := fmt.Appendf(nil, `{"sessionId":%s,"terminalId":%s}`, quote(t.s.id), quote(id))
		t.noteCut()
		b.ask(b.editor, acp.MethodKillTerminal, params, func(*jsonrpc.Envelope, []byte) {
			b.lookAtTerminal(t, id, params, 8)
		})
	}
}

// lookAtTerminal asks the editor whether a terminal has exited, some times.
func (b *Bridge) lookAtTerminal(t *turn, id string, params []byte, times int) {
	b.ask(b.editor, acp.MethodTerminalOutput, params, func(e *jsonrpc.Envelope, frame []byte) {
		if e == nil || e.IsError() {
			return
		}
		at, ok, _ := jsonrpc.Member(frame, e.Result, "exitStatus")
		if ok && jsonrpc.KindAt(frame, at) == jsonrpc.ObjectValue {
			t.terminalGone(id)
			return
		}
		if times > 1 {
			b.afterLocked(250*time.Millisecond, func() { b.lookAtTerminal(t, id, params, times-1) })
		}
	})
}

// terminalGone is evidence of a stopped turn, but never all of it.
func (t *turn) terminalGone(id string) {
	e := belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree, Detail: "the editor says that terminal " + id + " has exited"}
	if t.stop != nil && t.stop.gone == nil {
		whole := e
		t.stop.gone = &whole
	}
	e.Kind = partGone
	t.run.Observe(e)
}

// ask sends a request of Belay's own. reply gets the answer with the lock held, or
// nil if there is none.
func (b *Bridge) ask(to *hop, method string, params []byte, reply func(*jsonrpc.Envelope, []byte)) {
	r := &request{method: method, reply: reply}
	to.expect(r)
	if err := to.say(func(dst []byte) []byte { return jsonrpc.AppendRequest(dst, r.hid, method, params) }); err != nil {
		to.forget(r)
		reply(nil, nil)
	}
}

func quote(s string) string { return string(jsonrpc.AppendString(nil, s)) }
