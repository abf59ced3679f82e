package front

import (
	"context"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/bridge"
)

// askLimit bounds how long processes are asked for their calls.
const askLimit = time.Second

// Calls implements [bridge.Front]. A process that does not answer within a second
// is left out.
func (f *Front) Calls(turn *belay.Run) []bridge.Fronted {
	ctx, end := context.WithTimeoutCause(context.Background(), askLimit, errTime)
	defer end()
	own, err := f.o.Tree.List(ctx, belay.Filter{Under: turn.ID(), Ended: true})
	if err != nil {
		return nil
	}
	tools := map[belay.RunID]string{turn.ID(): ""} // what calls may hang below, and the tool call that it is
	var calls []bridge.Fronted
	for i := range own {
		info := &own[i]
		if info.Labels[labelServer] == "" {
			tools[info.ID] = info.Labels[labelToolCall]
		}
	}
	add := func(from belay.Control, info *belay.Info) {
		tool, below := tools[info.Parent]
		if !below || info.Kind != belay.KindCall && info.Kind != belay.KindTask || info.Cancellation == nil && info.Over() {
			return
		}
		if tool == "" {
			tool = info.Labels[labelToolUse] // it may have begun before the agent told of it
		}
		call := bridge.Fronted{Run: info.ID, Name: info.Name, Server: info.Server, ToolCall: tool}
		if info.Cancellation != nil {
			if d, err := from.Get(ctx, info.ID); err == nil {
				call.Receipt = d.Receipt
			}
		}
		calls = append(calls, call)
	}
	for i := range own {
		if own[i].Labels[labelServer] != "" {
			add(f.o.Tree, &own[i])
		}
	}
	if f.o.Server == nil || f.o.Mesh == nil {
		return calls
	}
	pids := f.children(turn)
	if len(pids) == 0 {
		return calls
	}
	mesh := f.o.Mesh.Only(pids...)
	// What is below the turn has begun in it; a busy server remembers much more.
	theirs, err := mesh.List(ctx, belay.Filter{Kinds: []belay.Kind{belay.KindCall, belay.KindTask}, Since: turn.Started(), Ended: true})
	if err != nil {
		f.o.Log.Debug("some MCP servers did not say what they are doing; they may be ending", "error", err)
	}
	for i := range theirs {
		add(mesh, &theirs[i])
	}
	return calls
}

// maxAbove bounds how far up the session of a turn is looked for: child sessions
// hang below turns.
const maxAbove = 32

// children are the wrap processes of the session of a turn.
func (f *Front) children(turn *belay.Run) (pids []int) {
	for range maxAbove {
		pids = append(pids, f.o.Server.Children(turn.ID())...)
		above, err := f.o.Tree.Run(turn.Info().Parent)
		if err != nil {
			break
		}
		turn = above
	}
	return pids
}

// labelToolUse is the label of MCP calls: the id under which the model asked for
// them, as far as the agent says.
const labelToolUse = "tool_use_id"
