package belay

import (
	"context"
	"time"
)

// Stopper is how a backend stops one run. Tell delivers the backend's own,
// polite cancel: a notification, a closed stream, a soft signal.
//
// Further abilities are the optional interfaces [Interrupter], [Terminator],
// [Killer], [Gate] and [Planner]; a stopper without Terminator and Killer is
// told only. Every method is called from a goroutine of the run's own, at most
// once per step, later steps possibly while an earlier one has not returned.
// ctx ends on evidence that ends the ladder, and at the latest when the run is
// forgotten or the tree closed: the method must then return soon. It does not
// end when the ladder gives up, so that a method can still bring late evidence.
// A method returns evidence if it has some, nil if it has none; an error says
// that the step could not be carried out.
type Stopper interface {
	Tell(ctx context.Context, c *Cancellation) (*Evidence, error)
}

// Interrupter breaks the work without ending what runs it (an interpreter).
type Interrupter interface {
	Interrupt(ctx context.Context, c *Cancellation) (*Evidence, error)
}

// Terminator asks by force: standard input closed, SIGTERM.
type Terminator interface {
	Terminate(ctx context.Context, c *Cancellation) (*Evidence, error)
}

// Killer ends the work without asking.
type Killer interface {
	Kill(ctx context.Context, c *Cancellation) (*Evidence, error)
}

// Gate is asked before force is used for the first time, and, as long as it has
// not let force through, again each time a person presses Stop. It returns nil when force may be used now, or an error
// that wraps [ErrRestrained] (usually a *[Restraint]) when it may not; it may
// block while that is not decided, until ctx ends. While it blocks no force is
// used and the times of the later steps move, the last one too: the gate bounds
// its wait. What it refused stays refused until a person presses again.
type Gate interface {
	MayForce(ctx context.Context, p Pressure) error
}

// Pressure is what stands behind the wish to use force.
type Pressure struct {
	Presses int       // how often a person pressed Stop on this run: 0 if nobody did
	Again   bool      // a person pressed Stop on a run that was being stopped already
	Now     bool      // straight to kill was asked for (--now)
	GiveUp  time.Time // when the ladder stops waiting for evidence
}

// Planner says what a Stop would do, without doing it (--dry-run).
type Planner interface {
	Plan(ctx context.Context) Plan
}

// Plan is what a Stop of one run would do.
type Plan struct {
	Tell   string    `json:"tell,omitempty"`   // who would be told, and how
	Force  string    `json:"force,omitempty"`  // what force would be used, and when; or why none
	Kill   []Process `json:"kill,omitempty"`   // the processes that force would end
	Spared []Process `json:"spared,omitempty"` // the processes that would be spared, with why
}

// Process is an operating-system process as receipts name it. The pair of PID
// and Born identifies it; a pid alone is reused.
type Process struct {
	PID     int       `json:"pid"`
	Born    time.Time `json:"born"`
	Command string    `json:"command"`       // bounded; redacted where privacy asks for it
	Why     string    `json:"why,omitempty"` // why it was spared, if it was
}

// Evidence is something that was seen after a Stop.
type Evidence struct {
	Kind      EvidenceKind `json:"kind"`
	Scope     Scope        `json:"scope,omitempty"`
	At        time.Time    `json:"at"` // zero: filled in when it is recorded
	Detail    string       `json:"detail,omitempty"`
	Survivors []Process    `json:"survivors,omitempty"`
	Spared    []Process    `json:"spared,omitempty"`
	Remote    []string     `json:"remote,omitempty"` // remote connections that the dead processes held

	// Open says that the ladder must go on in spite of this evidence: an
	// error reply that may come from a server whose worker runs on (MCP-G33),
	// or a result while processes born during the call are alive.
	Open bool `json:"open,omitempty"`
}

// verdict is what this piece of evidence alone justifies saying; "" if nothing.
func (e *Evidence) verdict() Verdict {
	switch e.Kind {
	case SeenNotStarted:
		return Confirmed
	case SeenProcessGone, SeenHandlerReturned, SeenInterrupted, SeenHookGone:
		if e.Scope == ScopeRemote || len(e.Survivors) > 0 {
			return Signalled
		}
		return Confirmed
	case SeenResult, SeenErrorReply, SeenTaskCancelled:
		return Acknowledged
	}
	return ""
}

// ends reports whether the ladder has nothing left to do after e.
func (e *Evidence) ends() bool {
	if e.Open {
		return false
	}
	switch e.Kind {
	case SeenNotStarted, SeenProcessGone, SeenHandlerReturned, SeenInterrupted, SeenHookGone, SeenResult, SeenTaskCancelled, SeenErrorReply:
		return len(e.Survivors) == 0
	}
	return false
}

// Ladder holds the times of stopping, each counted as its comment says. The
// zero value of a field means its default (DESIGN, names and numbers).
type Ladder struct {
	Grace        time.Duration // from the Stop to the first force; default 2 s
	KillAfter    time.Duration // from the first force to the kill; default 3 s
	ConfirmAfter time.Duration // from the Stop to giving up; default 10 s, at least Grace + KillAfter + 2 s; never less than 2 s after the last step
}

// The default times of a [Ladder].
const (
	DefaultGrace        = 2 * time.Second
	DefaultKillAfter    = 3 * time.Second
	DefaultConfirmAfter = 10 * time.Second
	confirmMargin       = 2 * time.Second
)

// WithDefaults fills in the zero fields and holds ConfirmAfter above its floor.
func (l Ladder) WithDefaults() Ladder {
	if l.Grace <= 0 {
		l.Grace = DefaultGrace
	}
	if l.KillAfter <= 0 {
		l.KillAfter = DefaultKillAfter
	}
	if l.ConfirmAfter <= 0 {
		l.ConfirmAfter = DefaultConfirmAfter
	}
	l.ConfirmAfter = max(l.ConfirmAfter, l.Grace+l.KillAfter+confirmMargin)
	return l
}
