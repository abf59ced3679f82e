package bridge

import (
	"bytes"
	"strconv"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// The kinds of session/update that matter here.
const (
	updTool       = "tool_call"
	updToolUpdate = "tool_call_update"
	updState      = "state_update"
	updTerminal   = "terminal_update"
)

// ofTurn reports whether an update belongs to a turn, and so may not come after its
// end; all others concern the session.
func ofTurn(kind []byte) bool {
	switch string(kind) {
	case "user_message_chunk", "user_message", "agent_message_chunk", "agent_message",
		"agent_thought_chunk", "agent_thought", updTool, updToolUpdate, "tool_call_content_chunk",
		"plan", "plan_update", "plan_removed":
		return true
	}
	return false
}

// members of an update, in the order of updateNames.
const (
	atKind = iota
	atTool
	atStatus
	atTitle
	atName
	atCaps
	atState
	atReason
	atBackground
	atTerminal
	atExit
	atContent
	nMembers
)

var (
	paramNames  = []string{"sessionId", "update"}
	updateNames = []string{
		"sessionUpdate", "toolCallId", "status", "title", "name", "capabilities",
		"state", "stopReason", "background", "terminalId", "exitStatus", "content",
	}
)

// update passes what the agent reports of a session, unless it belongs to a turn
// whose end the editor has been told.
func (b *Bridge) update(e *jsonrpc.Envelope, line []byte) {
	var in [2]jsonrpc.Span
	var at [nMembers]jsonrpc.Span
	if jsonrpc.Lookup(line, e.Params, paramNames, in[:]) != nil || jsonrpc.Lookup(line, in[1], updateNames, at[:]) != nil {
		b.toEditor(e, line) // whoever reads it may make of it what he can
		return
	}
	kind := text(line, at[atKind])
	s := b.sessions[string(text(line, in[0]))]
	if s == nil {
		if s = b.childSession(line, in[0], kind); s == nil {
			b.toEditor(e, line)
			return
		}
	}
	if string(kind) == updState && b.version == acp.Version2 {
		b.state(s, e, line, at[:])
		return
	}
	t := s.current()
	var edits []jsonrpc.Edit
	switch string(kind) {
	case updTool, updToolUpdate:
		if b.version == acp.Version2 {
			s.work.tool(line, at[:])
		}
		if s.loading == 0 && t != nil {
			edits = b.toolUpdate(t, s, line, in[1], at[:])
		}
	case updTerminal:
		s.work.terminal(line, at[:])
	}
	if t != nil && t.settled && s.loading == 0 && ofTurn(kind) {
		t.dropped()
		return
	}
	b.toEditor(e, line, edits...)
}

// childSession is a session that only appears in updates: a sub-agent's, below the
// turn that runs (ACP-B9). With several it is not known whose it is.
func (b *Bridge) childSession(line []byte, id jsonrpc.Span, kind []byte) *session {
	if !ofTurn(kind) || len(b.unnamed) > 0 {
		return nil
	}
	var only *turn
	for _, s := range b.sessions {
		for _, t := range s.turns {
			switch {
			case !t.sent || t.settled:
			case only != nil:
				return nil
			default:
				only = t
			}
		}
	}
	name, err := jsonrpc.ReadString(line, id, acp.MaxSession)
	if only == nil || only.stop != nil || err != nil || name == "" {
		return nil
	}
	s, err := b.newSession(name, "sub-agent", only)
	if err != nil {
		b.log.Warn("a child session is not tracked", "error", err)
		return nil
	}
	only.subs = true
	return s
}

// tool is one tool call of the agent. Guarded by the bridge's lock.
type tool struct {
	t    *turn
	s    *session // the turn's, or a child session
	id   string
	run  *belay.Run // nil: it has none
	open bool

	terminal string // v2: that shows what it does
	ours     bool   // v2: the editor was told that Belay can
	alone    bool   // v2: its processes can be told from those of others
	looking  bool   // for that
	stopper  *toolStopper
	openThen bool // it was open when its turn was stopped
	word     *belay.Evidence
}

const (
	maxTools  = 10_000 // of one turn
	maxToolID = 256    // bytes that a label holds
)

// toolUpdate notes what an update says about a tool call. It returns what the
// editor is told beyond that (ACP-B27).
func (b *Bridge) toolUpdate(t *turn, s *session, line []byte, update jsonrpc.Span, at []jsonrpc.Span) []jsonrpc.Edit {
	raw := text(line, at[atTool])
	if len(raw) == 0 {
		return nil
	}
	x := t.tools[string(raw)]
	status := string(text(line, at[atStatus]))
	if x == nil {
		if final(status) || len(t.tools) >= maxTools {
			return nil
		}
		x = b.newTool(t, s, string(raw), toolName(line, at))
	}
	if b.version == acp.Version2 {
		x.shows(line, at[atContent])
	}
	if final(status) {
		b.toolEnded(x, status)
		return nil
	}
	if x.stopper != nil && x.run.Cancellation() != nil && t.stop != nil && string(text(line, at[atKind])) == updToolUpdate {
		t.stillActive("an update of tool call " + x.run.Name() + " after the Stop")
	}
	if b.version != acp.Version2 || !x.open || s.work.tools[x.id] {
		return nil
	}
	return b.advertise(x, line, update, at[atCaps])
}

// shows notes the terminal that a tool call has in its content.
func (x *tool) shows(line []byte, content jsonrpc.Span) {
	for el := range jsonrpc.Elements(line, content) {
		var in [2]jsonrpc.Span
		if jsonrpc.Lookup(line, el, []string{"type", "terminalId"}, in[:]) == nil && string(text(line, in[0])) == "terminal" {
			x.terminal = string(text(line, in[1]))
		}
	}
}

// newTool registers a tool call below its turn.
func (b *Bridge) newTool(t *turn, s *session, id, name string) *tool {
	x := &tool{t: t, s: s, id: id, open: true}
	t.tools[id] = x
	spec := belay.Spec{Kind: belay.KindCall, Name: name, Server: b.o.Name, Owner: b.o.Owner, Address: id, Parent: t.run}
	if s.above != nil {
		spec.Parent = s.run
	}
	if len(id) <= maxToolID {
		spec.Labels = map[string]string{"tool_call_id": id}
	}
	x.stopper = &toolStopper{b: b, x: x}
	spec.Stopper = x.stopper
	spec.Ladder = belay.Ladder{Grace: b.set.Grace, KillAfter: b.set.KillAfter, ConfirmAfter: b.set.AgentDeadline + closeWait + endMargin}
	run, err := b.o.Tree.Register(spec)
	if err != nil {
		if t.run.Cancellation() != nil {
			t.stillActive("a new tool call after the Stop: " + name)
		} else {
			b.log.Warn("a tool call is not tracked", "error", err)
		}
		x.stopper = nil
		return x
	}
	x.run = run
	b.later(func() {
		if brood := t.processes(); brood != nil {
			brood.Opened(id, run)
		}
	})
	return x
}

// processes are the turn's, nil if nothing is known. Called without the lock.
func (t *turn) processes() Brood {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return t.brood
}

// toolName is what people see of a tool call: the tool, else what it does.
func toolName(line []byte, at []jsonrpc.Span) string {
	for _, i := range []int{atTitle, atName, atTool} {
		if name, err := jsonrpc.ReadString(line, at[i], 4096); err == nil && name != "" {
			return name
		}
	}
	return "tool call"
}

// final reports whether a tool call with this status is over. Unknown ones go on.
func final(status string) bool {
	return status == "completed" || status == "failed" || status == "cancelled"
}

// toolEnded takes the final status of a tool call.
func (b *Bridge) toolEnded(x *tool, status string) {
	if !x.open {
		return
	}
	x.open = false
	t := x.t
	b.later(func() {
		if brood := t.processes(); brood != nil {
			brood.Closed(x.id)
		}
	})
	if x.run == nil {
		return
	}
	o, seen := belay.Completed, belay.SeenResult
	switch status {
	case "failed":
		o, seen = belay.Failed, belay.SeenErrorReply
	case "cancelled":
		o, seen = belay.Cancelled, belay.SeenTaskCancelled
	}
	e := belay.Evidence{Kind: seen, Detail: "the agent reports it as " + status}
	if x.run.Cancellation() == nil {
		x.run.Finish(o)
		return
	}
	x.word = &e
	if x.t.stop != nil || x.t.run.Cancellation() != nil {
		e.Open = true // what the agent says of its tools is no proof; the turn's look at the processes comes
	}
	x.run.Observe(e)
}

// end ends a tool call with its turn.
func (x *tool) end(o belay.Outcome) {
	if !x.open {
		return
	}
	x.open = false
	if x.run == nil {
		return
	}
	if x.run.Cancellation() != nil {
		x.run.Observe(belay.Evidence{Kind: belay.SeenTaskCancelled, Detail: "its turn has ended"})
		return
	}
	x.run.Finish(o)
}

// text is the content of the JSON string at s, nil if there is none. It aliases the
// line unless the string has escapes.
func text(line []byte, s jsonrpc.Span) []byte {
	if jsonrpc.KindAt(line, s) != jsonrpc.StringValue {
		return nil
	}
	raw := s.Of(line)
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	decoded, err := jsonrpc.ReadString(line, s, len(raw))
	if err != nil {
		return nil
	}
	return []byte(decoded)
}

func number(raw []byte) int {
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0
	}
	return n
}
