package agent

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
)

// origin is whose a foreign process is. It is found out when the process is first
// seen and never changes, save that a tool call which the agent announces late is
// added.
type origin struct {
	born     proc.Stamp
	turns    []*Brood // that ran when it was born; several: of unclear birth; none: of nobody
	calls    []*call  // that were open then
	indirect bool     // started by what an earlier turn has left: of no tool call
	fam      *family  // the run that stands for it; nil: none (yet)
}

// call is one tool call of a turn.
type call struct {
	turn           *Brood
	run            *belay.Run
	opened, closed proc.Stamp // closed is 0 while it is open
	closedAt       time.Time
}

// early is how long before the agent's word a tool call may have begun, if no other
// was open then: the word has its way to go, on a machine that the tool keeps busy,
// and some agents give it when the tool runs already.
const early = time.Second

// grain is the resolution of births: one is told as up to so much earlier than it
// was.
const grain = proc.Stamp(10 * time.Millisecond)

// noteLocked gives an origin to who is seen for the first time. It reports whether
// there was anybody.
func (a *Agent) noteLocked(s *survey) (fresh bool) {
	for _, n := range s.nodes {
		if n.kind != foreign || a.origins[n.ID()] != nil {
			continue
		}
		a.origins[n.ID()] = a.originLocked(n)
		fresh = true
	}
	return fresh
}

func (a *Agent) originLocked(n *node) *origin {
	o := &origin{born: n.Start}
	if !n.known {
		o.born = max(o.born, a.looked) // births are told too early, by up to their grain
	}
	o.turns, o.calls = a.bornLocked(o.born)
	if n.parent != nil && a.helpsLocked(n.parent) {
		o.afterTheWord()
	}
	if n.parent == nil || n.parent.kind != foreign || takesOrders(n.parent) {
		return o
	}
	above := a.origins[n.parent.ID()]
	switch {
	case above == nil || len(above.turns) == 0:
		// A helper that the agent had before the first turn: what it starts for the
		// agent is the agent's doing.
	case len(o.turns) == 0 || shareTurn(above.turns, o.turns):
		o.turns, o.calls, o.indirect, o.fam = above.turns, above.calls, above.indirect, above.fam
	default:
		o.calls, o.indirect = nil, true
	}
	return o
}

// afterTheWord takes the tool calls from what the agent itself started after it had
// ended a turn, and the turn too where another one runs.
func (o *origin) afterTheWord() {
	over := func(b *Brood) bool { return b.word != 0 && b.word <= o.born }
	o.calls = slices.DeleteFunc(o.calls, func(c *call) bool { return over(c.turn) })
	if running := slices.DeleteFunc(slices.Clone(o.turns), over); len(running) > 0 {
		o.turns = running
	}
}

func shareTurn(x, y []*Brood) bool {
	return slices.ContainsFunc(x, func(b *Brood) bool { return slices.Contains(y, b) })
}

// bornLocked tells the turns that ran and the tool calls that were open at a birth.
func (a *Agent) bornLocked(born proc.Stamp) (turns []*Brood, calls []*call) {
	var soon []*call
	for _, b := range a.broods {
		if b.begin >= born+grain || b.end != 0 && b.end <= born {
			continue
		}
		turns = append(turns, b)
		for _, c := range b.calls {
			switch {
			case c.closed != 0 && c.closed <= born:
			case c.opened < born+grain:
				calls = append(calls, c)
			case c.opened-proc.Stamp(early) < born:
				soon = append(soon, c)
			}
		}
	}
	if len(calls) == 0 {
		calls = soon
	}
	return turns, calls
}

// adoptLocked gives a tool call that was just announced to those who were born
// shortly before, for whom there was none.
func (a *Agent) adoptLocked(b *Brood, c *call) {
	for _, o := range a.origins {
		if len(o.calls) == 0 && !o.indirect && slices.Contains(o.turns, b) && o.born > c.opened-proc.Stamp(early) {
			o.calls = []*call{c}
		}
	}
}

// takesOrders reports whether a process is a shell that reads its commands from its
// input: what it starts is a new piece of work each time, whoever started the shell.
func takesOrders(n *node) bool {
	if len(n.argv) == 0 {
		return false
	}
	switch strings.TrimPrefix(strings.TrimSuffix(filepath.Base(n.argv[0]), ".exe"), "-") {
	case "sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "pwsh", "powershell", "cmd":
	default:
		return false
	}
	for _, arg := range n.argv[1:] {
		if !strings.HasPrefix(arg, "-") || !strings.HasPrefix(arg, "--") && strings.Contains(arg, "c") {
			return false // a script, or commands
		}
	}
	return true
}
