package bridge

import (
	"context"

	"github.com/belayhq/belay"
)

// Offspring is the agent's process tree as the bridge needs it. Its methods are
// safe for concurrent use and return within some milliseconds, unless they say
// otherwise. A nil Offspring means that the agent is no process of ours.
type Offspring interface {
	// Turn takes the snapshot of ACP-B10 and begins to watch a turn. The bridge
	// calls it before it writes the prompt to the agent (v2 work without a
	// prompt: when it begins).
	Turn(turn *belay.Run) Brood

	// Session is everything that the turns of one session have left behind
	// (ACP-B32).
	Session(session *belay.Run) Brood
}

// Brood is what was born during one turn of the agent (ACP-B19), and during
// which of its tool calls.
type Brood interface {
	// Opened and Closed say that a tool call of the turn has begun and ended. What
	// is born in between, and while no other could own it, hangs below its run.
	Opened(tool string, run *belay.Run)
	Closed(tool string)

	// Living lists the survivors: those that belong to a tool call that is still
	// open, and the others, which only a second Stop takes (DESIGN 11, 8).
	Living() (open, others []belay.Process)

	// Terminate and Kill end the survivors, the others too if all is set, and
	// return evidence of what was then seen: process_gone if all that was to be ended
	// is gone, survivors otherwise, nil if there was nothing to end. Those that were
	// not to be ended are not in it. They return when nobody is left or ctx ends.
	Terminate(ctx context.Context, all bool) (*belay.Evidence, error)
	Kill(ctx context.Context, all bool) (*belay.Evidence, error)

	// Alone returns what stops one tool call by its processes alone, or nil when
	// they could belong to another tool call (ACP-B27).
	Alone(tool string) belay.Stopper

	// End lets go: the turn is over and nothing of it is to be stopped any more.
	End()
}

// Answerer is a Brood that is told when the agent has ended the turn: what is born
// after that is the agent's own or the next turn's, and no longer a tool call's. It
// must not block.
type Answerer interface {
	Answered()
}

// Front puts the MCP servers that an editor names behind Belay (ACP-B11, B12).
type Front interface {
	// Rewrite returns the mcpServers array, as raw JSON, that the agent gets instead
	// of servers. What it passes as it is, it names with the reason.
	Rewrite(ctx context.Context, session *belay.Run, servers []byte) (rewritten []byte, passed []Passed, err error)

	// Place makes turn the run below which calls of the session's servers hang from
	// now on; nil: the session itself. It returns when the servers know.
	Place(session, turn *belay.Run)

	// Calls lists the calls below a turn that are in flight or were stopped, each
	// with the tool call of the agent that it belongs to, if that is known (ACP-B13).
	// It asks other processes, which takes some milliseconds.
	Calls(turn *belay.Run) []Fronted

	// Close ends what the session's servers hold.
	Close(session *belay.Run)
}

// Adder is a Front that gives sessions servers which no editor has named.
type Adder interface {
	// Takes says, before the first session, whether the agent takes servers that are
	// reached by HTTP.
	Takes(http bool)

	// Adds reports whether there are any: a session without a list of servers then
	// gets one.
	Adds() bool
}

// Passed is a server that is not behind Belay.
type Passed struct {
	Name string
	Why  string // for example "oauth"
}

// Fronted is one call to a server behind Belay.
type Fronted struct {
	Run      belay.RunID
	Name     string // the MCP tool
	Server   string
	ToolCall string         // the agent's toolCallId, "" if unknown
	Receipt  *belay.Receipt // how its Stop stands; nil: it was not stopped
}

// Agent is the agent's process with all that hangs below it. Its methods are safe
// for concurrent use.
type Agent interface {
	// Done is closed when the agent's own process has ended; Exit says how, and is
	// zero before.
	Done() <-chan struct{}
	Exit() Exit

	// Terminate and Kill end the whole tree: the agent, its tools, its MCP servers
	// and what is left of earlier turns (ACP-B24, B33). They return evidence of what
	// was then seen, when nobody is left or ctx ends.
	Terminate(ctx context.Context) (*belay.Evidence, error)
	Kill(ctx context.Context) (*belay.Evidence, error)
}

// Exit is how a process ended.
type Exit struct {
	Ended  bool
	Code   int    // exit status; -1 if a signal ended it
	Signal string // its name, "" if no signal ended it
}
