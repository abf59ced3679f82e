package bridge

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

// Enforce is how far Belay goes when an agent does not stop by itself.
type Enforce string

// The ways to enforce a Stop.
const (
	Strict  Enforce = "strict"  // survivors are ended, and at AgentDeadline the agent itself
	Lenient Enforce = "lenient" // survivors are ended, the agent itself never
	Never   Enforce = "never"   // told only
)

// Background is what becomes of v2 background work at a Stop (ACP-B20).
type Background string

// The ways to treat background work.
const (
	Spare Background = "spare"
	End   Background = "stop"
)

// Settings are the times and rules of the Stop (ACP, section 5). A time that is
// zero has its default; it cannot be switched off. The zero value of the rest is
// its default too.
type Settings struct {
	Enforce       Enforce       // default strict
	Linger        time.Duration // from the agent's word that it stopped to the look at its processes; default 500 ms
	Grace         time.Duration // from the Stop to SIGTERM for survivors at the latest; default 2 s
	KillAfter     time.Duration // from SIGTERM to SIGKILL; default 2 s
	Settle        time.Duration // from the Stop to the editor's answer at the latest; default 5 s
	AgentDeadline time.Duration // from the Stop to the end of an agent that does not answer; default 30 s
	ExitGrace     time.Duration // from the end of the agent's input to SIGTERM for its tree; default 2 s
	TurnDeadline  time.Duration // a turn that runs longer is stopped; zero: none

	Background Background // default spare

	// Dialect is the form of request cancels for a peer, editor or agent, by the name
	// that it gives itself (ACP-47); the empty name stands for every peer.
	Dialect map[string]acp.Form
}

// ErrSetting reports settings that make no sense.
var ErrSetting = errors.New("bad setting")

// withDefaults fills in what is not set, and checks the rest.
func (s Settings) withDefaults() (Settings, error) {
	for _, d := range []struct {
		name string
		at   *time.Duration
		def  time.Duration
	}{
		{"linger", &s.Linger, 500 * time.Millisecond},
		{"grace", &s.Grace, 2 * time.Second},
		{"kill_after", &s.KillAfter, 2 * time.Second},
		{"settle", &s.Settle, 5 * time.Second},
		{"agent_deadline", &s.AgentDeadline, 30 * time.Second},
		{"exit_grace", &s.ExitGrace, 2 * time.Second},
		{"turn_deadline", &s.TurnDeadline, 0},
	} {
		switch {
		case *d.at < 0:
			return s, fmt.Errorf("%w: %s is %s, it must not be negative", ErrSetting, d.name, *d.at)
		case *d.at == 0:
			*d.at = d.def
		}
	}
	switch s.Enforce {
	case "":
		s.Enforce = Strict
	case Strict, Lenient, Never:
	default:
		return s, fmt.Errorf("%w: enforce is %.32q, want strict, lenient or never", ErrSetting, string(s.Enforce))
	}
	switch s.Background {
	case "":
		s.Background = Spare
	case Spare, End:
	default:
		return s, fmt.Errorf("%w: background is %.32q, want spare or stop", ErrSetting, string(s.Background))
	}
	if s.AgentDeadline < s.Settle {
		return s, fmt.Errorf("%w: agent_deadline (%s) must not be before settle (%s)", ErrSetting, s.AgentDeadline, s.Settle)
	}
	return s, nil
}

// Options are what a Bridge is made of.
type Options struct {
	Tree     *belay.Tree // required; the runs of sessions, turns and tool calls are registered here
	Settings Settings

	// Control stops fronted calls that other Belay processes hold; nil: Tree.
	Control belay.Control

	// Agent is the agent's process tree as a whole; nil: the agent is no process of
	// ours, and the end of its input is all that can be done to it.
	Agent Agent

	Offspring Offspring // nil: nothing is known of the agent's processes
	Front     Front     // nil: the MCP servers that the editor names pass as they are

	Name     string      // of the agent, for people: its command; default "agent"
	Owner    string      // of the runs
	Parent   *belay.Run  // above the runs of sessions; nil: nothing is
	ParentID belay.RunID // the same, when another process holds it

	MaxLine int // the longest line in bytes; default [jsonrpc.DefaultMaxLine]

	Log *slog.Logger // nil: nothing is logged
}

// Pipes are both directions of the connection with one peer. Out is closed at
// the end, if it is an [io.Closer], to tell the peer that there is no more; In is
// closed then too, so that a read which is under way returns.
type Pipes struct {
	In  io.Reader // what the peer writes
	Out io.Writer // what the peer reads
}

// Reason is why a bridge has ended.
type Reason string

// The reasons.
const (
	EditorGone  Reason = "editor_gone"  // its end of input, or it reads no more (ACP-B33)
	AgentGone   Reason = "agent_gone"   // it died or closed its output (ACP-B36)
	AgentKilled Reason = "agent_killed" // by Belay, since it did not stop (ACP-B24)
	Shutdown    Reason = "shutdown"     // the context of Serve ended (ACP-B34)
)

// Result is how it went.
type Result struct {
	Reason Reason
	// Agent is how the agent's own process ended; zero without one, or if it lives.
	Agent Exit
	// Living are the processes of the agent's tree that could not be ended.
	Living []belay.Process
}
