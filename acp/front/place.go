package front

import (
	"context"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/local"
)

// labelToolCall is the label of the runs of the agent's tool calls: the id that
// the agent gave them.
const labelToolCall = "tool_call_id"

// Where names the runs below which a call of a server of the session may hang,
// the most fitting first: the tool call, the turn. It is [local.Options.Place] for
// wrap processes. Those of the agent's own configuration ([Options.Agent]) serve all
// sessions: their calls belong to the tool call that they name, or to the only turn
// that runs. None for any other run, and while no turn runs. It may wait some
// milliseconds for the agent to tell of the tool call.
func (f *Front) Where(run belay.RunID, call local.Asked) []belay.RunID {
	turns := f.turnsOf(run)
	if len(turns) == 0 {
		return nil
	}
	turn, tool := f.announced(turns, &call)
	switch {
	case turn == nil:
		return nil
	case tool.IsZero():
		return []belay.RunID{turn.ID()}
	}
	return []belay.RunID{tool, turn.ID()}
}

// turnsOf are the turns that run in a session, at most one; or in all sessions.
func (f *Front) turnsOf(run belay.RunID) (turns []*belay.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sessions[run]; s != nil && s.turn != nil {
		turns = append(turns, s.turn)
	}
	if run != f.o.Agent || run.IsZero() {
		return turns
	}
	for _, s := range f.sessions {
		if s.turn != nil {
			turns = append(turns, s.turn)
		}
	}
	return turns
}

// An agent tells of a tool call on one pipe and then calls the server on another,
// which may be read first. So a call that names its tool call waits a moment for
// it. An agent that goes on to name what it never tells of is not waited for.
const (
	announceWait = 50 * time.Millisecond
	announcePoll = 250 * time.Microsecond // and longer each time
	maxVain      = 3
)

// announced is the turn that a call belongs to, nil if that cannot be told, and the
// run of the tool call there, zero if that cannot be told.
func (f *Front) announced(turns []*belay.Run, call *local.Asked) (turn *belay.Run, tool belay.RunID) {
	if len(turns) == 1 {
		turn = turns[0]
	}
	find := func() (named bool) {
		for _, t := range turns {
			run, named := f.toolCall(t, call)
			if named {
				turn, tool = t, run
				return true
			}
			if len(turns) == 1 {
				tool = run
			}
		}
		return false
	}
	if find() || call.ToolUse == "" || f.vain.Load() >= maxVain {
		return turn, tool
	}
	for poll, waited := announcePoll, time.Duration(0); waited < announceWait; poll *= 2 {
		time.Sleep(poll)
		waited += poll
		if find() {
			f.vain.Store(0)
			return turn, tool
		}
	}
	f.vain.Add(1)
	return turn, tool
}

// toolCall is the run of the open tool call of the agent that a call belongs to, and
// whether the call names it; zero: that cannot be told (ACP-B13).
func (f *Front) toolCall(turn *belay.Run, call *local.Asked) (run belay.RunID, named bool) {
	list, err := f.o.Tree.List(context.Background(), belay.Filter{Under: turn.ID(), Kinds: []belay.Kind{belay.KindCall}})
	if err != nil {
		return run, false
	}
	var best, found int // how well the best fit, and how many of them there are
	for i := range list {
		id := list[i].Labels[labelToolCall]
		switch fit := fits(list[i].Name, call); {
		case id == "":
		case id == call.ToolUse:
			return list[i].ID, true
		case fit > best:
			best, found, run = fit, 1, list[i].ID
		case fit == best:
			found++
		}
	}
	if best == 0 || found != 1 {
		return belay.RunID{}, false
	}
	return run, false
}

// fits says how well the name of a tool call of the agent fits a call of an MCP
// tool: 0 not at all. Agents write such names in ways of their own:
// mcp__files__read, files.read, files_read, read (files MCP Server).
func fits(name string, call *local.Asked) int {
	tool := words(call.Tool)
	if tool == "_" {
		return 0
	}
	title, server := words(name), words(call.Server)
	switch {
	case server != "_" && strings.Contains(title, server) && strings.Contains(title, tool):
		return 2
	case strings.HasPrefix(title, tool):
		return 1
	}
	return 0
}

// words is a text as its words, in lower case, each between two underscores.
func words(text string) string {
	var b strings.Builder
	b.WriteByte('_')
	open := true // the last one was an underscore
	for _, r := range strings.ToLower(text) {
		letter := r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r >= 0x80
		if letter {
			b.WriteRune(r)
		} else if !open {
			b.WriteByte('_')
		}
		open = !letter
	}
	if !open {
		b.WriteByte('_')
	}
	return b.String()
}

// spot is the place of the calls of one server of this process.
type spot struct {
	f      *Front
	run    belay.RunID // of the session
	server string
}

var _ gateway.Placer = spot{}

// Place implements [gateway.Placer].
func (s spot) Place(_ context.Context, tool, toolUse string) belay.RunID {
	for _, id := range s.f.Where(s.run, local.Asked{Server: s.server, Tool: tool, ToolUse: toolUse}) {
		run, err := s.f.o.Tree.Run(id)
		if err != nil {
			continue
		}
		if info := run.Info(); info.Cancellation != nil || !info.Over() {
			return id
		}
	}
	return belay.RunID{}
}

// StopOf implements [gateway.Placer]: the runs are of the session's own tree,
// which stops what hangs below them.
func (s spot) StopOf(belay.RunID) *belay.Cancellation { return nil }
