package supervise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
)

// Options says how a [Stopper] goes about it. Its zero value tells nobody and
// takes half a second between the leader and its descendants.
type Options struct {
	// Select is the part of the tree that is meant; the zero value is all.
	Select proc.Selection

	// Tell delivers the tool's own, polite cancel: see [Tree.Interrupt]. It
	// must not wait for an effect. Nil: nobody is told.
	Tell func(ctx context.Context, c *belay.Cancellation) error

	// Told says what Tell does, for --dry-run.
	Told string

	// Half is the time between SIGTERM to the leader and SIGTERM to its
	// descendants: half a grace period. Zero: 1 s. Negative: none.
	Half time.Duration

	// KillAfter is the run's ladder's, for what [Stopper.Plan] says.
	// Zero: the default of belay.Ladder.
	KillAfter time.Duration
}

// Stopper stops one run by ending processes. It implements belay.Stopper,
// Terminator, Killer and Planner. It is made for one run.
type Stopper struct {
	tree *Tree
	o    Options

	mu         sync.Mutex
	terminated time.Time // when Terminate began; zero if it did not
	asking     bool      // Terminate is at work
	killing    bool      // Kill is at work
	proven     bool      // an end was returned as evidence: it is said once
}

var (
	_ belay.Stopper    = (*Stopper)(nil)
	_ belay.Terminator = (*Stopper)(nil)
	_ belay.Killer     = (*Stopper)(nil)
	_ belay.Planner    = (*Stopper)(nil)
)

// Stopper returns a stopper for one run.
func (t *Tree) Stopper(o Options) *Stopper {
	switch {
	case o.Half == 0:
		o.Half = belay.DefaultGrace / 2
	case o.Half < 0:
		o.Half = 0
	}
	if o.KillAfter <= 0 {
		o.KillAfter = belay.DefaultKillAfter
	}
	return &Stopper{tree: t, o: o}
}

// Interrupt sends SIGINT to the leader's process group, as Ctrl-C does: the
// polite cancel of a command line tool. It fits [Options].Tell.
func (t *Tree) Interrupt(context.Context, *belay.Cancellation) error {
	if err := t.interrupt(); err != nil && !errors.Is(err, proc.ErrExited) {
		return err
	}
	return nil
}

// Tell implements belay.Stopper.
func (s *Stopper) Tell(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	if s.o.Tell == nil {
		return nil, nil
	}
	return nil, s.o.Tell(ctx, c)
}

// Terminate implements belay.Terminator. It returns when the processes are
// gone or the ladder is over.
func (s *Stopper) Terminate(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	s.mu.Lock()
	s.terminated, s.asking = time.Now(), true
	s.mu.Unlock()
	e, err := s.tree.Terminate(ctx, s.o.Select, s.o.Half)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
	if err != nil {
		s.terminated = time.Time{} // nobody was asked to clean up
	}
	if s.killing {
		return nil, err // who kills has more to say
	}
	return s.onceLocked(e), err
}

// Kill implements belay.Killer.
func (s *Stopper) Kill(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	e := s.letCleanUp(ctx)
	var err error
	if e == nil {
		s.mu.Lock()
		s.killing = true
		s.mu.Unlock()
		e, err = s.tree.Kill(ctx, s.o.Select)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killing = false
	return s.onceLocked(e), err
}

// letCleanUp waits out the ten seconds of a slow tool that was found inside
// the tree, unless a person presses. It returns evidence if the tree ended by itself
// meanwhile.
func (s *Stopper) letCleanUp(ctx context.Context) *belay.Evidence {
	s.mu.Lock()
	since := s.terminated
	s.mu.Unlock()
	ctx = belay.Patience(ctx)
	if since.IsZero() || ctx.Err() != nil || s.tree.Signs().Slow == "" {
		return nil
	}
	left := time.Until(since.Add(SlowKillAfter))
	if left <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, left, errCleanedUp)
	defer cancel()
	return s.tree.Await(ctx, s.o.Select)
}

var errCleanedUp = errors.New("the time to clean up is over")

// onceLocked lets the end through one time: Terminate and Kill both see it.
func (s *Stopper) onceLocked(e *belay.Evidence) *belay.Evidence {
	if e == nil || e.Kind != belay.SeenProcessGone {
		return e
	}
	if s.proven {
		return nil
	}
	s.proven = true
	return e
}

// Seen takes evidence from elsewhere ([Tree.Await]) and returns it if it says
// something new; nil while Terminate or Kill is at work, which will say the
// same with the means.
func (s *Stopper) Seen(e *belay.Evidence) *belay.Evidence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking || s.killing {
		return nil
	}
	return s.onceLocked(e)
}

// Plan implements belay.Planner.
func (s *Stopper) Plan(context.Context) belay.Plan {
	p := s.tree.Plan(s.o.Select)
	p.Tell = s.o.Told
	if p.Tell == "" {
		p.Tell = "nobody: there is no polite way"
	}
	signs := s.tree.Look()
	killAfter := s.o.KillAfter
	if signs.Slow != "" {
		killAfter = max(killAfter, SlowKillAfter)
	}
	force := []string{fmt.Sprintf("SIGTERM to the leader, %v later to its descendants, SIGKILL %v after the first", s.o.Half, killAfter)}
	if signs.Slow != "" {
		force = append(force, "time to clean up for "+signs.Slow)
	}
	if why := signs.elsewhere(); why != "" {
		force = append(force, "which would prove nothing about the work itself: "+why)
	}
	p.Force = strings.Join(force, "; ")
	return p
}
