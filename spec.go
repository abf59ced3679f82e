package belay

import (
	"fmt"
	"maps"
	"time"
)

// Bounds of what a caller may give a run.
const (
	maxName   = 256
	maxLabels = 32
)

// Spec describes a run to be registered. Only Kind and Name are required.
type Spec struct {
	Kind    Kind
	Name    string            // for people: the tool, the command
	Server  string            // who does the work, for people and for filters
	Owner   string            // the principal on whose behalf it runs
	Address string            // how the protocol names it, for people
	Labels  map[string]string // copied; at most 32, each key and value at most 256 bytes

	Parent   *Run      // the run above, in the same tree
	ParentID RunID     // the run above when another process holds it; ignored with Parent
	Deadline time.Time // cancelled with CauseDeadline then, later by the time in which a person was asked; zero: none
	Queued   bool      // register as Waiting; Start makes it Running

	// Deferred says that the caller's answer comes after the Stop, and from the work
	// itself where that is in time (an agent's prompt). A Stop then leaves the outcome
	// pending until [Run.Settle] or [Run.Finish] says what the caller was told, at the
	// latest until the ladder has ended: then it is Cancelled.
	Deferred bool

	Stopper Stopper // nil: the run is stopped by the end of its context alone
	Ladder  Ladder

	// OnCancel settles the caller. It is called at most once, without any
	// lock, after the outcome became Cancelled (with Deferred: after the Stop was
	// accepted) and before the backend is told; never if the caller had been settled
	// before. It must not block. Nil:
	// nobody is waiting for an answer.
	OnCancel func(*Run, *Cancellation)
}

func (s *Spec) check() error {
	if s.Kind == "" || s.Name == "" {
		return fmt.Errorf("%w: a run needs a kind and a name (got kind %q, name %.64q)", ErrBadRequest, s.Kind, s.Name)
	}
	if len(s.Labels) > maxLabels {
		return fmt.Errorf("%w: %d labels, at most %d are kept", ErrBadRequest, len(s.Labels), maxLabels)
	}
	for k, v := range s.Labels {
		if k == "" || len(k) > maxName || len(v) > maxName {
			return fmt.Errorf("%w: label %.64q=%.64q (keys have 1 to %d bytes, values at most %d)", ErrBadRequest, k, v, maxName, maxName)
		}
	}
	return nil
}

// own bounds and copies what the caller gave, so that nothing of it changes
// or grows under the tree's hands.
func (s *Spec) own() {
	s.Name, s.Server = clean(s.Name, maxName), clean(s.Server, maxName)
	s.Owner, s.Address = clean(s.Owner, maxName), clean(s.Address, maxName)
	if len(s.Labels) > 0 {
		s.Labels = maps.Clone(s.Labels)
	}
	if s.Parent != nil {
		s.ParentID, s.Parent = s.Parent.id, nil // the link is the run's, and ends before the spec does
	}
}
