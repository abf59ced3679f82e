package agent

import (
	"context"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
)

// Brood is what was born during one turn. Its methods are safe for concurrent use.
type Brood struct {
	a       *Agent
	run     *belay.Run
	session belay.RunID
	begin   proc.Stamp

	// Guarded by a.mu.
	end   proc.Stamp       // 0: it runs
	word  proc.Stamp       // the agent has ended it by its word; 0: not yet
	calls map[string]*call // the last of each name
	seen  bool             // a process of an open tool call was seen after the Stop
	also  bool             // or, with all, one of the others
	asked time.Time        // when they were first asked to end
}

// maxCalls bounds the tool calls of one turn that are remembered; what is born
// during further ones belongs to the turn.
const maxCalls = 4096

// Opened says that a tool call has begun. What is born until it is closed, and while
// no other could own it, hangs below its run. It does not block.
func (b *Brood) Opened(tool string, run *belay.Run) {
	c := &call{turn: b, run: run, opened: proc.Now()}
	b.a.mu.Lock()
	if old := b.calls[tool]; b.end == 0 && len(b.calls) < maxCalls && (old == nil || old.closed != 0) {
		b.calls[tool] = c
		b.a.adoptLocked(b, c)
	}
	b.a.mu.Unlock()
	b.a.poke()
}

// Closed says that a tool call has ended. It does not block.
func (b *Brood) Closed(tool string) {
	b.a.mu.Lock()
	if c := b.calls[tool]; c != nil {
		c.close()
	}
	b.a.mu.Unlock()
	b.a.poke()
}

// Answered says that the agent has ended the turn by its word. What the agent itself
// starts from now on is of no tool call, and of the turn only as long as no other turn
// runs; what the turn's processes start, or leave behind, is theirs as before. It does
// not block.
func (b *Brood) Answered() {
	b.a.mu.Lock()
	defer b.a.mu.Unlock()
	if b.word != 0 {
		return
	}
	b.word = proc.Now()
	if stop := b.run.Cancellation(); stop != nil {
		b.word -= proc.Stamp(min(wordTime, time.Since(stop.At)))
	}
}

// wordTime is how long the agent's word that it has stopped may take to be read here.
const wordTime = 100 * time.Millisecond

func (c *call) close() {
	if c.closed == 0 {
		c.closed, c.closedAt = proc.Now(), time.Now()
	}
}

// open reports whether a tool call was open when its turn was stopped, or is now if
// it was not: what the agent says because of the Stop changes nothing.
func (c *call) open(stop *belay.Cancellation) bool {
	return c.closed == 0 || stop != nil && c.closedAt.After(stop.At)
}

// claim is how far a turn may go with a process.
type claim int

const (
	none    claim = iota // it is not of the turn
	unclear              // another turn, which is not stopped, may own it
	other                // of the turn, but of no tool call that is open
	mine                 // of a tool call that is open
)

// claimLocked says what a foreign process is to the turn.
func (b *Brood) claimLocked(o *origin) claim {
	if o == nil || !slices.Contains(o.turns, b) {
		return none
	}
	for _, t := range o.turns {
		if t != b && t.run.Cancellation() == nil && !b.a.closed[t.session] {
			return unclear
		}
	}
	stop := b.run.Cancellation()
	if !o.indirect && slices.ContainsFunc(o.calls, func(c *call) bool { return c.open(stop) }) {
		return mine
	}
	return other
}

// Living lists the survivors: those of tool calls that are open (or were when the
// turn was stopped), and the others, each with what it takes to stop it. It reads
// the process table.
func (b *Brood) Living() (open, others []belay.Process) {
	b.a.scan(func(s *survey) {
		b.a.noteLocked(s)
		b.a.enlistLocked(s, true)
		for _, n := range s.nodes {
			if n.kind != foreign || n.Spare != "" {
				continue
			}
			o := b.a.origins[n.ID()]
			switch c := b.claimLocked(o); c {
			case mine:
				b.seen = true
				open = append(open, show(n, ""))
			case other, unclear:
				b.also = b.also || c == other
				others = append(others, show(n, b.whyLocked(c, o, n)))
			}
		}
	})
	return bound(open), bound(others)
}

// whyLocked says why a process is left alone, and the command that stops it.
func (b *Brood) whyLocked(c claim, o *origin, n *node) string {
	why := "started while no tool call was open"
	switch {
	case c == unclear:
		return "another turn ran when it was started; to stop it: " + stopCommand(o, n)
	case o.indirect:
		why = "started by what an earlier turn has left"
	case len(o.calls) > 0:
		why = "its tool call is over"
	}
	return why + "; a second Stop takes it, or: " + stopCommand(o, n)
}

// Terminate asks the survivors to end (SIGTERM), the others too if all is set. It
// returns when nobody of them is left, or when ctx ends, with evidence of what was
// then seen: nil if there was nobody to end. It waits as long as ctx lets it.
func (b *Brood) Terminate(ctx context.Context, all bool) (*belay.Evidence, error) {
	b.a.mu.Lock()
	if b.asked.IsZero() {
		b.asked = time.Now()
	}
	b.a.mu.Unlock()
	return b.a.terminate(ctx, b.target(all))
}

// Kill ends the survivors by force, the others too if all is set, and returns
// evidence of what was then seen: nil if there was nobody to end. Where somebody
// among them needs time to clean up and was asked less than ten seconds ago, it
// waits for that first, as long as ctx lets it (DESIGN 11, 7), unless all is set.
func (b *Brood) Kill(ctx context.Context, all bool) (*belay.Evidence, error) {
	b.a.mu.Lock()
	asked := b.asked
	b.a.mu.Unlock()
	if !all {
		b.a.letCleanUp(ctx, b.target(all), asked)
	}
	return b.a.kill(ctx, b.target(all))
}

// target is whom a Stop of the turn means.
func (b *Brood) target(all bool) target {
	return target{
		means: func(_ *node, o *origin) bool {
			c := b.claimLocked(o)
			return c == mine || all && c == other
		},
		seen: func() bool { return b.seen || all && b.also },
		saw:  func() { b.seen = true },
	}
}

// Alone returns what stops one tool call by its processes alone. Nil: it has none
// that are alive, or one that could belong to another tool call (ACP-B27). It reads
// the process table.
func (b *Brood) Alone(tool string) belay.Stopper {
	var c *call
	var t target
	found, doubt := false, false
	b.a.scan(func(s *survey) {
		b.a.noteLocked(s)
		b.a.enlistLocked(s, true)
		if c = b.calls[tool]; c == nil || c.closed != 0 {
			return
		}
		for _, n := range s.nodes {
			if o := b.a.origins[n.ID()]; n.kind == foreign && n.Spare == "" && o != nil && slices.Contains(o.calls, c) {
				found = true
				doubt = doubt || len(o.calls) > 1 || len(o.turns) > 1
			}
		}
	})
	if !found || doubt {
		return nil
	}
	seen := true
	t = target{
		means: func(_ *node, o *origin) bool { return o != nil && len(o.calls) == 1 && o.calls[0] == c },
		seen:  func() bool { return seen },
		saw:   func() {},
	}
	return &alone{a: b.a, t: t}
}

// End lets go of the turn: what is born from now on is none of its. What it has left
// alive stays known as its own, for Session and for its runs.
func (b *Brood) End() {
	b.a.mu.Lock()
	if b.end == 0 {
		b.end = proc.Now()
	}
	for _, c := range b.calls {
		c.close()
	}
	b.a.mu.Unlock()
	b.a.poke()
}

// Litter is what the turns of one session have left behind, those that run
// included (ACP-B32). Its methods are safe for concurrent use.
type Litter struct {
	a       *Agent
	session belay.RunID

	// Guarded by a.mu.
	seen  bool
	asked time.Time
}

// Opened and Closed do nothing: a session has no tool calls but those of its turns.
func (l *Litter) Opened(string, *belay.Run) {}

// Closed does nothing.
func (l *Litter) Closed(string) {}

// Answered does nothing.
func (l *Litter) Answered() {}

// Alone returns nil.
func (l *Litter) Alone(string) belay.Stopper { return nil }

// End does nothing: it holds nothing.
func (l *Litter) End() {}

// Living lists all that the session has left; nobody is left for a second Stop but
// those who may be another session's.
func (l *Litter) Living() (open, others []belay.Process) {
	l.a.scan(func(s *survey) {
		l.a.noteLocked(s)
		l.a.enlistLocked(s, true)
		for _, n := range s.nodes {
			if n.kind != foreign || n.Spare != "" {
				continue
			}
			o := l.a.origins[n.ID()]
			switch l.claimLocked(n, o) {
			case mine:
				l.seen = true
				open = append(open, show(n, ""))
			case unclear:
				others = append(others, show(n, "another session's turn ran when it was started; to stop it: "+stopCommand(o, n)))
			}
		}
	})
	return bound(open), bound(others)
}

// claimLocked says what a foreign process is to the session: its own, with all that
// comes from such.
func (l *Litter) claimLocked(n *node, o *origin) claim {
	if o == nil {
		return none
	}
	here, elsewhere := false, false
	for _, t := range o.turns {
		switch {
		case t.session == l.session:
			here = true
		case t.run.Cancellation() == nil && !l.a.closed[t.session]:
			elsewhere = true
		}
	}
	switch {
	case here && elsewhere:
		return unclear
	case here:
		return mine
	case n.parent != nil && n.parent.kind == foreign && o.indirect:
		return l.claimLocked(n.parent, l.a.origins[n.parent.ID()])
	}
	return none
}

// Terminate asks all that the session has left to end; see [Brood.Terminate].
func (l *Litter) Terminate(ctx context.Context, _ bool) (*belay.Evidence, error) {
	l.shut()
	l.a.mu.Lock()
	if l.asked.IsZero() {
		l.asked = time.Now()
	}
	l.a.mu.Unlock()
	return l.a.terminate(ctx, l.target())
}

// Kill ends all that the session has left by force; see [Brood.Kill]. Who was asked to
// end and needs time to clean up has it, for there is no second Stop of a session.
func (l *Litter) Kill(ctx context.Context, _ bool) (*belay.Evidence, error) {
	l.shut()
	l.a.mu.Lock()
	asked := l.asked
	l.a.mu.Unlock()
	l.a.letCleanUp(ctx, l.target(), asked)
	return l.a.kill(ctx, l.target())
}

// maxClosed bounds the memory of sessions that were stopped as a whole. Beyond it
// such a session counts as living where a process might be another's: it is then
// named, and not ended.
const maxClosed = 10_000

// shut notes that the session is over, for what may be another's too.
func (l *Litter) shut() {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	if len(l.a.closed) < maxClosed {
		l.a.closed[l.session] = true
	}
}

func (l *Litter) target() target {
	return target{
		means: func(n *node, o *origin) bool { return l.claimLocked(n, o) == mine },
		seen:  func() bool { return l.seen },
		saw:   func() { l.seen = true },
	}
}
